"""How a change of one input reaches the rows of a view, and which input rows those are made of.

Three questions, each answered by walking the tree:

- `reach`: given a changed row of a leaf, which values can the affected result rows have in some columns?
- `find`: given values of some columns, which values do the rows that have them show in other columns?
- `narrow`: if only result rows with certain values matter, which rows of each leaf can matter?

An answer is a *superset*: it may name values that turn out unchanged, never miss one that did change. That makes
every shortcut safe. `None` means that there is no bounded answer; then the view is recomputed as a whole.

Why the newest state of the other inputs is enough in `reach`, although several may have changed: take a result row,
old or new, that was made with changed rows, and among those the one nearest to the column asked for. All rows between
are unchanged, hence in the newest state, and its own change (old and new row) starts the walk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from ebla.algebra.nodes import Branches, Column, Computation, Group, Join, JoinKind, Leaf, Node, Pass, Value, holds

# ---- where values come from -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedValues:
    """Values of a leaf's changed rows, old and new: *transform*, nothing is read."""

    leaf: int
    table: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupValues:
    """Values of the rows of a leaf that have `by` among `source`: *grab*, a lookup in the newest state."""

    leaf: int
    table: str
    by: tuple[Column, ...]
    source: Values
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedValues:
    """Some columns of other values, by position."""

    source: Values
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueUnion:
    sources: tuple[Values, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The values that the epoch found affected: where `narrow` starts."""

    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutNull:
    """Values of a list of NOT IN. Rows with one of them are affected, and those with NULL in its place.

    A NULL among the values may affect every row: the view is recomputed.
    """

    source: Values


Values = ChangedValues | LookupValues | PickedValues | ValueUnion | Scope | WithoutNull


def picked(source: Values, positions: tuple[int, ...], width: int) -> Values:
    return source if positions == tuple(range(width)) else PickedValues(source=source, positions=positions)


def computes(values: Values) -> bool:
    """Whether expressions are evaluated to have these values."""
    match values:
        case ChangedValues(columns=columns):
            return any(isinstance(column, Computation) for column in columns)
        case LookupValues(by=by, columns=columns, source=source):
            return any(isinstance(column, Computation) for column in (*by, *columns)) or computes(source)
        case PickedValues(source=source) | WithoutNull(source=source):
            return computes(source)
        case ValueUnion(sources=sources):
            return any(map(computes, sources))
        case Scope():
            return False


# ---- reach ----------------------------------------------------------------------------------------------


def reach(node: Node, leaf: Leaf, wanted: tuple[Value, ...]) -> Values | None:
    """Values of `wanted` in rows of this node, old or new, that a change of the leaf affects."""
    if not set(wanted) <= node.values:
        return None
    match node:
        case Leaf():
            names = node.names(wanted) if node is leaf else None
            return None if names is None else ChangedValues(leaf=leaf.number, table=leaf.table, columns=names)
        case Pass(child=child):
            return reach(child, leaf, wanted)
        case Group(child=child, by=by):
            # A change touches its whole group, so only the values that the group shares can be computed.
            return reach(child, leaf, wanted) if wanted and set(wanted) <= by else None
        case Branches(children=children):
            found = [reach(child, leaf, node.into(i, wanted)) for i, child in enumerate(children) if holds(child, leaf)]
            return found[0] if len(found) == 1 else None
        case Join():
            return _reach_join(node, leaf, wanted)
        case _:
            assert_never(node)


def _reach_join(node: Join, leaf: Leaf, wanted: tuple[Value, ...]) -> Values | None:
    if wanted and set(wanted) <= set(node.fused):
        sides = [node.pairs[node.fused.index(v)] for v in wanted]
        if holds(node.left, leaf):
            return reach(node.left, leaf, tuple(a for a, _ in sides))
        return reach(node.right, leaf, tuple(b for _, b in sides))
    if set(wanted) & node.nullable:
        return None  # a row that loses its partner shows NULL there: the value does not name it
    from_left = holds(node.left, leaf)
    near, far = (node.left, node.right) if from_left else (node.right, node.left)
    to_far = {(a if from_left else b): (b if from_left else a) for a, b in node.pairs}
    to_near = {b: a for a, b in to_far.items()}
    if node.kind is JoinKind.NULL_AWARE_ANTI and not from_left:
        source = reach(near, leaf, tuple(to_far)) if to_far else None
        return None if source is None else find(far, tuple(to_far.values()), WithoutNull(source=source), wanted)
    there = _translated(wanted, near, to_near) if node.kind is not JoinKind.FULL else None
    if there is not None and not (set(there) & node.nullable):
        return reach(near, leaf, there)
    beyond = _translated(wanted, far, to_far)
    if beyond is None or not to_far:
        return None
    # All equated values together if they can be computed, else one of them.
    for pairs in (list(to_far.items()), *([p] for p in to_far.items())):
        source = reach(near, leaf, tuple(a for a, _ in pairs))
        if source is not None:
            return find(far, tuple(b for _, b in pairs), source, beyond)
    return None


def _translated(wanted: tuple[Value, ...], side: Node, pairs: dict[Value, Value]) -> tuple[Value, ...] | None:
    """The wanted values as values of one side, by the join's equalities where needed."""
    found = [v if v in side.values else pairs.get(v) for v in wanted]
    return None if None in found else tuple(v for v in found if v is not None)


# ---- find -----------------------------------------------------------------------------------------------


def find(node: Node, by: tuple[Value, ...], source: Values, wanted: tuple[Value, ...]) -> Values | None:
    """Values of `wanted` in the node's rows that have `by` among the source."""
    if set(wanted) <= set(by):
        return picked(source, tuple(by.index(v) for v in wanted), len(by))
    if not set(by) | set(wanted) <= node.values:
        return None
    match node:
        case Leaf():
            keys, names = node.names(by), node.names(wanted)
            if keys is None or names is None:
                return None
            return LookupValues(leaf=node.number, table=node.table, by=keys, source=source, columns=names)
        case Pass(child=child):
            return find(child, by, source, wanted)
        case Group(child=child, by=shared, keeps_rows=keeps):
            values = child.values if keeps else shared
            return find(child, by, source, wanted) if set(by) | set(wanted) <= values else None
        case Branches(children=children):
            found = [find(c, node.into(i, by), source, node.into(i, wanted)) for i, c in enumerate(children)]
            parts = tuple(f for f in found if f is not None)
            return ValueUnion(sources=parts) if len(parts) == len(found) else None
        case Join():
            return _find_join(node, by, source, wanted)
        case _:
            assert_never(node)


def _find_join(node: Join, by: tuple[Value, ...], source: Values, wanted: tuple[Value, ...]) -> Values | None:
    if set(wanted) & (node.nullable | set(node.fused)) or node.kind is JoinKind.FULL:
        return None
    for here, there, pairs in (
        (node.left, node.right, list(node.pairs)),
        (node.right, node.left, [(b, a) for a, b in node.pairs]),
    ):
        if not set(by) <= here.values:
            continue
        same = _translated(wanted, here, {b: a for a, b in pairs})
        if same is not None:
            return find(here, by, source, same)
        beyond = _translated(wanted, there, dict(pairs))
        if beyond is None or not pairs:
            continue
        middle = find(here, by, source, tuple(a for a, _ in pairs))
        if middle is not None:
            return find(there, tuple(b for _, b in pairs), middle, beyond)
    return None


# ---- narrow ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowedLeaf:
    """Only rows of the leaf that have `by` among the source can matter."""

    leaf: int
    table: str
    by: tuple[Column, ...]
    source: Values

    @property
    def is_scan(self) -> bool:
        """Whether the whole input is read to find rows by what is computed of them."""
        return any(isinstance(column, Computation) for column in self.by)


def narrow(node: Node, by: tuple[Value, ...], source: Values) -> list[NarrowedLeaf]:
    """For each leaf that can be bounded, which of its rows can matter if only rows with `by` in the source do."""
    match node:
        case Leaf():
            stored = tuple(v for v in by if node.stores(v))
            found = stored or tuple(v for v in by if v in node.columns)
            names = node.names(found)
            if not names:
                return []
            kept = picked(source, tuple(by.index(v) for v in found), len(by))
            return [NarrowedLeaf(leaf=node.number, table=node.table, by=names, source=kept)]
        case Pass(child=child):
            return _narrow_by(child, by, source, child.values)
        case Group(child=child, by=shared):
            return _narrow_by(child, by, source, shared)
        case Branches(children=children):
            return [n for i, c in enumerate(children) for n in narrow(c, node.into(i, by), source)]
        case Join():
            return _narrow_join(node, by, source)
        case _:
            assert_never(node)


def _narrow_by(child: Node, by: tuple[Value, ...], source: Values, columns: frozenset[Value]) -> list[NarrowedLeaf]:
    kept = tuple(v for v in by if v in columns)
    if not kept:
        return []
    return narrow(child, kept, picked(source, tuple(by.index(v) for v in kept), len(by)))


def _narrow_join(node: Join, by: tuple[Value, ...], source: Values) -> list[NarrowedLeaf]:
    if node.kind is JoinKind.FULL:
        return _narrow_full(node, by, source)
    if node.kind is JoinKind.RIGHT:
        first, second, pairs = node.right, node.left, [(b, a) for a, b in node.pairs]
    else:
        first, second, pairs = node.left, node.right, list(node.pairs)
    if node.kind is JoinKind.INNER and not any(v in first.values for v in by):
        first, second, pairs = second, first, [(b, a) for a, b in pairs]
    outer = node.kind is not JoinKind.INNER
    to_first = {} if outer else {b: a for a, b in pairs}
    kept = tuple(v for v in by if v in first.values or v in to_first)
    if not kept:
        return []
    here = tuple(v if v in first.values else to_first[v] for v in kept)
    ours = picked(source, tuple(by.index(v) for v in kept), len(by))
    found = narrow(first, here, ours)
    if node.kind is JoinKind.NULL_AWARE_ANTI or not pairs:
        return found  # every row of the other side matters
    partner = dict(pairs)
    direct = tuple(v for v in by if (not outer and v in second.values) or (v in first.values and v in partner))
    if direct:
        there = tuple(v if v in second.values else partner[v] for v in direct)
        return found + narrow(second, there, picked(source, tuple(by.index(v) for v in direct), len(by)))
    middle = find(first, here, ours, tuple(a for a, _ in pairs))
    return found if middle is None else found + narrow(second, tuple(b for _, b in pairs), middle)


def _narrow_full(node: Join, by: tuple[Value, ...], source: Values) -> list[NarrowedLeaf]:
    """A row of either side may stand alone, so only what both sides have in common says which rows matter."""
    kept = tuple(v for v in by if v in node.fused)
    if not kept:
        return []
    ours = picked(source, tuple(by.index(v) for v in kept), len(by))
    sides = [node.pairs[node.fused.index(v)] for v in kept]
    return [
        *narrow(node.left, tuple(a for a, _ in sides), ours),
        *narrow(node.right, tuple(b for _, b in sides), ours),
    ]


# ---- from a position on ---------------------------------------------------------------------------------


def origins(node: Node, value: Value) -> list[tuple[Leaf, Column]] | None:
    """Mentions and their columns that give the value of every row of the node.

    Of the rows of those mentions that have some values there, the node makes its rows with these values, and no others.
    `None`: a row may have a value of its own.
    """
    match node:
        case Leaf():
            return [(node, node.columns[value])] if node.stores(value) else None
        case Pass(child=child, computed=computed):
            return None if value in computed else origins(child, value)
        case Group(child=child, by=by):
            return origins(child, value) if value in by else None
        case Branches(children=children, outputs=outputs):
            if value not in outputs:
                return None
            found = [origins(child, *node.into(i, (value,))) for i, child in enumerate(children)]
            parts = [part for part in found if part is not None]
            return [one for part in parts for one in part] if len(parts) == len(found) else None
        case Join(left=left, right=right):
            if value in node.nullable or value in node.fused:
                return None
            return origins(left if value in left.values else right, value)
        case _:
            assert_never(node)
