"""What a reading task does: the rows of some tablets, from plain paths, without the catalog.

Level 1 is read batch by batch, level 0 of the task's tablets is held in memory; so a task needs room for the newest
mutations of its tablets and one batch of the rest. Keys are compared by Arrow's hash join.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from ebla.base.ids import TabletId, Version
from ebla.errors import CorruptRunError
from ebla.model.relation import DELETED, FOREVER, TOKEN, Column, Run
from ebla.model.snapshot import BEGINNING, Snapshot
from ebla.model.tablets import TokenRange
from ebla.spark.changes import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.values import token as tokens
from ebla.values.columns import plain_type

BATCH_ROWS = 65_536

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What goes to Spark: the table's columns that are wanted, and for each output its physical name or the name of a
    change column, in the order and the Arrow types that Spark expects."""

    columns: tuple[Column, ...]
    sources: tuple[str, ...]
    schema: pa.Schema


@dataclass(frozen=True, kw_only=True)
class SnapshotPartition(InputPartition):
    """The rows of some tablets. With a time of commit, they go out as the inserts of the snapshot's version."""

    snapshot: Snapshot
    committed_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class ChangesPartition(InputPartition):
    """The net changes of some tablets: from the snapshot before, and what was written since."""

    before: Snapshot
    runs: tuple[Run, ...]
    emptied: Version | None
    """The last truncation; the runs are those that came with it or after it."""
    committed_at: Mapping[int, int]
    old: bool
    tokens: TokenRange | None = None
    """The tokens whose rows are read; `None`: those of all of its tablets."""


def read_partition(partition: InputPartition, layout: Layout) -> Iterator[pa.RecordBatch]:
    match partition:
        case SnapshotPartition():
            return _snapshot(partition, layout)
        case ChangesPartition():
            return _changes(partition, layout)
        case _:
            return iter(())  # where there are no partitions, Spark makes one


def _snapshot(partition: SnapshotPartition, layout: Layout) -> Iterator[pa.RecordBatch]:
    snapshot = partition.snapshot
    key = snapshot.relation.key
    # Without level 0 the key is read only if it is wanted; but some column must be, to count rows by.
    rows = Rows(snapshot, (*layout.columns, *(key if snapshot.level0 else key[:1])))
    at = {} if partition.committed_at is None else {int(snapshot.version): partition.committed_at}
    for table in rows.merged():
        yield from _output(table, layout, "insert", snapshot.version, at)


def _changes(partition: ChangesPartition, layout: Layout) -> Iterator[pa.RecordBatch]:
    """Pair the old rows with the last mutations; what has no old row is an insert, and known only at the end."""
    rows = Rows(partition.before, (*layout.columns, *partition.before.relation.key))
    after = rows.latest(partition.runs, {})
    if partition.tokens is not None:
        after = after.filter(pc.and_(*_bounds(after[TOKEN], partition.tokens)))
    deleted = _truths(after[DELETED])
    version = after[rf.VERSION].to_numpy()
    had_row = np.zeros(after.num_rows, dtype=bool)
    at = partition.committed_at
    for table in rows.merged(None if partition.emptied is not None else after):
        if partition.tokens is not None and partition.emptied is not None:
            of_row = pa.array(tokens.tokens(table, rows.key), pa.int64())
            table = table.filter(pc.and_(*_bounds(of_row, partition.tokens)))
        old, new = matches(table, after, rows.key)
        had_row[new] = True
        stays = ~deleted[new]
        if partition.old:
            before = table.take(pa.array(old[stays]))
            yield from _output(before, layout, "update_preimage", version[new[stays]], at)
        yield from _output(after.take(pa.array(new[stays])), layout, "update_postimage", version[new[stays]], at)
        yield from _output(table.take(pa.array(old[~stays])), layout, "delete", version[new[~stays]], at)
        if partition.emptied is not None:
            untouched = np.setdiff1d(np.arange(table.num_rows), old, assume_unique=True)
            yield from _output(table.take(pa.array(untouched)), layout, "delete", partition.emptied, at)
    inserted = ~had_row & ~deleted
    yield from _output(after.filter(pa.array(inserted)), layout, "insert", version[inserted], at)


