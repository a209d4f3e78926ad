"""The tablet map of a relation and where its tablets lie: the rules by which commits set them.

Entries of an index lie where the rows of its base lie, so the indexes get their maps together with the base.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import build_tasks, cdc, index_states, resizes, rows, runs, topology
from ebla.catalog import schema as s
from ebla.catalog.reads import called
from ebla.catalog.relations import living_row
from ebla.catalog.rows import Change, State
from ebla.errors import ConflictError
from ebla.model.relation import Kind
from ebla.model.tablets import bits_of, resized
from ebla.model.tasks import Replica


def create(
    state: State, relation: RelationId, placement: tuple[tuple[NodeId, ...], ...], tablets: int, version: Version
) -> tuple[Change, ...]:
    """The first map of a relation."""
    return _insert_map(relation, tablets, version), _insert_placement(state, relation, placement)


def place(state: State, relation: RelationId, placement: tuple[tuple[NodeId, ...], ...]) -> tuple[Change, ...]:
    """The tablets of a relation on other nodes."""
    return rows.delete(s.tablets, relation_id=relation), _insert_placement(state, relation, placement)


def resize(state: State, now: Any, tablets: int, version: Version, clock: int) -> tuple[Change, ...]:
    """The next map of a relation, of which `now` is the row: split, or with tablets that become one."""
    bits_of(tablets)  # refuses what is no power of two
    relation = now.relation_id
    if now.kind == Kind.INDEX.value:
        raise ConflictError(f"{now.name}: expected a table or a view, found an index: it follows its base")
    _refuse_moving(state, relation)
    placed = _placed(state, relation, now.tablets, tablets)
    return (
        *_resize(state, relation, placed, version),
        *build_tasks.resize(state, relation, placed, version),
        *resizes.finalization(relation, version),
        *cdc.after_resize(state, relation, tablets, version, clock),
    )


def _refuse_moving(state: State, relation: RelationId) -> None:
    moving = rows.values(state, s.tablet_transitions.c.tablet_id, relation_id=relation)
    if moving:
        raise ConflictError(
            f"{called(state, relation)}: expected no tablet in transition, found tablet {min(moving)}; "
            "its tablets change when the transitions have ended"
        )


def _placed(state: State, relation: RelationId, before: int, tablets: int) -> tuple[tuple[Replica, ...], ...]:
    """Where the tablets of the next map lie: the parts of one where it lay, those that become one where all lay."""
    replicas: list[list[Replica]] = [[] for _ in range(before)]
    for row in rows.find(state, s.tablets, "tablet_id", "ordinal", relation_id=relation):
        replicas[row.tablet_id].append(Replica(NodeId(row.host_id), row.shard))
    for tablet in range(tablets if tablets < before else 0):
        parts = range(tablet * before // tablets, (tablet + 1) * before // tablets)
        if len({frozenset(one.host for one in replicas[part]) for part in parts}) > 1:
            raise ConflictError(
                f"{called(state, relation)}: expected tablets {parts[0]} to {parts[-1]}, which become one, on the same "
                "nodes, found them apart; move them together first"
            )
    return tuple(tuple(of_tablet) for of_tablet in resized(replicas, tablets))


def _resize(
    state: State, relation: RelationId, placed: tuple[tuple[Replica, ...], ...], version: Version
) -> tuple[Change, ...]:
    """The next tablet map of a relation and of its indexes, whose entries lie where its rows lie."""
    now, tablets = living_row(state, relation), len(placed)
    values = {"tablets": tablets, "map_version": version, "placement_version": now.placement_version + 1}
    indexes = (one.index for one in index_states.of_base(state, relation))
    return (
        *runs.resize(state, relation, now.tablets, tablets, version),
        rows.update(s.relations, values, relation_id=relation),
        _insert_map(relation, tablets, version),
        rows.delete(s.tablets, relation_id=relation),
        _insert_replicas(relation, placed),
        *(change for index in indexes for change in _resize(state, index, placed, version)),
    )


def _insert_map(relation: RelationId, tablets: int, version: Version) -> Change:
    return rows.insert(s.tablet_maps, [{"relation_id": relation, "begin_version": version, "tablets": tablets}])


def _insert_placement(state: State, relation: RelationId, placement: tuple[tuple[NodeId, ...], ...]) -> Change:
    return _insert_replicas(relation, _on_shards(state, relation, placement))


def _on_shards(
    state: State, relation: RelationId, placement: tuple[tuple[NodeId, ...], ...]
) -> tuple[tuple[Replica, ...], ...]:
    """The replicas of a relation that begins on some nodes: on their shards in turn, with another first for each."""
    shards = {member.id: member.shards for member in topology.members(state).values()}
    turn: Counter[NodeId] = Counter()
    replicas = []
    for nodes in placement:
        replicas.append(tuple(Replica(node, (relation + turn[node]) % shards.get(node, 1)) for node in nodes))
        turn.update(nodes)
    return tuple(replicas)


def _insert_replicas(relation: RelationId, replicas: tuple[tuple[Replica, ...], ...]) -> Change:
    return rows.insert(
        s.tablets,
        [
            {"relation_id": relation, "tablet_id": tablet, "host_id": host, "shard": shard, "ordinal": ordinal}
            for tablet, of_tablet in enumerate(replicas)
            for ordinal, (host, shard) in enumerate(of_tablet)
        ],
    )
