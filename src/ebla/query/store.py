"""What reads keep in memory of runs, which never change: footers, decoded columns, and level 0 by key.

All three are bounded, least recently used out first, and shared by the threads of one connection.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ebla.errors import CorruptRunError
from ebla.ids import NodeId, RunId, TabletId
from ebla.query import values as v
from ebla.query.plan import AccessPath
from ebla.storage import runs as rf
from ebla.storage import token as tokens
from ebla.storage import types
from ebla.storage.files import Root
from ebla.storage.model import DELETED, TOKEN, Column, Relation, Run

COLUMNS_BYTES_MAX = 256 * 2**20
FOOTERS_MAX = 4096
LAYERS_BYTES_MAX = 128 * 2**20

Kept = TypeVar("Kept")


class Lru(Generic[Kept]):
    """Things by name, up to a size."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._kept: OrderedDict[Hashable, tuple[Kept, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: Hashable) -> Kept | None:
        with self._lock:
            found = self._kept.get(name)
            if found is None:
                return None
            self._kept.move_to_end(name)
            return found[0]

    def put(self, name: Hashable, thing: Kept, size: int = 1) -> None:
        with self._lock:
            before = self._kept.pop(name, None)
            self._size += size - (before[1] if before is not None else 0)
            self._kept[name] = thing, size
            while self._size > self._size_max and len(self._kept) > 1:
                _, (_, gone) = self._kept.popitem(last=False)
                self._size -= gone


@dataclass(frozen=True, kw_only=True)
class Footer:
    """What a run's file says of itself. Bounds of a column are made when they are first asked for."""

    metadata: Any
    schema: pa.Schema
    rows: tuple[int, ...]
    """Of each row group."""
    place: Mapping[str, int]
    """The number of each column that is not nested."""
    _bounds: dict[tuple[str, str], list[tuple[Any, Any]]] = field(default_factory=dict)
    _spans: dict[tuple[str, ...], list[tuple[v.Ranks, v.Ranks]]] = field(default_factory=dict)

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


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A level 0 run in today's columns, sorted as its path is, and the place of every key in it."""

    run: Run
    table: pa.Table
    dead: Sequence[bool] | None
    """Tombstones; `None` if there are none."""
    places: Mapping[Any, int]
    ranks: Sequence[v.Ranks]
    """Of the path's key, ascending, in the path's own directions."""
    tablets: Sequence[int] | None
    """Of each row, where there are several."""


class Store:
    """The caches of one connection."""

    def __init__(self, columns_bytes_max: int = COLUMNS_BYTES_MAX) -> None:
        self._footers: Lru[Footer] = Lru(FOOTERS_MAX)
        self._columns: Lru[pa.Array] = Lru(columns_bytes_max)
        self._layers: Lru[Layer] = Lru(LAYERS_BYTES_MAX)
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    # ---- footers and columns ----------------------------------------------------------------------------

    def footer(self, roots: Mapping[NodeId, Root], run: Run) -> Footer:
        found = self._footers.get(run.id)
        if found is None:
            found = from_copy(roots, run, lambda root: footer_of(root, run))
            self._footers.put(run.id, found)
        return found

    def columns(
        self, roots: Mapping[NodeId, Root], run: Run, group: int, columns: Sequence[Column]
    ) -> dict[str, pa.Array]:
        """Columns of a row group, in today's types. One that the file does not have is NULL."""
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
            arrays = {c.physical: _today(table, c, footer.rows[group]) for c in columns}
            for column in columns:
                array = arrays[column.physical]
                self._columns.put((run.id, group, column.physical, column.type), array, array.nbytes)
            found.append(arrays)
        return found

    def has_columns(self, run: Run, group: int, columns: Sequence[Column]) -> bool:
        return all(self._columns.get((run.id, group, c.physical, c.type)) is not None for c in columns)

    def warm(self, roots: Mapping[NodeId, Root], wanted: Sequence[tuple[Run, int]], columns: Sequence[Column]) -> None:
        """Read row groups that are not in memory, several at a time."""
        cold: dict[RunId, tuple[Run, list[int]]] = {}
        for run, group in wanted:
            if not self.has_columns(run, group, columns):
                cold.setdefault(run.id, (run, []))[1].append(group)
        if len(cold) == 1:
            [(run, groups)] = cold.values()
            self._read(roots, run, groups, columns)
        elif cold:
            list(self.pool().map(lambda one: self._read(roots, one[0], one[1], columns), cold.values()))

    def pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="ebla-read")
            return self._pool

    # ---- level 0 ----------------------------------------------------------------------------------------

    def layer(self, roots: Mapping[NodeId, Root], path: AccessPath, run: Run, cache: rf.LevelZeroCache) -> Layer:
        relation = path.relation
        name = (run.id, relation.schema_version, tuple(column.descending for column in path.key))
        found = self._layers.get(name)
        if found is None:
            found = _layer(path, run, rf.read_copy(roots, run, cache))
            self._layers.put(name, found, found.table.nbytes + 200 * found.table.num_rows)
        return found

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)


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
    file = pq.ParquetFile(
        root.inner(run.path),
        filesystem=root.filesystem,
        metadata=footer.metadata,
        page_checksum_verification=True,
        pre_buffer=False,
    )
    return [file.read_row_group(group, columns=list(names), use_threads=False) for group in groups]


