"""Run files read and written with Arrow on the driver: small batches, level 0, footers.

Large data never comes here; `ebla.spark` moves it. What comes here is bounded by settings.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cachetools import LRUCache

from ebla.base.caches import Lru
from ebla.base.ids import NodeId, RelationId, RunId, Version
from ebla.base.pace import PACE
from ebla.base.precedence import PRECEDENCE
from ebla.errors import ConflictError, CorruptRunError, DuplicateKeyError, StorageError, StorageFullError
from ebla.model.relation import DELETED, TOKEN, Column, Relation, Run
from ebla.model.snapshot import BEGINNING, Snapshot
from ebla.storage.files import Root
from ebla.values import bounds, types
from ebla.values import token as tokens
from ebla.values.columns import python_row

VERSION = "_version"
ORDERED = b"ebla.ordered"
"""In the metadata of a level 0 file with tokens: its rows have the order of the relation's runs."""


def physical_schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(c.physical, types.to_arrow(c.type)) for c in columns])


def show_key(relation: Relation, values: Sequence[object]) -> str:
    """Which row it is, for messages."""
    return ", ".join(f"{c.name} = {bounds.in_message(v)}" for c, v in zip(relation.identity, values, strict=True))


# ---- reading --------------------------------------------------------------------------------------------


RELATIONS_MAX = 1024
"""The number of relations of which the runs that ended last are kept."""
TABLE_BYTES = 1_024
COLUMN_BYTES = 1_200
"""About what an Arrow table, and each of its columns, takes besides its values."""


ORDER = "#order"
FEW = 512
"""Up to this number of rows the tokens are compared one by one."""


class LevelZeroCache:
    """Level 0 run files as Arrow tables, by their paths. Runs never change, so nothing goes stale."""

    def __init__(self, kept: Lru[pa.Table]) -> None:
        self._kept = kept
        self._ended: LRUCache[RelationId, frozenset[str]] = LRUCache(RELATIONS_MAX)
        self._lock = threading.Lock()

    def get(self, path: str) -> pa.Table | None:
        return self._kept.get(path)

    def put(self, path: str, table: pa.Table) -> None:
        self._kept.put(path, table, table_bytes(table))

    def order(self, path: str, tokens_of_rows: npt.NDArray[np.int64]) -> pa.Table:
        """The tokens of a run, sorted, and where in the run each of them is."""
        name = path + ORDER
        found = self._kept.get(name)
        if found is None:
            places = np.argsort(tokens_of_rows, kind="stable")
            found = pa.table({"token": tokens_of_rows[places], "place": places})
            self.put(name, found)
        return found

    def end(self, relation: RelationId, runs: Iterable[Run]) -> None:
        """Runs of a relation were folded. Their tables go when the next ones are: epochs may still follow them."""
        now = frozenset(run.path for run in runs)
        with self._lock:
            before = self._ended.get(relation, frozenset())
            if now <= before:
                return
            self._ended[relation] = now
        self._kept.drop(lambda name: name.removesuffix(ORDER) in before)


def table_bytes(table: pa.Table) -> int:
    """What a table takes in memory."""
    return int(table.get_total_buffer_size()) + TABLE_BYTES + int(table.num_columns) * COLUMN_BYTES


def readable_node(roots: Mapping[NodeId, Root], run: Run, preferred: Sequence[NodeId] = ()) -> NodeId | None:
    """A node whose copy of the run is there with the size that the manifest says; `None` if no copy is.

    A copy that was found damaged in spite of its size does not count. One that must be fetched is the last choice.
    """
    order = [n for n in preferred if n in run.nodes] + [n for n in run.nodes if n not in preferred]
    remote: list[NodeId] = []
    for node in order:
        root = roots.get(node)
        if root is None:
            continue
        if root.is_remote:
            remote.append(node)
        elif root.sound(run.path, run.bytes):
            return node
    return next((node for node in remote if roots[node].sound(run.path, run.bytes)), None)


