"""What the catalog knows, as values: relations, nodes, snapshots, changes, history."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, exists, func, select

from ebla.base.ids import NodeId, RelationId, RunId, TabletId, Token, TransactionId, Version
from ebla.catalog import memory
from ebla.catalog import schema as s
from ebla.errors import SnapshotError, UnknownNameError, UsageError
from ebla.model.relation import FOREVER, SPANS_TABLETS, Column, Default, Kind, Node, Relation, Run, RunSource, RunState
from ebla.model.snapshot import Snapshot, assemble


def nodes(connection: Connection) -> dict[NodeId, Node]:
    return dict(memory.remembered(connection, "nodes", lambda: _nodes(connection)))


def _nodes(connection: Connection) -> dict[NodeId, Node]:
    rows = connection.execute(select(s.topology).order_by(s.topology.c.host_id))
    return {
        NodeId(r.host_id): Node(
            id=NodeId(r.host_id),
            root=r.storage_root,
            datacenter=r.datacenter,
            rack=r.rack,
            shards=r.shard_count,
            state=r.node_state,
        )
        for r in rows
    }


def roots(connection: Connection) -> dict[NodeId, str]:
    return {n.id: n.root for n in nodes(connection).values()}


# ---- relations ------------------------------------------------------------------------------------------


def relation_names(connection: Connection, kind: Kind | None = None) -> list[str]:
    query = select(s.relations.c.name).where(s.relations.c.dropped_version.is_(None))
    if kind is not None:
        query = query.where(s.relations.c.kind == kind.value)
    names = memory.remembered(connection, ("names", kind), lambda: sorted(connection.execute(query).scalars()))
    return list(names)


def relation_ids(connection: Connection, kind: Kind) -> list[RelationId]:
    query = select(s.relations.c.relation_id).where(
        s.relations.c.dropped_version.is_(None), s.relations.c.kind == kind.value
    )
    return [RelationId(number) for number in connection.execute(query).scalars()]


def find_relation(connection: Connection, name: str, *, version: Version | None = None) -> Relation | None:
    if not isinstance(name, str):
        raise UsageError(f"expected a name, which is a string, found {name!r}")
    where = and_(s.relations.c.folded_name == s.folded(name), s.relations.c.dropped_version.is_(None))
    if version is not None:
        return _find_relation(connection, where, version)
    key = ("relation", s.folded(name))
    return memory.remembered(connection, key, lambda: _find_relation(connection, where, None))


def _find_relation(connection: Connection, where: ColumnElement[bool], version: Version | None) -> Relation | None:
    row = connection.execute(select(s.relations).where(where)).one_or_none()
    return None if row is None else _relation(connection, row, version)


def relation(connection: Connection, name: str, *, version: Version | None = None) -> Relation:
    """The living relation of this name, with the columns it had at a version."""
    found = find_relation(connection, name, version=version)
    if found is None:
        known = sorted({*relation_names(connection, Kind.TABLE), *relation_names(connection, Kind.VIEW)})
        have = f"tables are {', '.join(known[:20])}" if known else "there are no tables yet"
        raise UnknownNameError(f"table {name}: expected a table of this name, found none; {have}")
    return found


def relation_by_id(connection: Connection, relation_id: RelationId) -> Relation | None:
    where = and_(s.relations.c.relation_id == relation_id, s.relations.c.dropped_version.is_(None))
    key = ("relation by id", relation_id)
    return memory.remembered(connection, key, lambda: _find_relation(connection, where, None))


def options_of(text: str) -> dict[str, Any]:
    """A relation's options as they are stored; none where the text is damaged. What needs them says what it misses."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _relation(connection: Connection, row: Row[Any], version: Version | None) -> Relation:
    return Relation(
        id=RelationId(row.relation_id),
        name=row.name,
        kind=Kind(row.kind),
        tablets=row.tablets,
        replication=row.replication,
        schema_version=row.schema_version,
        placement_version=row.placement_version,
        columns=_columns(connection, row.relation_id, version),
        placement=_placement(connection, row.relation_id, row.tablets),
        horizon=Version(row.horizon),
        created_version=Version(row.created_version),
        comment=row.comment,
        options=options_of(row.options),
    )


