"""What reads keep in memory of runs, which never change: footers, decoded columns, and level 0 merged.

All three are shared by the threads of one connection. What the newest snapshot of a path no longer needs goes at once:
layers that were merged into others, and what was kept of runs that have ended.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache

from ebla.base.caches import CacheName, Caches, Lru
from ebla.base.ids import NodeId, RelationId, RunId, TabletId, Version
from ebla.base.precedence import PRECEDENCE
from ebla.errors import CorruptRunError
from ebla.model.relation import TOKEN, Column, Relation, Run
from ebla.model.snapshot import Snapshot
from ebla.predicates import values as v
from ebla.predicates.access import AccessPath
from ebla.storage import layers as ly
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.storage.layers import Layer
from ebla.storage.reserve import Reserve
from ebla.values import token as tokens
from ebla.values import types

PATHS_MAX = 1024
"""The number of paths of which the needs of the newest snapshot are kept."""
FOOTER_TIMES = 14
"""The size of a footer in memory, with the bounds that are made of it, divided by its size in the file."""


@dataclass(frozen=True, kw_only=True)
class Footer:
    """What a run's file says of itself. Bounds of a column are made when they are first asked for."""

    metadata: Any
    schema: pa.Schema
    rows: tuple[int, ...]
    """The number of rows of each row group."""
    place: Mapping[str, int]
    """The number of each column that is not nested."""
    _bounds: dict[tuple[str, str], list[tuple[Any, Any]]] = field(default_factory=dict)
    _spans: dict[tuple[str, ...], list[tuple[v.Ranks, v.Ranks]]] = field(default_factory=dict)

    @cached_property
    def begins(self) -> Sequence[int]:
        """The number of the first row of each row group in the file."""
        return list(itertools.accumulate(self.rows, initial=0))

    @cached_property
    def is_sorted(self) -> bool:
        """Whether a file of level 0 says that it has the order of its relation. Spark sorts what has no tokens."""
        return TOKEN not in self.schema.names or rf.ORDERED in (self.schema.metadata or {})

    def bounds(self, column: Column) -> list[tuple[Any, Any]]:
        """The least and the greatest rank of a column in each row group."""
        name = (column.physical, column.type)
        found = self._bounds.get(name)
        if found is None:
            found = self._bounds[name] = [self._bound(column, g) for g in range(len(self.rows))]
        return found

    def spans(self, key: Sequence[tuple[Column, bool]]) -> list[tuple[v.Ranks, v.Ranks]]:
        """The ranks between which each row group lies, of columns in these directions, as far as they are known.

        A column behind one whose values differ inside the row group says nothing about its first and last row.
        """
        name = tuple(("-" if down else "") + column.physical for column, down in key)
        found = self._spans.get(name)
        if found is None:
            found = self._spans[name] = [self._span(key, group) for group in range(len(self.rows))]
        return found

    def _span(self, key: Sequence[tuple[Column, bool]], group: int) -> tuple[v.Ranks, v.Ranks]:
        lows: list[Any] = []
        highs: list[Any] = []
        for column, down in key:
            low, high = self.bounds(column)[group]
            lows.append(v.Desc(high) if down else low)
            highs.append(v.Desc(low) if down else high)
            if low != high:
                break
        return tuple(lows), tuple(highs)

    def _bound(self, column: Column, group: int) -> tuple[Any, Any]:
        place = self.place.get(column.physical)
        if place is None:
            absent = self.schema.get_field_index(column.physical) < 0
            return (v.NULL, v.NULL) if absent else (v.NULL, LAST)
        statistics = self.metadata.row_group(group).column(place).statistics
        if statistics is None:
            return v.NULL, LAST
        if statistics.has_null_count and statistics.null_count == self.rows[group]:
            return v.NULL, v.NULL
        if not statistics.has_min_max:
            return v.NULL, LAST
        kind = types.to_arrow(column.type)
        try:
            low, high = (
                _plain(value, self.schema.field(column.physical).type, kind) for value in _extremes(statistics)
            )
        except (ValueError, OverflowError, pa.ArrowException):  # a date beyond Python's calendar
            return v.NULL, LAST
        may_be_null = not statistics.has_null_count or statistics.null_count > 0
        # A writer may leave NaN out of its statistics, and it is greater than all they know of.
        return v.NULL if may_be_null else v.rank(low), LAST if pa.types.is_floating(kind) else v.rank(high)