def paths(
    roots: Mapping[NodeId, Root],
    runs: Sequence[Run],
    named: Callable[[Root, str], str] = Root.full,
    chosen: Mapping[RunId, NodeId] | None = None,
) -> list[str]:
    """Where the files of runs can be opened: the one place where that is found out for Spark and DuckDB.

    `named`: how the reader names a file of a root. `chosen`: copies that were found sound. What lies under the root of
    another machine is fetched first. A copy that its node does not give is passed over.
    """

    def one(run: Run) -> str:
        node = None if chosen is None else chosen[run.id]
        while True:
            node = node or readable_node(roots, run) or run.nodes[0]
            if node not in roots:
                raise CorruptRunError(_what_is_there(roots, run))
            try:
                roots[node].fetch(run.path)
            except OSError:
                roots[node].distrust(run.path)
                node = readable_node(roots, run)
                if node is None:
                    raise
            else:
                return named(roots[node], run.path)

    is_remote = any(root.is_remote for root in roots.values())
    return in_threads(one, runs) if is_remote else [one(run) for run in runs]


def require_copies(snapshot: Snapshot, roots: Mapping[NodeId, Root]) -> dict[RunId, NodeId]:
    """Choose a copy of every run, or name every file that is missing or damaged and the tablets it takes away."""
    chosen: dict[RunId, NodeId] = {}
    broken: list[str] = []
    lost: set[int] = set()
    for run in (*snapshot.level1, *snapshot.level0):
        node = readable_node(roots, run)
        if node is None:
            broken.append(_what_is_there(roots, run))
            lost.update(snapshot.tablets_of(run))
        else:
            chosen[run.id] = node
    if broken:
        rest = [t for t in snapshot.tablets if t not in lost]
        hint = f"tablets {compact_ranges(rest)} are readable with scan(tablets=…)" if rest else "no tablet is readable"
        raise CorruptRunError(
            f"{snapshot.relation.name}: run missing or damaged: {'; '.join(broken)}; "
            f"affected tablets {compact_ranges(sorted(lost))}; {hint}; "
            "restore the file from a backup or load the rows again"
        )
    return chosen


def _what_is_there(roots: Mapping[NodeId, Root], run: Run) -> str:
    root = roots.get(run.nodes[0])
    if root is None:
        return f"{run.path} (expected {run.bytes} bytes on node {run.nodes[0]}, found no such node)"
    if root.is_remote and not root.is_writable:
        return f"{run.path} (expected {run.bytes} bytes on node {run.nodes[0]}, found the node down)"
    size = root.size(run.path)
    if size is None:
        found = "nothing"
    elif size != run.bytes:
        found = f"{size} bytes"
    else:
        found = f"damaged ones: {unreadable(root, run)}"
    return f"{root.full(run.path)} (expected {run.bytes} bytes, found {found})"


def distrust_damaged(snapshot: Snapshot, roots: Mapping[NodeId, Root]) -> bool:
    """Read every run of a snapshot to the end, and distrust copies that cannot be; whether there were any.

    A run without a sound copy left is an error that names it and its tablets.
    """
    found = False
    for run in (*snapshot.level1, *snapshot.level0):
        while (node := readable_node(roots, run)) is not None and unreadable(roots[node], run) is not None:
            roots[node].distrust(run.path)
            found = True
    require_copies(snapshot, roots)
    return found


@contextlib.contextmanager
def reading(snapshots: Sequence[Snapshot], roots: Mapping[NodeId, Root]) -> Iterator[None]:
    """Where Spark fails on a damaged copy of a run and there is another, start over with that one."""
    try:
        yield
    except StorageFullError:
        raise
    except StorageError as error:
        damaged = [s.relation.name for s in snapshots if distrust_damaged(s, roots)]
        if damaged:
            raise ConflictError(
                f"{damaged[0]}: expected every copy of its runs sound, found one damaged; retry with another copy"
            ) from error
        raise


def compact_ranges(numbers: Sequence[int]) -> str:
    """`0-3, 7` for 0, 1, 2, 3, 7."""
    parts: list[str] = []
    start = previous = None
    for n in [*numbers, None]:
        if previous is not None and n != previous + 1:
            parts.append(f"{start}" if start == previous else f"{start}-{previous}")
            start = n
        if start is None:
            start = n
        previous = n
    return ", ".join(parts)


