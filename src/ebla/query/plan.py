"""Which sorted relation answers a request, and how: decided from values, without reading anything.

Theory. An *access path* is a relation whose level 1 runs are sorted by its key: the relation itself, or an index. A
request fits it in three steps. Leading columns that are fixed (`=`, `IN`, `IS NULL`) make *intervals* of the path's
order, one for each combination of values. A range or prefix on the next column narrows them. What follows is sorted
inside each interval; as far as it agrees with the order asked for, forwards or backwards, rows come out sorted, and
reading stops after the first ones.

The ranks of an interval are those of the path's columns in reading order: a descending column, or reading backwards,
turns them around, so that a reader always goes upwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ebla.predicates import values as v
from ebla.predicates.access import AccessPath
from ebla.predicates.conditions import (
    Condition,
    Equals,
    Filter,
    IsNull,
    NotNull,
    OneOf,
    Prefix,
    Range,
    Request,
    SortColumn,
    after_prefix,
    in_range,
)
from ebla.predicates.select import EXPRESSION, in_words

INTERVALS_MAX = 64
"""More combinations of values than this are filtered, not looked up one by one."""


@dataclass(frozen=True, slots=True)
class Edge:
    """An end of an interval: ranks of the path's first columns, and whether rows that have them are inside."""

    ranks: v.Ranks = ()
    inside: bool = True


@dataclass(frozen=True, slots=True)
class Interval:
    low: Edge
    high: Edge

    def may_hold(self, low: v.Ranks, high: v.Ranks) -> bool:
        """Whether rows between these ranks, possibly of fewer columns, can be inside."""
        shared = min(len(high), len(self.low.ranks))
        last, begin = high[:shared], self.low.ranks[:shared]
        if last < begin or (last == begin and shared == len(self.low.ranks) and not self.low.inside):
            return False
        shared = min(len(low), len(self.high.ranks))
        first, end = low[:shared], self.high.ranks[:shared]
        return first < end or (first == end and (self.high.inside or shared < len(self.high.ranks)))


@dataclass(frozen=True, kw_only=True)
class FittedPath:
    """How a request would be answered through a path."""

    path: AccessPath
    backwards: bool
    fixed: int
    """Leading columns of the path with known values."""
    narrowed: bool
    """A range or prefix on the column behind them."""
    intervals: tuple[Interval, ...]
    filters: tuple[Filter, ...]
    """Conditions that intervals do not settle, and the path has the column for."""
    late: tuple[Filter, ...]
    """Conditions on columns that only the fetched rows have."""
    sorted: int
    """The number of columns of the request's order that rows are read in."""
    exact: bool
    """All of them are: reading can stop with the last row that is wanted."""
    covering: bool
    """The path has every column; otherwise rows are fetched by key."""

    @property
    def used(self) -> int:
        return self.fixed + self.narrowed

    def directions(self) -> tuple[bool, ...]:
        """Whether each column of the path descends, in reading order."""
        return tuple(column.descending != self.backwards for column in self.path.key)


def lacks(path: AccessPath, request: Request) -> str | None:
    """Why the path cannot serve the request: it lacks rows that are wanted, or the columns that select them."""
    unsaid = sorted(path.promises - request.texts)
    if unsaid:
        return f"it has only rows with {in_words(unsaid[0])}, which the query does not say in these words"
    missed = next((one for one in path.predicate if not _is_implied(one, request.where)), None)
    if missed is not None:
        return f"it has only rows with {missed}, and the query may want others"
    unknown = sorted(request.said - path.promises)
    if unknown:
        return f"{in_words(unknown[0])} is no condition of it, and only Spark understands it"
    needed = request.without(path.promises).needed
    strange = next((name for name in needed if is_expression(name) and name not in path.columns), None)
    if strange is not None:
        return f"it does not have {in_words(strange)}"
    if (path.promises or any(map(is_expression, needed))) and path.settings != request.settings:
        return "its expressions were written in a session with other settings, and may mean something else in this one"
    return None


