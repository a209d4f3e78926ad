"""Whether a view can be built piece by piece: how its rows hang on the rows of its base.

Theory of operation. The *base* is the table that the query begins with. A view is *driven* by it if every row of the
view comes from one row of the base and shows that row's key, in its own key. Then the query over a part of the base
gives exactly the view's rows of that part, and no two parts have a row in common: parts can be computed at different
times, and the base's key says to which part a change belongs. Projection, filter and joins of any
depth keep that, as long as no row can be there without a row of the base.

Any other view (groups, `DISTINCT`, set operations, windows, a base that is mentioned twice, a view on a view) *grows*
with the part of the base that it knows (`ebla.views.epoch.region`): a chunk is an epoch in which rows of the base
appear. That needs a change of the base that can be followed, and a key that the query implies: whether a declared one
holds, only all rows together tell. What is left is built in one piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ebla.algebra.follow import reach
from ebla.algebra.keys import view_key
from ebla.algebra.nodes import Branches, Group, Join, JoinKind, Leaf, Node, Pass, Shape, Value, holds, leaves
from ebla.algebra.plan import FullRefresh, TailPlan, aggregated, branches, plan
from ebla.algebra.shape import keys_of
from ebla.model.relation import Column, Kind, Relation


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenBuild:
    leaf: int
    """The mention of the base in the query's text."""
    base: str
    scope: tuple[str, ...]
    """The view's columns with the base's key, in the order of that key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingBuild:
    base: str
    reason: str
    """Why it is not driven by its base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePieceBuild:
    base: str | None
    """The table whose tablets the build is counted by; `None` for a query without tables."""
    reason: str


BuildMethod = DrivenBuild | GrowingBuild | OnePieceBuild


def driving(
    shape: Shape | None,
    names: Sequence[str],
    relations: Mapping[str, Relation],
    columns: Sequence[Column],
    *,
    merges: bool,
) -> BuildMethod:
    """How a view is built. `names` are the inputs in the order of the text, `columns` those of the view.

    `merges`: it keeps sums and counts.
    """
    if shape is None:
        return OnePieceBuild(base=next(iter(names), None), reason="its query is recomputed as a whole")
    base = _leftmost(shape.root)
    if shape.first is not None:
        return OnePieceBuild(base=next(iter(names), None), reason="all rows together tell which are the first")
    if base.table not in relations:  # a query without tables
        return OnePieceBuild(base=next(iter(names), None), reason="it begins with no table")
    found = _driven(shape, base, relations, columns)
    if isinstance(found, DrivenBuild):
        return found
    keys = keys_of(relations)
    followed = plan(shape, [base.table], keys, merges=merges)
    if isinstance(followed, FullRefresh):
        return OnePieceBuild(base=base.table, reason=followed.reason)
    if isinstance(followed, TailPlan):
        return OnePieceBuild(base=base.table, reason="windows without PARTITION BY would be computed for every chunk")
    key = {col.name for col in columns if col.key_position is not None and not col.hidden}
    implied = view_key(shape, keys)
    if key and not (implied and set(implied) <= key):
        return OnePieceBuild(base=base.table, reason="only all rows together tell whether its declared key holds")
    return GrowingBuild(base=base.table, reason=found)


def adding(shape: Shape, base: str, *, merges: bool) -> tuple[Leaf, tuple[int, ...]] | None:
    """The mention of the base, and those to leave out, if the query over rows that appear gives all that they change.

    That is rows of the view, or with `merges` what is added to its groups.
    """
    top = aggregated(shape.root) if merges else shape.root
    return None if top is None else one_by_one(top, base)


def one_by_one(top: Node, table: str) -> tuple[Leaf, tuple[int, ...]] | None:
    """The mention of a table, and those in other branches of `UNION ALL`, if each row comes of one row of the table.

    Or of none. Then rows of the table that appear add what the query makes of them alone, and take nothing away.
    """
    mentions = [leaf for leaf in leaves(top) if leaf.table == table]
    if len(mentions) != 1:
        return None
    found = branches(top)
    part, others = next((part, others) for part, others in found if holds(part, mentions[0]))
    if not all(_is_empty_without_inputs(one) for one, _ in found if one is not part):
        return None
    return (mentions[0], others) if _blocked(part, mentions[0], several=True) is None else None