LAST: v.Rank = (3, 0)
"""Behind every rank."""


def _extremes(statistics: Any) -> tuple[Any, Any]:
    return statistics.min, statistics.max


def _plain(value: Any, stored: pa.DataType, wanted: pa.DataType) -> Any:
    array = pa.array([value], stored)
    return v.plain(array if stored == wanted else array.cast(wanted))[0].as_py()


def footer_of(root: Root, run: Run) -> Footer:
    metadata = root.open_parquet(run.path).metadata
    schema = metadata.schema.to_arrow_schema()
    place = {metadata.schema.column(i).path: i for i in range(len(metadata.schema))}
    return Footer(
        metadata=metadata,
        schema=schema,
        rows=tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)),
        place={name: place[name] for name in schema.names if name in place},
    )


class Store:
    """The caches of one connection."""

    def __init__(self, caches: Caches) -> None:
        self._footers: Lru[Footer] = caches.cache(CacheName.FOOTERS)
        self._columns: Lru[Any] = caches.cache(CacheName.COLUMNS)
        self._layers: Lru[Layer] = caches.cache(CacheName.LAYERS)
        self._newest: LRUCache[tuple[RelationId, tuple[bool, ...]], _PathNeeds] = LRUCache(PATHS_MAX)
        self.reserves: Lru[Reserve] = caches.cache(CacheName.RESERVES)
        """Rows behind views that show the first ones of their query, by the view's id and query."""
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    # ---- footers and columns ----------------------------------------------------------------------------

    def footer(self, roots: Mapping[NodeId, Root], run: Run) -> Footer:
        found = self._footers.get(run.id)
        if found is None:
            found = from_copy(roots, run, lambda root: footer_of(root, run))
            self._footers.put(run.id, found, FOOTER_TIMES * found.metadata.serialized_size)
        return found

    @property
    def columns_bytes_max(self) -> int:
        """How many bytes of decoded columns are kept at most."""
        return self._columns.bytes_max

    def has_columns(self, run: Run, group: int, columns: Sequence[Column]) -> bool:
        """Whether these columns of a row group are in memory."""
        return self._columns.get_all([(run.id, group, c.physical, c.type) for c in columns]) is not None

    def columns(
        self, roots: Mapping[NodeId, Root], run: Run, group: int, columns: Sequence[Column]
    ) -> dict[str, pa.Array]:
        """Columns of a row group, in today's types. One that the file does not have is NULL."""
        whole = self._columns.get_all([(run.id, group, c.physical, c.type) for c in columns])
        if whole is not None:
            return dict(zip((c.physical for c in columns), whole, strict=True))
        found: dict[str, pa.Array] = {}
        missing: list[Column] = []
        for column in columns:
            kept = self._columns.get((run.id, group, column.physical, column.type))
            if kept is None:
                missing.append(column)
            else:
                found[column.physical] = kept
        return found | self._read(roots, run, [group], missing)[0] if missing else found

    def _read(
        self, roots: Mapping[NodeId, Root], run: Run, groups: Sequence[int], columns: Sequence[Column]
    ) -> list[dict[str, pa.Array]]:
        """Decode columns of row groups of one run, and keep them."""
        footer = self.footer(roots, run)
        stored = [c.physical for c in columns if footer.schema.get_field_index(c.physical) >= 0]
        tables = from_copy(roots, run, lambda root: read_groups(root, run, footer, groups, stored))
        found: list[dict[str, pa.Array]] = []
        for group, table in zip(groups, tables, strict=True):
            arrays = {c.physical: today(table, c, footer.rows[group]) for c in columns}
            for column in columns:
                array = arrays[column.physical]
                self._columns.put((run.id, group, column.physical, column.type), array, array.get_total_buffer_size())
            found.append(arrays)
        return found

    def warm(
        self, roots: Mapping[NodeId, Root], wanted: Sequence[tuple[Run, int]], columns: Sequence[Column]
    ) -> dict[tuple[RunId, int], dict[str, pa.Array]]:
        """Columns of row groups, of which those that are not in memory are read several at a time.

        Who goes on with what this returns decodes nothing twice, also where the cache has no room for all of it.
        """
        names = [c.physical for c in columns]
        found: dict[tuple[RunId, int], dict[str, pa.Array]] = {}
        cold: dict[RunId, tuple[Run, list[int]]] = {}
        for run, group in wanted:
            kept = self._columns.get_all([(run.id, group, c.physical, c.type) for c in columns])
            if kept is None:
                cold.setdefault(run.id, (run, []))[1].append(group)
            else:
                found[run.id, group] = dict(zip(names, kept, strict=True))
        if len(cold) == 1:
            [(run, groups)] = cold.values()
            read = [self._read(roots, run, groups, columns)]
        elif cold:
            read = list(self.pool().map(lambda one: self._read(roots, one[0], one[1], columns), cold.values()))
        else:
            return found
        for (run, groups), parts in zip(cold.values(), read, strict=True):
            found.update({(run.id, group): part for group, part in zip(groups, parts, strict=True)})
        return found

    def take_over(self, roots: Mapping[NodeId, Root], ended: Sequence[Run], added: Sequence[Run]) -> None:
        """Read of new runs the columns that are kept of most row groups of those in whose tablets they come."""
        tablets = {run.id: run.tablet for run in ended}
        groups = {run.tablet: len(footer.rows) for run in ended if (footer := self._footers.get(run.id)) is not None}
        kept: Counter[tuple[TabletId, str, str]] = Counter()
        for name in self._columns.names():
            if name[0] in tablets and isinstance(name[1], int):
                kept[tablets[name[0]], name[2], name[3]] += 1
        for run in added:
            columns = [
                Column(name=physical, physical=physical, type=kind)
                for (tablet, physical, kind), count in kept.items()
                if tablet == run.tablet and 2 * count > groups.get(tablet, math.inf)
            ]
            for group in range(len(self.footer(roots, run).rows) if columns else 0):
                PRECEDENCE.give_way()
                self.columns(roots, run, group, columns)

    def rows_by_token(self, roots: Mapping[NodeId, Root], run: Run, key: Sequence[Column]) -> RowsByToken:
        """The rows of a run by the tokens of some columns."""
        name = (run.id, "rows by token", *((column.physical, column.type) for column in key))
        kept: RowsByToken | None = self._columns.get(name)
        if kept is None:
            footer = self.footer(roots, run)
            groups = range(len(footer.rows))
            parts = self.warm(roots, [(run, group) for group in groups], key)
            found = [_tokens([parts[run.id, group][c.physical] for c in key]) for group in groups]
            words = _words(np.concatenate(found or [np.array([], np.int64)]))
            kept = RowsByToken(words=words, bits=_bits(len(words)), ends=list(itertools.accumulate(footer.rows)))
            self._columns.put(name, kept, words.nbytes)
        return kept

    def prepare_rows_by_token(self, roots: Mapping[NodeId, Root], runs: Sequence[Run], key: Sequence[Column]) -> None:
        """Have the tables made by another thread. What goes wrong there is met again by the first who asks."""
        for run in runs:
            self.pool().submit(self.rows_by_token, roots, run, key)

    def pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 2), thread_name_prefix="ebla-read")
            return self._pool

    # ---- level 0 ----------------------------------------------------------------------------------------

    def layers(
        self,
        roots: Mapping[NodeId, Root],
        path: AccessPath,
        snapshot: Snapshot,
        cache: rf.LevelZeroCache,
        files: Collection[RunId] = (),
    ) -> list[Layer | Run]:
        """Level 0 of a snapshot, oldest first; `files` are runs that are in no layer.

        The next snapshot, with one run more, needs most of the same layers.
        """
        building = _LayerBuilder(self._layers, roots, path, snapshot, cache)
        found = building.layers(files)
        self._follow(building, cache)
        return found

    def expect(self, roots: Mapping[NodeId, Root], runs: Sequence[Run], cache: rf.LevelZeroCache) -> None:
        """Make what queries need of level 0 runs that are about to become visible, for the paths that they ask for."""
        relations = {run.relation for run in runs}
        with self._lock:
            paths = [needed.path for (relation, _), needed in self._newest.items() if relation in relations]
        for path, run in itertools.product(paths, runs):
            PRECEDENCE.give_way()
            if run.rows <= ly.LAYER_ROWS_MAX:
                made = ly.layer_of(path, rf.read_copy(roots, run, cache))
                self._layers.put(_layer_name([run], (), path), made, made.bytes)
            elif path.identity != path.key:
                self.rows_by_token(roots, run, path.relation.identity)

    def has_layers(self, path: AccessPath) -> bool:
        """Whether level 0 of the path was asked for before."""
        return (path.relation.id, _directions(path)) in self._newest

    def _follow(self, building: _LayerBuilder, cache: rf.LevelZeroCache) -> None:
        """Forget what a newer snapshot of a path does not need, nor the one before it: readers may be at that one."""
        snapshot = building.snapshot
        relation = snapshot.relation.id
        name = relation, _directions(building.path)
        with self._lock:
            before = self._newest.get(name)
            if before is not None and before.version >= snapshot.version:
                return
            runs = {run.id: run for run in (*snapshot.level1, *snapshot.level0)}
            last = frozenset() if before is None else before.layers
            used = frozenset(building.used)
            now = _PathNeeds(version=snapshot.version, path=building.path, runs=runs, layers=used, last_layers=last)
            self._newest[name] = now
        if before is None:
            return
        unused = before.last_layers - before.layers - now.layers
        if unused:
            self._layers.drop(unused.__contains__)
        ended = [run for run in before.runs.values() if run.id not in runs]
        if ended:
            self.end(ended)
            cache.end(relation, [run for run in ended if run.level == 0])

    def end(self, runs: Collection[Run]) -> None:
        """Runs have ended: the newest version has others in their place."""
        ended = {run.id for run in runs}
        self._footers.drop(ended.__contains__)
        self._columns.drop(lambda name: name[0] in ended)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PathNeeds:
    """What the newest snapshot of a path needs."""

    version: Version
    path: AccessPath
    runs: Mapping[RunId, Run]
    layers: frozenset[Hashable]
    last_layers: frozenset[Hashable]
    """What the snapshot before it needed."""