def fit(path: AccessPath, request: Request) -> FittedPath | None:
    """How the path would serve the request; `None` if it lacks rows that are wanted."""
    if lacks(path, request) is not None:
        return None
    request = request.without(path.promises)
    fixed, choices, settled = _fixed(path, request)
    settled |= {n for n, f in enumerate(request.where) if f in path.predicate}
    constants = _constants(request)
    varying = _varying(request, path, fixed, constants)
    forwards, backwards = (_matched(path, varying, fixed, constants, flip) for flip in (False, True))
    flip, matched = backwards > forwards, max(forwards, backwards)
    dirs = tuple(column.descending != flip for column in path.key)
    span, narrowed = _narrowed(path, request, fixed, settled, dirs)
    intervals = _intervals(path, request, choices, span, matched, dirs, constants)
    left = [f for n, f in enumerate(request.where) if n not in settled]
    return FittedPath(
        path=path,
        backwards=flip,
        fixed=fixed,
        narrowed=narrowed,
        intervals=tuple(intervals),
        filters=tuple(f for f in left if f.column.physical in path.columns),
        late=tuple(f for f in left if f.column.physical not in path.columns),
        sorted=_sorted(request, varying, matched),
        exact=request.any_order or matched == len(varying),
        covering=all(name in path.columns for name in request.needed),
    )


def is_expression(physical: str) -> bool:
    """Whether a column of a request is no column of the relation, but an expression that an index has."""
    return physical.startswith(EXPRESSION)


def _is_implied(promise: Filter, where: Sequence[Filter]) -> bool:
    return any(f.column.physical == promise.column.physical and _implies(f.condition, promise.condition) for f in where)


def _implies(given: Condition, promise: Condition) -> bool:
    if given == promise or (isinstance(promise, NotNull) and not isinstance(given, IsNull)):
        return True
    points = [given.value] if isinstance(given, Equals) else list(given.values) if isinstance(given, OneOf) else None
    match promise:
        case Equals(value) if points is not None:
            return all(v.rank(p) == v.rank(value) for p in points)
        case OneOf(values) if points is not None:
            return {v.rank(p) for p in points} <= {v.rank(one) for one in values}
        case Range() if points is not None:
            return all(in_range(v.rank(p), promise) for p in points)
        case Range() if isinstance(given, Range):
            return _lies_in(given, promise)
        case Prefix(text) if points is not None:
            return all(isinstance(p, str) and p.startswith(text) for p in points)
        case Prefix(text):
            return isinstance(given, Prefix) and given.text.startswith(text)
        case _:
            return False


def _lies_in(given: Range, promise: Range) -> bool:
    """Whether everything between two bounds is between two others."""
    if promise.low is not None:
        if given.low is None or v.rank(given.low) < v.rank(promise.low):
            return False
        if v.rank(given.low) == v.rank(promise.low) and given.low_in and not promise.low_in:
            return False
    if promise.high is not None:
        if given.high is None or v.rank(promise.high) < v.rank(given.high):
            return False
        if v.rank(given.high) == v.rank(promise.high) and given.high_in and not promise.high_in:
            return False
    return True


# ---- intervals ------------------------------------------------------------------------------------------


def _fixed(path: AccessPath, request: Request) -> tuple[int, list[list[Any]], set[int]]:
    """Leading columns with known values, the values of each, and the numbers of the conditions that say so."""
    choices: list[list[Any]] = []
    settled: set[int] = set()
    combinations = 1
    for column in path.key:
        best: tuple[int, list[Any]] | None = None
        for number, f in enumerate(request.where):
            if f.column.physical == column.base:
                found = _points(f.condition)
                if found is not None and (best is None or len(found) < len(best[1])):
                    best = number, found
        if best is None or combinations * len(best[1]) > INTERVALS_MAX:
            break
        combinations *= len(best[1])
        settled.add(best[0])
        choices.append(best[1])
    return len(choices), choices, settled


def _points(condition: Condition) -> list[Any] | None:
    match condition:
        case Equals(value):
            return [value]
        case OneOf(values):
            return list(values)
        case IsNull():
            return [None]
        case _:
            return None


def _narrowed(
    path: AccessPath, request: Request, fixed: int, settled: set[int], dirs: Sequence[bool]
) -> tuple[tuple[Edge, Edge], bool]:
    """The edges that conditions on the column behind the fixed ones give, in reading order."""
    low, high = Edge(), Edge()
    if fixed == len(path.key):
        return (low, high), False
    narrowed = False
    for number, f in enumerate(request.where):
        if f.column.physical != path.key[fixed].base:
            continue
        edges = _edges(f.condition)
        if edges is None:
            continue
        first, last = edges
        if dirs[fixed]:
            first, last = _turned(last), _turned(first)
        low, high = _tighter(low, first, is_low=True), _tighter(high, last, is_low=False)
        settled.add(number)
        narrowed = True
    return (low, high), narrowed


