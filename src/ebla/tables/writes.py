"""Transactions that write: begin, put files under every replica's root, commit; or leave nothing.

One write's way. Begin a transaction (a catalog row with a lease) → make the batch from the relation as it is now →
small: settle it on the driver and write one level 0 file; large: Spark cuts it into one sorted file per tablet →
commit, which makes all of it visible at one version, or stages files that were loaded (`ebla.tables.staging`). A write
that read what it wrote over compares its keys with those committed since its snapshot and, if one is shared, starts
over on the new snapshot.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlalchemy import Connection

from ebla.base.backoff import Backoff
from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, TransactionId, Version
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.catalog.reads import newest_write
from ebla.errors import ConflictError, EblaError, StorageError, StorageFullError, TransactionClosedError
from ebla.model import changes as c
from ebla.model.relation import DELETED, Relation, Run, RunSource, RunState
from ebla.model.snapshot import Snapshot
from ebla.model.staging import Arrival, Destination
from ebla.relations.indexes import Index
from ebla.relations.tasks import destination_of, staging_tasks
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.storage import runs as rf
from ebla.storage.files import Root, run_path, scratch_path
from ebla.tables import batch as b
from ebla.tables import constraints
from ebla.tables.context import Context
from ebla.tables.ddl import require_table
from ebla.tables.lookup import shared_key, stored_keys
from ebla.tables.upkeep import Upkeep
from ebla.values.columns import python_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_BYTES = 32 * 2**20
"""A result that Spark expects to be smaller than this is brought to the driver without asking further."""

BACKOFF_S = Backoff(0.02, 1.0)
FULL_DISK_WAIT_S = 5.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a write did. `version` is `None` when there was nothing to write."""

    version: Version | None
    rows: int
    relation: Relation = field(repr=False)
    level0_runs: int = 0
    staged: int = 0
    """How many of the rows were staged: they are visible when a task has processed them."""
    transaction: TransactionId | None = field(default=None, repr=False)


Done = TypeVar("Done")
Make = Callable[[Relation, tx.Transaction], b.ArrowBatch | b.FrameBatch]


def write(context: Context, name: str, make: Make, *, reason: str, reads_target: bool) -> Written:
    """Run a write until it commits. A lost race is run again by itself, with growing pauses."""
    return until_committed(context, lambda: _attempt(context, name, make, reason=reason, reads_target=reads_target))


def until_committed(context: Context, attempt_once: Callable[[], Done]) -> Done:
    """Try until no race is lost, with growing pauses. An attempt that the catalog left in the lurch is made again."""
    attempts = context.settings.write_attempts
    for attempt in range(1, attempts + 1):
        try:
            return context.catalog.patience.insist(attempt_once)
        except ConflictError as conflict:
            if not conflict.retryable or attempt == attempts:
                raise
            time.sleep(BACKOFF_S.after(attempt) * random.random())
    raise AssertionError("unreachable: the last attempt returns or raises")


def _attempt(context: Context, name: str, make: Make, *, reason: str, reads_target: bool) -> Written:
    work = begin(context, name, reason=reason)
    relation, transaction = work.relation, work.transaction
    hit("write.begun")
    try:
        require_table(relation)
        with context.kept_alive(transaction.id):
            work.put(make(relation, transaction))
            hit("write.files_written")
            return work.commit(reason, reads_target=reads_target)
    except BaseException as error:
        work.give_up(error)
        raise


Place = tuple[dict[NodeId, Root], Upkeep]
"""The roots of all nodes, and the indexes of a relation, as a transaction found them."""


def begin(context: Context, name: str, *, reason: str) -> Work:
    """Begin the work of a transaction on a relation."""
    return Work(context, *opened(context, name, reason=reason))


def opened(context: Context, name: str, *, reason: str) -> tuple[Relation, tx.Transaction, Place]:
    """Open a transaction on a relation. The relation and the place are as they are at its snapshot."""

    def look(connection: Connection, relation: Relation) -> Place:
        return context.roots_in(connection), Upkeep.read(context, connection, relation)

    return tx.begin_on(
        context.catalog,
        name,
        look,
        node=context.node,
        holder=context.holder,
        reason=reason,
        lease_us=context.lease_us,
    )


