"""What the catalog knows, as values: relations, snapshots, changes, history."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from ebla.base.caches import InternTable
from ebla.base.ids import NodeId, RelationId, RunId, TabletId, Token, TransactionId, Version
from ebla.catalog import history, memory, rows, topology
from ebla.catalog import schema as s
from ebla.catalog.rows import Above, AtLeast, AtMost, Overlapping, State, Within
from ebla.errors import SnapshotError, UnknownNameError, UsageError
from ebla.model.copies import readable
from ebla.model.lifecycle.node import may_hold
from ebla.model.relation import (
    FOREVER,
    SPANS_TABLETS,
    Column,
    Default,
    Kind,
    Move,
    Relation,
    Run,
    RunSource,
    RunState,
)
from ebla.model.snapshot import Snapshot, assemble
from ebla.model.tablets import (
    ALL,
    TokenRange,
    joined,
    resized,
    tablet_around,
    tablets_around,
    tablets_over,
    token_range,
)

WRITTEN = {"source": RunSource.WRITE.value, "state": RunState.NORMAL.value}
"""The condition for runs that a commit has made visible."""
SPANS_MAX = 8
"""The most places of which each has a query of its own; of tablets in more places all runs are read."""
SEEKS_MAX = 64
"""The most tablets whose folds are asked for one by one; of more, all from the first to the last are read."""
STAGED = {"state": RunState.STAGING.value, "end_version": FOREVER}
"""The condition for runs that wait to become visible."""


def roots(state: State) -> dict[NodeId, str]:
    """The roots of the nodes that may hold replicas. The root of a node that left may be another's by now."""
    return {node.id: node.root for node in topology.members(state).values() if may_hold(node.state)}


# ---- relations ------------------------------------------------------------------------------------------


def relation_names(state: State, kind: Kind | None = None) -> list[str]:
    living: dict[str, object] = {"dropped_version": None} | ({} if kind is None else {"kind": kind.value})
    key = ("names", kind)
    return list(memory.remembered(state, key, lambda: sorted(rows.values(state, s.relations.c.name, **living))))


def relation_ids(state: State, kind: Kind) -> list[RelationId]:
    def read() -> tuple[RelationId, ...]:
        found = rows.values(state, s.relations.c.relation_id, dropped_version=None, kind=kind.value)
        return tuple(sorted(map(RelationId, found)))

    return list(memory.remembered(state, ("relation ids", kind), read))


def find_relation(state: State, name: str, *, version: Version | None = None) -> Relation | None:
    if not isinstance(name, str):
        raise UsageError(f"expected a name, which is a string, found {name!r}")
    folded = s.folded(name)
    if any("\ud800" <= character <= "\udfff" for character in folded):
        return None  # half of a character, which no database stores
    if version is not None:
        return _find_relation(state, version, folded_name=folded)
    return memory.remembered(state, ("relation", folded), lambda: _find_relation(state, None, folded_name=folded))


def _find_relation(state: State, version: Version | None, /, **where: object) -> Relation | None:
    row = rows.one(state, s.relations, dropped_version=None, **where)
    return None if row is None else _relation(state, row, version)


def relation(state: State, name: str, *, version: Version | None = None) -> Relation:
    """The living relation of this name, with the columns it had at a version."""
    found = find_relation(state, name, version=version)
    if found is None:
        names = sorted({*relation_names(state, Kind.TABLE), *relation_names(state, Kind.VIEW)})
        have = f"tables are {', '.join(names[:20])}" if names else "there are no tables yet"
        raise UnknownNameError(f"table {name}: expected a table of this name, found none; {have}")
    return found


def relation_by_id(state: State, relation_id: RelationId) -> Relation | None:
    key = ("relation by id", relation_id)
    return memory.remembered(state, key, lambda: _find_relation(state, None, relation_id=relation_id))


