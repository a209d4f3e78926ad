"""Where keys lie in runs: by bisection in runs that are sorted by them, by a table of tokens in others.

Keys are looked up many at a time. Each comes with the runs that may have it, and the first of them that has it counts.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ebla.base.ids import NodeId, RunId
from ebla.model.relation import Column, Run
from ebla.predicates import values as v
from ebla.storage.files import Root
from ebla.storage.layers import Key, key_of
from ebla.storage.store import Store

Spans = Sequence[tuple[v.Ranks, v.Ranks]]
Spot = tuple[Run, int, int]
"""A run, a row group of it and the row's number there."""


class WantedKey(NamedTuple):
    key: Key
    token: int
    runs: Sequence[Run]
    """The runs that may have the key."""


class RunKeys(Protocol):
    def find(self, wanted: Sequence[WantedKey]) -> list[Spot | None]: ...


class SortedRuns:
    """Keys in runs that are sorted by them."""

    def __init__(
        self, store: Store, roots: Mapping[NodeId, Root], key: Sequence[Column], directions: Sequence[bool]
    ) -> None:
        self._store = store
        self._roots = roots
        self._key = key
        self._directions = directions
        self._columns = list(zip(key, directions, strict=True))
        self._rankers = [v.ranker(down) for down in directions]

    def find(self, wanted: Sequence[WantedKey]) -> list[Spot | None]:
        """Reads the key columns of the row groups that can have one of the keys."""
        spans: dict[RunId, Spans] = {}
        candidates = [self._candidates(one, spans) for one in wanted]
        inside: dict[tuple[RunId, int], tuple[Run, list[int]]] = {}
        for number, places in enumerate(candidates):
            for run, group in places:
                inside.setdefault((run.id, group), (run, []))[1].append(number)
        groups = [(run, group) for (_, group), (run, _) in inside.items()]
        columns = self._store.warm(self._roots, groups, self._key)
        found: dict[tuple[RunId, int, int], int] = {}
        for (name, group), (_, numbers) in inside.items():
            places_in = self._in_group(columns[name, group], [wanted[number].key for number in numbers])
            found.update({(name, group, n): at for n, at in zip(numbers, places_in, strict=True) if at is not None})
        return [
            next(((run, group, found[hit]) for run, group in places if (hit := (run.id, group, number)) in found), None)
            for number, places in enumerate(candidates)
        ]

    def _ranks(self, key: Key) -> v.Ranks:
        return tuple(ranker(value) for ranker, value in zip(self._rankers, key, strict=True))

    def _candidates(self, wanted: WantedKey, by_run: dict[RunId, Spans]) -> list[tuple[Run, int]]:
        """The row groups that can have the key. Those before the first one end before it."""
        found: list[tuple[Run, int]] = []
        ranks = self._ranks(wanted.key) if wanted.runs else ()
        for run in wanted.runs:
            spans = by_run.get(run.id)
            if spans is None:
                spans = by_run[run.id] = self._store.footer(self._roots, run).spans(self._columns)
            first = bisect.bisect_left(spans, True, key=lambda span: not span[1] < ranks[: len(span[1])])
            for group in range(first, len(spans)):
                low, high = spans[group]
                if ranks[: len(low)] < low:
                    break
                if not high < ranks[: len(high)]:
                    found.append((run, group))
        return found

    def _in_group(self, columns: Mapping[str, pa.Array], keys: Sequence[Key]) -> list[int | None]:
        arrays = [v.plain(columns[c.physical]) for c in self._key]
        lows, highs, settled = self._by_first(arrays[0], [key[0] for key in keys])
        values, rankers = [_values(array) for array in arrays[settled:]], self._rankers[settled:]

        def ranks(at: int) -> v.Ranks:
            return tuple(ranker(value(at)) for ranker, value in zip(rankers, values, strict=True))

        found: list[int | None] = []
        for key, low, high in zip(keys, lows, highs, strict=True):
            wanted = tuple(ranker(value) for ranker, value in zip(rankers, key[settled:], strict=True))
            at = bisect.bisect_left(range(low, high), wanted, key=ranks) + low if high - low > 1 else low
            found.append(at if at < high and ranks(at) == wanted else None)
        return found

    def _by_first(self, array: pa.Array, values: Sequence[Any]) -> tuple[list[int], list[int], int]:
        """The rows that each value of the first column leaves, and whether it is settled: numbers are found at once."""
        if self._directions[0] or array.null_count or not pa.types.is_integer(array.type) or None in values:
            return [0] * len(values), [len(array)] * len(values), 0
        numbers = array.to_numpy()
        sought = np.array(values, numbers.dtype)
        lows, highs = np.searchsorted(numbers, sought), np.searchsorted(numbers, sought, side="right")
        return lows.tolist(), highs.tolist(), 1