class _LayerBuilder:
    """Layers of one snapshot, from those that are there."""

    def __init__(
        self,
        kept: Lru[Layer],
        roots: Mapping[NodeId, Root],
        path: AccessPath,
        snapshot: Snapshot,
        cache: rf.LevelZeroCache,
    ) -> None:
        self._kept = kept
        self._roots = roots
        self.path = path
        self.snapshot = snapshot
        self._cache = cache
        self.used: set[Hashable] = set()
        """The names of the layers that were found or made."""

    def layers(self, files: Collection[RunId]) -> list[Layer | Run]:
        found: list[Layer | Run] = []
        for is_file, runs in itertools.groupby(self.snapshot.level0, key=lambda run: run.id in files):
            found += runs if is_file else [self._layer(part) for part in _cut(list(runs))]
        return found

    def _layer(self, runs: Sequence[Run]) -> Layer:
        found, name = self._find(runs), self._name(runs)
        if found is None:
            found = ly.merged(self.path, self._parts(runs)) if len(runs) > 1 else self._of_run(runs[0])
            self._kept.put(name, found, found.bytes)
        self.used.add(name)
        return found

    def _parts(self, runs: Sequence[Run]) -> list[Layer]:
        """What to merge several runs from: the layers of before the last one came, as far as they are kept."""
        found: list[Layer] = []
        for part in [*_cut(runs[:-1]), runs[-1:]]:
            kept = self._find(part)
            if kept is not None:
                found.append(kept)
            elif len(part) > 1:
                found += self._parts(part)
            else:
                found.append(self._layer(part))
        return found

    def _of_run(self, run: Run) -> Layer:
        cutoffs = ly.folded([run], self.snapshot)
        name = self._named([run], ())
        found = self._kept.get(name)
        if found is None:
            found = ly.layer_of(self.path, rf.read_copy(self._roots, run, self._cache))
            if cutoffs:
                self._kept.put(name, found, found.bytes)
        self.used.add(name)
        return ly.without_folded(found, run, cutoffs)

    def _find(self, runs: Sequence[Run]) -> Layer | None:
        return self._kept.get(self._name(runs))

    def _name(self, runs: Sequence[Run]) -> Hashable:
        return self._named(runs, ly.folded(runs, self.snapshot))

    def _named(self, runs: Sequence[Run], cutoffs: ly.Folded) -> Hashable:
        return _layer_name(runs, cutoffs, self.path)


