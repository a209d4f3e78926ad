"""Where the tablets of tables and views lie, how large they are, and how far a resize of them is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from ebla.base.ids import NodeId, RelationId, TabletId
from ebla.catalog import index_states, resizes, rows, runs
from ebla.catalog import schema as s
from ebla.catalog.reads import options_of
from ebla.catalog.rows import Change, State
from ebla.model import topology_changes as t
from ebla.model.relation import FOREVER, Kind
from ebla.model.tablets import TokenRange, tablets_over
from ebla.model.tasks import Replica
from ebla.model.topology import Layout, Tablet


def report(state: State, update: t.ReportCut) -> tuple[Change, ...]:
    """A replica says that its runs are cut: of those tablets in which nothing is left to do it is kept."""
    left = unready(state, update.relation)
    ready = tuple(tablet for tablet in update.tablets if tablet not in left)
    return resizes.changes(state, replace(update, tablets=ready))


Sizes = Mapping[RelationId, tuple[int, ...]]
"""The bytes of one copy of each tablet, by relation."""


def layouts(state: State, measured: Sizes = MappingProxyType({})) -> dict[RelationId, Layout]:
    """Where the tablets of each living table and view lie. `measured`: their sizes as they were a while ago; they are
    taken anew where a relation has others."""
    relations = rows.find(
        state, s.relations, "relation_id", dropped_version=None, kind=frozenset({Kind.TABLE.value, Kind.VIEW.value})
    )
    replicas: dict[RelationId, list[list[Replica]]] = {
        RelationId(row.relation_id): [[] for _ in range(row.tablets)] for row in relations
    }
    for row in rows.find(state, s.tablets, "relation_id", "tablet_id", "ordinal"):
        if row.relation_id in replicas:
            replicas[row.relation_id][row.tablet_id].append(Replica(NodeId(row.host_id), row.shard))
    reported = resizes.reports(state)
    tablets = {RelationId(row.relation_id): row.tablets for row in relations}
    same = all(len(measured.get(relation, ())) == count for relation, count in tablets.items())
    sizes = measured if same else _sizes(state, tablets)
    return {
        RelationId(row.relation_id): Layout(
            relation=RelationId(row.relation_id),
            name=row.name,
            replication=row.replication,
            min_copies=options_of(row.options).get("min_copies") or row.replication // 2 + 1,
            replicas=tuple(map(tuple, replicas[row.relation_id])),
            bytes=sizes[RelationId(row.relation_id)],
            resize=resizes.of_relation(state, RelationId(row.relation_id)),
            reported=reported.get(RelationId(row.relation_id), {}),
        )
        for row in relations
    }


def _sizes(state: State, tablets: Mapping[RelationId, int]) -> dict[RelationId, tuple[int, ...]]:
    """The bytes of one copy of each tablet, with its indexes'. A run of several tablets counts a part in each."""
    found = {relation: [0] * count for relation, count in tablets.items()}
    bases = {row.index_id: RelationId(row.base_id) for row in rows.find(state, s.index_states)}
    by = (s.runs.c.relation_id, s.runs.c.run_id, s.runs.c.token_min, s.runs.c.token_max)
    copies = rows.extremes(state, s.runs.c.bytes, by=by, end_version=FOREVER)
    for (number, _, first, last), (size, _) in copies.items():
        sizes = found.get(bases.get(number, RelationId(number)))
        if sizes is None:
            continue
        over = tablets_over(TokenRange(first, last), len(sizes))
        for tablet in over:
            sizes[tablet] += size // len(over)
    return {relation: tuple(sizes) for relation, sizes in found.items()}


def unreached_runs(state: State, dead: Collection[NodeId], alive: Collection[NodeId]) -> dict[NodeId, dict[str, int]]:
    """Of each dead node, how many runs of each living relation it has that no live node has, ended ones too."""
    found: dict[NodeId, dict[str, int]] = {}
    if not dead:
        return found
    by = (s.runs.c.host_id, s.runs.c.run_id)
    theirs = rows.extremes(state, s.runs.c.relation_id, by=by, host_id=frozenset(dead))
    run_ids = frozenset(run for _, run in theirs)
    reached = rows.values(state, s.runs.c.run_id, run_id=run_ids, host_id=frozenset(alive)) if alive else set()
    names = {row.relation_id: row.name for row in rows.find(state, s.relations, dropped_version=None)}
    for (host, run), (relation, _) in theirs.items():
        if run not in reached and relation in names:
            counts = found.setdefault(NodeId(host), {})
            counts[names[relation]] = counts.get(names[relation], 0) + 1
    return found


def empty_tablets(state: State, placed: Collection[Layout], alive: Collection[NodeId]) -> frozenset[Tablet]:
    """The tablets of which no replica lives and that have no run, of an index neither, whatever its version."""
    lost = {
        one.relation: found
        for one in placed
        if (found := {tablet for tablet, of_tablet in enumerate(one.replicas) if not _has_any(of_tablet, alive)})
    }
    if not lost:
        return frozenset()
    tablets = {one.relation: one.tablets for one in placed if one.relation in lost}
    bases = {row.index_id: RelationId(row.base_id) for row in rows.find(state, s.index_states) if row.base_id in lost}
    by = (s.runs.c.relation_id, s.runs.c.token_min, s.runs.c.token_max)
    for number, first, last in rows.extremes(state, s.runs.c.bytes, by=by, relation_id=frozenset({*lost, *bases})):
        base = bases.get(number, RelationId(number))
        lost[base] -= {*tablets_over(TokenRange(first, last), tablets[base])}
    return frozenset((relation, TabletId(tablet)) for relation, found in lost.items() for tablet in found)


def _has_any(replicas: Iterable[Replica], alive: Collection[NodeId]) -> bool:
    return any(replica.host in alive for replica in replicas)


def unready(state: State, relation: RelationId) -> set[TabletId]:
    """The tablets of a relation in which something of it or of its indexes is left to do before its resize."""
    resize = resizes.of_relation(state, relation)
    row = rows.one(state, s.relations, relation_id=relation)
    of_map = (relation, *(one.index for one in index_states.of_base(state, relation)))
    return {tablet for one in of_map for tablet in runs.unready(state, one, resize.type, row.tablets if row else 1)}
