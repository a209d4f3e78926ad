"""Rows in the order of a path: sorted streams from runs, level 0 over level 1, merged as they are asked for.

A stream is lazy. It decodes a row group when its first row is wanted, finds the ends of its interval by bisection, and
looks at rows in windows that grow. Merging streams therefore reads, of each run, little more than what is shown.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.ids import NodeId, RunId, TabletId
from ebla.model.relation import Column, Run
from ebla.model.snapshot import Snapshot
from ebla.predicates import filters as fl
from ebla.predicates import values as v
from ebla.predicates.conditions import By
from ebla.query import plan as planning
from ebla.query.plan import Extent, Fitted, Interval
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.storage.layers import Key, Layer, key_of
from ebla.storage.store import Store, tablets_of_keys

WINDOW = 32
WINDOW_FILTERED = 512
WINDOW_MAX = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Row groups of a run, in reading order, that can hold rows of an interval."""

    run: Run
    interval: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row lies: a row group of a run, or a layer, and its number there."""

    run: Run | None
    """`None` in a layer."""
    group: int
    """Or the number of the layer."""
    at: int


Item = tuple[v.Ranks, int, Place]


class TooMany(Exception):
    """More rows are to be read or sorted than this way is made for."""


class Overlay:
    """Level 0 over a path: which older rows it hides."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers

    def hides(self, name: Key, since: int = 0) -> bool:
        """Whether a layer from number `since` on has written the row of this name."""
        for layer in self.layers[since:]:  # noqa: SIM110 - `any` takes twice as long, and this is asked of every row
            if name in layer.places:
                return True
        return False


class Window:
    """Rows that lie side by side, without those that filters leave out, in reading order.

    Values are made column by column, when a column is asked for, and what is made of them row by row: of most windows
    only the first rows are ever wanted.
    """

    def __init__(self, columns: Mapping[str, pa.Array], places: Sequence[int], start: int, length: int) -> None:
        self.places = places
        self._columns = columns
        self._start = start
        self._length = length
        self._lists: dict[str, list[Any]] = {}

    def values(self, column: Column) -> list[Any]:
        found = self._lists.get(column.physical)
        if found is None:
            array, places = self._columns[column.physical], self.places
            if len(places) < self._length:
                found = array.take(pa.array(places, pa.int64())).to_pylist()
            else:
                found = array.slice(self._start, self._length).to_pylist()
                if places and places[0] > places[-1]:
                    found.reverse()
            self._lists[column.physical] = found
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a path's rows come from."""

    snapshot: Snapshot
    roots: Mapping[NodeId, Root]
    store: Store
    cache: rf.LevelZeroCache


