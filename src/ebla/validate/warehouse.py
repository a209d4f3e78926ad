"""What the validator has to know, from the catalog."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection

from ebla.catalog import reads
from ebla.sql.refs import find
from ebla.storage.model import Kind, Relation
from ebla.validate.known import Handlers, Known, KnownRelation


def known(connection: Connection, names: Collection[str] | None = None, handlers: Handlers | None = None) -> Known:
    """The relations of a warehouse. With `names` (in lower case) only those in full, of the others only the name."""
    kinds = {name: kind for kind in Kind for name in reads.relation_names(connection, kind)}
    found: dict[str, KnownRelation] = {}
    for name in reads.relation_names(connection):
        if names is None or name.lower() in names:
            found[name.lower()] = known_relation(reads.relation(connection, name))
        else:
            found[name.lower()] = KnownRelation(name=name, kind=kinds[name], columns=None)
    return Known(relations=found, handlers=handlers or {})


def known_relation(relation: Relation) -> KnownRelation:
    query = find(str(relation.options["query"])) if relation.kind is Kind.VIEW else None
    return KnownRelation(
        name=relation.name,
        kind=relation.kind,
        columns={c.name: c.type for c in relation.visible},
        key=() if relation.keyless else tuple(c.name for c in relation.key),
        reads=frozenset() if query is None else frozenset(ref.name.lower() for ref in query.refs),
        query=query,
    )
