"""Relations, their columns and placements: the rules of their requirements and updates."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import assert_never

from ebla.base.ids import RelationId, Version
from ebla.catalog import cdc, leftovers, removal, rows, tablet_maps, view_states
from ebla.catalog import schema as s
from ebla.catalog.reads import called
from ebla.catalog.relations import living_row
from ebla.catalog.rows import Change, State
from ebla.errors import ConflictError, DuplicateNameError
from ebla.model import changes as c
from ebla.model.relation import FOREVER, Column, Kind

# ---- requirements ---------------------------------------------------------------------------------------


def require_schema(state: State, requirement: c.SchemaWithinOne) -> None:
    relation, planned = requirement.relation, requirement.schema_version
    now = living_row(state, relation).schema_version
    if now - planned > 1:
        raise ConflictError(
            f"{called(state, relation)}: expected schema {planned} or {planned + 1}, "
            f"found {now}; the write was planned too long ago: retry it"
        )


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
        _insert_columns(relation, new.columns, version),
        *tablet_maps.create(state, relation, new.placement, new.tablets, version),
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
    now = living_row(state, relation)
    match update:
        case c.DropRelation():
            return removal.drop(state, relation, version)
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
            return removal.truncate(state, relation, version)
        case c.SetPlacement(placement=placement):
            moved = this(placement_version=now.placement_version + 1)
            return *tablet_maps.place(state, relation, placement), moved
        case c.SetTabletMap(tablets=tablets):
            return tablet_maps.resize(state, now, tablets, version, clock)
        case _:
            assert_never(update)


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