class Seek:
    """One path of one snapshot, ready to give rows for one request."""

    def __init__(self, source: Source, fitted: Fitted, order: Sequence[By]) -> None:
        self.source = source
        self.store = source.store
        self.roots = source.roots
        self.snapshot = source.snapshot
        self.fitted = fitted
        path = self.path = fitted.path
        by_physical = {c.physical: c for c in path.relation.columns}
        self.here: dict[str, Column] = {base: by_physical[name] for base, name in path.columns.items()}
        self.key = [by_physical[column.path] for column in path.key]
        self.directions = fitted.directions()
        # A column that the path lacks is in its order only if one value of it is wanted: it decides nothing.
        merge = [by for by in order[: fitted.sorted] if by.column.physical in self.here]
        self._merge = [(self.here[by.column.physical], by.descending) for by in merge]
        self._overlay: Overlay | None = None
        self._identity = [by_physical[column.path] for column in path.identity]
        self._floats = any(c.type in ("float", "double") for c in self._identity)
        self.selected: list[Selected] = []
        self.examined = 0
        """Rows that filters looked at."""

    @property
    def overlay(self) -> Overlay:
        if self._overlay is None:
            self._overlay = Overlay(self.store.layers(self.roots, self.path, self.snapshot, self.source.cache))
        return self._overlay

    # ---- what can hold rows -----------------------------------------------------------------------------

    def extent(self, is_enough: Callable[[Extent], bool] | None = None) -> Extent:
        """Choose row groups by statistics. Opens footers only. What is known so far may be enough to go no further."""
        level1 = self.snapshot.level1
        tablets = self._tablets()
        key = list(zip(self.key, self.directions, strict=True))
        groups = groups_read = rows = 0
        read: set[tuple[RunId, int]] = set()

        def so_far() -> Extent:
            return Extent(
                runs=len(level1),
                runs_read=len({one.run.id for one in self.selected}),
                groups=groups,
                groups_read=groups_read,
                rows=rows,
                rows_total=sum(r.rows for r in level1),
                level0_runs=len(self.snapshot.level0),
                level0_rows=sum(r.rows for r in self.snapshot.level0),
            )

        for run in level1:
            wanted = [n for n in range(len(self.fitted.intervals)) if tablets is None or tablets[n] == run.tablet]
            if not wanted:
                continue
            footer = self.store.footer(self.roots, run)
            groups += len(footer.rows)
            spans = footer.spans(key)
            allowed = [g for g in range(len(footer.rows)) if self._passes(footer, g)]
            if self.fitted.backwards:
                allowed.reverse()
            for number in wanted:
                interval = self.fitted.intervals[number]
                found = tuple(g for g in allowed if interval.may_hold(*spans[g]))
                if found:
                    self.selected.append(Selected(run=run, interval=number, groups=found))
                    for g in found:
                        if (run.id, g) not in read:
                            read.add((run.id, g))
                            groups_read += 1
                            rows += footer.rows[g]
            if is_enough is not None and is_enough(so_far()):
                break
        return so_far()

    def _tablets(self) -> list[TabletId] | None:
        """The tablet of each interval, if each is one whole key."""
        intervals = self.fitted.intervals
        if self.fitted.fixed < len(self.key) or not intervals:
            return None
        rows = [[_value(rank) for rank in interval.high.ranks[: len(self.key)]] for interval in intervals]
        order = {c.physical: n for n, c in enumerate(self.key)}
        places = [order[c.physical] for c in self.path.relation.key]
        return tablets_of_keys(self.path.relation, [[row[p] for p in places] for row in rows])

    def _passes(self, footer: Any, group: int) -> bool:
        return all(fl.may_hold(f, *footer.bounds(self.here[f.column.physical])[group]) for f in self.fitted.filters)

    # ---- rows -------------------------------------------------------------------------------------------

    def rows(self, *, in_order: bool) -> Iterator[Item]:
        """Rows inside the intervals that fulfil the filters, ordered by the ranks they carry."""
        sources: list[Iterator[Item]] = []
        overlay = self.overlay
        if in_order:
            self.store.warm(self.roots, [(one.run, one.groups[0]) for one in self.selected], self._columns())
        for one in self.selected:
            sources.append(self._level1(one, len(sources)))
        for number, layer in enumerate(overlay.layers):
            for interval in self.fitted.intervals:
                sources.append(self._level0(layer, number, interval, len(sources)))
        if not in_order:
            return (item for source in sources for item in source)
        return heapq.merge(*sources) if len(sources) != 1 else sources[0]

    def _columns(self) -> list[Column]:
        """What is needed to find, filter and merge rows."""
        used = [*self.key, *(c for c, _ in self._merge), *(self.here[f.column.physical] for f in self.fitted.filters)]
        return list({c.physical: c for c in used}.values())

    def _level1(self, one: Selected, number: int) -> Iterator[Item]:
        interval = self.fitted.intervals[one.interval]
        footer = self.store.footer(self.roots, one.run)
        spans = footer.spans(list(zip(self.key, self.directions, strict=True)))
        hides = self.overlay.hides if self.overlay.layers else None
        for group in one.groups:
            raw = self.store.columns(self.roots, one.run, group, self._columns())
            columns = {name: v.plain(array) for name, array in raw.items()}
            count = footer.rows[group]
            low, high = _ends(interval, spans[group], self._ranks_at(columns, count), count)
            for window in self._windows(raw, columns, low, high, count):
                merge = self._merge_ranks(window)
                if hides is None:
                    for at, ranks in zip(window.places, merge, strict=True):
                        yield ranks, number, Place(one.run, group, at)
                else:
                    for at, ranks, name in zip(window.places, merge, self._names(window), strict=True):
                        if not hides(name):
                            yield ranks, number, Place(one.run, group, at)
            if high < count:
                return

    def _ranks_at(self, columns: Mapping[str, pa.Array], count: int) -> Callable[[int, int], v.Ranks]:
        """Ranks of the first columns of the path, of a row in reading order."""
        arrays = [columns[c.physical] for c in self.key]
        rankers = [v.ranker(down) for down in self.directions]
        backwards = self.fitted.backwards

        def ranks(at: int, width: int) -> v.Ranks:
            place = count - 1 - at if backwards else at
            return tuple(rankers[n](arrays[n][place].as_py()) for n in range(width))

        return ranks

    def _windows(
        self, raw: Mapping[str, pa.Array], columns: Mapping[str, pa.Array], low: int, high: int, count: int
    ) -> Iterator[Window]:
        """The rows of a row group that fulfil the filters."""
        filters, backwards = self.fitted.filters, self.fitted.backwards
        size = WINDOW_FILTERED if filters else WINDOW
        while low < high:
            end = min(low + size, high)
            start = count - end if backwards else low
            if filters:
                self.examined += end - low
                if self.examined > planning.EXAMINED_MAX:
                    raise TooMany
                part = {
                    f.column.physical: raw[self.here[f.column.physical].physical].slice(start, end - low)
                    for f in filters
                }
                found = pc.indices_nonzero(fl.mask(filters, part)).to_pylist()
                places = [start + n for n in found]
            else:
                places = list(range(start, start + end - low))
            if backwards:
                places.reverse()
            if places:
                yield Window(columns, places, start, end - low)
            low, size = end, min(2 * size, WINDOW_MAX)

    def _merge_ranks(self, window: Window) -> Iterator[v.Ranks]:
        if not self._merge:
            return itertools.repeat((), len(window.places))
        return zip(*(map(v.ranker(down), window.values(column)) for column, down in self._merge), strict=True)

    def _names(self, window: Window) -> Iterator[Key]:
        """Which rows they are."""
        names = zip(*(window.values(column) for column in self._identity), strict=True)
        return map(key_of, names) if self._floats else names

    def _level0(self, layer: Layer, number: int, interval: Interval, source: int) -> Iterator[Item]:
        count = len(layer.keys)
        backwards = self.fitted.backwards
        rankers = [v.ranker(down) for down in self.directions]

        def ranks(at: int, width: int) -> v.Ranks:
            key = layer.keys[count - 1 - at if backwards else at]
            return tuple(rankers[n](key[n]) for n in range(width))

        low = bisect.bisect_left(range(count), True, key=lambda at: _has_begun(interval, ranks, at))
        high = bisect.bisect_left(range(count), True, lo=low, key=lambda at: _has_ended(interval, ranks, at))
        if low >= high:
            return
        raw = {c.physical: layer.rows.column(c.physical) for c in self._columns()}
        columns = {name: v.plain(array) for name, array in raw.items()}
        overlay, dead = self.overlay, layer.dead
        is_last = number == len(overlay.layers) - 1
        for window in self._windows(raw, columns, low, high, count):
            for at, merge in zip(window.places, self._merge_ranks(window), strict=True):
                if dead is not None and dead[at]:
                    continue
                if is_last or not overlay.hides(layer.names[at], number + 1):
                    yield merge, source, Place(None, number, at)

    # ---- what rows hold ---------------------------------------------------------------------------------

    def taken(self, places: Sequence[Place], wanted: Sequence[Column]) -> pa.Table:
        """Columns of rows, in the order of the places, under the asked relation's physical names."""
        parts: dict[tuple[RunId | None, int], list[int]] = {}
        for number, place in enumerate(places):
            parts.setdefault((None if place.run is None else place.run.id, place.group), []).append(number)
        names = [c.physical for c in wanted]
        if not places:
            return rf.physical_schema(wanted).empty_table()
        columns = [self.here[name] for name in names]
        batches: list[pa.RecordBatch] = []
        order: list[int] = []
        for (_, group), numbers in parts.items():
            run = places[numbers[0]].run
            if run is None:
                rows = self.overlay.layers[group].rows
                found = {c.physical: rows.column(c.physical) for c in columns}
            else:
                found = self.store.columns(self.roots, run, group, columns)
            # All columns at once: a call for each would cost more than the rows.
            batch = pa.RecordBatch.from_arrays([found[c.physical] for c in columns], names=names)
            batches.append(batch.take(pa.array([places[n].at for n in numbers], pa.int64())))
            order += numbers
        joined = pa.Table.from_batches(batches)
        back = [0] * len(order)
        for here, number in enumerate(order):
            back[number] = here
        return joined if len(parts) == 1 else joined.take(pa.array(back, pa.int64()))