def _today(read: pa.Table, column: Column, rows: int) -> pa.Array:
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


def key_of(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key that equals itself, also with NaN in it."""
    return tuple("NaN" if value != value else value for value in row)


def _layer(path: AccessPath, run: Run, raw: pa.Table) -> Layer:
    relation = path.relation
    table = rf.align(raw, relation.columns, [(DELETED, pa.bool_()), (TOKEN, pa.int64())])
    names = [column.path for column in path.key]
    key = [v.plain(single(table.column(name))).to_pylist() for name in names]
    rankers = [v.ranker(column.descending) for column in path.key]
    ranked = [[ranker(value) for value in one] for ranker, one in zip(rankers, key, strict=True)]
    rows = list(zip(*ranked, strict=True))
    order = sorted(range(table.num_rows), key=rows.__getitem__)
    taken = table.take(pa.array(order, pa.int64()))
    by_key = list(zip(*key, strict=True))
    floats = any(pa.types.is_floating(table.schema.field(name).type) for name in names)
    keys = [key_of(by_key[i]) if floats else by_key[i] for i in order]
    dead = pc.fill_null(single(taken.column(DELETED)), False)
    return Layer(
        run=run,
        table=taken,
        dead=dead.to_pylist() if pc.any(dead).as_py() else None,
        places={one: place for place, one in enumerate(keys)},
        ranks=[rows[i] for i in order],
        tablets=_tablets(relation, taken, raw),
    )


def _tablets(relation: Relation, taken: pa.Table, raw: pa.Table) -> list[int] | None:
    if relation.tablets == 1:
        return None
    if TOKEN in raw.schema.names:
        found = taken.column(TOKEN).to_numpy()
    else:
        found = tokens.tokens(taken, [c.physical for c in relation.placed_by])
    numbers: list[int] = np.asarray(tokens.tablets_of(found, relation.tablets)).tolist()
    return numbers


def tablets_of_keys(relation: Relation, rows: Sequence[Sequence[Any]]) -> list[TabletId]:
    """The tablets of keys, given as comparable values in the key's order."""
    columns = dict(zip([c.physical for c in relation.key], zip(*rows, strict=True), strict=True))
    names = [c.physical for c in relation.placed_by]
    arrays = [v.array(columns[c.physical], c.type) for c in relation.placed_by]
    table = types.normalize_keys(pa.table(arrays, names=names), names)
    found = tokens.tablets_of(tokens.tokens(table, names), relation.tablets)
    return [TabletId(int(t)) for t in found]