def _edges(condition: Condition) -> tuple[Edge, Edge] | None:
    match condition:
        case Range(low, high, low_in, high_in):
            first = Edge((v.NULL,), False) if low is None else Edge((v.rank(low),), low_in)
            return first, Edge() if high is None else Edge((v.rank(high),), high_in)
        case Prefix(text):
            end = after_prefix(text)
            return Edge((v.rank(text),)), Edge() if end is None else Edge((v.rank(end),), False)
        case NotNull():
            return Edge((v.NULL,), False), Edge()
        case _:
            return None


def _turned(edge: Edge) -> Edge:
    return Edge(tuple(v.Desc(rank) for rank in edge.ranks), edge.inside)


def _tighter(one: Edge, other: Edge, *, is_low: bool) -> Edge:
    """The edge that leaves out more."""
    if not one.ranks or not other.ranks:
        return other if not one.ranks else one
    shared = min(len(one.ranks), len(other.ranks))
    first, second = one.ranks[:shared], other.ranks[:shared]
    if first != second:
        return one if (second < first) == is_low else other
    short, long = (one, other) if len(one.ranks) <= len(other.ranks) else (other, one)
    return long if short.inside else short


def _intervals(
    path: AccessPath,
    request: Request,
    choices: Sequence[Sequence[Any]],
    span: tuple[Edge, Edge],
    matched: int,
    dirs: Sequence[bool],
    constants: Mapping[str, Any],
) -> list[Interval]:
    found: list[Interval] = []
    low, high = span
    for combination in itertools.product(*choices):
        head = tuple(v.ranker(dirs[n])(value) for n, value in enumerate(combination))
        first = Edge(head + low.ranks, low.inside)
        last = Edge(head + high.ranks, high.inside)
        if request.after is not None:
            fixed = {path.key[n].base: value for n, value in enumerate(combination)}
            begin = _after(path, request, head, matched, dirs, {**constants, **fixed})
            if begin is None:
                continue
            first = _tighter(first, begin, is_low=True)
        found.append(Interval(first, last))
    return found


def _after(
    path: AccessPath,
    request: Request,
    head: v.Ranks,
    matched: int,
    dirs: Sequence[bool],
    constants: Mapping[str, Any],
) -> Edge | None:
    """Where rows behind the last page begin in one interval; `None` if there are none in it."""
    assert request.after is not None
    ranks, at = list(head), len(head)
    for by, value in zip(request.order, request.after, strict=True):
        ranked = v.ranker(by.descending)
        if by.column.physical in constants:
            here, there = ranked(constants[by.column.physical]), ranked(value)
            if here < there:
                return None
            if there < here:
                return Edge(tuple(ranks))
            continue
        if matched == 0:
            return Edge(tuple(ranks))
        while path.key[at].base in constants:
            ranks.append(v.ranker(dirs[at])(constants[path.key[at].base]))
            at += 1
        ranks.append(v.ranker(dirs[at])(value))
        at += 1
        matched -= 1
    return Edge(tuple(ranks), False)


# ---- order ----------------------------------------------------------------------------------------------


def _constants(request: Request) -> dict[str, Any]:
    """Columns that have one value in every row that is wanted, and which."""
    found: dict[str, Any] = {}
    for f in request.where:
        points = _points(f.condition)
        if points is not None and len(points) == 1:
            found.setdefault(f.column.physical, points[0])
    return found


def _varying(request: Request, path: AccessPath, fixed: int, constants: Mapping[str, Any]) -> list[SortColumn]:
    """The columns of the order that differ inside an interval."""
    still = {*constants, *(column.base for column in path.key[:fixed])}
    return [by for by in request.order if by.column.physical not in still]


def _matched(
    path: AccessPath, varying: Sequence[SortColumn], fixed: int, constants: Mapping[str, Any], flip: bool
) -> int:
    """How many columns of the order the path's own order gives inside an interval."""
    rest = [column for column in path.key[fixed:] if column.base not in constants]
    matched = 0
    for by, column in zip(varying, rest, strict=False):
        if by.column.physical != column.base or by.descending != (column.descending != flip):
            break
        matched += 1
    return matched


