"""What an epoch will do, decided before anything is read: the dataclasses that an epoch executes and `EXPLAIN` prints.

Three ways to follow a change, each exact:

- **Incremental**, by the rows in scope. The *scope* is a set of output columns. The epoch collects the values that
  affected rows have there, old and new, computes the query's rows that have those values, reads the view's rows that
  have them, and writes the difference. Any scope gives the right answer; a good one is cheap and bounds the inputs.
- **Difference**, by the query before and after. The scope may be values that the view does not show. The query runs on
  the input rows that can matter, once as they were and once as they are; what one result has and the other has not is
  the change. Rows outside the scope come out the same on both sides. Where no scope can be computed for all inputs at
  once, the inputs change one after the other (*terms*), and the differences are added.
- **Merge**, for sums and counts. As `Difference` below the aggregation; the two partial results are added to and
  subtracted from the groups that the view has (`ebla.algebra.merge`).

Rows of windows without `PARTITION BY` that do not look ahead, or by some rows, are followed **from the first changed
position on**.

**First rows**, in some order and up to a limit, are followed by one of the first two: what comes of the query without
its limit is put among the rows that are kept, those that the view has and some beyond.

What is left is a **full refresh**, with the reason. Where every row depends on a subquery that is the same for all of
them, it is spared as long as the subquery gives what it gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ebla.algebra.follow import (
    ChangedValues,
    LookupValues,
    NarrowedLeaf,
    PickedValues,
    Scope,
    Values,
    ValueUnion,
    WithoutNull,
    narrow,
    reach,
)
from ebla.algebra.nodes import (
    GROUPING_SETS,
    Branches,
    ClosedSubquery,
    Column,
    Group,
    Join,
    JoinKind,
    Leaf,
    Node,
    Onward,
    OrderedLimit,
    Pass,
    Shape,
    Value,
    holds,
    leaves,
    walk,
)
from ebla.algebra.tails import Continuation, Course, continuation, course_of

Cost = tuple[int, ...]
Keys = Mapping[str, Sequence[str]]
AtHand = Mapping[int, frozenset[str]]
"""The keys of the mentions that moved, by number: what they have now, and what they had, is known by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedValues:
    """How the scope's values are collected from one changed mention of an input."""

    leaf: int
    table: str
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalPlan:
    scope: tuple[str, ...]
    """Output columns, in order."""
    affected: tuple[AffectedValues, ...]
    narrowed: tuple[NarrowedLeaf, ...]
    """Mentions of inputs of which only some rows are read. The others are read whole."""
    whole: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One step from the old inputs to the new ones: `moved` mentions go from old to new, those in `done` are new."""

    scope: tuple[str, ...]
    """What names the affected rows, as table.column; for people."""
    moved: tuple[int, ...]
    done: tuple[int, ...]
    affected: tuple[AffectedValues, ...]
    narrowed: tuple[NarrowedLeaf, ...]
    whole: tuple[str, ...]
    unread: tuple[int, ...] = ()
    """Mentions in other branches of `UNION ALL`: they add the same rows to both sides, so they are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """The first rows in an order: the query without its limit is followed, and what comes of it put among them."""

    rows: IncrementalPlan | Difference
    first: OrderedLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPlan:
    """Windows over all rows in one order: rows from the first changed position on are computed again.

    The position is the first of the values that changed rows have, old and new, in the column that windows are ordered
    by. What is compared and written lies from there on.
    """

    course: Course
    ahead: int
    """How many rows in front of the first that changes may change with it."""
    affected: tuple[AffectedValues, ...]
    whole: tuple[str, ...]
    """The inputs, which the query reads whole where rows do not go on from those in front of them."""
    onward: Continuation | None

    @property
    def scope(self) -> tuple[str, ...]:
        return (self.course.column,)