class Work:
    """One attempt of one transaction: the files it wrote so far, and how to be rid of them."""

    def __init__(
        self,
        context: Context,
        relation: Relation,
        transaction: tx.Transaction,
        place: Place | None = None,
    ) -> None:
        """`place` is looked for if the transaction has not done so."""
        self.context = context
        self.relation = relation
        self.transaction = transaction
        if place is None:
            with context.catalog.reading() as connection:
                place = context.roots_in(connection), Upkeep.read(context, connection, relation)
        self.roots, self.upkeep = place
        self.runs: list[Run] = []
        self.followers: list[tuple[Index, Work]] = []
        """What this write brings to the indexes of its relation."""
        self._settled: tuple[pa.Table, pa.Array] | None = None
        self.bulk = False
        self._found_empty = False
        self.staging = False
        """Whether the runs stay invisible until a task has processed them."""
        self._scratch = 0
        self._adopted = 0
        self._committing = False

    # ---- files ------------------------------------------------------------------------------------------

    def put(self, batch: b.ArrowBatch | b.FrameBatch) -> None:
        self.staging = batch.arrival is not None and self._stages(batch.arrival)
        match batch:
            case b.ArrowBatch():
                self._put_arrow(batch)
            case b.FrameBatch():
                self._put_frame(batch)

    def _stages(self, arrival: Arrival) -> bool:
        """Whether files that arrive must wait. Views may move on before the commit: then either way is right."""
        if arrival is Arrival.LOAD and any(index.unique for index in self.upkeep.indexes):
            return False  # what a unique index refuses, the statement itself must say
        with self.context.catalog.reading() as connection:
            return destination_of(connection, self.relation, arrival) is not Destination.NORMAL_DIRECTORY

    def _put_arrow(self, batch: b.ArrowBatch) -> None:
        table, kinds = b.settle(batch, self.relation, self.transaction.id)
        if table.num_rows == 0:
            return
        self._refuse_existing(table, kinds)
        if table.num_rows > self.context.settings.batch_rows_max:
            schema = sscan.struct(self.relation.columns)
            frame = sscan.local(self.context.writer, table, schema)
            deletes = pc.any(pc.equal(kinds, b.DELETE)).as_py()
            if deletes:
                gone = pc.equal(kinds, b.DELETE)
                marked = b.tombstones(table, gone, [c_.physical for c_ in self.relation.identity])
                marked = marked.append_column(DELETED, gone)
                frame = sscan.local(self.context.writer, marked, schema.add(DELETED, T.BooleanType()))
            self._put_tablets(frame, deletes=deletes)
            return
        constraints.refuse(self.context, self.relation, table.filter(pc.not_equal(kinds, b.DELETE)))
        self.runs = b.level0_runs(
            table,
            kinds,
            self.relation,
            self.transaction.id,
            self.roots,
            by_tablet=self.staging,
            cache=self.context.cache,
        )
        if self.upkeep.indexes:
            self._settled = table, kinds

    def _refuse_existing(self, table: pa.Table, kinds: pa.Array) -> None:
        """Rows to insert must have new keys, as of the transaction's snapshot."""
        inserts = pc.equal(kinds, b.INSERT)
        if self.relation.keyless or not pc.any(inserts).as_py():
            return
        key = [c_.physical for c_ in self.relation.key]
        found = stored_keys(self.context, self.snapshot(), table.filter(inserts).select(key), limit=1)
        if found.num_rows:
            raise b.existing(self.relation, python_row(found, key))

    def _put_frame(self, batch: b.FrameBatch) -> None:
        context, relation = self.context, self.relation
        # Spark computes constant rows while it plans, so that too may find a value that does not fit.
        with self.reading(batch.reads), swrite.translated(relation.name, into=batch.errors):
            frame = ssession.rebind(batch.frame, context.writer)
            many = batch.rows is not None and batch.rows > context.settings.batch_rows_max
            size = ssession.estimated_bytes(frame) if batch.bytes is None else batch.bytes
            small = not many and size <= SMALL_BYTES
            table = frame.toArrow() if small else None
            if table is None and batch.plain and batch.kind == b.UPSERT:
                self._put_tablets(self._with_row_ids(frame), deletes=False)
            elif table is None:
                self._put_staged(frame, batch.kind)
        if table is not None:
            self._put_arrow(self._as_arrow(table, batch.kind))

    @contextlib.contextmanager
    def reading(self, snapshots: Sequence[Snapshot]) -> Iterator[None]:
        """Where Spark fails on a damaged copy of a run and there is another, start over with that one."""
        try:
            yield
        except StorageFullError:
            raise
        except StorageError as error:
            damaged = [s.relation.name for s in snapshots if rf.distrust_damaged(s, self.roots)]
            if damaged:
                raise ConflictError(
                    f"{damaged[0]}: expected every copy of its runs sound, found one damaged; retry with another copy"
                ) from error
            raise

    def _put_staged(self, frame: DataFrame, kind: str | None) -> None:
        """Compute the rows once, to a scratch file; then their number decides how they go on."""
        root, scratch = self.home(), self.next_scratch()
        frame.write.mode("overwrite").parquet(root.full(scratch))
        parts = [p for p, _, folder in root.listing(scratch) if p.endswith(".parquet") and not folder]
        rows = sum(root.open_parquet(p).metadata.num_rows for p in parts)
        if rows <= self.context.settings.batch_rows_max:
            tables = [t for t in (root.open_parquet(p).read() for p in parts) if t.num_rows]
            table = pa.concat_tables(tables) if tables else pa.table({})
            self._put_arrow(self._as_arrow(table, kind))
            return
        self._put_large(sscan.files(self.context.writer, [root.full(p) for p in parts], frame.schema), kind)

    def _put_large(self, staged: DataFrame, kind: str | None) -> None:
        relation = self.relation
        key = [c_.physical for c_ in relation.identity]
        quoted = [sscan.quoted(k) for k in key]
        frame = staged if kind is None else staged.withColumn(b.KIND, F.lit(kind))
        frame = self._with_row_ids(frame)
        if kind is None:
            standing = frame.filter(F.col(b.KIND) != b.DELETE)
            gone = frame.filter(F.col(b.KIND) == b.DELETE)
            gone_keys = gone.select(*quoted)
            names = [sscan.quoted(n) for n in frame.columns]
            frame = standing.unionAll(gone.join(standing.select(*quoted), key, "left_anti").select(*names))
        else:
            gone_keys = frame.filter(F.lit(False)).select(*quoted)
        if kind in (None, b.INSERT) and not relation.keyless:
            stored = sscan.merged(
                self.context.writer,
                self.snapshot(),
                self.roots,
                self.context.cache,
                rows_max=self.context.settings.level0_rows_max,
            ).select(*quoted)
            inserted = frame.filter(F.col(b.KIND) == b.INSERT).select(*quoted).join(gone_keys, key, "left_anti")
            hits = inserted.join(stored, key, "left_semi").limit(1).toArrow()
            if hits.num_rows:
                raise b.existing(relation, python_row(hits, hits.schema.names))
        deletes = kind in (None, b.DELETE)
        if deletes:
            frame = frame.withColumn(DELETED, F.col(b.KIND) == b.DELETE)
            values = [sscan.quoted(c_.physical) for c_ in relation.columns if c_.physical not in key]
            frame = frame.selectExpr(
                *quoted, *[f"IF({DELETED}, NULL, {v}) AS {v}" for v in values], DELETED, b.KIND
            )  # of a deleted row only the key is kept
        self._put_tablets(frame.drop(b.KIND), deletes=deletes)

    def _with_row_ids(self, frame: DataFrame) -> DataFrame:
        return swrite.with_row_ids(frame, self.transaction.id) if self.relation.keyless else frame

    def _as_arrow(self, table: pa.Table, kind: str | None) -> b.ArrowBatch:
        aligned = rf.align(table, self.relation.columns)
        if kind is not None:
            return b.ArrowBatch(table=aligned, kinds=kind, ordered=False)
        kinds = table[b.KIND] if table.num_rows else pa.chunked_array([pa.array([], pa.string())])
        return b.ArrowBatch(table=aligned, kinds=kinds.cast(pa.string()), ordered=False)

    def _put_tablets(self, frame: DataFrame, *, deletes: bool) -> None:
        """One sorted file per tablet, under its final name, copied to every replica."""
        root, scratch = self.home(), self.next_scratch()
        self.context.progress("writing tablets", None)
        files = swrite.write_tablets(
            frame,
            self.relation,
            root,
            scratch,
            row_group_bytes=self.context.row_group_bytes(self.relation),
        )
        hit("write.tablets_written")
        self.runs = self.adopt(root, files, level=0, deletes=deletes)
        self.bulk = not deletes
        constraints.refuse_in_runs(self.context, self.relation, self.runs, self.roots, deletes=deletes)
        root.remove_tree(scratch)

    def put_more(self, frame: DataFrame) -> int:
        """Add rows and tombstones (physical columns and `_deleted`, keys that no earlier call had); how many rows."""
        before, self.runs = self.runs, []
        with swrite.translated(self.relation.name):
            try:
                self._put_tablets(ssession.rebind(frame, self.context.writer), deletes=True)
            finally:
                added, self.runs = self.runs, [*before, *self.runs]
        return sum(run.rows for run in added)

    def adopt(
        self,
        root: Root,
        files: Sequence[swrite.TabletFile],
        *,
        level: int,
        deletes: bool = False,
        source: RunSource = RunSource.WRITE,
    ) -> list[Run]:
        """Give Spark's files their run names, check and measure them, and put a copy under every replica's root."""
        relation, transaction = self.relation, self.transaction.id

        def one(item: tuple[int, swrite.TabletFile]) -> Run | None:
            number, file = item
            facts = file.facts or rf.inspect_sorted(root, file.path, relation, unique=not relation.keyless)
            if facts.rows == 0:
                root.remove(file.path)
                return None
            tombstones = b.tombstones_in(root, file.path) if deletes else 0
            run = b.tablet_run(
                relation, transaction, number, file.tablet, facts, level=level, tombstones=tombstones, source=source
            )
            root.move(file.path, run.path)
            self.runs.append(run)  # known from here on, so that rolling back finds it
            root.flush(run.path)
            for node in run.nodes:
                if self.roots[node].location != root.location:
                    root.copy_to(self.roots[node], run.path)
            if all(self.roots[node].location != root.location for node in run.nodes):
                root.remove(run.path)
            return run

        done = rf.in_threads(one, list(enumerate(files, start=self._adopted)))
        self._adopted += len(files)
        return [run for run in done if run is not None]

    # ---- indexes ----------------------------------------------------------------------------------------

    def write_indexes(self, *, emptied: bool = False) -> None:
        """Write what becomes of the relation's indexes. `emptied`: nothing of the old rows and entries stays."""
        if not self.upkeep.indexes or not self.runs or self.followers:
            return
        for index in self.upkeep.indexes:
            place = self.roots, Upkeep(base=index.relation)
            self.followers.append((index, Work(self.context, index.relation, self.transaction, place)))
        maintainer = self.context.index_maintainer
        if self._settled is not None:
            maintainer.follow_rows(self, *self._settled, emptied=emptied)
        else:  # Spark has cut the rows into tablets
            before = None if emptied else self.snapshot()
            if before is not None and not before.level1 and not before.level0:
                emptied = self._found_empty = True  # and still is, or the commit starts over
            maintainer.follow_files(self, before, emptied=emptied)
        hit("write.indexes_written")

    def index_updates(self) -> list[c.Update]:
        return [c.AddRuns(runs=tuple(work.runs), level1_if_empty=work.bulk) for _, work in self.followers if work.runs]

    def home(self) -> Root:
        """The root that Spark writes to first: this node's, or that of a node that holds the relation."""
        own = self.roots.get(self.context.node)
        return own if own is not None else self.roots[self.relation.placement[0][0]]

    def next_scratch(self) -> str:
        self._scratch += 1
        path = scratch_path(self.relation.id, self.transaction.id, self._scratch)
        self.home().make_parent(path)  # by us, not by Spark, which would let others in
        return path

    # ---- the end ----------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        with self.context.catalog.reading() as connection:
            return reads.snapshot(connection, self.relation, self.transaction.snapshot)

    def commit(self, reason: str, *, reads_target: bool) -> Written:
        if not self.runs:
            self.roll_back()
            return Written(version=None, rows=0, relation=self.relation)
        if self.staging:
            return self._stage(reason)
        self.write_indexes()
        is_unique = any(index.enforced for index in self.upkeep.indexes)
        compares = reads_target or is_unique or self._found_empty
        version = self._commit_compared(reason) if compares else self._commit(reason, self.requirements())
        rows = sum(r.rows for r in self.runs)
        return Written(version=version, rows=rows, relation=self.relation, level0_runs=len(self.runs))

    def _stage(self, reason: str) -> Written:
        """Commit the runs as staged, with a task for each of their tablets. Entries of indexes come with the task."""
        with self.context.catalog.reading() as connection:
            tasks = staging_tasks(connection, self.relation, {run.tablet for run in self.runs})
        staged = tuple(replace(run, state=RunState.STAGING) for run in self.runs)
        version = self._commit_updates(
            reason, self.requirements(), (c.AddRuns(runs=staged), c.CreateTasks(tasks=tasks))
        )
        hit("staging.staged")
        rows = sum(run.rows for run in staged)
        return Written(version=version, rows=rows, relation=self.relation, staged=rows, transaction=self.transaction.id)

    def _commit_compared(self, reason: str) -> Version:
        """Commit once every write since the snapshot is known to have touched other keys.

        Writers of other keys may commit between the comparison and the commit for ever, so that alone starts nothing
        over: what came between is compared too.
        """
        compared = self.transaction.snapshot
        while True:
            unchanged = c.NoWritesSince(relation=self.relation.id, version=compared)
            try:
                return self._commit(reason, [*self.requirements(), unchanged])
            except TransactionClosedError:
                raise
            except ConflictError:
                before, compared = compared, self._compare_with_newer(compared)
                if compared == before:
                    raise  # for another reason

    def _commit(self, reason: str, requires: Sequence[c.Requirement]) -> Version:
        return self._commit_updates(reason, requires, (self.run_update(), *self.index_updates()))

    def run_update(self) -> c.Update:
        """What makes the rows visible."""
        return c.AddRuns(runs=tuple(self.runs), level1_if_empty=self.bulk)

    def _commit_updates(self, reason: str, requires: Sequence[c.Requirement], updates: Sequence[c.Update]) -> Version:
        return self.commit_decision(
            c.Decision(
                reason=reason,
                relation=self.relation.id,
                transaction=self.transaction.id,
                requires=tuple(requires),
                updates=(*updates, c.EndTransaction(transaction=self.transaction.id)),
            )
        )

    def commit_decision(self, decision: c.Decision) -> Version:
        self._committing = True
        committed = self.context.catalog.commit(decision, node=self.context.node)
        self.forget_scratch()
        return committed.version

    def requirements(self) -> list[c.Requirement]:
        return [
            c.TransactionOpen(transaction=self.transaction.id),
            c.SchemaWithinOne(relation=self.relation.id, schema_version=self.relation.schema_version),
            c.PlacementIs(relation=self.relation.id, placement_version=self.relation.placement_version),
            self.upkeep.requirement(),
        ]

    def _compare_with_newer(self, since: Version) -> Version:
        """Compare this write's keys with all that was committed after a version; say up to which version."""
        with self.context.catalog.reading() as connection:
            newest = newest_write(connection, self.relation.id)
            if newest <= since:
                return since
            truncated = reads.truncated_between(connection, self.relation, since, newest)
            newer = reads.writes_between(connection, self.relation, since, newest)
        if truncated:
            raise ConflictError(
                f"{self.relation.name}: truncated at version {truncated[-1]} during the write; retry it"
            )
        found = shared_key(self.context, self.relation, self.runs, newer, self.roots)
        if found is not None:
            raise ConflictError(
                f"{self.relation.name}: expected {rf.show_key(self.relation, found)} unchanged since version "
                f"{self.transaction.snapshot}, found a newer write of it; retry the statement"
            )
        self.context.index_maintainer.refuse_shared(self, since, newest)
        return newest

    def roll_back(self) -> None:
        """Close the transaction and remove every file of this attempt.

        A transaction that tried to commit may have done so, whatever error came back: then its files are the table. So
        it is closed first, and if it was not open any more, the files are not ours to remove (a sweep removes those of
        one that somebody took for dead). Before that the files are nobody else's and go first: on a full disk that is
        what makes room to close it.
        """
        if self._committing:
            if tx.abort(self.context.catalog, self.transaction.id):
                self._remove_files()
            return
        self._remove_files()
        tx.abort(self.context.catalog, self.transaction.id)

    def give_up(self, error: BaseException) -> None:
        """Roll back after an error, which says more than one that rolling back may meet: the lease ends by itself.

        The catalog may lie on the full disk itself: then closing the transaction waits for the space to come back.
        """
        full = isinstance(error, StorageFullError)
        if full and self._scratch:
            ssession.close_lost_files(self.context.writer)
        deadline = time.monotonic() + (FULL_DISK_WAIT_S if full else 0)
        with self.context.catalog.patience.without():
            while True:
                try:
                    return self.roll_back()
                except EblaError:
                    if time.monotonic() >= deadline:
                        return
                time.sleep(POLL_S)

    def _remove_files(self) -> None:
        for _, work in self.followers:
            work._remove_files()
        for run in self.runs:
            for root in self.roots.values():
                root.remove(run.path)
        for number in range(self.relation.tablets if self.staging else len(self.relation.replica_sets())):
            # A level 0 file that failed half way is not in `runs` yet.
            for root in self.roots.values():
                root.remove(run_path(self.relation.id, self.transaction.id, number))
        self.forget_scratch()

    def forget_scratch(self) -> None:
        for _, work in self.followers:
            work.forget_scratch()
        for number in range(1, self._scratch + 1):
            self.home().remove_tree(scratch_path(self.relation.id, self.transaction.id, number))