def _bounds(of_row: pa.Array, within: TokenRange) -> tuple[pa.Array, pa.Array]:
    return pc.greater_equal(of_row, within.first), pc.less_equal(of_row, within.last)


def _output(
    table: pa.Table,
    layout: Layout,
    change: str,
    version: int | Positions,
    committed_at: Mapping[int, int],
) -> Iterator[pa.RecordBatch]:
    count = table.num_rows
    if count == 0:
        return
    versions = np.full(count, version, dtype=np.int64) if isinstance(version, int) else version
    made = {
        CHANGE_TYPE: lambda: pa.array([change] * count, pa.string()),
        COMMIT_VERSION: lambda: pa.array(versions, pa.int64()),
        COMMIT_TIMESTAMP: lambda: _times(versions, committed_at),
    }
    columns = [made[source]() if source in made else table[source] for source in layout.sources]
    typed = pa.table(columns, names=layout.schema.names).cast(layout.schema)
    yield from typed.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def _times(versions: Positions, committed_at: Mapping[int, int]) -> pa.Array:
    distinct, which = np.unique(versions, return_inverse=True)
    times = pa.array([committed_at.get(int(v)) for v in distinct], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return times.take(pa.array(which))


# ---- rows -----------------------------------------------------------------------------------------------


class Rows:
    """The runs of a part of a snapshot, under physical names, in today's types."""

    def __init__(self, snapshot: Snapshot, columns: Sequence[Column]) -> None:
        self.snapshot = snapshot
        self.columns = tuple({c.physical: c for c in columns}.values())
        self.key = [c.physical for c in snapshot.relation.identity]
        self.tablets = snapshot.relation.tablets
        self.roots = {node: Root(location, fsync=False) for node, location in snapshot.roots.items()}

    def merged(self, only: pa.Table | None = None) -> Iterator[pa.Table]:
        """Level 1 without the keys of level 0, then level 0's rows. With `only`, at least the rows of those keys."""
        newer = self.latest(self.snapshot.level0, self.snapshot.cutoffs)
        for run in self.snapshot.level1:
            for table in self._batches(run, only=only):
                yield without(table, newer, self.key) if newer.num_rows else table
        yield newer.filter(pa.array(~_truths(newer[DELETED]))).select([c.physical for c in self.columns])

    def latest(self, runs: Sequence[Run], cutoffs: Mapping[TabletId, Version]) -> pa.Table:
        """The last mutation of every key of these tablets: the columns, `_deleted`, `_token`, `_version`."""
        extra = [(DELETED, pa.bool_()), (TOKEN, pa.int64())]
        # A run counts for a tablet if it is newer than the tablet's cutoff; for other tablets none does.
        counts_after = np.full(self.tablets, FOREVER, dtype=np.int64)
        for tablet in self.snapshot.tablets:
            counts_after[tablet] = cutoffs.get(tablet, BEGINNING)
        parts = [rf.align(pa.table({}), self.columns, extra).append_column(rf.VERSION, pa.array([], pa.int64()))]
        for run in sorted(runs, key=lambda r: (r.begin_version, r.id)):
            for table in self._batches(run, extra):
                table = _with_tokens(table, self.key)
                of_row = tokens.tablets_of(table[TOKEN].to_numpy(), self.tablets)
                table = table.filter(pa.array(counts_after[of_row] < run.begin_version))
                version = pa.array(np.full(table.num_rows, run.begin_version), pa.int64())
                parts.append(table.append_column(rf.VERSION, version))
        if len(parts) == 1:
            return parts[0]
        return rf.last_of_each_key(pa.concat_tables(parts), self.key)

    def _batches(
        self, run: Run, extra: Sequence[tuple[str, pa.DataType]] = (), only: pa.Table | None = None
    ) -> Iterator[pa.Table]:
        node = rf.readable_node(self.roots, run)
        if node is None:
            raise self._unreadable(run, f"expected {run.bytes} bytes, found nothing or another size")
        wanted = [c.physical for c in self.columns] + [name for name, _ in extra]
        try:
            with self.roots[node].open_parquet(run.path) as file:
                present = set(file.schema_arrow.names)
                groups = range(file.metadata.num_row_groups) if only is None else self._groups_with(file, run, only)
                if not groups:
                    return
                for batch in file.iter_batches(BATCH_ROWS, groups, [n for n in wanted if n in present]):
                    yield rf.align(pa.Table.from_batches([batch]), self.columns, extra)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(run, str(error)) from error

    def _groups_with(self, file: pq.ParquetFile, run: Run, only: pa.Table) -> list[int]:
        """The row groups that may hold one of the keys, by the range of the first key column that each one records."""
        here = tokens.tablets_of(only[TOKEN].to_numpy(), self.tablets) == run.tablet
        if not here.any():
            return []
        first = self.key[0]
        kind = file.schema_arrow.field(first).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)):
            return list(range(file.metadata.num_row_groups))
        is_date = pa.types.is_date(kind)
        keys = sorted(only[first].filter(pa.array(here)).cast(plain_type(kind)).to_pylist())
        column = next(i for i in range(file.metadata.num_columns) if file.metadata.schema.column(i).path == first)
        chosen = []
        for number in range(file.metadata.num_row_groups):
            facts = file.metadata.row_group(number).column(column).statistics
            has_ends = facts is not None and facts.has_min_max
            if has_ends:
                # Days as numbers: Python's calendar ends before the column's.
                low, high = (facts.min_raw, facts.max_raw) if is_date else (facts.min, facts.max)
                at = bisect.bisect_left(keys, low)
            if not has_ends or (at < len(keys) and keys[at] <= high):
                chosen.append(number)
        return chosen

    def _unreadable(self, run: Run, what: str) -> CorruptRunError:
        lost = rf.compact_ranges(self.snapshot.tablets_of(run))
        return CorruptRunError(
            f"{self.snapshot.relation.name}: run {run.path} missing or damaged: {what.strip()}; "
            f"affected tablets {lost}; if the table was loaded longer ago than pin_lease_s, load it again, "
            "else restore the file from a backup"
        )