def _sorted(request: Request, varying: Sequence[SortColumn], matched: int) -> int:
    """The number of leading columns of the whole order that come out sorted."""
    if matched == len(varying):
        return len(request.order)
    return request.order.index(varying[matched])


# ---- choice ---------------------------------------------------------------------------------------------

SELECTED = {Equals: 0.05, OneOf: 0.1, Range: 0.3, Prefix: 0.1, IsNull: 0.1, NotNull: 0.9}
"""The part of rows that a condition is expected to leave."""

US_PER_RUN = 15.0
US_PER_ROW = 3.0
US_PER_ROW_SCANNED = 0.03
US_PER_SCAN = 4_000.0
US_PER_FETCH = 150.0
COLLECTED_MAX = 20_000
"""More rows than this are sorted by DuckDB, not one by one."""
EXAMINED_MAX = 300_000
"""A seek whose conditions few rows fulfil is given up after this many, and all rows are scanned."""
FETCHED_MAX = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What statistics say of a path for one request: row groups that can hold rows, of all there are."""

    runs: int = 0
    runs_read: int = 0
    groups: int = 0
    groups_read: int = 0
    rows: int = 0
    """Rows of the row groups that can hold one."""
    level0_runs: int = 0
    level0_rows: int = 0
    level0_files: int = 0
    """Level 0 runs that are not merged in memory."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is done, and what `EXPLAIN` prints."""

    request: Request
    fitted: FittedPath
    extent: Extent
    scan: bool
    """Read all row groups that can hold rows and sort, by DuckDB; otherwise seek and stop early."""
    cost_us: float
    others: tuple[tuple[str, float], ...] = field(default=())
    """Paths that were not taken, with their costs."""
    unfit: tuple[tuple[str, str], ...] = field(default=())
    """Indexes that cannot serve the request, and why."""


def plan(request: Request, fitted: FittedPath, extent: Extent, *, can_seek: bool = True) -> Plan:
    """The cheaper of seeking and scanning; a path without all columns can only be sought in."""
    left = 1.0
    for f in (*fitted.filters, *fitted.late):
        left *= SELECTED[type(f.condition)]
    found = _inside(fitted, extent)
    if fitted.exact:
        read = min(found, (request.limit + 1) / left + 16)
    elif fitted.sorted:
        read = min(found, 8 * (request.limit + 1) / left + 256)
    else:
        read = found
    fetched = 0.0 if fitted.covering else (read if fitted.late or not fitted.exact else min(read, request.limit + 1))
    streams = max(1, extent.runs_read) * len(fitted.intervals)
    seek = streams * US_PER_RUN + read * US_PER_ROW + fetched * US_PER_FETCH
    width = len(request.needed)
    scan = US_PER_SCAN + extent.rows * width * US_PER_ROW_SCANNED
    may_scan = fitted.covering
    may_seek = can_seek and (fitted.exact or read <= 4 * COLLECTED_MAX or not may_scan)
    is_scan = may_scan and (not may_seek or scan < seek)
    return Plan(request=request, fitted=fitted, extent=extent, scan=is_scan, cost_us=scan if is_scan else seek)


def _inside(fitted: FittedPath, extent: Extent) -> float:
    """Rows expected in the intervals, of those in the row groups that they touch."""
    if not fitted.intervals:
        return 0
    if fitted.fixed == len(fitted.path.key):
        return len(fitted.intervals)
    found = float(extent.rows)
    if fitted.used and extent.groups_read:
        # Of the first and the last row group of an interval, half is expected to be inside.
        edges = min(extent.groups_read, 2 * max(1, extent.runs_read) * len(fitted.intervals))
        found *= 1 - 0.5 * edges / extent.groups_read
    return found + 0.1 * extent.level0_rows


def choose(plans: Sequence[Plan], unfit: Sequence[tuple[str, str]] = ()) -> Plan:
    """The cheapest; of equal ones the one that uses more leading columns, then the relation itself."""
    best = min(plans, key=lambda p: (p.cost_us, -p.fitted.used, not p.fitted.path.is_base))
    others = tuple((p.fitted.path.name, p.cost_us) for p in plans if p is not best)
    return Plan(
        request=best.request,
        fitted=best.fitted,
        extent=best.extent,
        scan=best.scan,
        cost_us=best.cost_us,
        others=others,
        unfit=tuple(unfit),
    )
