"""Rows in the order of a path: sorted streams from runs and layers, level 0 over level 1, merged as they are asked for.

A stream is lazy. It decodes a row group when its first row is wanted, finds the ends of its interval by bisection, and
looks at rows in windows that grow. Merging streams therefore reads, of each run, little more than what is shown.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.ids import RunId
from ebla.model.relation import DELETED, Column
from ebla.predicates import filters as fl
from ebla.predicates import values as v
from ebla.predicates.conditions import SortColumn
from ebla.query import plan as planning
from ebla.query.overlay import IS_DELETED, LEVEL1, Overlay, Place, Source
from ebla.query.picking import columns_of
from ebla.query.plan import FittedPath, Interval
from ebla.query.selection import SelectedGroups, Selection
from ebla.storage import runs as rf
from ebla.storage.layers import Key, Layer, key_of

WINDOW = 32
WINDOW_FILTERED = 512
WINDOW_MAX = 65_536
SPARSE = 8
"""Rows side by side in a row group are copied whole if at least one in this many of them is wanted."""


Item = tuple[v.Ranks, int, Place, Key]
"""Ranks to merge by, the number of the stream, where the row lies and, where it is needed, which row it is."""


class TooMany(Exception):
    """More rows are to be read or sorted than this way is made for."""


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
                found = _list_of(array.take(pa.array(places, pa.int64())))
            else:
                found = _list_of(array.slice(self._start, self._length))
                if places and places[0] > places[-1]:
                    found.reverse()
            self._lists[column.physical] = found
        return found


class Seek:
    """One path of one snapshot, ready to give rows for one request."""

    def __init__(self, source: Source, fitted: FittedPath, order: Sequence[SortColumn]) -> None:
        self.source = source
        self.store, self.roots = source.store, source.roots
        self.snapshot = source.snapshot
        self.fitted = fitted
        self.path = fitted.path
        self.selection = Selection(source, fitted)
        self.here, self.key = self.selection.here, self.selection.key
        self.directions = self.selection.directions
        # A column that the path lacks is in its order only if one value of it is wanted: it decides nothing.
        merge = [by for by in order[: fitted.sorted] if by.column.physical in self.here]
        self._merge = [(self.here[by.column.physical], by.descending) for by in merge]
        self._rankers = [(column, v.merge_ranker(column.type, down)) for column, down in self._merge]
        self._identity = self.selection.identity
        self._converts = any(column.type in ("date", "timestamp", "timestamp_ntz") for column in self._columns)
        self._floats = any(c.type in ("float", "double") for c in self._identity)
        self._in_order = True
        self.examined = 0
        """Rows that filters looked at, or that level 0 in files was asked for."""

    @cached_property
    def overlay(self) -> Overlay:
        return Overlay(self.source, self.path, self.selection.division.files)

    # ---- rows -------------------------------------------------------------------------------------------

    def rows(self, *, in_order: bool, likely: int = WINDOW) -> Iterator[Item]:
        """Rows in the intervals that fulfil the filters, ordered by the ranks they carry; about `likely` are wanted."""
        sources: list[Iterator[Item]] = []
        overlay, level1, self._in_order = self.overlay, self.selection.selected, in_order
        tablets = self.selection.tablets() if overlay.files else None
        files = [one for _, run in overlay.files for one in self.selection.select(run, tablets) or ()]
        begin: dict[tuple[RunId, int], dict[str, pa.Array]] = {}
        if in_order:
            begin = self.store.warm(self.roots, [(one.run, one.groups[0]) for one in level1], self._columns)
            begin |= self.store.warm(self.roots, [(one.run, one.groups[0]) for one in files], self._columns_of_files)
        for one in (*level1, *files):
            sources.append(self._in_run(one, len(sources), begin.get((one.run.id, one.groups[0]))))
        for number, part in enumerate(overlay.parts):
            if isinstance(part, Layer):
                for interval in self.fitted.intervals:
                    sources.append(self._in_layer(part, number, interval, len(sources)))
        found: Iterator[Item] = itertools.chain.from_iterable(sources)
        if in_order and len(sources) != 1:
            found = heapq.merge(*sources)
        if self._is_by_key:
            found = _newest(found)
        return self._standing(found, likely) if self._asks_files else found

    @property
    def _is_by_key(self) -> bool:
        """Whether all versions of a row but tombstones come side by side: the newest is found without asking."""
        return self._in_order and self._ranks_by_key

    @cached_property
    def _ranks_by_key(self) -> bool:
        """Whether rows of equal ranks are versions of one row."""
        if not self.overlay.files or self.path.identity != self.path.key or self.fitted.filters:
            return False
        fixed = self.key[: self.fitted.fixed] if len(self.fitted.intervals) == 1 else []
        ranked = {column.physical for column in (*(c for c, _ in self._merge), *fixed)}
        return self.overlay.files_count and ranked.issuperset(column.physical for column in self.key)

    @property
    def _asks_files(self) -> bool:
        """Whether runs in files are asked for rows of others."""
        return self.overlay.has_tombstones if self._is_by_key else bool(self.overlay.files)

    def _standing(self, items: Iterator[Item], likely: int) -> Iterator[Item]:
        """Rows that no newer run in a file has written, asked for in batches of about what is missing."""
        size, asked, stood = likely, 0, 0
        if self.path.identity != self.path.key:  # as if every entry in a file had replaced one of level 1
            below = 1 + self.selection.division.level1_rows
            over = sum(run.rows for _, run in self.overlay.files)
            size += likely * min(over, 2 * below) // below + max(WINDOW, likely) // 4
        while batch := list(itertools.islice(items, size)):
            self.examined += len(batch)
            if self.examined > planning.EXAMINED_MAX:
                raise TooMany
            places, names = [place for _, _, place, _ in batch], [name for *_, name in batch]
            gone = self.overlay.replaced(places, names, by_tombstones=self._is_by_key)
            yield from itertools.compress(batch, map(operator.not_, gone))
            asked, stood = asked + len(batch), stood + len(batch) - sum(gone)
            missing = likely - stood
            wanted = missing * asked // stood + WINDOW // 4 if missing > 0 and stood else 2 * size
            size = min(max(wanted, WINDOW // 2), 2 * asked, WINDOW_MAX)

    @cached_property
    def _columns(self) -> list[Column]:
        """What is needed to find, filter and merge rows."""
        used = [*self.key, *(c for c, _ in self._merge), *(self.here[f.column.physical] for f in self.fitted.filters)]
        return list({c.physical: c for c in used}.values())

    @cached_property
    def _columns_of_files(self) -> list[Column]:
        return [*self._columns, IS_DELETED]

    def _plain(self, raw: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
        """Columns with comparable values; most are as they are stored."""
        return {name: v.plain(array) for name, array in raw.items()} if self._converts else raw

    def _in_run(self, one: SelectedGroups, number: int, begin: Mapping[str, pa.Array] | None) -> Iterator[Item]:
        """`begin`: the columns of the first row group, where they were read before."""
        interval, run = self.fitted.intervals[one.interval], one.run
        part = self.overlay.numbers.get(run.id, LEVEL1)
        needed = self._columns if part == LEVEL1 else self._columns_of_files
        for group in one.groups:
            raw = begin or self.store.columns(self.roots, run, group, needed)
            begin = None
            columns = self._plain(raw)
            count = one.footer.rows[group]
            low, high = 0, count
            if interval.low.ranks or interval.high.ranks:
                low, high = _ends(interval, one.spans[group], self._ranks_at(columns, count), count)
            dead = _dead(raw) if part != LEVEL1 and run.tombstones else None
            for window in self._windows(raw, columns, low, high, count):
                for at, ranks, name in self._seen(window, part):
                    if dead is None or not dead[at]:
                        yield ranks, number, Place(part, run, group, at), name
            if high < count:
                return

    def _seen(self, window: Window, part: int) -> Iterable[tuple[int, v.Ranks, Key]]:
        """Rows of a part that no newer layer hides."""
        overlay, since, merge = self.overlay, part + 1, self._merge_ranks(window)
        if not (self._asks_files or overlay.has_layers(since)):
            return zip(window.places, merge, itertools.repeat(()), strict=False)
        rows = zip(window.places, merge, self._names(window), strict=True)
        return (row for row in rows if not overlay.hides(row[2], since)) if overlay.has_layers(since) else rows

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
        return zip(*(map(ranker, window.values(column)) for column, ranker in self._rankers), strict=True)

    def _names(self, window: Window) -> Iterator[Key]:
        """Which rows they are."""
        names = zip(*(window.values(column) for column in self._identity), strict=True)
        return map(key_of, names) if self._floats else names

    def _in_layer(self, layer: Layer, number: int, interval: Interval, source: int) -> Iterator[Item]:
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
        raw = {c.physical: layer.rows.column(c.physical) for c in self._columns}
        columns = self._plain(raw)
        overlay, dead = self.overlay, layer.dead
        is_last = not overlay.has_layers(number + 1)
        for window in self._windows(raw, columns, low, high, count):
            for at, merge in zip(window.places, self._merge_ranks(window), strict=True):
                if dead is not None and dead[at]:
                    continue
                if is_last or not overlay.hides(layer.names[at], number + 1):
                    yield merge, source, Place(number, None, 0, at), layer.names[at]

    # ---- what rows hold ---------------------------------------------------------------------------------

    def taken(self, places: Sequence[Place], wanted: Sequence[Column]) -> pa.Table:
        """Columns of rows, in the order of the places, under the asked relation's physical names."""
        if not places:
            return rf.physical_schema(wanted).empty_table()
        columns = [self.here[c.physical] for c in wanted]
        places, read = columns_of(self.source, places, columns)
        parts: dict[tuple[RunId | int, int], list[int]] = {}
        for number, place in enumerate(places):
            parts.setdefault((place.part if place.run is None else place.run.id, place.group), []).append(number)
        pieces: list[list[pa.Array]] = []
        back, before = [0] * len(places), 0
        for numbers in parts.values():
            first = places[numbers[0]]
            if first.run is None:
                rows = self.overlay.layer(first.part).rows
                found: Mapping[str, pa.Array] = {c.physical: rows.column(c.physical) for c in columns}
            else:
                found = read[first.run.id, first.group]
            at = [places[number].at for number in numbers]
            least, size = min(at), max(at) - min(at) + 1
            if size > SPARSE * len(at) + WINDOW:
                chosen = pa.array(at, pa.int64())
                pieces.append([found[c.physical].take(chosen) for c in columns])
                at, least, size = list(range(len(at))), 0, len(at)
            else:
                pieces.append([found[c.physical].slice(least, size) for c in columns])
            for number, place_in in zip(numbers, at, strict=True):
                back[number] = before + place_in - least
            before += size
        # A call for each row group and column would cost more than the rows: one for each column, behind slices.
        joined = [pa.concat_arrays(parts_of) for parts_of in zip(*pieces, strict=True)]
        batch = pa.RecordBatch.from_arrays(joined, names=[c.physical for c in wanted])
        return pa.Table.from_batches([batch.take(pa.array(back, pa.int64()))])


def _list_of(array: pa.Array) -> list[Any]:
    """Its values. Numbers are made by numpy, in a tenth of the time that Arrow takes."""
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    found: list[Any] = array.to_numpy().tolist() if is_number and not array.null_count else array.to_pylist()
    return found


def _newest(items: Iterator[Item]) -> Iterator[Item]:
    """Of neighbours with equal ranks, which are versions of one row, the newest."""
    held = next(items, None)
    for item in items:
        assert held is not None
        if item[0] != held[0]:
            yield held
            held = item
        elif item[2].part > held[2].part:
            held = item
    if held is not None:
        yield held


def _dead(columns: Mapping[str, pa.Array]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.fill_null(columns[DELETED], False).to_numpy(zero_copy_only=False)
    return found


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