def _with_tokens(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """Files that Spark wrote have no tokens."""
    if not table[TOKEN].null_count:
        return table
    column = table.schema.get_field_index(TOKEN)
    return table.set_column(column, TOKEN, pa.array(tokens.tokens(table, key), pa.int64()))


def _truths(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.fill_null(column, False).to_numpy()
    return found


def matches(left: pa.Table, right: pa.Table, key: Sequence[str]) -> tuple[Positions, Positions]:
    """The positions of rows with equal keys; every key stands once on each side."""
    if left.num_rows == 0 or right.num_rows == 0:
        return np.array([], np.int64), np.array([], np.int64)
    names = [f"k{i}" for i in range(len(key))]  # the columns' own names might be those of the positions
    pairs = _numbered(left, key, names, "left").join(_numbered(right, key, names, "right"), names, join_type="inner")
    return pairs["left"].to_numpy(), pairs["right"].to_numpy()


def without(table: pa.Table, newer: pa.Table, key: Sequence[str]) -> pa.Table:
    replaced, _ = matches(table, newer, key)
    if len(replaced) == 0:
        return table
    stays = np.ones(table.num_rows, dtype=bool)
    stays[replaced] = False
    return table.filter(pa.array(stays))


def _numbered(table: pa.Table, key: Sequence[str], names: Sequence[str], position: str) -> pa.Table:
    keys = table.select(list(key)).rename_columns(list(names))
    return keys.append_column(position, pa.array(np.arange(table.num_rows), pa.int64()))
