"""The sorted relations through which a relation can be read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Connection

from ebla.errors import UsageError
from ebla.model.relation import Column, Relation
from ebla.predicates.access import AccessPath, PathColumn, base_path
from ebla.predicates.select import IndexVocabulary, normalized
from ebla.query.plan import is_expression
from ebla.relations.indexes import Index, IndexCache


def paths_of(connection: Connection, relation: Relation, indexes: IndexCache) -> list[AccessPath]:
    """The relation by its primary key, and its readable indexes."""
    found = [index for index in indexes.of_base(connection, relation) if index.readable]
    return [base_path(relation), *(path_of(index) for index in found)]


def unreadable(connection: Connection, relation: Relation, indexes: IndexCache) -> list[tuple[str, str]]:
    """The other indexes, and why they cannot be read."""
    found = [index for index in indexes.of_base(connection, relation) if not index.readable]
    return [(index.name, f"it cannot be read while it is {index.state}") for index in found]


def path_of(index: Index) -> AccessPath:
    """Expressions go by their normalized text."""
    expressions = {item.physical: normalized(item.text) for item in index.expressions}
    relation = index.relation
    predicate, promises = index.promises
    return AccessPath(
        relation=relation,
        key=tuple(
            PathColumn(
                base=expressions.get(c.physical, c.physical),
                path=c.physical,
                descending=c.physical in relation.descending,
            )
            for c in relation.key
        ),
        columns={expressions.get(c.physical, c.physical): c.physical for c in relation.columns},
        predicate=predicate,
        promises=promises,
        settings=index.settings,
    )


def spoken_of(paths: Collection[AccessPath], settings: Mapping[str, str]) -> IndexVocabulary:
    """What indexes have besides columns of the relation: that which means the same in this session."""
    found: dict[str, Column] = {}
    promises: set[str] = set()
    for path in paths:
        if path.settings == settings:
            promises |= path.promises
            by_physical = {c.physical: c for c in path.relation.columns}
            for base, name in path.columns.items():
                if is_expression(base):
                    column = by_physical[name]
                    found[base] = Column(name=column.name, physical=base, type=column.type)
    return IndexVocabulary(expressions=found, promises=frozenset(promises), settings=settings)


def index_path(base: Relation, index: Relation, *, descending: Collection[str] = ()) -> AccessPath:
    """A relation whose key is index columns and then the base's key, as a way to the base's rows.

    Columns are those of the same name. `descending` names key columns whose runs are sorted downwards.
    """
    mine = {c.name.lower(): c.physical for c in base.columns}
    columns = {mine[c.name.lower()]: c.physical for c in index.columns if c.name.lower() in mine}
    strange = [c.name for c in index.key if c.name.lower() not in mine]
    missing = [c.name for c in base.key if c.physical not in columns]
    if strange or missing:
        raise UsageError(
            f"{index.name}: expected a key of columns of {base.name} that ends with its key, "
            f"found {', '.join(c.name for c in index.key)}"
        )
    down = {name.lower() for name in descending}
    return AccessPath(
        relation=index,
        key=tuple(
            PathColumn(base=mine[c.name.lower()], path=c.physical, descending=c.name.lower() in down) for c in index.key
        ),
        columns=columns,
    )
