"""Relations, their columns and placements: the rules of their requirements and updates."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, assert_never

from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import (
    building,
    cdc,
    indexing,
    leftovers,
    memory,
    resizes,
    rows,
    runs,
    transitions,
    view_states,
)
from ebla.catalog import schema as s
from ebla.catalog.reads import called
from ebla.catalog.rows import Change, State
from ebla.errors import ConflictError, DuplicateNameError, UnknownNameError
from ebla.model import changes as c
from ebla.model.relation import FOREVER, Column, Kind
from ebla.model.tablets import bits_of, resized
from ebla.model.tasks import Replica

# ---- requirements ---------------------------------------------------------------------------------------


def require_schema(state: State, requirement: c.SchemaWithinOne) -> None:
    relation, planned = requirement.relation, requirement.schema_version
    now = _living(state, relation).schema_version
    if now - planned > 1:
        raise ConflictError(
            f"{called(state, relation)}: expected schema {planned} or {planned + 1}, "
            f"found {now}; the write was planned too long ago: retry it"
        )


def _living(state: State, relation: RelationId) -> Any:
    """The row of a relation that is not dropped."""
    key = ("living", relation)
    row = memory.remembered(state, key, lambda: rows.one(state, s.relations, relation_id=relation))
    if row is None or row.dropped_version is not None:
        raise UnknownNameError(f"{called(state, relation)}: expected to be there, found dropped; nothing was written")
    return row


# ---- updates --------------------------------------------------------------------------------------------


def create(state: State, new: c.CreateRelation, relation: RelationId, version: Version, now: int) -> tuple[Change, ...]:
    _refuse_taken_name(state, new.name)
    row = {
        "relation_id": relation,
        "name": new.name,
        "folded_name": s.folded(new.name),
        "kind": new.kind.value,
        "tablets": new.tablets,
        "replication": new.replication,
        "schema_version": 1,
        "placement_version": 1,
        "map_version": version,
        "horizon": version,
        "created_version": version,
        "comment": new.comment,
        "options": json.dumps(dict(new.options), sort_keys=True),
    }
    # Why an index of this name could not be built is of no interest once there is another relation of that name.
    named = s.folded(new.name)
    failed = {one.relation_id for one in rows.find(state, s.troubles) if s.folded(one.name) == named}
    return (
        rows.insert(s.relations, [row]),
        _insert_map(relation, new.tablets, version),
        _insert_columns(relation, new.columns, version),
        _insert_placement(state, relation, new.placement),
        *((view_states.create(relation, version),) if new.kind is Kind.VIEW else ()),
        *(() if new.kind is Kind.INDEX else cdc.begin(relation, new.tablets, version, now, published=True)),
        rows.insert(s.dependencies, [{"relation_id": relation, "input_id": one} for one in sorted({*new.reads})]),
        rows.delete(s.troubles, relation_id=failed),
    )


def changes(state: State, update: c.RelationUpdate, version: Version, clock: int) -> tuple[Change, ...]:
    relation = update.relation

    def this(**values: object) -> Change:
        return rows.update(s.relations, values, relation_id=relation)

    if isinstance(update, c.SetHorizon):  # vacuum goes on where a relation was dropped
        horizon = update.horizon
        higher = rows.update(s.relations, {"horizon": horizon}, relation_id=relation, horizon=rows.AtMost(horizon))
        return higher, *leftovers.forget(state, relation, horizon)
    now = _living(state, relation)
    match update:
        case c.DropRelation():
            return _drop(state, relation, version)
        case c.RenameRelation(name=name):
            _refuse_taken_name(state, name, besides=relation)
            return (this(name=name, folded_name=s.folded(name)),)
        case c.SetRelationComment(comment=comment):
            return (this(comment=comment),)
        case c.SetColumns(columns=columns, outdates_writes=outdates):
            ended = rows.update(s.columns, {"end_version": version}, relation_id=relation, end_version=FOREVER)
            newer = this(schema_version=now.schema_version + (2 if outdates else 1))
            return ended, _insert_columns(relation, columns, version), newer
        case c.SetConstraints(constraints=constraints):
            options = {**json.loads(now.options), "constraints": [asdict(one) for one in constraints]}
            return (this(options=json.dumps(options, sort_keys=True), schema_version=now.schema_version + 1),)
        case c.TruncateRelation():
            return _truncate(state, relation, version)
        case c.SetPlacement(placement=placement):
            gone = rows.delete(s.tablets, relation_id=relation)
            moved = this(placement_version=now.placement_version + 1)
            return gone, _insert_placement(state, relation, placement), moved
        case c.SetTabletMap(tablets=tablets):
            bits_of(tablets)  # refuses what is no power of two
            if now.kind == Kind.INDEX.value:
                raise ConflictError(f"{now.name}: expected a table or a view, found an index: it follows its base")
            _refuse_moving(state, relation)
            placed = _placed(state, relation, now.tablets, tablets)
            return (
                *_resize(state, relation, placed, version),
                *building.resize(state, relation, placed, version),
                *resizes.finalization(relation, version),
                *cdc.after_resize(state, relation, tablets, version, clock),
            )
        case _:
            assert_never(update)


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
    now, tablets = _living(state, relation), len(placed)
    values = {"tablets": tablets, "map_version": version, "placement_version": now.placement_version + 1}
    indexes = (one.index for one in indexing.of_base(state, relation))
    return (
        *runs.resize(state, relation, now.tablets, tablets, version),
        rows.update(s.relations, values, relation_id=relation),
        _insert_map(relation, tablets, version),
        rows.delete(s.tablets, relation_id=relation),
        _insert_replicas(relation, placed),
        *(change for index in indexes for change in _resize(state, index, placed, version)),
    )


def _truncate(state: State, relation: RelationId, version: Version) -> tuple[Change, ...]:
    indexes, moved = indexing.truncate(state, relation, version)
    return (
        runs.end_all(relation, version),
        rows.insert(s.truncations, [{"relation_id": relation, "version": version}]),
        *moved,
        *(change for index in indexes for change in _truncate(state, index, version)),
    )


def _drop(state: State, relation: RelationId, version: Version) -> tuple[Change, ...]:
    """A relation goes with its indexes. Nothing of it is tried again; why it could not be built stays known."""
    indexes = (one.index for one in indexing.of_base(state, relation))
    return (
        *(change for index in indexes for change in _drop(state, index, version)),
        *indexing.forget(relation),
        rows.update(s.relations, {"dropped_version": version, "horizon": version}, relation_id=relation),
        rows.delete(s.dependencies, relation_id=relation),
        runs.end_all(relation, version),
        *building.forget(relation),
        *resizes.forget(relation),
        *transitions.forget(state, relation, version),
        rows.delete(s.troubles, relation_id=relation, retry_at=rows.Not(None)),
    )


def _refuse_taken_name(state: State, name: str, besides: RelationId | None = None) -> None:
    found = rows.one(state, s.relations, folded_name=s.folded(name), dropped_version=None)
    if found is not None and found.relation_id != besides:
        raise DuplicateNameError(f"{name}: expected a free name, found a relation of that name; choose another")


def _insert_columns(relation: RelationId, columns: tuple[Column, ...], version: Version) -> Change:
    return rows.insert(
        s.columns,
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


def _insert_map(relation: RelationId, tablets: int, version: Version) -> Change:
    return rows.insert(s.tablet_maps, [{"relation_id": relation, "begin_version": version, "tablets": tablets}])


def _insert_placement(state: State, relation: RelationId, placement: tuple[tuple[NodeId, ...], ...]) -> Change:
    return _insert_replicas(relation, transitions.on_shards(state, relation, placement))


def _insert_replicas(relation: RelationId, replicas: tuple[tuple[Replica, ...], ...]) -> Change:
    return rows.insert(
        s.tablets,
        [
            {"relation_id": relation, "tablet_id": tablet, "host_id": host, "shard": shard, "ordinal": ordinal}
            for tablet, of_tablet in enumerate(replicas)
            for ordinal, (host, shard) in enumerate(of_tablet)
        ],
    )
