"""Relations, their columns and placements: checked, created and altered inside one transaction."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, assert_never

from sqlalchemy import Connection, Row, and_, delete, insert, select, update

from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import building, indexing, memory, runs
from ebla.catalog import schema as s
from ebla.catalog.reads import called
from ebla.errors import ConflictError, DuplicateNameError, UnknownNameError
from ebla.model import changes as c
from ebla.model.relation import FOREVER, Column

# ---- requirements ---------------------------------------------------------------------------------------


def check(connection: Connection, requirement: c.SchemaWithinOne | c.PlacementIs) -> None:
    living = _living(connection, requirement.relation)
    match requirement:
        case c.SchemaWithinOne(relation=relation, schema_version=planned):
            if living.schema_version - planned > 1:
                raise ConflictError(
                    f"{called(connection, relation)}: expected schema {planned} or {planned + 1}, "
                    f"found {living.schema_version}; the write was planned too long ago: retry it"
                )
        case c.PlacementIs(relation=relation, placement_version=planned):
            if living.placement_version != planned:
                raise ConflictError(
                    f"{called(connection, relation)}: expected placement {planned}, "
                    f"found {living.placement_version}; its replicas moved during the write: retry it"
                )
        case _:
            assert_never(requirement)


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


# ---- updates --------------------------------------------------------------------------------------------


def create(connection: Connection, new: c.CreateRelation, version: Version) -> RelationId:
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


def alter(connection: Connection, change: c.RelationUpdate, version: Version) -> None:
    relation = change.relation
    this = update(s.relations).where(s.relations.c.relation_id == relation)
    if not isinstance(change, c.SetHorizon):  # vacuum goes on where a relation was dropped
        _living(connection, relation)
    match change:
        case c.DropRelation():
            _drop(connection, relation, version)
        case c.RenameRelation(name=name):
            _refuse_taken_name(connection, name, besides=relation)
            connection.execute(this.values(name=name, folded_name=s.folded(name)))
        case c.SetRelationComment(comment=comment):
            connection.execute(this.values(comment=comment))
        case c.SetColumns(columns=columns, outdates_writes=outdates):
            _set_columns(connection, relation, columns, version)
            connection.execute(this.values(schema_version=s.relations.c.schema_version + (2 if outdates else 1)))
        case c.SetConstraints(constraints=constraints):
            options = {**_options(connection, relation), "constraints": [asdict(one) for one in constraints]}
            connection.execute(
                this.values(
                    options=json.dumps(options, sort_keys=True), schema_version=s.relations.c.schema_version + 1
                )
            )
        case c.TruncateRelation():
            runs.end_all(connection, relation, version)
            connection.execute(insert(s.truncations), {"relation_id": relation, "version": version})
            for index in indexing.truncate(connection, relation, version):
                alter(connection, c.TruncateRelation(relation=index), version)
        case c.SetHorizon(horizon=horizon):
            connection.execute(this.where(s.relations.c.horizon < horizon).values(horizon=horizon))
            runs.forget(connection, relation, horizon)
        case c.SetPlacement(placement=placement):
            connection.execute(delete(s.tablets).where(s.tablets.c.relation_id == relation))
            _insert_placement(connection, relation, placement)
            connection.execute(this.values(placement_version=s.relations.c.placement_version + 1))
        case _:
            assert_never(change)


def _drop(connection: Connection, relation: RelationId, version: Version) -> None:
    for index in indexing.forget(connection, relation):
        alter(connection, c.DropRelation(relation=index), version)
    this = update(s.relations).where(s.relations.c.relation_id == relation)
    connection.execute(this.values(dropped_version=version, horizon=version))
    runs.end_all(connection, relation, version)
    building.forget(connection, relation)
    # Nothing of it is tried again; why it could not be built stays known.
    mine = and_(s.troubles.c.relation_id == relation, s.troubles.c.retry_at.is_not(None))
    connection.execute(delete(s.troubles).where(mine))


def _set_columns(connection: Connection, relation: RelationId, columns: tuple[Column, ...], version: Version) -> None:
    old = and_(s.columns.c.relation_id == relation, s.columns.c.end_version == FOREVER)
    connection.execute(update(s.columns).where(old).values(end_version=version))
    _insert_columns(connection, relation, columns, version)


def _options(connection: Connection, relation: RelationId) -> dict[str, Any]:
    kept = connection.execute(select(s.relations.c.options).where(s.relations.c.relation_id == relation))
    found: dict[str, Any] = json.loads(kept.scalar_one())
    return found


def _refuse_taken_name(connection: Connection, name: str, besides: RelationId | None = None) -> None:
    taken = select(s.relations.c.relation_id).where(
        s.relations.c.folded_name == s.folded(name), s.relations.c.dropped_version.is_(None)
    )
    found = connection.execute(taken).scalar()
    if found is not None and found != besides:
        raise DuplicateNameError(f"{name}: expected a free name, found a relation of that name; choose another")


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