def _is_empty_without_inputs(node: Node) -> bool:
    """Whether a branch has no row where no input has one. A constant has one, and an aggregate over all rows."""
    match node:
        case Leaf(number=number):
            return number >= 0
        case Pass(child=child):
            return _is_empty_without_inputs(child)
        case Group(child=child, by=by, keeps_rows=keeps):
            return (bool(by) or keeps) and _is_empty_without_inputs(child)
        case Branches(children=children):
            return all(map(_is_empty_without_inputs, children))
        case Join(kind=kind, left=left, right=right):
            sides = _is_empty_without_inputs(left), _is_empty_without_inputs(right)
            if kind in (JoinKind.INNER, JoinKind.FULL):
                return any(sides) if kind is JoinKind.INNER else all(sides)
            return sides[1] if kind is JoinKind.RIGHT else sides[0]


def _driven(
    shape: Shape, base: Leaf, relations: Mapping[str, Relation], columns: Sequence[Column]
) -> DrivenBuild | str:
    relation = relations[base.table]
    views = sorted(n for n, r in relations.items() if r.kind is not Kind.TABLE)
    if views:
        return f"it reads the view {views[0]}"
    if relation.keyless:
        return f"{base.table} has no primary key"
    if sum(1 for leaf in leaves(shape.root) if leaf.table == base.table) > 1:
        return f"{base.table} is mentioned more than once"
    blocked = _blocked(shape.root, base)
    if blocked is not None:
        return blocked
    scope = _key_of_base(shape, base, relation, columns)
    if scope is None:
        return f"its key does not hold the key of {base.table}"
    wanted = tuple(dict(shape.outputs)[name] for name in scope)
    for leaf in leaves(shape.root):
        if reach(shape.root, leaf, wanted) is None:
            return f"a change of {leaf.table} cannot be followed to the key of {base.table}"
    return DrivenBuild(leaf=base.number, base=base.table, scope=scope)


def _leftmost(node: Node) -> Leaf:
    match node:
        case Leaf():
            return node
        case Pass(child=child) | Group(child=child):
            return _leftmost(child)
        case Join(left=left):
            return _leftmost(left)
        case Branches(children=children):
            return _leftmost(children[0])


def _blocked(node: Node, base: Leaf, *, several: bool = False) -> str | None:
    """What on the way to the base makes a row of several, or one without a row of the base.

    `several`: one row of the base may make many.
    """
    match node:
        case Leaf():
            return None
        case Pass(child=child, multiplies=multiplies):
            if multiplies and not several:
                return "a generator makes several rows of one"
            return _blocked(child, base, several=several)
        case Group(what=what):
            return f"a row may come of several rows of {base.table}: {what}"
        case Branches():
            return f"a row may come without a row of {base.table}: a set operation"
        case Join(kind=kind, left=left, right=right):
            on_left = holds(left, base)
            kept = kind is JoinKind.INNER or (kind is JoinKind.RIGHT) != on_left
            if kind is JoinKind.FULL or not kept:
                return f"a row may come without a row of {base.table}: a {kind} join"
            return _blocked(left if on_left else right, base, several=several)


def _key_of_base(shape: Shape, base: Leaf, relation: Relation, columns: Sequence[Column]) -> tuple[str, ...] | None:
    """The columns of the view's key that hold the base's key; a join may have equated them."""
    kinds = {column.name: column for column in columns}
    same = equal_values(shape.root)
    scope = []
    for key in relation.key:
        value = next((v for v, name in base.columns.items() if name == key.name), None)
        equal = set() if value is None else same.get(value, {value})
        found = [
            name
            for name, output in shape.outputs
            if output in equal and kinds[name].key_position is not None and kinds[name].type == key.type
        ]
        if not found:
            return None
        scope.append(found[0])
    return tuple(scope)


def equal_values(root: Node) -> dict[Value, set[Value]]:
    """Values that are equal in every row, because an inner join says so."""
    classes: dict[Value, set[Value]] = {}
    for join in _inner(root):
        for a, b in join.pairs:
            joined = classes.get(a, {a}) | classes.get(b, {b})
            classes |= dict.fromkeys(joined, joined)
    return classes


def _inner(node: Node) -> Iterator[Join]:
    match node:
        case Pass(child=child) | Group(child=child):
            yield from _inner(child)
        case Join(kind=JoinKind.INNER, left=left, right=right):
            yield node
            yield from _inner(left)
            yield from _inner(right)
        case Join(kind=JoinKind.LEFT | JoinKind.SEMI | JoinKind.ANTI, left=left):
            yield from _inner(left)
        case Join(kind=JoinKind.RIGHT, right=right):
            yield from _inner(right)