Followed = IncrementalPlan | Difference | Merge | FirstRows | TailPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SubqueryGuard:
    """While these subqueries give what they gave, the change is followed as if their inputs had not changed."""

    subqueries: tuple[ClosedSubquery, ...]
    rows: Followed | None
    """`None`: nothing else changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullRefresh:
    reason: str
    unless: SubqueryGuard | None = None


EpochPlan = Followed | FullRefresh


def plan(shape: Shape, changed: Iterable[str], keys: Keys, *, merges: bool = False) -> EpochPlan:
    """The cheapest plan for changes of these inputs (names in lower case). `merges`: the view keeps sums and counts.

    Plans are kept: the same inputs change again and again.
    """
    keyed_by = tuple((name, tuple(key)) for name, key in sorted(keys.items()))
    return _plan(shape, frozenset(changed), keyed_by, merges)


@lru_cache(maxsize=512)
def _plan(
    shape: Shape, tables: frozenset[str], keyed_by: tuple[tuple[str, tuple[str, ...]], ...], merges: bool
) -> EpochPlan:
    keys: Keys = {name: list(key) for name, key in keyed_by}
    moved = [leaf for leaf in leaves(shape.root) if leaf.table in tables]
    made = _followed(shape, moved, keys, merges=merges)
    if not isinstance(made, str):
        return made
    parts = tuple(part for part in shape.closed if any(leaf.number in part.leaves for leaf in moved))
    fixed = {number for part in parts for number in part.leaves}
    others = [leaf for leaf in moved if leaf.number not in fixed]
    rows = _followed(shape, others, keys, merges=merges) if others else None
    unless = None if not parts or isinstance(rows, str) else SubqueryGuard(subqueries=parts, rows=rows)
    return FullRefresh(reason=made, unless=unless)


def _followed(shape: Shape, moved: Sequence[Leaf], keys: Keys, *, merges: bool) -> Followed | str:
    """The cheapest plan that follows changes of these mentions of inputs, or why there is none."""
    found: list[tuple[Cost, Followed]] = []
    by_scope, blocked = _by_scope(shape, moved, keys)
    if by_scope is not None:
        found.append((by_scope[0], by_scope[1]))
    if merges:
        below = aggregated(shape.root)
        terms = None if below is None else _terms(below, moved, keys)
        if terms is not None:
            found.append(((terms[0][0], -1, *terms[0][1:]), Merge(terms=terms[1])))
    if all(cost[0] or cost[1] > 0 for cost, _ in found):
        terms = _terms(shape.root, moved, keys)
        if terms is not None:
            found.append((terms[0], Difference(terms=terms[1])))
    if not found:
        return _tail(shape, moved) or _every_row(shape.root, moved) or blocked
    best = min(found, key=lambda one: one[0])[1]
    if shape.first is not None and isinstance(best, IncrementalPlan | Difference):
        return FirstRows(rows=best, first=shape.first)
    return best


def _tail(shape: Shape, moved: Sequence[Leaf]) -> TailPlan | None:
    """From the first changed position on, if windows end the query and the column that they follow is shown."""
    top = shape.root
    while isinstance(top, Pass):
        top = top.child
    if not isinstance(top, Group) or not isinstance(top.onward, Onward) or shape.first is not None:
        return None
    value = top.onward.first.value
    course, affected = course_of(shape, top.onward.first), _affected(top.child, moved, (value,))
    shows_all = top.onward.shows_all and _projects(shape.root, top)
    if course is None or isinstance(affected, Leaf) or (top.onward.ahead and not shows_all):
        return None  # rows that are not shown cannot be counted
    return TailPlan(
        course=course,
        ahead=top.onward.ahead,
        affected=affected,
        whole=tuple(dict.fromkeys(leaf.table for leaf in leaves(top) if leaf.number >= 0)),
        onward=continuation(shape, top, *_bounded(top.child, (value,))) if shows_all else None,
    )


def _projects(node: Node, below: Node) -> bool:
    """Whether each row of a node comes of one row below it, and none is left out."""
    return isinstance(node, Pass) and node.child is below and not node.multiplies


def settled(made: TailPlan, types: Mapping[str, str], settings: Mapping[str, str]) -> TailPlan:
    """The plan for output columns of these types: without going on from other rows where that is not exact."""
    ansi = settings.get("spark.sql.ansi.enabled", "").lower() == "true"
    if made.onward is None or made.onward.is_exact(made.course, types, ansi=ansi):
        return made
    return replace(made, onward=None)


def _every_row(root: Node, moved: Sequence[Leaf]) -> str | None:
    """Why a change may touch every row, where a part of the query says so."""
    for node in walk(root):
        for leaf in moved:
            if isinstance(node, Group) and node.what == GROUPING_SETS and holds(node, leaf):
                return (
                    "groups of ROLLUP, CUBE and GROUPING SETS are followed where they can be merged: at the end of "
                    "the query, all columns of the sets among the output, no HAVING, DISTINCT or LIMIT, and "
                    "aggregates that are added and subtracted exactly"
                )
            if isinstance(node, Group) and not node.by and holds(node, leaf):
                return f"every row depends on every row of {leaf.table}: {_depending(node)}"
            if isinstance(node, Join) and node.kind is JoinKind.SEMI and not node.pairs and holds(node.right, leaf):
                return f"every row depends on every row of {leaf.table}: a subquery that no condition ties to a row"
    return None


def _depending(node: Group) -> str:
    if not node.keeps_rows:
        return "an aggregate over all rows"
    if isinstance(node.onward, str):
        return node.onward
    return "a window over all rows, along a column that is not shown or that the change does not tell"


def by_scope(shape: Shape, changed: Iterable[str], keys: Keys) -> IncrementalPlan | None:
    """The best plan by the rows in scope, if there is one. Which rows are the first, no rows alone tell."""
    if shape.first is not None:
        return None
    tables = set(changed)
    found, _ = _by_scope(shape, [leaf for leaf in leaves(shape.root) if leaf.table in tables], keys)
    return None if found is None else found[1]


def of_groups(shape: Shape, by: Sequence[str]) -> IncrementalPlan | None:
    """How to compute groups that are known: the inputs' rows that can belong to them."""
    outputs = dict(shape.outputs)
    values = tuple(outputs[name] for name in by if name in outputs)
    if len(values) != len(by):
        return None
    bounded, whole = _bounded(shape.root, values)
    return IncrementalPlan(scope=tuple(by), affected=(), narrowed=bounded, whole=whole)