def options_of(text: str) -> dict[str, Any]:
    """A relation's options as they are stored; none where the text is damaged. What needs them says what it misses."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _relation(state: State, row: Any, version: Version | None) -> Relation:
    tablets = row.tablets
    if version is not None and version < row.map_version:
        tablets = _tablets_at(state, row.relation_id, version, row.tablets)
    return Relation(
        id=RelationId(row.relation_id),
        name=row.name,
        kind=Kind(row.kind),
        tablets=tablets,
        replication=row.replication,
        schema_version=row.schema_version,
        placement_version=row.placement_version,
        columns=_columns(state, row.relation_id, version),
        placement=resized(placement(state, row.relation_id, row.tablets), tablets),
        horizon=Version(row.horizon),
        created_version=Version(row.created_version),
        comment=row.comment,
        options=options_of(row.options),
        map_version=Version(row.map_version),
        moves=_moves(state, row) if tablets == row.tablets else {},
    )


def _moves(state: State, row: Any) -> dict[TabletId, Move]:
    """The tablets of a relation that are in transition: those of its base, if it is an index."""
    found = memory.remembered(state, "transitions", lambda: topology.transitions(state))
    if not found:
        return {}
    of_index = rows.one(state, s.index_states, index_id=row.relation_id) if row.kind == Kind.INDEX.value else None
    base = row.relation_id if of_index is None else of_index.base_id
    return {tablet: one.move for (relation, tablet), one in found.items() if relation == base}


def relation_maps(state: State, relation_id: RelationId) -> list[tuple[Version, int]]:
    """The tablet maps of a relation that a version can be read with: since when, and how many tablets; oldest first."""

    def read() -> list[tuple[Version, int]]:
        found = rows.find(state, s.tablet_maps, "begin_version", relation_id=relation_id)
        return [(Version(row.begin_version), row.tablets) for row in found]

    return list(memory.remembered(state, ("maps", relation_id), read))


def _tablets_at(state: State, relation_id: RelationId, version: Version, newest: int) -> int:
    then = [tablets for since, tablets in relation_maps(state, relation_id) if since <= version]
    return then[-1] if then else newest


def _with_map_of(state: State, target: Relation, version: Version) -> Relation:
    """A relation with the tablets that it had at a version, whenever it was read."""
    now = relation_by_id(state, target.id) or target
    tablets = now.tablets if version >= now.map_version else _tablets_at(state, now.id, version, now.tablets)
    return target.in_map(tablets)


def _columns(state: State, relation_id: int, version: Version | None) -> tuple[Column, ...]:
    at: dict[str, object] = {"end_version": FOREVER}
    if version is not None:
        at = {"begin_version": AtMost(version), "end_version": Above(version)}
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
        for r in rows.find(state, s.columns, "ordinal", relation_id=relation_id, **at)
    )


def physical_names(state: State, relation_id: RelationId) -> set[str]:
    """Every name that a column of this relation ever had in a file."""
    return rows.values(state, s.columns.c.physical, relation_id=relation_id)


def placement(state: State, relation_id: int, tablets: int) -> tuple[tuple[NodeId, ...], ...]:
    placed: list[list[NodeId]] = [[] for _ in range(tablets)]
    for row in rows.find(state, s.tablets, "tablet_id", "ordinal", relation_id=relation_id):
        placed[row.tablet_id].append(NodeId(row.host_id))
    return tuple(tuple(p) for p in placed)


def called(state: State, relation: RelationId) -> str:
    """A relation's name, for messages."""
    row = rows.one(state, s.relations, relation_id=relation)
    return f"relation {relation}" if row is None else str(row.name)


# ---- versions -------------------------------------------------------------------------------------------


def current_version(state: State) -> Version:
    return Version(memory.counters(state)["version"])


def committed_at(state: State, versions: Iterable[int]) -> dict[int, int]:
    return {row.version: row.committed_at for row in rows.find(state, s.history, version=frozenset(versions))}


def time_of(state: State, version: Version) -> int:
    """When a version was committed; of one that vacuum has trimmed, the last commit before it that is left."""
    last = rows.greatest(state, s.history.c.version, version=AtMost(version))
    return 0 if last is None else committed_at(state, [last])[last]


def version_at(state: State, time_us: int) -> Version:
    """The last version that was committed at or before a time."""
    since = history.complete_since(state)
    found = rows.greatest(state, s.history.c.version, committed_at=AtMost(time_us))
    if found is None or found < since:
        first = rows.least(state, s.history.c.committed_at, version=Above(since - 1))
        what = "the oldest commit that vacuum has kept" if since else "the first commit"
        expected = "a commit" if first is None else f"a time since {what} ({show_time(first)})"
        raise SnapshotError(f"expected {expected}, found none at or before {show_time(time_us)}")
    return Version(found)


def show_time(time_us: int) -> str:
    return dt.datetime.fromtimestamp(time_us / 1e6, dt.UTC).isoformat(sep=" ", timespec="microseconds")


def horizon(state: State, target: Relation) -> Version:
    """The oldest version that can be read now. Vacuum may have come since the relation itself was read."""
    now = relation_by_id(state, target.id)
    return target.horizon if now is None else max(now.horizon, target.horizon)