def _directions(path: AccessPath) -> tuple[bool, ...]:
    return tuple(column.descending for column in path.key)


def _layer_name(runs: Sequence[Run], cutoffs: ly.Folded, path: AccessPath) -> Hashable:
    shape = path.relation.schema_version, path.relation.tablets, _directions(path)
    return tuple(run.id for run in runs), cutoffs, shape


def _cut(runs: Sequence[Run]) -> list[Sequence[Run]]:
    return [runs[one.start : one.stop] for one in ly.segments([run.rows for run in runs])]


Read = TypeVar("Read")


def from_copy(roots: Mapping[NodeId, Root], run: Run, read: Callable[[Root], Read]) -> Read:
    """Read from the first copy of a run that can be."""
    while True:
        node = rf.readable_node(roots, run)
        if node is None:
            raise CorruptRunError(
                f"{run.path}: run missing or damaged: expected {run.bytes} bytes on node {run.nodes[0]}, "
                "found no sound copy; restore the file from a backup or load the rows again"
            )
        try:
            return read(roots[node])
        except (OSError, pa.ArrowException):
            roots[node].distrust(run.path)


def read_groups(root: Root, run: Run, footer: Footer, groups: Sequence[int], names: Sequence[str]) -> list[pa.Table]:
    if not names:
        return [pa.table({}) for _ in groups]
    root.fetch(run.path)
    file = pq.ParquetFile(
        root.inner(run.path),
        filesystem=root.filesystem,
        metadata=footer.metadata,
        page_checksum_verification=True,
        pre_buffer=False,
    )
    return [file.read_row_group(group, columns=list(names), use_threads=False) for group in groups]


