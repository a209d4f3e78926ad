"""The catalog's own schema, step by step.

Each step runs and is recorded in one database transaction, so a crash leaves the catalog before the step or after it.
A catalog that has steps this release does not know is refused: it was written by a newer release.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    FromClause,
    Table,
    and_,
    bindparam,
    case,
    insert,
    inspect,
    null,
    select,
    text,
    update,
)
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.schema import CreateColumn

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import cdc, history, jobs, reads, rows, schema, schema_access
from ebla.catalog.forks import fork
from ebla.errors import CatalogError
from ebla.model.lifecycle.view import ViewState, behind
from ebla.model.relation import Kind
from ebla.model.tablets import TokenRange, token_range
from ebla.model.work import WorkKind

FORMAT = "ebla"

NAMESPACE = "ebla"
"""The PostgreSQL schema that holds the catalog unless its address names one; it can share a database with others."""
SCHEMA_OPTION = "ebla_schema"
"""The option of a PostgreSQL connection that says which schema has the tables."""


COUNTERS = ("version", "exclusive_version", "relation", "transaction", "shape", history.COUNTER, jobs.COUNTER)

UNKNOWN_CODE = "UNKNOWN"
"""The code of a failure of which an older release kept the message alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    number: int
    name: str
    run: Callable[[Connection], None]


def _create_tables(connection: Connection) -> None:
    schema.metadata.create_all(connection)
    connection.execute(
        insert(schema.meta),
        [{"key": "format", "value": FORMAT}, {"key": "cluster_id", "value": str(uuid.uuid4())}],
    )
    connection.execute(
        insert(schema.counters),
        [{"name": name, "value": 0} for name in COUNTERS],
    )


def _add_handlers(connection: Connection) -> None:
    """Tables that a catalog created by this release has already."""
    _create_missing(connection, schema.mv_handlers, schema.mv_dictionary_changes)


def _create_missing(connection: Connection, *tables: Table) -> None:
    """As `create_all`, which does not know that tables of jobs may have other names."""
    there = set(inspect(connection).get_table_names(schema=namespace(connection)))
    for table in tables:
        if schema.name_of(connection, table) not in there:
            table.create(connection, checkfirst=False)


def _add_building(connection: Connection) -> None:
    new = [schema.view_building_tasks, schema.view_builds, schema.view_building_segments, schema.built_views]
    schema.metadata.create_all(connection, tables=new)


def _add_indexes(connection: Connection) -> None:
    schema.metadata.create_all(connection, tables=[schema.index_states])


def _add_pace(connection: Connection) -> None:
    _add_columns(connection, schema.view_builds.c.concurrency, schema.view_builds.c.on_hold)


def _add_columns(connection: Connection, *columns: Column[Any]) -> None:
    """Columns that a catalog created by this release has already."""
    for column in columns:
        if column.name not in _column_names(connection, column.table):
            clause = CreateColumn(column).compile(dialect=connection.dialect)
            name = connection.dialect.identifier_preparer.quote(column.table.description)
            connection.execute(text(f"ALTER TABLE {name} ADD COLUMN {clause}"))


def _column_names(connection: Connection, table: FromClause) -> set[str]:
    found = inspect(connection).get_columns(schema.name_of(connection, table), schema=namespace(connection))
    return {column["name"] for column in found}


def _add_service(connection: Connection) -> None:
    schema.metadata.create_all(connection, tables=[schema.troubles, schema.processes])


def _add_commit_ids(connection: Connection) -> None:
    _add_columns(connection, schema.history.c.commit_id)
    schema.history_by_commit.create(connection, checkfirst=True)


def _add_defaults(connection: Connection) -> None:
    _add_columns(connection, schema.columns.c.default_text, schema.columns.c.default_value)


def _count_shapes(connection: Connection) -> None:
    _add_counter(connection, "shape")


def _add_counter(connection: Connection, name: str) -> None:
    """A catalog created by this release has it already."""
    if name not in set(connection.execute(select(schema.counters.c.name)).scalars()):
        connection.execute(insert(schema.counters), {"name": name, "value": 0})


