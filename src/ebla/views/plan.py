"""What an epoch will do, decided before anything is read: the dataclasses that an epoch executes and `EXPLAIN` prints.

The *scope* is a set of output columns. The epoch collects the values that affected rows have there, old and new,
computes the query's rows that have those values, reads the view's rows that have them, and writes the difference. Any
scope gives the right answer; a good one is cheap to collect and bounds the inputs well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ebla.views.follow import Changed, Either, Looked, Narrowed, Picked, Scope, Values, WithoutNull, narrow, reach
from ebla.views.nodes import Leaf, Shape, Value, leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """How the scope's values are collected from one changed mention of an input."""

    leaf: int
    table: str
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Incremental:
    scope: tuple[str, ...]
    """Output columns, in order."""
    affected: tuple[Affected, ...]
    narrowed: tuple[Narrowed, ...]
    """Mentions of inputs of which only some rows are read. The others are read whole."""
    whole: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FullRefresh:
    reason: str


EpochPlan = Incremental | FullRefresh


def plan(shape: Shape, changed: Iterable[str], keys: Mapping[str, Sequence[str]]) -> EpochPlan:
    """The cheapest plan for changes of these inputs (names in lower case)."""
    tables = set(changed)
    all_leaves = list(leaves(shape.root))
    moved = [leaf for leaf in all_leaves if leaf.table in tables]
    best: tuple[tuple[int, ...], Incremental] | None = None
    blocked = "no output column names the rows that a change touches"
    for scope in _candidates(shape, keys):
        values = tuple(value for _, value in scope)
        affected: list[Affected] = []
        for leaf in moved:
            found = reach(shape.root, leaf, values)
            if found is None:
                blocked = f"a change of {leaf.table} cannot be followed to {', '.join(n for n, _ in scope)}"
                break
            affected.append(Affected(leaf=leaf.number, table=leaf.table, values=found))
        else:
            made = _incremental(shape, scope, affected, all_leaves)
            cost = _cost(made)
            if best is None or cost < best[0]:
                best = (cost, made)
    return FullRefresh(reason=blocked) if best is None else best[1]


def _incremental(
    shape: Shape, scope: Sequence[tuple[str, Value]], affected: Sequence[Affected], all_leaves: Sequence[Leaf]
) -> Incremental:
    values = tuple(value for _, value in scope)
    found = narrow(shape.root, values, Scope(width=len(values)))
    mentions: dict[int, int] = {}
    for leaf in all_leaves:
        mentions[leaf.number] = mentions.get(leaf.number, 0) + 1
    # A mention inside a CTE that is used twice is bounded only if both uses are.
    bounded = [n for n in found if sum(1 for m in found if m.leaf == n.leaf) == mentions[n.leaf]]
    names = {n.leaf for n in bounded}
    return Incremental(
        scope=tuple(name for name, _ in scope),
        affected=tuple(affected),
        narrowed=tuple(bounded),
        whole=tuple(leaf.table for leaf in all_leaves if leaf.number >= 0 and leaf.number not in names),
    )


def _candidates(shape: Shape, keys: Mapping[str, Sequence[str]]) -> Iterable[tuple[tuple[str, Value], ...]]:
    """Sets of output columns that come from one mention of an input: its key, all of them, each alone."""
    seen: set[tuple[str, ...]] = set()
    for leaf in leaves(shape.root):
        shown = [(name, value) for name, value in shape.outputs if value in leaf.columns]
        key = {k.lower() for k in keys.get(leaf.table, ())}
        keyed = tuple((n, v) for n, v in shown if leaf.columns[v].lower() in key)
        complete = keyed if {leaf.columns[v].lower() for _, v in keyed} == key else ()
        for candidate in (complete, tuple(shown), *((one,) for one in shown)):
            names = tuple(n for n, _ in candidate)
            if candidate and names not in seen:
                seen.add(names)
                yield candidate
    # Columns that come through a union have no single mention.
    for one in shape.outputs:
        if (one[0],) not in seen:
            seen.add((one[0],))
            yield (one,)


def _cost(made: Incremental) -> tuple[int, ...]:
    """Inputs read whole first, then lookups, then how little the scope says."""
    lookups = sum(_lookups(a.values) for a in made.affected) + sum(_lookups(n.source) for n in made.narrowed)
    return (len(made.whole), lookups, -len(made.scope))


def _lookups(values: Values) -> int:
    match values:
        case Looked(source=source):
            return 1 + _lookups(source)
        case Picked(source=source) | WithoutNull(source=source):
            return _lookups(source)
        case Either(sources=sources):
            return sum(_lookups(s) for s in sources)
        case Changed() | Scope():
            return 0
