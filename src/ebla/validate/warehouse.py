"""What the validator has to know, from the catalog."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import Connection

from ebla.catalog import index_states, reads
from ebla.model.relation import Kind, Relation
from ebla.sql.refs import find
from ebla.validate.facts import Handlers, RelationFacts, Warehouse


def read(connection: Connection, names: Collection[str] | None = None, handlers: Handlers | None = None) -> Warehouse:
    """The relations of a warehouse. With `names` (in lower case) only those in full, of the others only the name."""
    bases = _bases(connection)
    kinds = {name: kind for kind in Kind for name in reads.relation_names(connection, kind)}
    found: dict[str, RelationFacts] = {}
    for name in reads.relation_names(connection):
        if names is None or name.lower() in names:
            found[name.lower()] = replace(relation_facts(reads.relation(connection, name)), base=bases.get(name))
        else:
            found[name.lower()] = RelationFacts(name=name, kind=kinds[name], columns=None, base=bases.get(name))
    return Warehouse(relations=found, handlers=handlers or {})


def _bases(connection: Connection) -> dict[str, str]:
    """What each index is on, in lower case."""
    found: dict[str, str] = {}
    for state in index_states.all_states(connection):
        index, base = (reads.relation_by_id(connection, one) for one in (state.index, state.base))
        if index is not None and base is not None:
            found[index.name] = base.name.lower()
    return found


def relation_facts(relation: Relation) -> RelationFacts:
    query = find(str(relation.options["query"])) if relation.kind is Kind.VIEW else None
    return RelationFacts(
        name=relation.name,
        kind=relation.kind,
        columns={c.name: c.type for c in relation.visible},
        key=() if relation.keyless else tuple(c.name for c in relation.key),
        reads=frozenset() if query is None else frozenset(ref.name.lower() for ref in query.refs),
        query=query,
    )