def _columns(connection: Connection, relation_id: int, version: Version | None) -> tuple[Column, ...]:
    query = select(s.columns).where(s.columns.c.relation_id == relation_id).order_by(s.columns.c.ordinal)
    if version is None:
        query = query.where(s.columns.c.end_version == FOREVER)
    else:
        query = query.where(s.columns.c.begin_version <= version, s.columns.c.end_version > version)
    return tuple(
        Column(
            name=r.name,
            physical=r.physical,
            type=r.type,
            nullable=bool(r.nullable),
            key_position=r.key_position,
            hidden=bool(r.hidden),
            comment=r.comment,
            default=None if r.default_text is None else Default(text=r.default_text, value=r.default_value),
        )
        for r in connection.execute(query)
    )


def physical_names(connection: Connection, relation_id: RelationId) -> set[str]:
    """Every name that a column of this relation ever had in a file."""
    query = select(s.columns.c.physical).where(s.columns.c.relation_id == relation_id)
    return set(connection.execute(query).scalars())


def _placement(connection: Connection, relation_id: int, tablets: int) -> tuple[tuple[NodeId, ...], ...]:
    rows = connection.execute(
        select(s.tablets.c.tablet_id, s.tablets.c.host_id)
        .where(s.tablets.c.relation_id == relation_id)
        .order_by(s.tablets.c.tablet_id, s.tablets.c.ordinal)
    )
    placed: list[list[NodeId]] = [[] for _ in range(tablets)]
    for tablet, node in rows:
        placed[tablet].append(NodeId(node))
    return tuple(tuple(p) for p in placed)


def called(connection: Connection, relation: RelationId) -> str:
    """A relation's name, for messages."""
    query = select(s.relations.c.name).where(s.relations.c.relation_id == relation)
    return str(connection.execute(query).scalar() or f"relation {relation}")


# ---- versions -------------------------------------------------------------------------------------------


def current_version(connection: Connection) -> Version:
    return Version(memory.counters(connection)["version"])


def committed_at(connection: Connection, versions: Iterable[int]) -> dict[int, int]:
    wanted = sorted(set(versions))
    found: dict[int, int] = {}
    for i in range(0, len(wanted), 500):
        rows = connection.execute(
            select(s.history.c.version, s.history.c.committed_at).where(s.history.c.version.in_(wanted[i : i + 500]))
        )
        found.update({r.version: r.committed_at for r in rows})
    return found


def version_at(connection: Connection, time_us: int) -> Version:
    """The last version that was committed at or before a time."""
    found = connection.execute(
        select(func.max(s.history.c.version)).where(s.history.c.committed_at <= time_us)
    ).scalar()
    if found is None:
        first = connection.execute(select(func.min(s.history.c.committed_at))).scalar()
        since = "expected a commit" if first is None else f"expected a time since the first commit ({show_time(first)})"
        raise SnapshotError(f"{since}, found none at or before {show_time(time_us)}")
    return Version(found)


def show_time(time_us: int) -> str:
    return dt.datetime.fromtimestamp(time_us / 1e6, dt.UTC).isoformat(sep=" ", timespec="microseconds")


def horizon(connection: Connection, target: Relation) -> Version:
    """The oldest version that can be read now. Vacuum may have come since the relation itself was read."""
    now = relation_by_id(connection, target.id)
    return target.horizon if now is None else max(now.horizon, target.horizon)


def require_readable(connection: Connection, target: Relation, version: Version, *, what: str = "snapshot") -> None:
    """Refuse versions that have not happened, or whose rows may have been vacuumed."""
    newest = current_version(connection)
    if version > newest:
        raise SnapshotError(f"{target.name}: expected a version up to {newest}, found {version}")
    if version < target.created_version:
        raise SnapshotError(
            f"{target.name}: expected version {target.created_version} or later (when it was created), found {version}"
        )
    oldest = horizon(connection, target)
    if version < oldest:
        raise SnapshotError(
            f"{target.name}: expected a {what} at version {oldest} or later, found {version}; "
            "older rows were vacuumed: read a newer version, or keep more with a longer retention"
        )


# ---- manifest -------------------------------------------------------------------------------------------


