"""Writing as a Spark data source: one transaction, run files from the tasks, one commit on the driver.

One write's way. Spark asks for a writer: the columns are checked and a transaction begins (a catalog row with a lease)
→ every task fits its rows to the columns and writes runs whose names carry the transaction and the task's attempt →
the driver gets the messages of one attempt per task, refuses a key that stands twice in them, makes the entries of the
table's indexes (`ebla.source.commit`), and commits all of it.
Files of other attempts are never named by the manifest, and a sweep removes them.

A task with few rows writes one level 0 run that spans tablets. One with many sorts them in pieces to local disk and
writes one sorted run per tablet, which becomes level 1 where the tablet is empty.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, TabletId, Token
from ebla.catalog import indexing
from ebla.catalog import transactions as tx
from ebla.errors import CatalogUnavailableError, TypeMismatchError
from ebla.model.relation import ROW_SEQ, ROW_TXN, SPANS_TABLETS, TOKEN, Relation, Run
from ebla.relations import indexes as definition
from ebla.source.commit import commit, refuse_what_needs_spark
from ebla.source.options import Origin, Request
from ebla.storage import copies
from ebla.storage import runs as rf
from ebla.storage.files import Owner, Root, owner, run_path
from ebla.tables import constraints
from ebla.tables.batch import spread, tablet_run
from ebla.tables.ddl import require_table
from ebla.values import token as tokens
from ebla.values import types

LEASE_S = 86_400.0
"""No process renews the lease of this transaction, so it lasts as long as a Spark job may take. A write that fails ends
it at once; a driver that dies leaves it, and until then vacuum spares what the transaction could have read."""

PIECE_BYTES = 64 * 2**20
FILE_ROWS_MIN = 1_000
"""Tablets of fewer rows than this, in one task, get no files of their own."""

CHECK_ROWS = 5_000_000
"""More keys than this are compared tablet by tablet."""

FILES_PER_ATTEMPT_MAX = 1_000_000
ROWS_PER_TASK_BITS = 33
_TABLET = "_tablet"


@dataclass(frozen=True, kw_only=True)
class Message(WriterCommitMessage):
    """The runs of one task's attempt."""

    level0: tuple[Run, ...] = ()
    sorted: tuple[Run, ...] = ()
    """One tablet's rows in the order of the key and nothing else, fit to be level 1."""


# ---- the driver -----------------------------------------------------------------------------------------


def begin_write(request: Request, schema: T.StructType, *, overwrite: bool) -> EblaWriter:
    settings = request.settings
    lease_s = max(LEASE_S, settings.transaction_lease_s) if request.patient else settings.transaction_lease_s
    with Origin(request) as origin:

        def look(connection: Connection, relation: Relation) -> dict[NodeId, str]:
            require_table(relation)
            indexes = definition.of_base(connection, relation)
            refuse_what_needs_spark(relation, [index for index in indexes if index.maintained])
            constraints.refuse_what_needs_spark(relation)
            check_columns(schema, relation)
            return origin.roots(connection)

        relation, transaction, roots = tx.begin_on(
            origin.catalog,
            request.table,
            look,
            node=origin.node,
            holder=origin.holder,
            reason=f"{'overwrite' if overwrite else 'append to'} {request.table} from Spark",
            lease_us=int(lease_s * 1e6),
        )
        cluster = origin.catalog.cluster_id()
    return EblaWriter(request, relation, transaction, roots, cluster=cluster, overwrite=overwrite)


def check_columns(schema: T.StructType, relation: Relation) -> None:
    """Refuse columns that the table does not have, types that never fit, and missing ones that may not be NULL."""
    types.fit(to_arrow_schema(schema, timezone="UTC").empty_table(), relation.visible, relation=relation.name)
    given = {name.lower() for name in schema.fieldNames()}
    missing = [col.name for col in relation.visible if col.required and col.name.lower() not in given]
    if missing:
        raise TypeMismatchError(f"{relation.name}.{missing[0]}: expected a value, found no such column")