def _store_view_states(connection: Connection) -> None:
    """Until now a position said whether its view had failed and why, and two tables which views were built.

    Nothing but the message was kept of a failure: its code is unknown, and its time that of the commit that stored it.
    """
    schema.metadata.create_all(connection, tables=[schema.view_states])
    _add_columns(connection, schema.troubles.c.culprit_relation)
    numbers, building, built = (
        set(connection.execute(select(table.c.view_id)).scalars())
        for table in (schema.view_states, schema.view_builds, schema.built_views)
    )
    positions = {row.name: row for row in connection.execute(select(schema.progress))}
    relations = schema.relations
    living = (relations.c.kind == Kind.VIEW.value, relations.c.dropped_version.is_(None))
    for view in connection.execute(select(relations.c.relation_id, relations.c.created_version).where(*living)).all():
        number = view.relation_id
        if number in numbers:
            continue
        stored = positions.get(f"view/{number}")
        position = {} if stored is None else reads.options_of(stored.value)
        if stored is not None and position.get("applied_version", 0) > 0 and number not in building | built:
            connection.execute(insert(schema.built_views), {"view_id": number, "built_version": stored.version})
            built.add(number)
        failed = position.pop("status", None) == "failed"
        message = position.pop("message", None)
        state = behind(ViewState.READY if number in built else ViewState.BUILDING, failed=failed)
        since = view.created_version if stored is None else stored.version
        values = {"view_id": number, "state": state.value, "since_version": since}
        if failed:
            committed = select(schema.history.c.committed_at).where(schema.history.c.version == since)
            failed_at = connection.execute(committed).scalar() or 0
            values |= {"code": UNKNOWN_CODE, "message": message or "", "failed_at": failed_at}
        connection.execute(insert(schema.view_states), values)
        if position:
            this = update(schema.progress).where(schema.progress.c.name == f"view/{number}")
            connection.execute(this.values(value=json.dumps(position, sort_keys=True)))


def _add_dependencies(connection: Connection) -> None:
    """What views read stood in their options. One whose options are damaged has nothing that could be moved."""
    schema.metadata.create_all(connection, tables=[schema.dependencies])
    relations, table = schema.relations, schema.dependencies
    living = select(relations.c.relation_id, relations.c.options).where(relations.c.dropped_version.is_(None))
    there = {tuple(row) for row in connection.execute(select(table.c.relation_id, table.c.input_id))}
    read = {
        (row.relation_id, int(number))
        for row in connection.execute(living)
        for number in reads.options_of(row.options).get("inputs", ())
    }
    new = [{"relation_id": relation, "input_id": number} for relation, number in sorted(read - there)]
    if new:
        connection.execute(insert(table), new)


def _add_guards(connection: Connection) -> None:
    schema.metadata.create_all(connection, tables=[schema.guards])


def _key_by_tokens(connection: Connection) -> None:
    """Runs, folds, segments and tasks named tablets of the one map that a relation had; now they name tokens."""
    runs, tasks, relations = schema.runs, schema.view_building_tasks, schema.relations
    named = "tablet_id" in _column_names(connection, runs)
    schema.metadata.create_all(connection, tables=[schema.tablet_maps])
    _add_columns(connection, relations.c.map_version, runs.c.fork, tasks.c.token_min, tasks.c.token_max)
    if not named:
        return
    found = connection.execute(select(relations.c.relation_id, relations.c.tablets, relations.c.created_version)).all()
    maps = [{"relation_id": r.relation_id, "begin_version": r.created_version, "tablets": r.tablets} for r in found]
    if maps:
        connection.execute(insert(schema.tablet_maps), maps)
    connection.execute(update(relations).values(map_version=relations.c.created_version))
    tablets = {r.relation_id: r.tablets for r in found}
    _key_runs(connection, tablets)
    of_base = {r.view_id: tablets.get(r.base_id, 1) for r in connection.execute(select(schema.view_builds))}
    _rebuild(connection, schema.folds, "tablet_id", lambda row: tablets.get(row["relation_id"], 1))
    _rebuild(connection, schema.view_building_segments, "base_tablet_id", lambda row: of_base.get(row["view_id"], 1))
    for task in connection.execute(select(tasks.c.id, tasks.c.base_id, tasks.c.base_tablet_id)).all():
        first, last = token_range(task.base_tablet_id, tablets.get(task.base_id, 1))
        connection.execute(update(tasks).where(tasks.c.id == task.id).values(token_min=first, token_max=last))


def _key_runs(connection: Connection, tablets: Mapping[int, int]) -> None:
    runs = schema.runs
    keyed = []
    for row in connection.execute(
        text("SELECT run_id, host_id, relation_id, tablet_id, token_min, token_max FROM runs")
    ):
        tokens = TokenRange(row.token_min, row.token_max)
        if row.tablet_id >= 0:
            tablet = token_range(row.tablet_id, tablets.get(row.relation_id, 1))
            tokens = tokens if tablet.holds(tokens) else tablet
        keyed.append({"run": row.run_id, "host": row.host_id, "low": tokens[0], "high": tokens[1], "at": fork(tokens)})
    connection.execute(text("DROP INDEX IF EXISTS runs_of_tablet"))
    connection.execute(text("ALTER TABLE runs DROP COLUMN tablet_id"))
    if keyed:
        this = (runs.c.run_id == bindparam("run"), runs.c.host_id == bindparam("host"))
        after = update(runs).where(*this)
        after = after.values(token_min=bindparam("low"), token_max=bindparam("high"), fork=bindparam("at"))
        connection.execute(after, keyed)
    schema.runs_by_fork.create(connection, checkfirst=True)