def snapshot(
    connection: Connection,
    target: Relation,
    version: Version | None = None,
    tablets: Sequence[TabletId] | None = None,
) -> Snapshot:
    """The runs that hold some tablets of a relation at a version. Two catalog queries, whatever the manifest's size."""
    at = current_version(connection) if version is None else version
    require_readable(connection, target, at)
    query = select(s.runs).where(
        s.runs.c.relation_id == target.id,
        s.runs.c.end_version > at,
        s.runs.c.begin_version <= at,
        s.runs.c.state == RunState.NORMAL.value,
    )
    folds = (
        select(s.folds.c.tablet_id, func.max(s.folds.c.cutoff))
        .where(s.folds.c.relation_id == target.id, s.folds.c.begin_version <= at)
        .group_by(s.folds.c.tablet_id)
    )
    if tablets is not None:
        wanted = sorted({*tablets, SPANS_TABLETS})
        query = query.where(s.runs.c.tablet_id.in_(wanted))
        folds = folds.where(s.folds.c.tablet_id.in_(wanted))
    return assemble(
        target,
        at,
        merge_replicas(connection.execute(query)),
        [(TabletId(t), Version(v)) for t, v in connection.execute(folds)],
        roots(connection),
        tablets,
    )


def writes_between(connection: Connection, target: Relation, since: Version, until: Version) -> list[Run]:
    """The runs that writers committed in `(since, until]`, oldest first, whether still visible or not."""
    query = select(s.runs).where(
        s.runs.c.relation_id == target.id,
        s.runs.c.begin_version > since,
        s.runs.c.begin_version <= until,
        s.runs.c.source == RunSource.WRITE.value,
        s.runs.c.state == RunState.NORMAL.value,
    )
    return sorted(merge_replicas(connection.execute(query)), key=lambda r: (r.begin_version, r.id))


def staged_runs(connection: Connection, relation_id: RelationId, tablets: Iterable[TabletId]) -> list[Run]:
    """The runs of some tablets that wait to become visible, oldest first; `begin_version` is when they were staged."""
    query = select(s.runs).where(
        s.runs.c.relation_id == relation_id,
        s.runs.c.tablet_id.in_(sorted(tablets)),
        s.runs.c.state == RunState.STAGING.value,
        s.runs.c.end_version == FOREVER,
    )
    return sorted(merge_replicas(connection.execute(query)), key=lambda r: (r.begin_version, r.id))


def visible_since(connection: Connection, relation_id: RelationId, transaction: TransactionId) -> Version | None:
    """When the last run that a transaction staged became visible; `None` while one of them is still staged."""
    of = and_(s.runs.c.relation_id == relation_id, s.runs.c.transaction_id == transaction)
    waits = and_(of, s.runs.c.state == RunState.STAGING.value, s.runs.c.end_version == FOREVER)
    if connection.execute(select(exists().where(waits))).scalar():
        return None
    shown = select(func.max(s.runs.c.begin_version)).where(of, s.runs.c.state == RunState.NORMAL.value)
    found = connection.execute(shown).scalar()
    return current_version(connection) if found is None else Version(found)


def truncated_between(connection: Connection, target: Relation, since: Version, until: Version) -> list[Version]:
    query = select(s.truncations.c.version).where(s.truncations.c.relation_id == target.id)
    found = memory.remembered(
        connection, ("truncations", target.id), lambda: sorted(map(Version, connection.execute(query).scalars()))
    )
    return [version for version in found if since < version <= until]


def first_write_after(connection: Connection, relation_id: RelationId, version: int) -> Version | None:
    """The oldest write or truncation behind a version that the manifest still knows."""
    written = connection.execute(
        select(func.min(s.runs.c.begin_version)).where(
            s.runs.c.relation_id == relation_id,
            s.runs.c.source == RunSource.WRITE.value,
            s.runs.c.state == RunState.NORMAL.value,
            s.runs.c.begin_version > version,
        )
    ).scalar()
    truncated = connection.execute(
        select(func.min(s.truncations.c.version)).where(
            s.truncations.c.relation_id == relation_id, s.truncations.c.version > version
        )
    ).scalar()
    found = [Version(v) for v in (written, truncated) if v is not None]
    return min(found, default=None)


def handler_rows(connection: Connection) -> list[tuple[str, str, bool]]:
    """Name, settings as JSON, and whether it should run, by name."""
    query = select(s.mv_handlers).order_by(s.mv_handlers.c.job_name)

    def read() -> list[tuple[str, str, bool]]:
        return [(r.job_name, r.job_settings, bool(r.should_run)) for r in connection.execute(query)]

    return list(memory.remembered(connection, "handlers", read))