class EblaWriter(DataSourceArrowWriter):
    """One transaction. Made and committed on the driver's machine; its copies write in the tasks."""

    def __init__(
        self,
        request: Request,
        relation: Relation,
        transaction: tx.Transaction,
        roots: Mapping[NodeId, str],
        *,
        cluster: str,
        overwrite: bool,
    ) -> None:
        self.request = request
        self.relation = relation
        self.transaction = transaction
        self.roots = roots
        self.cluster = cluster
        self.overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        context = TaskContext.get()
        assert context is not None, "Spark writes inside tasks"
        task = PartitionWriter(self, attempt=context.taskAttemptId(), partition=context.partitionId())
        try:
            return task.run(iterator)
        except BaseException:
            task.forget()
            raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done = [message for message in messages if isinstance(message, Message)]
        level0 = tuple(run for message in done for run in message.level0)
        tablets = tuple(run for message in done for run in message.sorted)
        with Origin(self.request) as origin:
            try:
                self._refuse_duplicates((*level0, *tablets))
                hit("source.commit.checked")
                if level0 or tablets or self.overwrite:
                    commit(origin, self.transaction, self.relation, level0, tablets, emptied=self.overwrite)
                else:
                    self._roll_back(origin)
            except BaseException:
                with origin.catalog.patience.without(), contextlib.suppress(CatalogUnavailableError):
                    self._roll_back(origin)  # else the lease ends by itself
                raise

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with Origin(self.request) as origin:
            self._roll_back(origin)

    def _refuse_duplicates(self, runs: Sequence[Run]) -> None:
        """Rows of a DataFrame have no order, so of two rows with one key neither is the last."""
        if self.relation.keyless:
            return
        roots = {node: Root(location) for node, location in self.roots.items()}
        whole = sum(r.rows for r in runs) <= CHECK_ROWS
        for tablet in (None,) if whole else range(self.relation.tablets):
            keys = _keys(self.relation, runs, roots, tablet)
            found = rf.first_duplicate(keys, keys.schema.names)
            if found is not None:
                raise rf.duplicate_in_batch(self.relation, found)

    def _roll_back(self, origin: Origin) -> None:
        """Close the transaction and remove its files. One that is closed has committed, or a sweep has its files."""
        if not tx.abort(origin.catalog, self.transaction.id):
            return
        with origin.catalog.reading() as connection:
            indexes = indexing.of_base(connection, self.relation.id)
        for node, location in self.roots.items():
            root = Root(location, owner=Owner(self.cluster, node))
            for relation in (self.relation.id, *(one.index for one in indexes)):
                for path, _, folder in root.listing(f"r{relation}"):
                    if not folder and owner(path) == self.transaction.id:
                        root.remove(path)


def _keys(relation: Relation, runs: Sequence[Run], roots: Mapping[NodeId, Root], tablet: int | None) -> pa.Table:
    """The key columns of all rows, or of one tablet's."""
    names = [col.physical for col in relation.key]
    parts = [rf.align(pa.table({}), relation.key)]
    for run in runs:
        if tablet is not None and run.tablet not in (tablet, SPANS_TABLETS):
            continue
        keys = rf.align(roots[run.nodes[0]].open_parquet(run.path).read(columns=names), relation.key)
        if tablet is not None and run.tablet == SPANS_TABLETS:
            keys = keys.filter(pa.array(tokens.tablets_of(tokens.tokens(keys, names), relation.tablets) == tablet))
        parts.append(keys)
    return pa.concat_tables(parts)


# ---- a task ---------------------------------------------------------------------------------------------


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

    def __init__(self, writer: EblaWriter, *, attempt: int, partition: int) -> None:
        settings = writer.request.settings
        self.relation = writer.relation
        self.transaction = writer.transaction.id
        self.roots = {
            node: Root(location, fsync=settings.fsync, mask=settings.file_mask, owner=Owner(writer.cluster, node))
            for node, location in writer.roots.items()
        }
        self.key = [col.physical for col in writer.relation.key]
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