def _values(array: pa.Array) -> Callable[[int], Any]:
    """The value of a row: of numbers, by numpy, which is faster."""
    if pa.types.is_integer(array.type) and not array.null_count:
        found: Callable[[int], Any] = array.to_numpy().item
        return found
    return lambda at: array[at].as_py()


class UnsortedRuns:
    """Keys in runs that are sorted otherwise, as those of an index are.

    Of each run a table of its rows by token is kept: the upper bits of the token and the row's number, in one word.
    """

    def __init__(self, store: Store, roots: Mapping[NodeId, Root], key: Sequence[Column]) -> None:
        self._store = store
        self._roots = roots
        self._key = key
        self._floats = any(column.type in ("float", "double") for column in key)
        self._values: dict[tuple[RunId, int], list[Callable[[int], Any]]] = {}

    def find(self, wanted: Sequence[WantedKey]) -> list[Spot | None]:
        alike: dict[int, list[int]] = {}
        for number, one in enumerate(wanted):
            alike.setdefault(id(one.runs), []).append(number)
        tokens = np.array([one.token for one in wanted], np.int64).view(np.uint64)
        found: list[Spot | None] = [None] * len(wanted)
        for numbers in alike.values():
            for run in wanted[numbers[0]].runs:
                left = [number for number in numbers if found[number] is None]
                if not left:
                    break
                for number, spot in self._in_run(run, tokens[left], left, wanted):
                    found[number] = spot
        return found

    def _in_run(
        self, run: Run, tokens: npt.NDArray[np.uint64], numbers: Sequence[int], wanted: Sequence[WantedKey]
    ) -> Iterator[tuple[int, Spot]]:
        table = self._store.rows_by_token(self._roots, run, self._key)
        words, ends, low_bits = table.words, table.ends, (1 << table.bits) - 1
        if not len(words):
            return
        sought = tokens & np.uint64(2**64 - 1 - low_bits)
        firsts = words.searchsorted(sought)
        # Where there is no such token, the nearest is beyond its row numbers, or below it at the end of the table.
        is_there = words.take(firsts, mode="clip") - sought <= np.uint64(low_bits)
        for place in is_there.nonzero()[0].tolist():
            key, most = wanted[numbers[place]].key, int(sought[place]) | low_bits
            for word in map(int, words[int(firsts[place]) :]):
                if word > most:
                    break
                row = word & low_bits
                group = bisect.bisect_right(ends, row)
                row -= ends[group - 1] if group else 0
                found = tuple([value(row) for value in self._values_of(run, group)])
                if (key_of(found) if self._floats else found) == key:
                    yield numbers[place], (run, group, row)

    def _values_of(self, run: Run, group: int) -> list[Callable[[int], Any]]:
        found = self._values.get((run.id, group))
        if found is None:
            columns = self._store.columns(self._roots, run, group, self._key)
            found = self._values[run.id, group] = [_values(v.plain(columns[c.physical])) for c in self._key]
        return found
