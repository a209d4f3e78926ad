"""Subqueries that are the same for every row: scalar ones that no condition ties to a row, aggregates over all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ebla.algebra.nodes import Branches, ClosedSubquery, Group, Join, Node, Pass, leaves
from ebla.algebra.plan import aggregated
from ebla.sql.items import subquery_of
from ebla.sql.query import Query


def closed_parts(query: Query, root: Node) -> tuple[ClosedSubquery, ...]:
    """The subqueries of a query whose text stands alone, and whose table references no other part reads."""
    mentions = Counter(leaf.number for leaf in leaves(root))
    parts = list(_closed(aggregated(root) or root))  # the whole query is no part of itself
    inside = Counter(leaf.number for part in parts for leaf in leaves(part))
    made: dict[tuple[int, ...], ClosedSubquery] = {}
    for part in parts:
        numbers = tuple(sorted({leaf.number for leaf in leaves(part) if leaf.number >= 0}))
        if numbers and all(inside[number] == mentions[number] for number in numbers):
            text = subquery_of(query, numbers)
            if text is not None:
                made[numbers] = ClosedSubquery(query=text, leaves=numbers)
    return tuple(made.values())


def _closed(node: Node) -> Iterator[Node]:
    """The outermost of them."""
    match node:
        case Group(by=by, keeps_rows=False) if not by:
            yield node
        case Join(left=left, right=right, closed=closed, pairs=pairs):
            yield from _closed(left)
            if closed and not pairs:
                yield right
            else:
                yield from _closed(right)
        case Pass(child=child) | Group(child=child):
            yield from _closed(child)
        case Branches(children=children):
            for child in children:
                yield from _closed(child)
