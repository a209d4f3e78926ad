"""Names of a query and the values that they stand for: sources in FROM, types, and which values are equal."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from ebla.algebra.computations import computed
from ebla.algebra.nodes import Column, Join, JoinKind, Leaf, Node, NotUnderstood, Pass, Value

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})


@dataclass(slots=True, kw_only=True)
class Scope:
    """Names that can be used in an expression, and those of the query around it."""

    ctes: Mapping[str, exp.Expr] = field(default_factory=dict)
    sources: dict[str, Mapping[str, Value]] = field(default_factory=dict)
    """The values of the columns of each relation in FROM, by folded alias."""
    outer: Scope | None = None

    def add(self, alias: str, columns: Mapping[str, Value]) -> None:
        if alias in self.sources:
            raise NotUnderstood(f"two sources of the name {alias}")
        self.sources[alias] = columns

    def find(self, column: exp.Column) -> Value | None:
        """The value of a column of this query, or of one around it."""
        if column.table in self.sources:
            return self.sources[column.table].get(column.name)
        return None if self.outer is None else self.outer.find(column)

    def is_correlated(self, tree: exp.Expr) -> bool:
        """Whether an expression names a column of a query around this one."""
        columns = [tree] if isinstance(tree, exp.Column) else tree.find_all(exp.Column)
        local = {s.alias_or_name for s in tree.find_all(exp.Table, exp.Subquery)}
        return any(c.table not in {*self.sources, *local} and self.find(c) is not None for c in columns)


class Symbols:
    """The values of one query: each is new when a column is computed, and has a type if that is known."""

    def __init__(self, *, computes: bool) -> None:
        """`computes`: expressions over columns have values, too."""
        self._computes = computes
        self._count = itertools.count(1)
        self._types: dict[Value, str] = {}
        self._fused: dict[frozenset[Value], Value] = {}
        self._columns: dict[Value, dict[Value, Column]] = {}
        """For a value of an input, all that its mention shows."""
        self._nullable: set[Value] = set()
        """Values that an outer join may have made NULL."""

    def fresh(self, kind: str | None = None) -> Value:
        value = Value(next(self._count))
        if kind is not None:
            self._types[value] = kind
        return value

    def type_of(self, value: Value) -> str | None:
        return self._types.get(value)

    def leaf(self, number: int, table: str, columns: Mapping[Value, str]) -> Leaf:
        """A mention of an input; expressions over its columns join them where the query names some."""
        every: dict[Value, Column] = dict(columns)
        self._columns.update(dict.fromkeys(every, every))
        return Leaf(number=number, table=table, columns=every)

    def joined(self, join: Join) -> Join:
        self._nullable |= join.nullable
        return join

    def fuse(self, pairs: Sequence[tuple[Value, Value]]) -> tuple[Value, ...]:
        """The values that `coalesce` makes of what a full join equates."""
        fused = tuple(self.fresh(self._types[a]) for a, _ in pairs)
        self._fused.update({frozenset(pair): value for pair, value in zip(pairs, fused, strict=True)})
        return fused

    def plain(self, tree: exp.Expr, scope: Scope, grouped_values: Mapping[str, Value] | None = None) -> Value | None:
        """The value of an expression that is a column, or one that the query groups by."""
        while isinstance(tree, exp.Paren):
            tree = tree.this
        grouped = grouped_values.get(tree.sql("spark")) if grouped_values else None
        if grouped is not None:
            return grouped
        if isinstance(tree, exp.Column):
            return scope.find(tree)
        fused = self._coalesced([tree.this, *tree.expressions], scope) if isinstance(tree, exp.Coalesce) else None
        return self._computed(tree, scope) if fused is None else fused

    def _computed(self, tree: exp.Expr, scope: Scope) -> Value | None:
        """The value of an expression over columns of one mention of an input."""
        values = {value for column in tree.find_all(exp.Column) if (value := scope.find(column)) is not None}
        columns = self._columns.get(next(iter(values), Value(0)))
        if not self._computes or columns is None or not all(isinstance(columns.get(value), str) for value in values):
            return None

        def lookup(column: exp.Column) -> tuple[str, str] | None:
            value = scope.find(column)
            return None if value is None else (str(columns[value]), self._types[value])

        found = computed(tree, lookup)
        if found is None or (values & self._nullable and not found[1]):
            return None  # a row without a partner has a value that no row of the input has
        made = next((value for value, column in columns.items() if column == found[0]), None)
        if made is None:
            made = self.fresh(found[0].type)
            columns[made] = found[0]
        return made

    def _coalesced(self, parts: Sequence[exp.Expr], scope: Scope) -> Value | None:
        """`coalesce(a.id, b.id)` of what a full join equates: the value of the side that a row comes from."""
        found = self.plain(parts[0], scope)
        for part in parts[1:]:
            other = self.plain(part, scope)
            if found is None or other is None:
                return None
            found = self._fused.get(frozenset((found, other)))
        return found

    def _alike(self, a: Value, b: Value) -> bool:
        ours, theirs = self._types.get(a), self._types.get(b)
        return ours is not None and (ours == theirs or {ours, theirs} <= _INTEGERS)

    def pairs(
        self, conditions: Sequence[exp.Expr], left: Node, right: Node, scope: Scope
    ) -> tuple[tuple[Value, Value], ...]:
        """Equalities of a column of the left with one of the right, of types whose equality needs no conversion."""
        equal = [one for one in [*conditions, *_implied(conditions)] if isinstance(one, exp.EQ)]
        sides = [(self.plain(one.this, scope), self.plain(one.expression, scope)) for one in equal]
        turned = [(b, a) if a in right.values and b in left.values else (a, b) for a, b in sides]
        return tuple(self.alike_pairs(turned, left, right))

    def alike_pairs(
        self, pairs: Iterable[tuple[Value | None, Value | None]], left: Node, right: Node
    ) -> list[tuple[Value, Value]]:
        """The pairs of a value of the left with one of the right whose types compare without conversion."""
        plain_pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
        return [(a, b) for a, b in plain_pairs if a in left.values and b in right.values and self._alike(a, b)]

    def with_pairs(self, node: Node, conditions: Sequence[exp.Expr], scope: Scope) -> Node:
        """Give inner joins the equalities that stand in WHERE; they hold for every row that remains.

        The text's order of inner joins means nothing: each source comes when an equality leads to it, so that a change
        is followed, and an input is narrowed, from one to the next.
        """
        if isinstance(node, Pass):  # lateral: what it adds to each row changes no value of the row
            return replace(node, child=self.with_pairs(node.child, conditions, scope))
        if not isinstance(node, Join):
            return node
        if node.kind is not JoinKind.INNER:
            return replace(node, left=self.with_pairs(node.left, conditions, scope))
        first, *others = _inner_sources(node)
        inner = _inner_pairs(node)
        made = self.with_pairs(first, conditions, scope)
        while others:
            links = [(one, self._links(inner, conditions, made, one, scope)) for one in others]
            found, pairs = next(((one, some) for one, some in links if some), (others[0], ()))
            others = [one for one in others if one is not found]
            made = Join(kind=JoinKind.INNER, left=made, right=found, pairs=pairs)
        return made

    def _links(
        self,
        inner: Sequence[tuple[Value, Value]],
        conditions: Sequence[exp.Expr],
        left: Node,
        right: Node,
        scope: Scope,
    ) -> tuple[tuple[Value, Value], ...]:
        """Everything that equates the left with the right: pairs of joins, and conditions."""
        both_ways = [(a, b) for pair in inner for a, b in (pair, pair[::-1])]
        found = [(a, b) for a, b in both_ways if a in left.values and b in right.values]
        return tuple(dict.fromkeys((*found, *self.pairs(conditions, left, right, scope))))


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.this), *conjuncts(condition.expression)]
    return [condition]


def _implied(conditions: Sequence[exp.Expr]) -> list[exp.Expr]:
    """What holds in every branch of an `OR`, and so holds whichever branch does."""
    found: list[exp.Expr] = []
    for condition in conditions:
        first, *others = [conjuncts(branch) for branch in _disjuncts(condition)]
        found += [one for one in first if others and all(one in branch for branch in others)]
    return found


def _disjuncts(condition: exp.Expr) -> list[exp.Expr]:
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.Or):
        return [*_disjuncts(condition.this), *_disjuncts(condition.expression)]
    return [condition]


def _inner_sources(node: Node) -> list[Node]:
    """What a chain of inner joins joins, in the order of the text."""
    if isinstance(node, Join) and node.kind is JoinKind.INNER:
        return [*_inner_sources(node.left), node.right]
    return [node]


def _inner_pairs(node: Node) -> list[tuple[Value, Value]]:
    if isinstance(node, Join) and node.kind is JoinKind.INNER:
        return [*_inner_pairs(node.left), *node.pairs]
    return []