def require_readable(state: State, target: Relation, version: Version, *, what: str = "snapshot") -> None:
    """Refuse versions that have not happened, or whose rows may have been vacuumed."""
    newest = current_version(state)
    if version > newest:
        raise SnapshotError(f"{target.name}: expected a version up to {newest}, found {version}")
    if version < target.created_version:
        raise SnapshotError(
            f"{target.name}: expected version {target.created_version} or later (when it was created), found {version}"
        )
    oldest = horizon(state, target)
    if version < oldest:
        raise SnapshotError(
            f"{target.name}: expected a {what} at version {oldest} or later, found {version}; "
            "older rows were vacuumed: read a newer version, or keep more with a longer retention"
        )


# ---- manifest -------------------------------------------------------------------------------------------


def snapshot(
    state: State,
    target: Relation,
    version: Version | None = None,
    tokens: Collection[TokenRange] | None = None,
) -> Snapshot:
    """The runs of a relation at a version: all, or those of the tablets that have these tokens.

    Its tablets are those of the version. A few catalog queries, whatever the manifest's size.
    """
    at = current_version(state) if version is None else version
    require_readable(state, target, at)
    target = _with_map_of(state, target, at)
    tablets = None if tokens is None else sorted({t for one in tokens for t in tablets_over(one, target.tablets)})
    of: dict[str, object] = {"relation_id": target.id, "begin_version": AtMost(at)}
    near: dict[str, object] = {}
    if tablets is not None and len(spans := joined(token_range(t, target.tablets) for t in tablets)) <= SPANS_MAX:
        near = {"fork": Overlapping(tuple(spans))}
    runs = rows.find(state, s.runs, end_version=Above(at), state=RunState.NORMAL.value, **of, **near)
    around = [token_range(t, target.tablets) for t in tablets] if tablets else None
    return assemble(
        target,
        at,
        _readable(target, merge_replicas(runs, target.tablets)),
        folds(state, target.id, around, at).items(),
        roots(state),
        tablets,
    )


def folds(
    state: State, relation_id: RelationId, tablets: Collection[TokenRange] | None = None, at: Version = FOREVER
) -> dict[TokenRange, Version]:
    """Up to which version level 0 is folded with some tokens: all folds, or those that hold a tablet and some more."""
    near: dict[str, object] = {}
    if tablets and len(tablets) <= SEEKS_MAX:
        near = {"token_min": frozenset(around.first for one in tablets for around in tablets_around(one))}
    elif tablets:
        near = {"token_min": AtMost(max(tablets).last), "token_max": AtLeast(min(tablets).first)}
    by = (s.folds.c.token_min, s.folds.c.token_max)
    found = rows.extremes(state, s.folds.c.cutoff, by=by, relation_id=relation_id, begin_version=AtMost(at), **near)
    return {TokenRange(*key): Version(cutoff) for key, (_, cutoff) in found.items()}


def writes_between(state: State, target: Relation, since: Version, until: Version) -> list[Run]:
    """The runs that writers committed in `(since, until]`, oldest first, whether still visible or not."""
    found = rows.find(state, s.runs, relation_id=target.id, begin_version=Within(since, until), **WRITTEN)
    return _oldest_first(target, found)


def staged_runs(state: State, target: Relation, tokens: Iterable[TokenRange] = (ALL,)) -> list[Run]:
    """The runs with some tokens that wait to become visible, oldest first; `begin_version` is when they were staged."""
    spans = tuple(joined(tokens))
    near: dict[str, object] = {"fork": Overlapping(spans)} if len(spans) <= SPANS_MAX else {}
    found = _oldest_first(target, rows.find(state, s.runs, relation_id=target.id, **STAGED, **near))
    return [run for run in found if any(run.tokens.overlaps(one) for one in spans)]


def visible_since(state: State, relation_id: RelationId, transaction: TransactionId) -> Version | None:
    """When the last run that a transaction staged became visible; `None` while one of them is still staged."""
    of = {"relation_id": relation_id, "transaction_id": transaction}
    if rows.values(state, s.runs.c.run_id, **of, **STAGED):
        return None
    found = rows.greatest(state, s.runs.c.begin_version, state=RunState.NORMAL.value, **of)
    return current_version(state) if found is None else Version(found)


def truncated_between(state: State, target: Relation, since: Version, until: Version) -> list[Version]:
    found = memory.remembered(
        state,
        ("truncations", target.id),
        lambda: sorted(map(Version, rows.values(state, s.truncations.c.version, relation_id=target.id))),
    )
    return [version for version in found if since < version <= until]