def align(table: pa.Table, columns: Sequence[Column], extra: Sequence[tuple[str, pa.DataType]] = ()) -> pa.Table:
    """A file's rows in today's columns: added ones are NULL, widened ones are cast, dropped ones are gone."""
    wanted = [(c.physical, types.to_arrow(c.type)) for c in columns] + list(extra)
    arrays = []
    for name, kind in wanted:
        index = table.schema.get_field_index(name)
        if index < 0:
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, kind)], type=kind))
        else:
            found = table.column(index)
            arrays.append(found if found.type == kind else found.cast(kind))
    return pa.table(arrays, schema=pa.schema([pa.field(n, k) for n, k in wanted]))


def read_run(root: Root, run: Run, cache: LevelZeroCache | None = None) -> pa.Table:
    cached = cache.get(run.path) if cache is not None else None
    if cached is not None:
        return cached
    try:
        table = root.open_parquet(run.path).read()
    except (OSError, pa.ArrowException) as error:
        tablet = "several tablets" if run.tablet < 0 else f"tablet {run.tablet}"
        raise CorruptRunError(f"{root.full(run.path)}: expected a readable run of {tablet}, found: {error}") from error
    if cache is not None:
        cache.put(run.path, table)
    return table


def read_copy(roots: Mapping[NodeId, Root], run: Run, cache: LevelZeroCache | None) -> pa.Table:
    """The rows of a run from the first copy that can be read."""
    PRECEDENCE.give_way()
    while True:
        node = readable_node(roots, run)
        try:
            return read_run(roots[node or run.nodes[0]], run, cache)
        except CorruptRunError:
            if node is None:
                raise
            roots[node].distrust(run.path)


def mutations(
    relation: Relation,
    runs: Sequence[Run],
    roots: Mapping[NodeId, Root],
    cache: LevelZeroCache | None = None,
    snapshot: Snapshot | None = None,
    only: npt.NDArray[np.int64] | None = None,
) -> pa.Table:
    """The last mutation of every row in these runs; see `all_mutations`."""
    found = all_mutations(relation, runs, roots, cache, snapshot, only)
    return found if len(runs) < 2 else last_of_each_key(found, [c.physical for c in relation.identity])


def all_mutations(
    relation: Relation,
    runs: Sequence[Run],
    roots: Mapping[NodeId, Root],
    cache: LevelZeroCache | None = None,
    snapshot: Snapshot | None = None,
    only: npt.NDArray[np.int64] | None = None,
) -> pa.Table:
    """Every mutation in these runs, oldest first: physical columns, `_deleted`, `_token`, `_version`.

    With a snapshot, rows that are folded already, or lie in tablets that are not read, are left out. `only` has the
    tokens of the keys that matter, sorted: rows that have none of them are left out before anything is done with them.
    """
    empty = align(pa.table({}), relation.columns, [(DELETED, pa.bool_()), (TOKEN, pa.int64())])
    parts = [empty.append_column(VERSION, pa.array([], pa.int64()))]
    for run in sorted(runs, key=lambda r: (r.begin_version, r.id)):
        raw = _with_tokens(relation, run, read_copy(roots, run, cache), cache)
        if only is not None:
            places = _places(
                raw.column(TOKEN).to_numpy(), only, None if cache is None else partial(cache.order, run.path)
            )
            if not len(places):
                continue
            raw = raw.take(pa.array(places))
        part = align(raw, relation.columns, [(DELETED, pa.bool_()), (TOKEN, pa.int64())])
        if snapshot is not None:
            part = counting(part, run.begin_version, snapshot)
        parts.append(part.append_column(VERSION, pa.array(np.full(part.num_rows, run.begin_version), pa.int64())))
    return parts[-1] if len(parts) < 3 else pa.concat_tables(parts)