def of_scope(shape: Shape, changed: Iterable[str], scope: Sequence[str]) -> IncrementalPlan | None:
    """The plan by the rows in a given scope, if changes of these inputs can be followed to it."""
    if shape.first is not None:
        return None
    outputs, tables = dict(shape.outputs), set(changed)
    values = tuple(outputs[name] for name in scope)
    affected = _affected(shape.root, [leaf for leaf in leaves(shape.root) if leaf.table in tables], values)
    if isinstance(affected, Leaf):
        return None
    bounded, whole = _bounded(shape.root, values)
    return IncrementalPlan(scope=tuple(scope), affected=affected, narrowed=bounded, whole=whole)


# ---- by the rows in scope -------------------------------------------------------------------------------


def _by_scope(shape: Shape, moved: Sequence[Leaf], keys: Keys) -> tuple[tuple[Cost, IncrementalPlan] | None, str]:
    best: tuple[Cost, IncrementalPlan] | None = None
    blocked = "no output column names the rows that a change touches"
    for scope in _candidates(shape, keys):
        values = tuple(value for _, value in scope)
        affected = _affected(shape.root, moved, values)
        if isinstance(affected, Leaf):
            blocked = f"a change of {affected.table} cannot be followed to {', '.join(n for n, _ in scope)}"
            continue
        bounded, whole = _bounded(shape.root, values)
        made = IncrementalPlan(scope=tuple(n for n, _ in scope), affected=affected, narrowed=bounded, whole=whole)
        cost = _cost(shape.root, values, keys, moved, affected, bounded, whole)
        if best is None or cost < best[0]:
            best = (cost, made)
    return best, blocked


def _candidates(shape: Shape, keys: Keys) -> Iterable[tuple[tuple[str, Value], ...]]:
    """Sets of output columns that come from one mention of an input: its key, all of them, each alone."""
    seen: set[tuple[str, ...]] = set()
    for leaf in leaves(shape.root):
        every = [(name, value) for name, value in shape.outputs if value in leaf.columns]
        outputs = [(name, value) for name, value in every if leaf.stores(value)]
        key = set(keys.get(leaf.table, ()))
        keyed = tuple((n, v) for n, v in outputs if leaf.columns[v] in key)
        complete = keyed if {leaf.columns[v] for _, v in keyed} == key else ()
        for candidate in (complete, tuple(outputs), *((one,) for one in outputs), tuple(every)):
            names = tuple(n for n, _ in candidate)
            if candidate and names not in seen:
                seen.add(names)
                yield candidate
    # Columns that come through a union have no single mention.
    for one in shape.outputs:
        if (one[0],) not in seen:
            seen.add((one[0],))
            yield (one,)