def today(read: pa.Table, column: Column, rows: int) -> pa.Array:
    """A column of rows that were read of a file, in today's type. One that the file does not have is NULL."""
    kind = types.to_arrow(column.type)
    index = read.schema.get_field_index(column.physical)
    if index < 0:
        return pa.nulls(rows, kind)
    found = read.column(index)
    return single(found if found.type == kind else found.cast(kind))


def single(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsByToken:
    """The rows of a run, sorted by token: each word is a token whose lowest `bits` bits are the row's number."""

    words: npt.NDArray[np.uint64]
    bits: int
    ends: Sequence[int]
    """Of each row group, the number of rows up to its end."""


def _bits(rows: int) -> int:
    return max(1, (rows - 1).bit_length())


def _words(found: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    low = np.uint64((1 << _bits(len(found))) - 1)
    return np.sort((found.view(np.uint64) & ~low) | np.arange(len(found), dtype=np.uint64))


def tokens_of(relation: Relation, names: Sequence[Sequence[Any]]) -> npt.NDArray[np.int64]:
    """The tokens of rows, given as comparable values of what says which rows they are."""
    columns = zip(*names, strict=True) if names else [()] * len(relation.identity)
    return _tokens([v.array(values, c.type) for c, values in zip(relation.identity, columns, strict=True)])


def _tokens(arrays: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    names = [str(n) for n in range(len(arrays))]
    return tokens.tokens(types.normalize_keys(pa.table(arrays, names=names), names), names)