def first_write_after(state: State, relation_id: RelationId, version: int) -> Version | None:
    """The oldest write or truncation behind a version that the manifest still knows."""
    later = Above(version)
    written = rows.least(state, s.runs.c.begin_version, relation_id=relation_id, begin_version=later, **WRITTEN)
    truncated = rows.least(state, s.truncations.c.version, relation_id=relation_id, version=later)
    found = [Version(v) for v in (written, truncated) if v is not None]
    return min(found, default=None)


def handler_rows(state: State) -> list[tuple[str, str, bool]]:
    """Name, settings as JSON, and whether it should run, by name."""

    def read() -> list[tuple[str, str, bool]]:
        found = rows.find(state, s.mv_handlers, "job_name")
        return [(r.job_name, r.job_settings, bool(r.should_run)) for r in found]

    return list(memory.remembered(state, "handlers", read))


def dictionary_changes(state: State, relation_id: RelationId, since: int, until: int) -> list[list[str]]:
    """The different sets of columns that commits in `(since, until]` changed, as logged."""
    changed = s.mv_dictionary_changes.c.changed_columns
    return [json.loads(t) for t in rows.values(state, changed, relation_id=relation_id, version=Within(since, until))]


def has_dictionary_changes(state: State, relation_id: RelationId, until: int) -> bool:
    """Whether changes of an input up to a version are logged."""
    logged = s.mv_dictionary_changes.c.version
    return rows.least(state, logged, relation_id=relation_id, version=AtMost(until)) is not None


def built_online(state: State) -> frozenset[RelationId]:
    """The views that are being built."""
    read = lambda: frozenset(map(RelationId, rows.values(state, s.view_builds.c.view_id)))  # noqa: E731
    return memory.remembered(state, "builds", read)


def progress(state: State, name: str) -> str | None:
    return progress_of(state, (name,)).get(name)


def progress_of(state: State, names: Collection[str]) -> dict[str, str]:
    """The stored values of some names."""
    return {row.name: row.value for row in rows.find(state, s.progress, name=frozenset(names))}


def _oldest_first(target: Relation, found: Iterable[Any]) -> list[Run]:
    runs = _readable(target, merge_replicas(found, target.tablets))
    return sorted(runs, key=lambda run: (run.begin_version, run.id))


def _readable(target: Relation, runs: list[Run]) -> list[Run]:
    """Runs with the copies that readers may use."""
    return [readable(target, run) for run in runs] if target.moves else runs


def merge_replicas(found: Iterable[Any], tablets: int) -> list[Run]:
    """One run per file, in a map of `tablets` tablets: the manifest has a row for each copy."""
    copies: dict[str, list[Any]] = {}
    for row in found:
        copies.setdefault(row.run_id, []).append(row)
    runs = RUNS.of([(tablets, of_run[0]) for of_run in copies.values()])
    return [
        run if len(of_run) == 1 else replace(run, nodes=tuple(sorted(NodeId(row.host_id) for row in of_run)))
        for run, of_run in zip(runs, copies.values(), strict=True)
    ]


def _run(read: tuple[int, Any]) -> Run:
    tablets, row = read
    tablet = tablet_around(TokenRange(row.token_min, row.token_max), tablets)
    return Run(
        id=RunId(row.run_id),
        relation=RelationId(row.relation_id),
        level=row.level,
        tablet=SPANS_TABLETS if tablet is None else tablet,
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
        begin_version=Version(row.newest_version or row.begin_version),
        end_version=Version(row.end_version),
        spread=row.spread,
    )


RUNS: InternTable[tuple[int, Any], Run] = InternTable("runs", _run, bytes_max=64 * 2**20, each=1_100)
"""Of this process: most rows of a manifest were read before, by the snapshot before this one."""


def named_paths(state: State, node: NodeId, among: Iterable[str] | None = None) -> set[str]:
    """The files that the manifest names under a node's root: all, or those of some paths."""
    some: dict[str, object] = {} if among is None else {"path": frozenset(among)}
    return rows.values(state, s.runs.c.path, host_id=node, **some)


def is_named(state: State, relation: RelationId, path: str) -> bool:
    """Whether the manifest names a file of a relation, under the root of any node."""
    return bool(rows.values(state, s.runs.c.path, relation_id=relation, path=path))


def newest_write(state: State, relation: RelationId) -> Version:
    """The version of the last data commit or truncation of the relation."""
    written = rows.greatest(state, s.runs.c.begin_version, relation_id=relation, **WRITTEN)
    truncated = rows.greatest(state, s.truncations.c.version, relation_id=relation)
    return Version(max(written or 0, truncated or 0))