# ---- by the query before and after ----------------------------------------------------------------------


def aggregated(root: Node) -> Node | None:
    """What the outermost aggregation reads."""
    node = root
    while isinstance(node, Pass):
        node = node.child
    return node.child if isinstance(node, Group) and not node.keeps_rows else None


def _terms(top: Node, moved: Sequence[Leaf], keys: Keys) -> tuple[Cost, tuple[Term, ...]] | None:
    """All inputs at once if one scope serves them; else each branch of a union, each mention, after the other."""
    together = _term(top, moved, keys, done=(), unread=())
    if together is not None and together[0][:2] == (0, 0):
        return together[0], (together[1],)
    made: list[Term] = []
    total = [0, 0, 0, 0]
    done: tuple[int, ...] = ()
    for part, unread in branches(top):
        inside = [leaf for leaf in moved if holds(part, leaf)]
        one = _term(part, inside, keys, done=done, unread=unread) if inside else None
        steps = [inside] if one is not None else _by_number(inside)
        for step in steps:
            found = one or _term(part, step, keys, done=done, unread=unread)
            if found is None:
                return None if together is None else (together[0], (together[1],))
            total = [a + b for a, b in zip(total, found[0], strict=True)]
            made.append(found[1])
            done = (*done, *found[1].moved)
    if together is not None and together[0] <= tuple(total):
        return together[0], (together[1],)
    return tuple(total), tuple(made)


def _by_number(moved: Sequence[Leaf]) -> list[list[Leaf]]:
    numbers = dict.fromkeys(leaf.number for leaf in moved)
    return [[leaf for leaf in moved if leaf.number == number] for number in numbers]


def branches(top: Node) -> list[tuple[Node, tuple[int, ...]]]:
    """The branches of an outermost `UNION ALL`, each with the mentions outside it."""
    node = top
    while isinstance(node, Pass):
        node = node.child
    if not isinstance(node, Branches):
        return [(top, ())]
    parts = [part for child in node.children for part, _ in branches(child)]
    numbers = [{leaf.number for leaf in leaves(part)} for part in parts]
    if sum(map(len, numbers)) > len(set().union(*numbers)):
        return [(top, ())]  # a CTE that several branches use cannot be left out of one of them
    everything = sorted(set().union(*numbers))
    return [(part, tuple(n for n in everything if n not in own)) for part, own in zip(parts, numbers, strict=True)]


def _term(
    top: Node, moved: Sequence[Leaf], keys: Keys, *, done: tuple[int, ...], unread: tuple[int, ...]
) -> tuple[Cost, Term] | None:
    best: tuple[Cost, Term] | None = None
    for values in _hidden_candidates(top, keys):
        affected = _affected(top, moved, values) if set(values) <= top.values else None
        if affected is None or isinstance(affected, Leaf):
            continue
        bounded, whole = _bounded(top, values, scans=True)
        cost = _cost(top, values, keys, moved, affected, bounded, whole)
        if best is None or cost < best[0]:
            term = Term(
                scope=tuple(_place_of(top, v) for v in values),
                moved=tuple(dict.fromkeys(leaf.number for leaf in moved)),
                done=done,
                affected=affected,
                narrowed=bounded,
                whole=whole,
                unread=unread,
            )
            best = (cost, term)
    return best


def _hidden_candidates(top: Node, keys: Keys) -> Iterator[tuple[Value, ...]]:
    """Keys of inputs, and single values that joins and groups compare."""
    seen: set[tuple[Value, ...]] = set()
    singles: list[Value] = []
    for node in walk(top):
        if isinstance(node, Leaf):
            key = keys.get(node.table, ())
            candidate = tuple(v for v, name in node.columns.items() if name in key)
            if candidate and candidate not in seen:
                seen.add(candidate)
                yield candidate
        elif isinstance(node, Join):
            singles += [*node.fused, *(v for pair in node.pairs for v in pair)]
        elif isinstance(node, Group):
            if node.by and tuple(sorted(node.by)) not in seen:
                seen.add(tuple(sorted(node.by)))
                yield tuple(sorted(node.by))
            singles += sorted(node.by)
    for value in dict.fromkeys(singles):
        if (value,) not in seen:
            yield (value,)