def _places(
    found: npt.NDArray[np.int64],
    only: npt.NDArray[np.int64],
    order: Callable[[npt.NDArray[np.int64]], pa.Table] | None,
) -> npt.NDArray[np.int64]:
    """Where rows with these tokens are in a run. `order`: the run's tokens sorted, with their places."""
    if order is None or len(found) <= FEW:
        at = np.searchsorted(only, found)
        return np.flatnonzero(only[np.minimum(at, len(only) - 1)] == found) if len(only) else np.empty(0, np.int64)
    table = order(found)
    ordered, place = table["token"].to_numpy(), table["place"].to_numpy()
    first, end = np.searchsorted(ordered, only), np.searchsorted(ordered, only, side="right")
    counts = end - first
    behind = np.cumsum(counts)
    return np.sort(place[np.repeat(end - behind, counts) + np.arange(counts.sum())])


def _with_tokens(relation: Relation, run: Run, raw: pa.Table, cache: LevelZeroCache | None) -> pa.Table:
    """The rows of a run with their tokens. Those that Spark wrote without are hashed once, as long as they are kept."""
    if TOKEN in raw.schema.names:
        return raw
    key = [c.physical for c in relation.identity]
    fitted = align(raw.select([n for n in key if n in raw.schema.names]), relation.identity)
    found = raw.append_column(TOKEN, pa.array(tokens.tokens(fitted, key)))
    if cache is not None:
        cache.put(run.path, found)
    return found


def counting(part: pa.Table, version: Version, snapshot: Snapshot) -> pa.Table:
    """Rows (with `_token`) of a commit, without those whose tablet is not read, or has folded the commit."""
    if snapshot.uniform_cutoff:
        return part
    counts = snapshot.relation.tablets
    cutoff = np.full(counts, version, dtype=np.int64)  # a tablet that is not read counts for nothing
    for tablet in snapshot.tablets:
        cutoff[tablet] = snapshot.cutoffs.get(tablet, BEGINNING)
    of_row = tokens.tablets_of(part.column(TOKEN).to_numpy(), counts)
    return part.filter(pa.array(cutoff[of_row] < version))


def _many(table: pa.Table) -> bool:
    """Whether Arrow's threads are worth waiting for: on a busy machine a few rows would wait for a free core."""
    return bool(table.num_rows > 100_000)


