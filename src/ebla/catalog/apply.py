"""How requirements are checked and updates are written, inside one database transaction.

Nothing here decides. Each function is one case of the values in `changes`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any, assert_never

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, exists, func, insert, select, update

from ebla.base.ids import NodeId, RelationId, RunId, TabletId, TransactionId, Version
from ebla.catalog import building, indexing, memory
from ebla.catalog import schema as s
from ebla.catalog.reads import newest_write
from ebla.errors import ConflictError, DuplicateNameError, StaleTermError, TransactionClosedError, UnknownNameError
from ebla.model import changes as c
from ebla.model.index_states import Permission
from ebla.model.relation import FOREVER, SPANS_TABLETS, Column, Run, RunState

CHUNK = 500
"""Values in one `IN (…)`; both databases allow more, but plans stay small."""

ROW_KEY_CHARS = 256


def called(connection: Connection, relation: RelationId) -> str:
    """A relation's name, for messages."""
    query = select(s.relations.c.name).where(s.relations.c.relation_id == relation)
    return str(connection.execute(query).scalar() or f"relation {relation}")


def chunks(values: Iterable[RunId]) -> Iterable[list[RunId]]:
    ordered = sorted(values)
    return (ordered[i : i + CHUNK] for i in range(0, len(ordered), CHUNK))


# ---- requirements ---------------------------------------------------------------------------------------


def check(connection: Connection, requirement: c.Requirement, now: int) -> None:
    match requirement:
        case c.ExclusiveVersionIs(version=expected):
            found = memory.counters(connection)["exclusive_version"]
            if found != expected:
                raise ConflictError(
                    f"schema and topology: expected version {expected}, found {found}; reload and retry"
                )
        case c.TransactionOpen(transaction=transaction):
            _check_transaction(connection, transaction, now)
        case c.SchemaWithinOne(relation=relation, schema_version=planned):
            found = int(_living(connection, relation).schema_version)
            if found - planned > 1:
                raise ConflictError(
                    f"{called(connection, relation)}: expected schema {planned} or {planned + 1}, found {found}; "
                    "the write was planned too long ago: retry it"
                )
        case c.PlacementIs(relation=relation, placement_version=planned):
            found = int(_living(connection, relation).placement_version)
            if found != planned:
                raise ConflictError(
                    f"{called(connection, relation)}: expected placement {planned}, found {found}; "
                    "its replicas moved during the write: retry it"
                )
        case c.SessionOpen(session=session):
            row = connection.execute(
                select(s.sessions.c.closed_version).where(s.sessions.c.session_id == session)
            ).one_or_none()
            if row is None or row.closed_version is not None:
                raise TransactionClosedError(f"session {session}: expected open, found closed")
        case c.ProgressIs(name=name, value=expected_value):
            value = connection.execute(select(s.progress.c.value).where(s.progress.c.name == name)).scalar()
            if value != expected_value:
                raise ConflictError(f"progress of {name}: expected {expected_value!r}, found {value!r}")
        case c.TermIs():
            _check_term(connection, requirement, now)
        case c.NoWritesSince(relation=relation, version=version):
            newest = newest_write(connection, relation)
            if newest > version:
                raise ConflictError(
                    f"{called(connection, relation)}: expected no write after version {version}, found one at {newest}"
                )
        case c.RunsLive(relation=relation, runs=runs):
            live = _count_live(connection, relation, runs)
            if live != len(runs):
                raise ConflictError(
                    f"{called(connection, relation)}: expected {len(runs)} visible runs, found {live}; "
                    "another compaction came first"
                )
        case c.RunsStaged(relation=relation, runs=runs):
            staged = _count_live(connection, relation, runs, s.runs.c.state == RunState.STAGING.value)
            if staged != len(runs):
                raise ConflictError(
                    f"{called(connection, relation)}: expected {len(runs)} staged runs, found {staged}; "
                    "another worker or a truncation came first: look again"
                )
        case c.NobodyReadsBelow(version=version):
            needed = oldest_needed(connection, now)
            if needed is not None and needed < version:
                raise ConflictError(f"expected no reader below version {version}, found one at {needed}")
        case c.CutoffIs(relation=relation, tablet=tablet, cutoff=expected):
            found = current_cutoff(connection, relation, tablet)
            if found != expected:
                raise ConflictError(
                    f"{called(connection, relation)} tablet {tablet}: expected cutoff {expected}, found {found}"
                )
        case c.TasksOpen() | c.SegmentsBegin() | c.NothingLeftToBuild():
            building.check(connection, requirement)
        case c.IndexesFollow() | c.IndexIs():
            indexing.check(connection, requirement)
        case _:
            assert_never(requirement)