def dictionary_changes(connection: Connection, relation_id: RelationId, since: int, until: int) -> list[list[str]]:
    """The different sets of columns that commits in `(since, until]` changed, as logged."""
    log = s.mv_dictionary_changes
    query = (
        select(log.c.changed_columns)
        .where(log.c.relation_id == relation_id, log.c.version > since, log.c.version <= until)
        .distinct()
    )
    return [json.loads(text) for text in connection.execute(query).scalars()]


def has_dictionary_changes(connection: Connection, relation_id: RelationId, until: int) -> bool:
    """Whether changes of an input up to a version are logged."""
    log = s.mv_dictionary_changes
    there = exists().where(log.c.relation_id == relation_id, log.c.version <= until)
    return bool(connection.execute(select(there)).scalar())


def built_online(connection: Connection) -> frozenset[RelationId]:
    """The views that are being built."""
    query = select(s.view_builds.c.view_id)
    return memory.remembered(
        connection, "builds", lambda: frozenset(map(RelationId, connection.execute(query).scalars()))
    )


def progress(connection: Connection, name: str) -> str | None:
    value: str | None = connection.execute(select(s.progress.c.value).where(s.progress.c.name == name)).scalar()
    return value


def progress_of(connection: Connection, names: Collection[str]) -> dict[str, str]:
    """The stored values of some names."""
    query = select(s.progress.c.name, s.progress.c.value).where(s.progress.c.name.in_(names))
    return {row.name: row.value for row in connection.execute(query)} if names else {}


def merge_replicas(rows: Iterable[Row[Any]]) -> list[Run]:
    """One run per file: the manifest has a row for each copy."""
    runs: dict[str, Run] = {}
    copies: dict[str, list[NodeId]] = {}
    for row in rows:
        copies.setdefault(row.run_id, []).append(NodeId(row.host_id))
        if row.run_id not in runs:
            runs[row.run_id] = _known_run(row)
    for run_id, hosts in copies.items():
        if len(hosts) > 1:
            run = runs[run_id]
            runs[run_id] = _with_nodes(run, tuple(sorted(hosts)))
    return list(runs.values())


def _with_nodes(run: Run, hosts: tuple[NodeId, ...]) -> Run:
    return replace(run, nodes=hosts)


_known_runs: dict[tuple[Any, ...], Run] = {}
KNOWN_RUNS_MAX = 65_536


def _known_run(row: Row[Any]) -> Run:
    """Most rows of a manifest were read before, by the snapshot before this one: equal rows are equal runs."""
    name = tuple(row)
    found = _known_runs.get(name)
    if found is None:
        if len(_known_runs) >= KNOWN_RUNS_MAX:
            _known_runs.clear()
        found = _known_runs[name] = _run(row)
    return found


def _run(row: Row[Any]) -> Run:
    return Run(
        id=RunId(row.run_id),
        relation=RelationId(row.relation_id),
        level=row.level,
        tablet=TabletId(row.tablet_id),
        token_min=Token(row.token_min),
        token_max=Token(row.token_max),
        key_min=row.key_min,
        key_max=row.key_max,
        rows=row.row_count,
        tombstones=row.tombstones,
        bytes=row.bytes,
        path=row.path,
        nodes=(NodeId(row.host_id),),
        state=RunState(row.state),
        source=RunSource(row.source),
        transaction=TransactionId(row.transaction_id),
        schema_version=row.schema_version,
        begin_version=Version(row.begin_version),
        end_version=Version(row.end_version),
    )


def named_paths(connection: Connection, node: NodeId) -> set[str]:
    """Every file that the manifest names under a node's root."""
    return set(connection.execute(select(s.runs.c.path).where(s.runs.c.host_id == node)).scalars())


def newest_write(connection: Connection, relation: RelationId) -> Version:
    """The version of the last data commit or truncation of the relation."""
    written = connection.execute(
        select(func.max(s.runs.c.begin_version)).where(
            s.runs.c.relation_id == relation,
            s.runs.c.source == RunSource.WRITE,
            s.runs.c.state == RunState.NORMAL.value,
        )
    ).scalar()
    truncated = connection.execute(
        select(func.max(s.truncations.c.version)).where(s.truncations.c.relation_id == relation)
    ).scalar()
    return Version(max(written or 0, truncated or 0))