def last_of_each_key(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """Keep the last row of every key, in the order of the table."""
    if table.num_rows < 2:
        return table
    keys, names = _numbered(table, key)
    numbered = keys.append_column("at", pa.array(np.arange(table.num_rows)))
    last = numbered.group_by(names, use_threads=_many(table)).aggregate([("at", "max")])
    if last.num_rows == table.num_rows:
        return table
    return table.take(pa.array(np.sort(last["at_max"].to_numpy())))


def in_order(table: pa.Table | pa.RecordBatch, key: Sequence[tuple[str, bool]]) -> pa.Array:
    """The places of rows in Spark's order: NULL first and NaN last, both the other way round where it descends."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    keys: list[tuple[str, str, str]] = []
    for number, (name, descending) in enumerate(key):
        way, nulls = ("descending", "at_end") if descending else ("ascending", "at_start")
        column = table[name]
        if pa.types.is_floating(column.type):
            # Arrow would put NaN beside NULL.
            is_nan = pc.is_nan(column)
            columns[f"{number}n"] = pc.cast(is_nan, pa.int8())
            keys.append((f"{number}n", way, nulls))
            column = pc.if_else(is_nan, pa.scalar(0, column.type), column)
        columns[f"{number}"] = column
        keys.append((f"{number}", way, nulls))
    return pc.sort_indices(pa.table(columns), sort_keys=keys)


def _numbered(table: pa.Table, key: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """The key columns under names that no other column can have."""
    names = [str(i) for i in range(len(key))]
    return table.select(list(key)).rename_columns(names), names


def first_duplicate(table: pa.Table, key: Sequence[str]) -> list[object] | None:
    """A key that stands twice in the table, if any does."""
    keys, names = _numbered(table, key)
    counted = keys.group_by(names, use_threads=_many(keys)).aggregate([([], "count_all")])
    if counted.num_rows == table.num_rows:
        return None
    twice = counted.filter(pc.greater(counted["count_all"], 1)).slice(0, 1)
    return python_row(twice, names)


# ---- facts of written files -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the manifest records of a file."""

    rows: int
    bytes: int
    key_min: str | None
    key_max: str | None

    @classmethod
    def of(cls, table: pa.Table, size: int, relation: Relation) -> Facts:
        """The facts of a file of rows in the relation's order."""
        return bounded(table.num_rows, size, relation, *ends(table, [c.physical for c in relation.key]))


def ends(table: pa.Table, key: Sequence[str]) -> tuple[list[object] | None, list[object] | None]:
    """The first and the last key of sorted rows."""
    if table.num_rows == 0:
        return None, None
    first, last = (python_row(table, key, at) for at in (0, table.num_rows - 1))
    return first, last


def bounded(
    rows: int, size: int, relation: Relation, first: Sequence[object] | None, last: Sequence[object] | None
) -> Facts:
    down = [c.physical in relation.descending for c in relation.key]
    return Facts(
        rows=rows,
        bytes=size,
        key_min=None if first is None else bounds.below(first, down),
        key_max=None if last is None else bounds.above(last, down),
    )


def inspect_sorted(root: Root, path: str, relation: Relation, *, unique: bool = True) -> Facts:
    """What a sorted run holds; refuses a key twice."""
    file = root.open_parquet(path)
    first, last = sorted_ends(file, relation, unique=unique)
    return bounded(file.metadata.num_rows, root.size(path) or 0, relation, first, last)


def sorted_ends(
    file: pq.ParquetFile, relation: Relation, *, unique: bool
) -> tuple[list[object] | None, list[object] | None]:
    """Read a sorted run's key columns, a row group at a time, for its first and last key; refuse a key twice.

    Rows are sorted, so equal keys are neighbours: one comparison of each row with the one before it.
    """
    key = [c.physical for c in relation.key]
    first: list[object] | None = None
    last: pa.Table | None = None
    for group in range(file.metadata.num_row_groups):
        keys = file.read_row_group(group, columns=key).select(key)
        if keys.num_rows == 0:
            continue
        if first is None:
            first = ends(keys, key)[0]
        if unique:
            joined = keys if last is None else pa.concat_tables([last, keys])
            _refuse_neighbours(joined.combine_chunks(), key, relation)
        last = keys.slice(keys.num_rows - 1)
    return first, None if last is None else ends(last, key)[1]


def _refuse_neighbours(keys: pa.Table, names: Sequence[str], relation: Relation) -> None:
    if keys.num_rows < 2:
        return
    same: pa.Array | None = None
    for name in names:
        column = keys[name].combine_chunks() if isinstance(keys[name], pa.ChunkedArray) else keys[name]
        before, after = column.slice(0, keys.num_rows - 1), column.slice(1)
        equal = pc.fill_null(pc.equal(before, after), False)
        if pa.types.is_floating(column.type):
            equal = pc.or_(equal, pc.and_(pc.is_nan(before), pc.is_nan(after)))
        if column.null_count:
            equal = pc.or_(equal, pc.and_(pc.is_null(before), pc.is_null(after)))
        same = equal if same is None else pc.and_(same, equal)
    at = pc.index(same, True).as_py()
    if at >= 0:
        raise duplicate_in_batch(relation, python_row(keys, [c.physical for c in relation.identity], at))


def duplicate_in_batch(relation: Relation, values: Sequence[object]) -> DuplicateKeyError:
    return DuplicateKeyError(
        f"{relation.name}: expected each key once in a batch without an order, found {show_key(relation, values)} "
        "more than once; remove the duplicates, or give the rows in order (a list, an Arrow table, a pandas frame)"
    )


T = TypeVar("T")
R = TypeVar("R")


def in_threads(function: Callable[[T], R], items: Sequence[T], threads: int = 8) -> list[R]:
    if len(items) < 2:
        return [function(i) for i in items]
    with ThreadPoolExecutor(max_workers=min(threads, len(items))) as pool:
        return list(pool.map(PACE.bound(function), items))


def unreadable(root: Root, run: Run) -> str | None:
    """What is wrong with a run's bytes, read row group by row group; `None` if nothing is."""
    try:
        file = root.open_parquet(run.path)
        for group in range(file.metadata.num_row_groups):
            file.read_row_group(group)
    except (OSError, pa.ArrowException) as error:
        return str(error).strip().splitlines()[0]
    return None
