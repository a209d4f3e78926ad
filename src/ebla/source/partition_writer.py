"""The rows of one attempt of one Spark task, written as runs.

A task with few rows writes one level 0 run that spans tablets. One with many sorts them in pieces to local disk and
writes one sorted run per tablet, which becomes level 1 where the tablet is empty.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from ebla.base.ids import NodeId, TabletId, Token
from ebla.catalog import transactions as tx
from ebla.model.relation import ROW_SEQ, ROW_TXN, SPANS_TABLETS, TOKEN, Relation, Run
from ebla.source.options import Request
from ebla.storage import copies
from ebla.storage import runs as rf
from ebla.storage.files import Owner, Root, run_path
from ebla.tables import constraints
from ebla.tables.batch import spread, tablet_run
from ebla.values import token as tokens
from ebla.values import types

PIECE_BYTES = 64 * 2**20
FILE_ROWS_MIN = 1_000
"""Tablets of fewer rows than this, in one task, get no files of their own."""

FILES_PER_ATTEMPT_MAX = 1_000_000
ROWS_PER_TASK_BITS = 33
_TABLET = "_tablet"


class Write(Protocol):
    """The write that a task is part of."""

    request: Request
    relation: Relation
    transaction: tx.Transaction
    roots: Mapping[NodeId, str]
    cluster: str


@dataclass(frozen=True, kw_only=True)
class Message(WriterCommitMessage):
    """The runs of one task's attempt."""

    level0: tuple[Run, ...] = ()
    sorted: tuple[Run, ...] = ()
    """One tablet's rows in the order of the key and nothing else, fit to be level 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """Rows on local disk, sorted by tablet and key. Tablet `t` has the rows from `starts[t]` to `starts[t + 1]`."""

    path: str
    starts: npt.NDArray[np.int64]

    def rows(self, tablet: int | None = None) -> pa.Table:
        table = pa.ipc.open_file(pa.memory_map(self.path)).read_all()
        if tablet is None:
            return table
        return table.slice(self.starts[tablet], self.starts[tablet + 1] - self.starts[tablet])


class PartitionWriter:
    """One attempt of one task."""

    def __init__(self, write: Write, *, attempt: int, partition: int) -> None:
        settings = write.request.settings
        self.relation = write.relation
        self.transaction = write.transaction.id
        self.roots = {
            node: Root(location, fsync=settings.fsync, mask=settings.file_mask, owner=Owner(write.cluster, node))
            for node, location in write.roots.items()
        }
        self.key = [col.physical for col in write.relation.key]
        self.piece_rows = settings.batch_rows_max
        self.attempt = attempt
        self.partition = partition
        self.paths: list[str] = []
        self.rows = 0

    def run(self, batches: Iterator[pa.RecordBatch]) -> Message:
        with tempfile.TemporaryDirectory(prefix="ebla-") as folder:
            spills: list[Spill] = []
            last: pa.Table | None = None
            for piece in self._pieces(batches):
                if last is not None:
                    spills.append(self._spill(last, os.path.join(folder, f"{len(spills)}.arrow")))
                last = self._fitted(piece)
            if last is None:
                return Message()
            if not spills:
                return Message(level0=tuple(self._spanning(last)))
            spills.append(self._spill(last, os.path.join(folder, f"{len(spills)}.arrow")))
            if self.rows < self.relation.tablets * FILE_ROWS_MIN:
                return Message(level0=tuple(run for spill in spills for run in self._spanning(spill.rows())))
            return Message(sorted=tuple(self._tablets(spills)))

    def _pieces(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Rows by the piece: as many as are sorted in memory."""
        piece: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            piece.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= self.piece_rows or size >= PIECE_BYTES:
                yield pa.Table.from_batches(piece)
                piece, rows, size = [], 0, 0
        if rows:
            yield pa.Table.from_batches(piece)

    def _fitted(self, piece: pa.Table) -> pa.Table:
        """Rows in the table's columns, under physical names, with row ids where there is no key."""
        relation = self.relation
        fitted = types.fit(piece, relation.visible, relation=relation.name)
        table = rf.align(fitted.rename_columns([col.physical for col in relation.visible]), relation.columns)
        if relation.keyless:
            first = (self.partition << ROWS_PER_TASK_BITS) + self.rows
            table = _replaced(table, ROW_TXN, np.full(table.num_rows, self.transaction))
            table = _replaced(table, ROW_SEQ, np.arange(first, first + table.num_rows))
        constraints.refuse_directly(relation, table)
        self.rows += table.num_rows
        return types.normalize_keys(table, self.key)

    def _spill(self, table: pa.Table, path: str) -> Spill:
        tablets = self.relation.tablets
        of_row = tokens.tablets_of(tokens.tokens(table, self.key), tablets)
        order = self._order(table.append_column(_TABLET, pa.array(of_row)), _TABLET, *self.key)
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
            out.write_table(table.take(order))
        counts = np.bincount(of_row, minlength=tablets)
        return Spill(path=path, starts=np.concatenate([[0], np.cumsum(counts)]))

    def _order(self, table: pa.Table, *names: str) -> pa.Array:
        return rf.in_order(table, [(n, False) for n in names])

    def _spanning(self, table: pa.Table) -> Iterator[Run]:
        """One level 0 run for each set of replicas."""
        relation = self.relation
        table = table.take(self._order(table, *self.key))
        token = tokens.tokens(table, self.key)
        table = table.append_column(TOKEN, pa.array(token, pa.int64()))
        groups = relation.replica_sets()
        of_row = tokens.tablets_of(token, relation.tablets)
        for nodes, tablets in sorted(groups.items()):
            part = table if len(groups) == 1 else table.filter(pa.array(np.isin(of_row, tablets)))
            if part.num_rows == 0:
                continue
            number, facts, done = self._put(part, nodes)
            extremes = pc.min_max(part[TOKEN]).as_py()
            run = tablet_run(relation, self.transaction, number, tablets[0], facts, level=0)
            yield replace(
                run,
                nodes=done,
                spread=None if len(groups) == 1 else spread(of_row, tablets, relation.tablets),
                tablet=SPANS_TABLETS if relation.tablets > 1 else TabletId(0),
                token_min=Token(extremes["min"]),
                token_max=Token(extremes["max"]),
            )

    def _tablets(self, spills: Sequence[Spill]) -> Iterator[Run]:
        """One sorted run for each tablet that has rows."""
        relation = self.relation
        for tablet in range(relation.tablets):
            table = pa.concat_tables([spill.rows(tablet) for spill in spills])
            if table.num_rows == 0:
                continue
            table = table.take(self._order(table, *self.key))
            number, facts, done = self._put(table, relation.writes_to(TabletId(tablet)))
            run = tablet_run(relation, self.transaction, number, TabletId(tablet), facts, level=0)
            yield replace(run, nodes=done)

    def _put(self, table: pa.Table, nodes: Sequence[NodeId]) -> tuple[int, rf.Facts, tuple[NodeId, ...]]:
        """Write a sorted run under the roots of nodes; which of them have it. Its number is this attempt's alone."""
        number = self.attempt * FILES_PER_ATTEMPT_MAX + len(self.paths)
        path = run_path(self.relation.id, self.transaction, number)
        self.paths.append(path)
        size, done = copies.write(table, path, self.roots, nodes, self.relation.min_copies)
        return number, rf.Facts.of(table, size, self.relation), done

    def forget(self) -> None:
        for path in self.paths:
            for root in self.roots.values():
                root.remove(path)


def _replaced(table: pa.Table, name: str, values: npt.NDArray[np.int64]) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values, pa.int64()))
