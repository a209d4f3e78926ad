"""The sorted relations through which a relation can be read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Connection

from ebla.errors import UsageError
from ebla.indexes.definition import Index, Known
from ebla.query.plan import AccessPath, PathColumn, base_path, is_expression
from ebla.query.select import normalized
from ebla.storage.model import Column, Relation


def paths_of(connection: Connection, relation: Relation, indexes: Known) -> list[AccessPath]:
    """The relation by its primary key, and its readable indexes.

    One whose condition is more than comparisons of columns with literals is left out: nothing tells whether a request
    asks for no other rows.
    """
    found = [index for index in indexes.of_base(connection, relation) if index.readable]
    return [base_path(relation), *(_of_index(index) for index in found if index.conditions is not None)]


def _of_index(index: Index) -> AccessPath:
    """Expressions go by their normalized text."""
    expressions = {item.physical: normalized(item.text) for item in index.expressions}
    relation = index.relation
    assert index.conditions is not None
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
        predicate=index.conditions,
        settings=index.settings,
    )


def expressions_of(paths: Collection[AccessPath], settings: Mapping[str, str]) -> dict[str, Column]:
    """The expressions that indexes have, as columns of the relation: those that mean the same in this session."""
    found: dict[str, Column] = {}
    for path in paths:
        if path.settings == settings:
            by_physical = {c.physical: c for c in path.relation.columns}
            for base, name in path.columns.items():
                if is_expression(base):
                    column = by_physical[name]
                    found[base] = Column(name=column.name, physical=base, type=column.type)
    return found


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