def _place_of(top: Node, value: Value) -> str:
    for leaf in leaves(top):
        if value in leaf.columns:
            return f"{leaf.table}.{leaf.columns[value]}"
    for node in walk(top):
        if isinstance(node, Join) and value in node.fused:
            return _place_of(node, node.pairs[node.fused.index(value)][0])
    return "a computed value"


# ---- what both need -------------------------------------------------------------------------------------


def _affected(top: Node, moved: Sequence[Leaf], values: tuple[Value, ...]) -> tuple[AffectedValues, ...] | Leaf:
    """How to collect the affected values of each changed mention, or a mention that cannot be followed."""
    affected: list[AffectedValues] = []
    for leaf in moved:
        found = reach(top, leaf, values)
        if found is None:
            return leaf
        affected.append(AffectedValues(leaf=leaf.number, table=leaf.table, values=found))
    return tuple(affected)


def _bounded(
    top: Node, values: tuple[Value, ...], *, scans: bool = False
) -> tuple[tuple[NarrowedLeaf, ...], tuple[str, ...]]:
    """Which mentions are read in part, and which tables whole.

    `scans`: rows are found by what is computed of them, too. Where the scope is shown, the query itself leaves out all
    others while it reads the input.
    """
    found = [one for one in narrow(top, values, Scope(width=len(values))) if scans or not one.is_scan]
    mentions: dict[int, int] = {}
    for leaf in leaves(top):
        mentions[leaf.number] = mentions.get(leaf.number, 0) + 1
    # A mention inside a CTE that is used twice is bounded only if both uses are.
    bounded = [n for n in found if sum(1 for m in found if m.leaf == n.leaf) == mentions[n.leaf]]
    names = {n.leaf for n in bounded}
    whole = [leaf.table for leaf in leaves(top) if leaf.number >= 0 and leaf.number not in names]
    return tuple(bounded), tuple(whole)


def _cost(
    top: Node,
    values: tuple[Value, ...],
    keys: Keys,
    moved: Sequence[Leaf],
    affected: Sequence[AffectedValues],
    narrowed: Sequence[NarrowedLeaf],
    whole: Sequence[str],
) -> Cost:
    """Inputs read whole, then how vague the scope is, then lookups. Beside a key more columns say no more."""
    at_hand = {leaf.number: frozenset(keys.get(leaf.table, ())) for leaf in moved}
    vague = _vagueness(top, values, keys)
    width = len(values) if vague == 0 else -len(values)
    scans = sum(one.is_scan for one in narrowed)
    return (len(whole) + scans, vague, _lookups_of(affected, narrowed, at_hand), width)


def _vagueness(top: Node, values: tuple[Value, ...], keys: Keys) -> int:
    """How many rows a value of the scope may stand for: 0 a key, 1 what joins or groups compare, 2 anything."""
    scope, compared = set(values), set[Value]()
    for node in walk(top):
        if isinstance(node, Leaf):
            key = set(keys.get(node.table, ()))
            if key and key <= {name for v, name in node.columns.items() if v in scope}:
                return 0
        elif isinstance(node, Join):
            compared |= {*node.fused, *(v for pair in node.pairs for v in pair)}
        elif isinstance(node, Group):
            compared |= node.by
    return 1 if scope & compared else 2


def _lookups_of(affected: Sequence[AffectedValues], narrowed: Sequence[NarrowedLeaf], at_hand: AtHand) -> int:
    return sum(_lookups(a.values, at_hand) for a in affected) + sum(
        _read(n.leaf, n.by, at_hand) + _lookups(n.source, at_hand) for n in narrowed
    )


def _lookups(values: Values, at_hand: AtHand) -> int:
    match values:
        case LookupValues(leaf=leaf, by=by, source=source):
            return _read(leaf, by, at_hand) + _lookups(source, at_hand)
        case PickedValues(source=source) | WithoutNull(source=source):
            return _lookups(source, at_hand)
        case ValueUnion(sources=sources):
            return sum(_lookups(s, at_hand) for s in sources)
        case ChangedValues() | Scope():
            return 0


def _read(leaf: int, by: Sequence[Column], at_hand: AtHand) -> int:
    """Changed rows are at hand under their keys: to look them up reads no file."""
    return 0 if at_hand.get(leaf) and at_hand[leaf] == frozenset(by) else 1