def _rebuild(connection: Connection, table: Table, tablet: str, tablets: Callable[[Mapping[str, Any]], int]) -> None:
    """A table whose key has another shape: its rows with the tokens of the tablet that each one named."""
    rows = [dict(row) for row in connection.execute(text(f"SELECT * FROM {table.name}")).mappings()]
    for row in rows:
        row["token_min"], row["token_max"] = token_range(row.pop(tablet), tablets(row))
    table.drop(connection)
    table.create(connection)
    if rows:
        connection.execute(insert(table), rows)


def _trim_history(connection: Connection) -> None:
    _add_counter(connection, history.COUNTER)


def _add_merged_runs(connection: Connection) -> None:
    _add_columns(connection, schema.runs.c.newest_version)


def _add_topology(connection: Connection) -> None:
    nodes, state = schema.topology, schema.topology_state
    _add_columns(connection, nodes.c.name, nodes.c.address, nodes.c.features, schema.processes.c.seen_version)
    connection.execute(update(nodes).where(nodes.c.name.is_(None)).values(name=nodes.c.host_id))
    schema.metadata.create_all(
        connection,
        tables=[
            state,
            schema.topology_requests,
            schema.tablet_transitions,
            schema.tablet_resizes,
            schema.resize_reports,
            schema.cdc_generations,
            schema.cdc_streams,
        ],
    )
    if connection.execute(select(state.c.key)).first() is None:
        connection.execute(insert(state), {"key": "topology", "topology_version": 0, "balancing": True})


def _add_hosts(connection: Connection) -> None:
    _add_columns(connection, schema.processes.c.hosts)


def _add_spread(connection: Connection) -> None:
    _add_columns(connection, schema.runs.c.spread)


def _add_generations(connection: Connection) -> None:
    """Each tablet map that a relation has had is a generation of its change streams."""
    maps, relations = schema.tablet_maps, schema.relations
    kinds = (Kind.TABLE.value, Kind.VIEW.value)
    living = and_(relations.c.dropped_version.is_(None), relations.c.kind.in_(kinds))
    there = {(row.relation_id, row.begin_version) for row in connection.execute(select(schema.cdc_generations))}
    found = select(maps).join(relations, relations.c.relation_id == maps.c.relation_id).where(living)
    times = dict(connection.execute(select(schema.history.c.version, schema.history.c.committed_at)).all())
    for row in connection.execute(found).all():
        if (row.relation_id, row.begin_version) not in there:
            begun = Version(row.begin_version)
            at = times.get(begun, 0)
            for change in cdc.begin(RelationId(row.relation_id), row.tablets, begun, at, published=True):
                rows.write(connection, change)


def _add_jobs(connection: Connection) -> None:
    _create_missing(connection, schema.mv_runners, schema.mv_runner_jobs, schema.mv_commands)
    _add_counter(connection, jobs.COUNTER)


def _add_access(connection: Connection) -> None:
    new = [schema_access.users, schema_access.grants, schema_access.audit]
    schema.metadata.create_all(connection, tables=new)


def _add_machines(connection: Connection) -> None:
    processes = schema.processes.c
    _add_columns(connection, processes.load_1m, processes.cores, processes.disks)


def _type_work(connection: Connection) -> None:
    """Until now the reason of a commit or a transaction said what it was for."""
    commits, transactions = schema.history, schema.transactions
    _add_columns(connection, commits.c.work, transactions.c.work)
    write = WorkKind.WRITE.value
    unnamed = case((commits.c.transaction_id.is_not(None), write), else_=null())
    kinds = ((commits.c.reason.like(pattern), kind.value) for pattern, kind in OLDER_REASONS)
    connection.execute(update(commits).where(commits.c.work.is_(None)).values(work=case(*kinds, else_=unnamed)))
    older = {"build of %": WorkKind.CHUNK}  # a transaction of a build brings rows
    kinds = ((transactions.c.reason.like(pattern), older.get(pattern, kind).value) for pattern, kind in OLDER_REASONS)
    connection.execute(update(transactions).where(transactions.c.work.is_(None)).values(work=case(*kinds, else_=write)))