def _count_live(
    connection: Connection, relation: RelationId, runs: frozenset[RunId], *also: ColumnElement[bool]
) -> int:
    count = 0
    for part in chunks(runs):
        live = (s.runs.c.relation_id == relation, s.runs.c.run_id.in_(part), s.runs.c.end_version == FOREVER)
        count += connection.execute(select(func.count(func.distinct(s.runs.c.run_id))).where(*live, *also)).scalar_one()
    return count


def _check_transaction(connection: Connection, transaction: int, now: int) -> None:
    row = connection.execute(
        select(s.transactions.c.state, s.transactions.c.expires_at).where(
            s.transactions.c.transaction_id == transaction
        )
    ).one_or_none()
    state = "unknown" if row is None else row.state
    if row is not None and state == "open" and row.expires_at <= now:
        state = "expired"
    if state != "open":
        raise TransactionClosedError(
            f"transaction {transaction}: expected open, found {state}; nothing of it was written: retry it"
        )


def _check_term(connection: Connection, wanted: c.TermIs, now: int) -> None:
    row = connection.execute(select(s.leases).where(s.leases.c.name == wanted.lease)).one_or_none()
    held = row is not None and row.holder == wanted.holder and row.term == wanted.term and row.expires_at > now
    if not held:
        found = "no leader" if row is None else f"term {row.term} of {row.holder}"
        if row is not None and row.expires_at <= now:
            found += ", which has run out"
        raise StaleTermError(f"{wanted.lease}: expected term {wanted.term} of {wanted.holder}, found {found}")


def _living(connection: Connection, relation: RelationId) -> Row[Any, Any, Any]:
    """The schema and placement of a relation that is not dropped."""
    table = s.relations.c
    query = select(table.schema_version, table.placement_version, table.dropped_version)
    row = memory.remembered(
        connection,
        ("living", relation),
        lambda: connection.execute(query.where(table.relation_id == relation)).one_or_none(),
    )
    if row is None or row.dropped_version is not None:
        raise UnknownNameError(
            f"{called(connection, relation)}: expected to be there, found dropped; nothing was written"
        )
    return row


def oldest_needed(connection: Connection, now: int) -> Version | None:
    """The oldest version that a living pin or an open transaction may still read."""
    pinned = connection.execute(select(func.min(s.pins.c.version)).where(s.pins.c.expires_at > now)).scalar()
    reading = connection.execute(
        select(func.min(s.transactions.c.snapshot_version)).where(
            s.transactions.c.state == "open", s.transactions.c.expires_at > now
        )
    ).scalar()
    needed = [Version(v) for v in (pinned, reading) if v is not None]
    return min(needed, default=None)


def current_cutoff(connection: Connection, relation: RelationId, tablet: TabletId) -> Version:
    found = connection.execute(
        select(func.max(s.folds.c.cutoff)).where(s.folds.c.relation_id == relation, s.folds.c.tablet_id == tablet)
    ).scalar()
    return Version(found or 0)


# ---- updates --------------------------------------------------------------------------------------------


