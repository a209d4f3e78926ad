"""Rows of relations and their tablets, as they are: for those who need less than a whole `Relation`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from ebla.base.ids import NodeId, RelationId, TabletId
from ebla.catalog import schema as s
from ebla.catalog.reads import options_of
from ebla.model.relation import Kind
from ebla.model.tasks import Replica

if TYPE_CHECKING:
    from sqlalchemy import Row


def rows(connection: Connection) -> Sequence[Row[Any]]:
    """Of relations that are there, by name."""
    return connection.execute(
        select(s.relations).where(s.relations.c.dropped_version.is_(None)).order_by(s.relations.c.name)
    ).all()


def horizons(connection: Connection, relation: RelationId | None) -> dict[RelationId, int]:
    """The horizon of one relation, or of all, dropped ones included."""
    query = select(s.relations.c.relation_id, s.relations.c.horizon)
    if relation is not None:
        query = query.where(s.relations.c.relation_id == relation)
    return {RelationId(row.relation_id): row.horizon for row in connection.execute(query)}


def kinds(connection: Connection, relations: Iterable[RelationId]) -> dict[RelationId, Kind]:
    found = select(s.relations.c.relation_id, s.relations.c.kind).where(s.relations.c.relation_id.in_(list(relations)))
    return {RelationId(row.relation_id): Kind(row.kind) for row in connection.execute(found)}


def inputs(connection: Connection, views: Collection[RelationId] | None = None) -> dict[RelationId, list[RelationId]]:
    """The relations that views read: some views, or all that are there."""
    found = select(s.relations.c.relation_id, s.relations.c.options)
    if views is None:
        found = found.where(s.relations.c.kind == Kind.VIEW.value, s.relations.c.dropped_version.is_(None))
    else:
        found = found.where(s.relations.c.relation_id.in_(list(views)))
    return {
        RelationId(row.relation_id): [RelationId(i) for i in options_of(row.options).get("inputs", [])]
        for row in connection.execute(found)
    }


def first_replicas(connection: Connection, relation: RelationId) -> dict[TabletId, Replica]:
    """The first replica of each tablet."""
    found = connection.execute(
        select(s.tablets.c.tablet_id, s.tablets.c.host_id, s.tablets.c.shard)
        .where(s.tablets.c.relation_id == relation)
        .order_by(s.tablets.c.tablet_id, s.tablets.c.ordinal.desc())
    )
    return {TabletId(r.tablet_id): Replica(NodeId(r.host_id), r.shard) for r in found}
