"""What a SELECT groups: aggregates, windows, and expressions that give several rows of one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from sqlglot import exp

from ebla.algebra.nodes import GROUPING_SETS, Group, Node, NotUnderstood, Pass, Value
from ebla.algebra.onward import looking_onward, with_named
from ebla.algebra.symbols import Scope, Symbols

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
_GENERATORS = frozenset({"stack", "inline", "inline_outer", "json_tuple", "posexplode_outer", "explode_outer"})


def grouping(symbols: Symbols, tree: exp.Select, node: Node, scope: Scope) -> tuple[Node, dict[str, Value]]:
    """The aggregation of a SELECT, if it has one, and the values of the expressions it groups by."""
    group = tree.args.get("group")
    parts = [*tree.expressions, *([tree.args["having"]] if tree.args.get("having") else [])]
    aggregates = any(_aggregates(part) for part in parts)
    if group is None and not aggregates:
        # A function that sqlglot does not know might aggregate, and then one row would depend on all.
        unknown = next((f for part in parts for f in part.find_all(exp.Anonymous)), None)
        if unknown is not None:
            raise NotUnderstood(f"function {unknown.name}, which may be an aggregate")
        return node, {}
    values: dict[str, Value] = {}
    if group is not None:
        refuse(group, "totals", "all")
        if group.args.get("grouping_sets"):
            raise NotUnderstood("columns before GROUPING SETS, which stands alone behind GROUP BY")
        sets = grouping_sets(group)
        if sets is not None:
            return _in_sets(symbols, tree, node, scope, sets)
        for one in group.expressions:
            value = symbols.plain(one, scope)
            values[one.sql("spark")] = symbols.fresh() if value is None or value not in node.values else value
    by = frozenset(values.values())
    computed = by - node.values
    below: Node = Pass(child=node, computed=computed) if computed else node
    return Group(child=below, by=by), values


def _in_sets(
    symbols: Symbols, tree: exp.Select, node: Node, scope: Scope, sets: Sequence[Sequence[exp.Expr]]
) -> tuple[Node, dict[str, Value]]:
    """Each row counts in a group of every set. What a set leaves out is NULL in its groups, so it is a new value."""
    values: dict[str, Value] = {}
    for one in [one for group in sets for one in group]:
        text = one.sql("spark")
        if text not in values:
            value = symbols.plain(one, scope) if all(one in group for group in sets) else None
            values[text] = symbols.fresh() if value is None or value not in node.values else value
    for part in tree.expressions:
        values |= {call.sql("spark"): symbols.fresh() for call in part.find_all(exp.Grouping, exp.GroupingId)}
    by = frozenset({*values.values(), symbols.fresh()})  # the last one is the set
    return Group(child=Pass(child=node, computed=by - node.values, multiplies=True), by=by, what=GROUPING_SETS), values


def grouping_sets(group: exp.Group) -> list[list[exp.Expr]] | None:
    """The sets of expressions that a GROUP BY forms groups by, if it says ROLLUP, CUBE or GROUPING SETS."""
    every = list(group.expressions)
    forms = [form for part in ("rollup", "cube") for form in group.args.get(part) or []]
    if forms:  # GROUP BY a, b WITH ROLLUP
        if len(forms) > 1 or forms[0].expressions or any(isinstance(one, _SETS) for one in every):
            raise NotUnderstood("several forms of grouping sets")
        every = [type(forms[0])(expressions=every)]
    if not any(isinstance(one, _SETS) for one in every):
        return None
    made: list[list[exp.Expr]] = [[]]
    for one in every:
        made = [[*before, *more] for before in made for more in _sets(one)]
    found = [frozenset(one.sql("spark") for one in group) for group in made]
    if len(set(found)) < len(found) or not any(found):
        raise NotUnderstood("grouping sets that repeat, or without columns")
    return made


def _sets(tree: exp.Expr) -> list[list[exp.Expr]]:
    match tree:
        case exp.Rollup():
            parts = [_listed(one) for one in tree.expressions]
            return [[one for part in parts[:count] for one in part] for count in range(len(parts), -1, -1)]
        case exp.Cube():
            parts = [_listed(one) for one in tree.expressions]
            choices = itertools.product((True, False), repeat=len(parts))
            return [[one for part, taken in zip(parts, c, strict=True) if taken for one in part] for c in choices]
        case exp.GroupingSets():
            if tree.find(exp.Rollup, exp.Cube):
                raise NotUnderstood("ROLLUP or CUBE inside GROUPING SETS")
            return [_listed(one) for one in tree.expressions]
        case _:
            return [[tree]]


def _listed(tree: exp.Expr) -> list[exp.Expr]:
    return list(tree.expressions) if isinstance(tree, exp.Tuple) else [tree.unnest()]


def windows(symbols: Symbols, tree: exp.Select, node: Node, scope: Scope, values: Mapping[str, Value]) -> Node:
    every = [w for part in tree.expressions for w in part.find_all(exp.Window)]
    qualify_ = tree.args.get("qualify")
    if qualify_ is not None:
        refuse_subqueries(qualify_)
        every += list(qualify_.find_all(exp.Window))
    if not every:
        return node
    named = {window.name: window for window in tree.args.get("windows") or []}
    shared: frozenset[Value] | None = None
    for window in every:
        partition = [p for one in with_named(window, named) for p in one.args.get("partition_by") or []]
        found = [symbols.plain(p, scope, values) for p in partition]
        by = frozenset(v for v in found if v is not None)
        shared = by if shared is None else shared & by
    onward = looking_onward(tree, every, named, lambda column: symbols.plain(column, scope, values))
    return Group(child=node, by=shared or frozenset(), keeps_rows=True, what="window function", onward=onward)


def generates(tree: exp.Expr) -> bool:
    return tree.find(exp.Explode, exp.Posexplode, exp.Unnest, exp.Inline) is not None or any(
        call.name.lower() in _GENERATORS for call in tree.find_all(exp.Anonymous)
    )


def _aggregates(tree: exp.Expr) -> bool:
    """Whether an expression aggregates: it has an aggregate function that is not a window's, nor of a subquery."""
    return any(not _inside(found, tree, (exp.Window, exp.Subquery, exp.Exists)) for found in tree.find_all(exp.AggFunc))