def apply(
    connection: Connection, change: c.Update, version: Version, now: int, created: RelationId | None = None
) -> RelationId | None:
    """Write one update at this version; returns the identifier of a relation that was created.

    `created` is the relation that the same commit has created before.
    """
    match change:
        case c.CreateRelation():
            return _create_relation(connection, change, version)
        case c.AddRuns(runs=runs, level1_if_empty=bulk):
            _add_runs(connection, runs, version, bulk=bulk)
        case c.EndRuns(relation=relation, runs=runs_ended):
            live = and_(s.runs.c.relation_id == relation, s.runs.c.end_version == FOREVER)
            for part in chunks(runs_ended):
                connection.execute(update(s.runs).where(s.runs.c.run_id.in_(part), live).values(end_version=version))
        case c.SetCutoff(relation=relation, tablet=tablet, cutoff=cutoff):
            connection.execute(
                insert(s.folds),
                {"relation_id": relation, "tablet_id": tablet, "begin_version": version, "cutoff": cutoff},
            )
        case c.SetRunState(runs=runs_set, state=state):
            # What is in this state already keeps its version, and what has ended meanwhile never becomes visible.
            due = and_(s.runs.c.state != state.value, s.runs.c.end_version == FOREVER)
            for part in chunks(runs_set):
                connection.execute(
                    update(s.runs)
                    .where(s.runs.c.run_id.in_(part), due)
                    .values(state=state.value, begin_version=version)
                )
        case c.EndTransaction(transaction=transaction):
            _end_transaction(connection, transaction, version, now)
        case c.SetProgress(name=name, value=value):
            row = {"value": value, "version": version}
            if not connection.execute(update(s.progress).where(s.progress.c.name == name).values(row)).rowcount:
                connection.execute(insert(s.progress), {"name": name, **row})
        case c.PutNode():
            _put_node(connection, change, now)
        case c.OpenSession(session=session, purpose=purpose):
            connection.execute(
                insert(s.sessions), {"session_id": session, "purpose": purpose, "opened_version": version}
            )
        case c.CloseSession(session=session):
            connection.execute(
                update(s.sessions)
                .where(s.sessions.c.session_id == session, s.sessions.c.closed_version.is_(None))
                .values(closed_version=version)
            )
        case c.PutHandler(name=name, settings=settings, should_run=should_run):
            connection.execute(delete(s.mv_handlers).where(s.mv_handlers.c.job_name == name))
            row = {"job_name": name, "job_settings": settings, "should_run": should_run}
            connection.execute(insert(s.mv_handlers), row)
        case c.RemoveHandler(name=name):
            connection.execute(delete(s.mv_handlers).where(s.mv_handlers.c.job_name == name))
        case c.LogDictionaryChanges(changes=logged):
            _log_dictionary_changes(connection, logged)
        case c.ForgetDictionaryChanges(relation=relation, version=done):
            log = s.mv_dictionary_changes
            connection.execute(delete(log).where(log.c.relation_id == relation, log.c.version <= done))
        case (
            c.CreateBuild()
            | c.AlterBuild()
            | c.CreateTasks()
            | c.AbortTasks()
            | c.FinishTasks()
            | c.RemoveTasks()
            | c.CoverSegment()
            | c.ReplaceSegments()
            | c.ForgetSegments()
            | c.MarkBuilt()
            | c.SetProcessingBase()
        ):
            building.apply(connection, change, version, created)
        case c.CreateIndex():
            indexing.create(connection, change, version, created)
        case c.SetIndexState():
            indexing.advance(connection, change, version)
            if change.state is Permission.ABSENT:
                _alter_relation(connection, c.DropRelation(relation=change.index), version)
        case (
            c.DropRelation()
            | c.RenameRelation()
            | c.SetRelationComment()
            | c.SetColumns()
            | c.SetConstraints()
            | c.TruncateRelation()
            | c.SetHorizon()
            | c.SetPlacement()
        ):
            _alter_relation(connection, change, version)
        case _:
            assert_never(change)
    return None


def _end_transaction(connection: Connection, transaction: TransactionId, version: Version, now: int) -> None:
    """An open transaction is committed; any other is refused, as by `TransactionOpen`."""
    mine = s.transactions.c.transaction_id == transaction
    still_open = and_(mine, s.transactions.c.state == "open", s.transactions.c.expires_at > now)
    values = {"state": "committed", "ended_at": now, "committed_version": version}
    if not connection.execute(update(s.transactions).where(still_open).values(values)).rowcount:
        _check_transaction(connection, transaction, now)


