"""Relations as values, for decisions that need no warehouse."""

from __future__ import annotations

from ebla.base.ids import NodeId, RelationId, Version
from ebla.model.relation import Column, Kind, Relation


def relation(name: str, key: str, *columns: str, number: int = 1) -> Relation:
    names = key.split()
    made = tuple(
        Column(name=n, physical=n, type=kind, key_position=names.index(n) if n in names else None)
        for n, _, kind in (column.partition(" ") for column in columns)
    )
    return Relation(
        id=RelationId(number),
        name=name,
        kind=Kind.TABLE,
        tablets=1,
        replication=1,
        schema_version=1,
        placement_version=1,
        columns=made,
        placement=((NodeId("n"),),),
        horizon=Version(0),
        created_version=Version(0),
    )