def _inside(part: exp.Expr, tree: exp.Expr, kinds: tuple[type[exp.Expr], ...]) -> bool:
    """Whether a part of an expression stands below one of these kinds, within that expression: not above it."""
    while part is not tree and part.parent is not None:
        part = part.parent
        if isinstance(part, kinds):
            return True
    return False


def refuse_subqueries(tree: exp.Expr) -> None:
    if tree.find(exp.Subquery, exp.Select, exp.Exists):
        raise NotUnderstood("a subquery in an expression")


def refuse(tree: exp.Expr, *parts: str) -> None:
    for part in parts:
        if tree.args.get(part):
            raise NotUnderstood(part.upper().replace("_", " "))


def gives_one_row(tree: exp.Expr) -> bool:
    """Whether a SELECT gives one row at most, whatever its inputs hold."""
    if not isinstance(tree, exp.Select) or tree.args.get("group") or tree.args.get("laterals"):
        return False
    if any(map(generates, tree.expressions)):
        return False
    return not (tree.args.get("from_") or tree.args.get("from")) or any(map(_aggregates, tree.expressions))


def generator(symbols: Symbols, node: Node, lateral: exp.Lateral, scope: Scope) -> Node:
    """`LATERAL VIEW explode(…) t AS a, b`, `LATERAL explode(…) AS t(a, b)`: several rows of one, computed columns."""
    alias = lateral.args.get("alias")
    if alias is None or lateral.find(exp.Subquery, exp.Select):
        raise NotUnderstood("LATERAL")
    columns = {column.name: symbols.fresh() for column in alias.args.get("columns") or []}
    made = Pass(child=node, computed=frozenset(columns.values()), multiplies=True)
    scope.add(alias.name, columns)
    return made