def _alter_relation(
    connection: Connection,
    change: c.DropRelation
    | c.RenameRelation
    | c.SetRelationComment
    | c.SetColumns
    | c.SetConstraints
    | c.TruncateRelation
    | c.SetHorizon
    | c.SetPlacement,
    version: Version,
) -> None:
    relation = change.relation
    this = update(s.relations).where(s.relations.c.relation_id == relation)
    visible = and_(s.runs.c.relation_id == relation, s.runs.c.end_version == FOREVER)
    if not isinstance(change, c.SetHorizon):  # vacuum goes on where a relation was dropped
        _living(connection, relation)
    match change:
        case c.DropRelation():
            for index in indexing.forget(connection, relation):
                _alter_relation(connection, c.DropRelation(relation=index), version)
            connection.execute(this.values(dropped_version=version, horizon=version))
            connection.execute(update(s.runs).where(visible).values(end_version=version))
            building.forget(connection, relation)
            # Nothing of it is tried again; why it could not be built stays known.
            mine = and_(s.troubles.c.relation_id == relation, s.troubles.c.retry_at.is_not(None))
            connection.execute(delete(s.troubles).where(mine))
        case c.RenameRelation(name=name):
            _refuse_taken_name(connection, name, besides=relation)
            connection.execute(this.values(name=name, folded_name=s.folded(name)))
        case c.SetRelationComment(comment=comment):
            connection.execute(this.values(comment=comment))
        case c.SetColumns(columns=columns, outdates_writes=outdates):
            connection.execute(
                update(s.columns)
                .where(s.columns.c.relation_id == relation, s.columns.c.end_version == FOREVER)
                .values(end_version=version)
            )
            _insert_columns(connection, relation, columns, version)
            connection.execute(this.values(schema_version=s.relations.c.schema_version + (2 if outdates else 1)))
        case c.SetConstraints(constraints=constraints):
            kept = connection.execute(select(s.relations.c.options).where(s.relations.c.relation_id == relation))
            options = {**json.loads(kept.scalar_one()), "constraints": [asdict(one) for one in constraints]}
            connection.execute(
                this.values(
                    options=json.dumps(options, sort_keys=True), schema_version=s.relations.c.schema_version + 1
                )
            )
        case c.TruncateRelation():
            connection.execute(update(s.runs).where(visible).values(end_version=version))
            connection.execute(insert(s.truncations), {"relation_id": relation, "version": version})
            for index in indexing.truncate(connection, relation, version):
                _alter_relation(connection, c.TruncateRelation(relation=index), version)
        case c.SetHorizon(horizon=horizon):
            connection.execute(this.where(s.relations.c.horizon < horizon).values(horizon=horizon))
            connection.execute(delete(s.runs).where(s.runs.c.relation_id == relation, s.runs.c.end_version <= horizon))
            _forget_folds(connection, relation, horizon)
        case c.SetPlacement(placement=placement):
            connection.execute(delete(s.tablets).where(s.tablets.c.relation_id == relation))
            _insert_placement(connection, relation, placement)
            connection.execute(this.values(placement_version=s.relations.c.placement_version + 1))
        case _:
            assert_never(change)


def _forget_folds(connection: Connection, relation: RelationId, horizon: Version) -> None:
    """Of the folds up to the horizon only each tablet's last counts for a version that can still be read."""
    later = s.folds.alias("later")
    replaced = exists().where(
        later.c.relation_id == relation,
        later.c.tablet_id == s.folds.c.tablet_id,
        later.c.begin_version > s.folds.c.begin_version,
        later.c.begin_version <= horizon,
        later.c.cutoff >= s.folds.c.cutoff,
    )
    connection.execute(delete(s.folds).where(s.folds.c.relation_id == relation, replaced))


def _refuse_taken_name(connection: Connection, name: str, besides: RelationId | None = None) -> None:
    taken = select(s.relations.c.relation_id).where(
        s.relations.c.folded_name == s.folded(name), s.relations.c.dropped_version.is_(None)
    )
    found = connection.execute(taken).scalar()
    if found is not None and found != besides:
        raise DuplicateNameError(f"{name}: expected a free name, found a relation of that name; choose another")


def _create_relation(connection: Connection, new: c.CreateRelation, version: Version) -> RelationId:
    _refuse_taken_name(connection, new.name)
    relation = RelationId(memory.advance(connection, "relation")) if new.number is None else new.number
    connection.execute(
        insert(s.relations),
        {
            "relation_id": relation,
            "name": new.name,
            "folded_name": s.folded(new.name),
            "kind": new.kind.value,
            "tablets": new.tablets,
            "replication": new.replication,
            "schema_version": 1,
            "placement_version": 1,
            "horizon": version,
            "created_version": version,
            "comment": new.comment,
            "options": json.dumps(dict(new.options), sort_keys=True),
        },
    )
    _insert_columns(connection, relation, new.columns, version)
    _insert_placement(connection, relation, new.placement)
    _forget_failures(connection, new.name)
    return relation