def _value(rank: Any) -> Any:
    plain = rank.rank if isinstance(rank, v.Desc) else rank
    return None if plain == v.NULL else float("nan") if plain == v.NAN else plain[1]


def _has_begun(interval: Interval, ranks: Callable[[int, int], v.Ranks], at: int) -> bool:
    low = interval.low
    found = ranks(at, len(low.ranks))
    return low.ranks < found or (low.inside and found == low.ranks)


def _has_ended(interval: Interval, ranks: Callable[[int, int], v.Ranks], at: int) -> bool:
    high = interval.high
    found = ranks(at, len(high.ranks))
    return high.ranks < found or (not high.inside and found == high.ranks)


def _ends(
    interval: Interval, span: tuple[v.Ranks, v.Ranks], ranks: Callable[[int, int], v.Ranks], count: int
) -> tuple[int, int]:
    """The first row inside the interval and the first one behind it, in reading order."""
    first, last = span
    low, high = 0, count
    shared = min(len(first), len(interval.low.ranks))
    if not interval.low.ranks[:shared] < first[:shared] and interval.low.ranks:
        low = bisect.bisect_left(range(count), True, key=lambda at: _has_begun(interval, ranks, at))
    shared = min(len(last), len(interval.high.ranks))
    if not last[:shared] < interval.high.ranks[:shared] and interval.high.ranks:
        high = bisect.bisect_left(range(count), True, lo=low, key=lambda at: _has_ended(interval, ranks, at))
    return low, high