OLDER_REASONS: tuple[tuple[str, WorkKind], ...] = (
    ("compact %", WorkKind.COMPACTION),
    ("copy %", WorkKind.COPY),
    ("fill index %", WorkKind.INDEX_FILL),
    ("epoch of % failed", WorkKind.EPOCH_FAILURE),
    ("build of % failed", WorkKind.BUILD_FAILURE),
    ("build of % rows read, %", WorkKind.CHUNK),
    ("epoch of %", WorkKind.EPOCH),
    ("refresh of %", WorkKind.EPOCH),
    ("build of %", WorkKind.BUILD),
    ("% is built", WorkKind.BUILD),
    ("create materialized view %", WorkKind.BUILD),
    ("replace materialized view %", WorkKind.BUILD),
    ("drop materialized view %", WorkKind.BUILD),
    ("create index %", WorkKind.BUILD),
    ("drop index %", WorkKind.BUILD),
    ("index % -> %", WorkKind.BUILD),
)
"""What older releases said, the first that fits. All others of transactions are writes."""


MIGRATIONS: tuple[Migration, ...] = (
    Migration(number=1, name="create tables", run=_create_tables),
    Migration(number=2, name="add handlers", run=_add_handlers),
    Migration(number=3, name="add online building", run=_add_building),
    Migration(number=4, name="add indexes", run=_add_indexes),
    Migration(number=5, name="add concurrency and pauses of builds", run=_add_pace),
    Migration(number=6, name="add troubles and processes", run=_add_service),
    Migration(number=7, name="add commit ids", run=_add_commit_ids),
    Migration(number=8, name="add defaults of columns", run=_add_defaults),
    Migration(number=9, name="count changes of shape", run=_count_shapes),
    Migration(number=10, name="store states of views", run=_store_view_states),
    Migration(number=11, name="add dependencies of relations", run=_add_dependencies),
    Migration(number=12, name="add guards of scopes", run=_add_guards),
    Migration(number=13, name="key by tokens", run=_key_by_tokens),
    Migration(number=14, name="count from where the history is complete", run=_trim_history),
    Migration(number=15, name="add merged level 0 runs", run=_add_merged_runs),
    Migration(number=16, name="add the topology", run=_add_topology),
    Migration(number=17, name="keep which nodes a process has", run=_add_hosts),
    Migration(number=18, name="keep which tablets a run has rows of", run=_add_spread),
    Migration(number=19, name="add generations of change streams", run=_add_generations),
    Migration(number=20, name="add runners, their jobs and commands", run=_add_jobs),
    Migration(number=21, name="add users, grants and the audit log", run=_add_access),
    Migration(number=22, name="keep the load and the disks of processes", run=_add_machines),
    Migration(number=23, name="keep what commits and transactions are for", run=_type_work),
)


def namespace(connection: Connection) -> str | None:
    """Where the tables are: a schema of its own in PostgreSQL, the one database file in SQLite."""
    return connection.get_execution_options().get(SCHEMA_OPTION)


def is_empty(connection: Connection) -> bool:
    return not inspect(connection).get_table_names(schema=namespace(connection))


def require_ebla(connection: Connection, where: str) -> Mapping[str, str]:
    """Refuse a database that some other program owns; returns what `meta` says of its shape."""
    names = set(inspect(connection).get_table_names(schema=namespace(connection)))
    found: dict[str, str] = {}
    if {schema.meta.name, schema.migrations.name} <= names:
        # Another program may use these names too; then the columns are not there, or hold something else.
        with contextlib.suppress(OperationalError, ProgrammingError):
            keys = ("format", schema.JOB_TABLES)
            said = connection.execute(select(schema.meta).where(schema.meta.c.key.in_(keys)))
            found = {row.key: row.value for row in said}
    if found.get("format") != FORMAT:
        raise CatalogError(
            f"{where}: expected an Ebla catalog, found a database with tables {sorted(names)[:5]}; "
            "connect to another place, or create the catalog in an empty one"
        )
    return found


def refuse_newer(newest: int | None, where: str) -> None:
    """Refuse a catalog that a newer release has written."""
    last = MIGRATIONS[-1].number
    if newest is not None and newest > last:
        raise CatalogError(
            f"{where}: expected a catalog of schema {last} or older, found {newest}; "
            "it was written by a newer release of Ebla: upgrade this one"
        )


def migrate(connection: Connection, now: int, where: str) -> int:
    """Bring the catalog to this release's schema inside the caller's transaction; return how many steps ran."""
    applied: set[int] = set()
    if not is_empty(connection):
        require_ebla(connection, where)
        applied = set(connection.execute(select(schema.migrations.c.number)).scalars())
    refuse_newer(max(applied, default=None), where)
    pending = [m for m in MIGRATIONS if m.number not in applied]
    for step in pending:
        step.run(connection)
        hit("catalog.migrate.step_run")
        connection.execute(insert(schema.migrations), {"number": step.number, "name": step.name, "applied_at": now})
    hit("catalog.migrate.before_commit")
    return len(pending)