def _forget_failures(connection: Connection, name: str) -> None:
    """Why an index of this name could not be built is of no interest once there is another relation of that name."""
    known = connection.execute(select(s.troubles.c.relation_id, s.troubles.c.name)).all()
    old = [row.relation_id for row in known if s.folded(row.name) == s.folded(name)]
    if old:
        connection.execute(delete(s.troubles).where(s.troubles.c.relation_id.in_(old)))


def _insert_columns(
    connection: Connection, relation: RelationId, columns: tuple[Column, ...], version: Version
) -> None:
    connection.execute(
        insert(s.columns),
        [
            {
                "relation_id": relation,
                "physical": column.physical,
                "begin_version": version,
                "end_version": FOREVER,
                "ordinal": ordinal,
                "name": column.name,
                "type": column.type,
                "nullable": column.nullable,
                "key_position": column.key_position,
                "hidden": column.hidden,
                "comment": column.comment,
                "default_text": None if column.default is None else column.default.text,
                "default_value": None if column.default is None else column.default.value,
            }
            for ordinal, column in enumerate(columns)
        ],
    )


def _insert_placement(connection: Connection, relation: RelationId, placement: tuple[tuple[NodeId, ...], ...]) -> None:
    connection.execute(
        insert(s.tablets),
        [
            {"relation_id": relation, "tablet_id": tablet, "host_id": node, "shard": 0, "ordinal": ordinal}
            for tablet, nodes in enumerate(placement)
            for ordinal, node in enumerate(nodes)
        ],
    )


def _add_runs(connection: Connection, runs: tuple[Run, ...], version: Version, *, bulk: bool) -> None:
    if bulk and runs:
        runs = _level1_where_empty(connection, runs)
    rows = [
        {
            "run_id": run.id,
            "host_id": node,
            "relation_id": run.relation,
            "level": run.level,
            "tablet_id": run.tablet,
            "token_min": run.token_min,
            "token_max": run.token_max,
            "key_min": run.key_min,
            "key_max": run.key_max,
            "row_count": run.rows,
            "tombstones": run.tombstones,
            "bytes": run.bytes,
            "path": run.path,
            "state": run.state.value,
            "source": run.source.value,
            "transaction_id": run.transaction,
            "schema_version": run.schema_version,
            "begin_version": version,
            "end_version": FOREVER,
        }
        for run in runs
        for node in run.nodes
    ]
    if rows:
        connection.execute(insert(s.runs), rows)


def _level1_where_empty(connection: Connection, runs: tuple[Run, ...]) -> tuple[Run, ...]:
    relations = sorted({run.relation for run in runs})
    occupied = {
        (relation, tablet)
        for relation, tablet in connection.execute(
            select(s.runs.c.relation_id, s.runs.c.tablet_id)
            .where(s.runs.c.relation_id.in_(relations), s.runs.c.end_version == FOREVER)
            .distinct()
        )
    }

    def level(run: Run) -> int:
        over_others = (run.relation, SPANS_TABLETS) in occupied or (run.relation, run.tablet) in occupied
        return 0 if over_others or run.tablet == SPANS_TABLETS else 1

    return tuple(replace(run, level=level(run)) for run in runs)


def _log_dictionary_changes(connection: Connection, changes: tuple[c.DictionaryChange, ...]) -> None:
    rows = [
        {
            "relation_id": one.relation,
            "version": one.version,
            "row_key": _short(one.key),
            "changed_columns": json.dumps(list(one.columns)),
        }
        for one in changes
    ]
    if rows:
        connection.execute(insert(s.mv_dictionary_changes), rows)


def _short(key: str) -> str:
    """A key that says which row it is; of a long one its beginning and a digest. PostgreSQL indexes no long texts."""
    if len(key) <= ROW_KEY_CHARS:
        return key
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return json.dumps({"begins": key[:ROW_KEY_CHARS], "digest": digest}, ensure_ascii=False)


def _put_node(connection: Connection, change: c.PutNode, now: int) -> None:
    node = change.node
    where = and_(s.topology.c.key == "topology", s.topology.c.host_id == node.id)
    values = {
        "datacenter": node.datacenter,
        "rack": node.rack,
        "shard_count": node.shards,
        "node_state": node.state,
        "storage_root": node.root,
    }
    if connection.execute(select(exists().where(where))).scalar():
        connection.execute(update(s.topology).where(where).values(**values))
    else:
        connection.execute(
            insert(s.topology),
            {"key": "topology", "host_id": node.id, "release_version": "", "joined_at": now, **values},
        )
