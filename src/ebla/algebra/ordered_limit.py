"""The end of a query that takes the first rows in some order."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ebla.algebra.nodes import NotUnderstood, OrderedLimit, Ordering
from ebla.sql.items import unordered
from ebla.sql.query import Query


def cut_first(query: Query, tree: exp.Expr) -> tuple[exp.Expr, exp.Order | None, int, int]:
    """A query without its `ORDER BY … LIMIT … OFFSET …`, and those; a limit of 0 rows if there is none."""
    limit, offset, order = tree.args.get("limit"), tree.args.get("offset"), tree.args.get("order")
    if limit is None:
        return tree, None, 0, 0
    if order is None:
        raise NotUnderstood("LIMIT without ORDER BY")
    if unordered(query) is None:
        raise NotUnderstood("LIMIT in a query that does not end with ORDER BY … LIMIT … OFFSET …")
    rest = tree.copy()
    for part in ("limit", "offset", "order"):
        rest.set(part, None)
    return rest, order, _number(limit), 0 if offset is None else _number(offset)


def first_rows(tree: exp.Expr, order: exp.Order, names: Sequence[str], count: int, offset: int) -> OrderedLimit:
    """The first rows by output columns of these names."""
    items = [item.unalias() for item in tree.expressions] if isinstance(tree, exp.Select) else []
    made = []
    for one in order.expressions:
        column = one.this
        if isinstance(column, exp.Column) and not column.table and column.name in names:
            place = names.index(column.name)
        elif column in items:
            place = items.index(column)
        else:
            raise NotUnderstood(f"ORDER BY {column.sql('spark')} LIMIT {count}, by what is no output column")
        descending = bool(one.args.get("desc"))
        made.append(Ordering(place=place, descending=descending, nulls_first=bool(one.args.get("nulls_first"))))
    return OrderedLimit(order=tuple(made), count=count, offset=offset)


def _number(tree: exp.Expr) -> int:
    given = tree.args.get("expression")
    if not isinstance(given, exp.Literal) or not str(given.this).isdecimal():
        raise NotUnderstood(f"{tree.key.upper()} of what is no number")
    return int(given.this)
