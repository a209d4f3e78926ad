"""Rows of relations and their tablets, as they are: for those who need less than a whole `Relation`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ebla.base.ids import NodeId, RelationId, TabletId
from ebla.catalog import memory
from ebla.catalog import schema as s
from ebla.catalog.reads import called
from ebla.catalog.rows import State, find, one, values
from ebla.errors import UnknownNameError
from ebla.model.relation import FOREVER, Kind
from ebla.model.tasks import Replica


def rows(state: State) -> Sequence[Any]:
    """The rows of relations that are not dropped, by name."""
    return find(state, s.relations, "name", dropped_version=None)


def living_row(state: State, relation: RelationId) -> Any:
    """The row of a relation that is not dropped."""
    key = ("living", relation)
    row = memory.remembered(state, key, lambda: one(state, s.relations, relation_id=relation))
    if row is None or row.dropped_version is not None:
        raise UnknownNameError(f"{called(state, relation)}: expected to be there, found dropped; nothing was written")
    return row


def horizons(state: State, relation: RelationId | None) -> dict[RelationId, int]:
    """The horizon of one relation, or of all, dropped ones included."""
    which = {} if relation is None else {"relation_id": relation}
    return {RelationId(row.relation_id): row.horizon for row in find(state, s.relations, **which)}


def kinds(state: State, relations: Iterable[RelationId]) -> dict[RelationId, Kind]:
    found = find(state, s.relations, relation_id=frozenset(relations))
    return {RelationId(row.relation_id): Kind(row.kind) for row in found}


def column_names(state: State) -> dict[str, list[str]]:
    """Of each living table and view, the columns that a query can name, in their order."""
    found: dict[int, list[str]] = {}
    for row in find(state, s.columns, "ordinal", end_version=FOREVER, hidden=False):
        found.setdefault(row.relation_id, []).append(row.name)
    named = (row for row in rows(state) if row.kind != Kind.INDEX.value)
    return {row.name: found.get(row.relation_id, []) for row in named}


def inputs(state: State, views: Collection[RelationId] | None = None) -> dict[RelationId, list[RelationId]]:
    """The relations that views read: some views, or all that are there."""
    read: dict[RelationId, list[RelationId]] = {}
    for row in find(state, s.dependencies, **({} if views is None else {"relation_id": frozenset(views)})):
        read.setdefault(RelationId(row.relation_id), []).append(RelationId(row.input_id))
    return read


def readers(state: State, relation: RelationId) -> set[RelationId]:
    """The views that read a relation directly."""
    return values(state, s.dependencies.c.relation_id, input_id=relation)


def first_replicas(state: State, relation: RelationId) -> dict[TabletId, Replica]:
    """The first replica of each tablet."""
    found = find(state, s.tablets, "tablet_id", "ordinal", relation_id=relation)
    return {TabletId(r.tablet_id): Replica(NodeId(r.host_id), r.shard) for r in reversed(found)}
