"""Rows on their way into runs of one relation: Arrow on the driver, or a DataFrame in Spark.

Few rows are settled on the driver and written as level 0. Many are cut by Spark into one sorted file for each tablet,
which is adopted as a run. How many rows a DataFrame has is known only when it is computed: one that may be large is
computed once, to scratch, and its number of rows decides how it goes on. Rows of one kind that need no look at others
are cut at once, so that many of them are one job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ebla.base.failpoint import hit
from ebla.model import changes as c
from ebla.model.relation import DELETED, Relation, Run
from ebla.model.staging import Arrival, Destination
from ebla.relations.tasks import destination_of
from ebla.spark import in_place
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.tables import constraints
from ebla.tables.lookup import stored_keys
from ebla.tables.transaction import OpenTransaction
from ebla.values.columns import python_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_BYTES = 32 * 2**20
"""A result that Spark expects to be smaller than this is brought to the driver without asking further."""


class Sink:
    """The rows that a transaction writes of one relation, its own unless another is given."""

    def __init__(self, transaction: OpenTransaction, relation: Relation | None = None) -> None:
        self.context = transaction.context
        self.transaction = transaction
        self.relation = transaction.relation if relation is None else relation
        self.files = transaction.files_of(self.relation)
        self.runs: list[Run] = []
        self.bulk = False
        """Whether the runs are rows of one tablet each, without tombstones: level 1 if there is nothing below."""
        self.staging = False
        """Whether the runs stay invisible until a task has processed them."""
        self.settled: tuple[pa.Table, pa.Array] | None = None
        """The rows and their kinds, where they are on the driver."""

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    def added(self) -> tuple[c.Update, ...]:
        """What makes the rows visible."""
        return (c.AddRuns(runs=tuple(self.runs), level1_if_empty=self.bulk),) if self.runs else ()

    def put(self, batch: b.ArrowBatch | b.FrameBatch) -> None:
        self.staging = batch.arrival is not None and self._stages(batch.arrival)
        match batch:
            case b.ArrowBatch():
                self._put_arrow(batch)
            case b.FrameBatch():
                self._put_frame(batch)

    def put_more(self, frame: DataFrame) -> int:
        """Add rows and tombstones (physical columns and `_deleted`, keys that no earlier call had); how many rows."""
        before = self.rows
        with swrite.translated(self.relation.name):
            self._put_tablets(ssession.rebind(frame, self.context.writer), deletes=True)
        return self.rows - before

    def put_in_place(self, frame: DataFrame, names: Collection[str]) -> bool:
        """Add the same rows without a shuffle, if Spark makes them of files with these names, each of them in the
        tablet of its file; whether it could."""
        with swrite.translated(self.relation.name):
            rows = ssession.rebind(frame, self.context.sessions.in_place())
            if not in_place.streams(rows, names):
                return False
            self.context.progress("writing tablets", None)
            found = self.files.cut_in_place(rows)
        if found is None:
            self.files.forget_scratch()
            return False
        hit("write.tablets_written")
        self._adopt(found, deletes=True)
        return True

    def put_level0(self, table: pa.Table, kinds: pa.Array) -> None:
        """Add settled rows, as they are, as level 0."""
        if table.num_rows:
            self.runs += self.files.level0(table, kinds, cache=self.context.storage.level0, by_tablet=self.staging)

    def _stages(self, arrival: Arrival) -> bool:
        """Whether files that arrive must wait. Views may move on before the commit: then either way is right."""
        if arrival is Arrival.LOAD and any(index.unique for index in self.transaction.upkeep.indexes):
            return False  # what a unique index refuses, the statement itself must say
        with self.context.catalog.reading() as connection:
            return destination_of(connection, self.relation, arrival) is not Destination.NORMAL_DIRECTORY

    # ---- on the driver ----------------------------------------------------------------------------------

    def _put_arrow(self, batch: b.ArrowBatch) -> None:
        table, kinds = b.settle(batch, self.relation, self.transaction.id)
        if table.num_rows == 0:
            return
        self._refuse_existing(table, kinds)
        if table.num_rows > self.context.settings.batch_rows_max:
            self._put_tablets(*self._in_spark(table, kinds))
            return
        rows = table.filter(pc.not_equal(kinds, b.DELETE))
        constraints.refuse(self.context.storage.lookups, self.context.sessions, self.relation, rows)
        self.put_level0(table, kinds)
        self.settled = table, kinds

    def _refuse_existing(self, table: pa.Table, kinds: pa.Array) -> None:
        """Rows to insert must have new keys, as of the transaction's snapshot."""
        inserts = pc.equal(kinds, b.INSERT)
        if self.relation.keyless or not pc.any(inserts).as_py():
            return
        key = [c_.physical for c_ in self.relation.key]
        stored = self.transaction.snapshot_of(self.relation)
        wanted = table.filter(inserts).select(key)
        found = stored_keys(self.context.storage, self.context.settings, stored, wanted, limit=1)
        if found.num_rows:
            raise b.existing(self.relation, python_row(found, key))

    def _in_spark(self, table: pa.Table, kinds: pa.Array) -> tuple[DataFrame, bool]:
        """Settled rows as a DataFrame, and whether it has tombstones."""
        schema = sscan.struct(self.relation.columns)
        gone = pc.equal(kinds, b.DELETE)
        if not pc.any(gone).as_py():
            return sscan.local(self.context.writer, table, schema), False
        marked = b.tombstones(table, gone, [c_.physical for c_ in self.relation.identity])
        marked = marked.append_column(DELETED, gone)
        return sscan.local(self.context.writer, marked, schema.add(DELETED, T.BooleanType())), True

    # ---- in Spark ---------------------------------------------------------------------------------------

    def _put_frame(self, batch: b.FrameBatch) -> None:
        context, relation = self.context, self.relation
        # Spark computes constant rows while it plans, so that too may find a value that does not fit.
        with rf.reading(batch.reads, self.transaction.roots), swrite.translated(relation.name, into=batch.errors):
            frame = ssession.rebind(batch.frame, context.writer)
            many = batch.rows is not None and batch.rows > context.settings.batch_rows_max
            size = ssession.estimated_bytes(frame) if batch.bytes is None else batch.bytes
            small = not many and size <= SMALL_BYTES
            table = frame.toArrow() if small else None
            if table is None and batch.kind in (b.UPSERT, b.DELETE):
                self._put_cut(frame, batch.kind, plain=batch.plain)
            elif table is None:
                self._put_computed(frame, batch.kind)
        if table is not None:
            self._put_arrow(_as_arrow(relation, table, batch.kind))

    def _put_cut(self, frame: DataFrame, kind: str, *, plain: bool) -> None:
        """Cut upserts or deletes into tablets; unless they are `plain`, few of them go on as rows of the driver."""
        deletes = kind == b.DELETE
        found = self._cut(self._only_keys(frame, "true") if deletes else self._with_row_ids(frame))
        few = None if plain else self._few([file.path for file in found])
        if few is None:
            self._adopt(found, deletes=deletes)
        else:
            self._put_arrow(_as_arrow(self.relation, few, kind))

    def _put_computed(self, frame: DataFrame, kind: str | None) -> None:
        """Compute the rows once, to a scratch file; then their number decides how they go on."""
        root, scratch = self.files.home(), self.files.next_scratch()
        frame.write.mode("overwrite").parquet(root.full(scratch))
        parts = [p for p, _, folder in root.listing(scratch) if p.endswith(".parquet") and not folder]
        few = self._few(parts)
        if few is not None:
            self._put_arrow(_as_arrow(self.relation, few, kind))
            return
        self._put_large(sscan.files(self.context.writer, [root.full(p) for p in parts], frame.schema), kind)

    def _few(self, paths: Sequence[str]) -> pa.Table | None:
        """The rows of scratch files, if the driver may have them."""
        files = [self.files.home().open_parquet(path) for path in paths]
        if sum(file.metadata.num_rows for file in files) > self.context.settings.batch_rows_max:
            return None
        tables = [file.read() for file in files if file.metadata.num_rows]
        return pa.concat_tables(tables) if tables else pa.table({})

    def _put_large(self, computed: DataFrame, kind: str | None) -> None:
        """Rows to insert, or of several kinds."""
        relation = self.relation
        key = [c_.physical for c_ in relation.identity]
        quoted = [sscan.quoted(k) for k in key]
        frame = self._with_row_ids(computed if kind is None else computed.withColumn(b.KIND, F.lit(kind)))
        if kind is None:
            standing = frame.filter(F.col(b.KIND) != b.DELETE)
            gone = frame.filter(F.col(b.KIND) == b.DELETE)
            gone_keys = gone.select(*quoted)
            names = [sscan.quoted(n) for n in frame.columns]
            frame = standing.unionAll(gone.join(standing.select(*quoted), key, "left_anti").select(*names))
        else:
            gone_keys = frame.filter(F.lit(False)).select(*quoted)
        if not relation.keyless:
            inserted = frame.filter(F.col(b.KIND) == b.INSERT).select(*quoted)
            self._refuse_stored(inserted.join(gone_keys, key, "left_anti"), key)
        if kind is None:
            frame = self._only_keys(frame, f"{b.KIND} = '{b.DELETE}'")
        self._put_tablets(frame.drop(b.KIND), deletes=kind is None)

    def _only_keys(self, frame: DataFrame, deleted: str) -> DataFrame:
        """Rows with a mark of those that a condition deletes, of which only the key is kept."""
        identity = {c_.physical for c_ in self.relation.identity}
        columns = [(c_.physical in identity, sscan.quoted(c_.physical)) for c_ in self.relation.columns]
        kept = [name if is_key else f"IF({deleted}, NULL, {name}) AS {name}" for is_key, name in columns]
        return frame.selectExpr(*kept, f"{deleted} AS {DELETED}")

    def _refuse_stored(self, inserted: DataFrame, key: Sequence[str]) -> None:
        """Keys to insert must be new, as of the transaction's snapshot. One join by key, one job."""
        context = self.context
        stored = sscan.merged(
            context.writer,
            self.transaction.snapshot_of(self.relation),
            self.transaction.roots,
            context.storage.level0,
            rows_max=context.settings.level0_rows_max,
        ).select(*[sscan.quoted(k) for k in key])
        hits = inserted.join(stored, list(key), "left_semi").limit(1).toArrow()
        if hits.num_rows:
            raise b.existing(self.relation, python_row(hits, hits.schema.names))

    def _with_row_ids(self, frame: DataFrame) -> DataFrame:
        return swrite.with_row_ids(frame, self.transaction.id) if self.relation.keyless else frame

    def _put_tablets(self, frame: DataFrame, deletes: bool) -> None:
        self._adopt(self._cut(frame), deletes=deletes)

    def _cut(self, frame: DataFrame) -> list[swrite.TabletFile]:
        """One sorted file per tablet, in scratch. One job."""
        self.context.progress("writing tablets", None)
        found = self.files.cut(frame)
        hit("write.tablets_written")
        return found

    def _adopt(self, found: Sequence[swrite.TabletFile], *, deletes: bool) -> None:
        """Files under their final names, copied to every replica."""
        added = self.files.adopt(found, level=0, deletes=deletes)
        self.runs += added
        self.bulk = not deletes
        constraints.refuse_in_runs(self.context.sessions, self.relation, added, self.transaction.roots, deletes=deletes)
        self.files.forget_scratch()


def _as_arrow(relation: Relation, table: pa.Table, kind: str | None) -> b.ArrowBatch:
    aligned = rf.align(table, relation.columns)
    if kind is not None:
        return b.ArrowBatch(table=aligned, kinds=kind, ordered=False)
    kinds = table[b.KIND] if table.num_rows else pa.chunked_array([pa.array([], pa.string())])
    return b.ArrowBatch(table=aligned, kinds=kinds.cast(pa.string()), ordered=False)
