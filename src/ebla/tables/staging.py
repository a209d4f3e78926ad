"""Staged runs become visible: the one commit that a `process_staging` task makes.

Theory of operation. A load into a table with a view under way commits its runs as `staging`, one for each tablet that
it has rows in, with a task for each of these tablets (`ebla.model.staging` says when, `Work` does it). Nobody sees such
a run: no read, no change, no epoch, no compaction. Vacuum keeps it, because the manifest names it.

The flip takes the oldest load that has staged runs in the tablets of a batch and makes them visible in one commit: its
version becomes theirs, as if the rows had been written by that commit. So epochs find them as changes, once; the
entries of indexes are in the same commit; and of two writes of a key the one that became visible last wins, whenever
the load was begun. Loads are flipped one after the other, since two rows of one key must not have one version.

Exactly once: the commit requires that the tasks are open and that every run is still staged. A crash before it leaves
everything staged; after it the task finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.failpoint import hit
from ebla.catalog import reads
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.relation import DELETED, Relation, Run, RunState
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.tables.context import Context
from ebla.tables.writes import Work, opened

if TYPE_CHECKING:
    from ebla.base.ids import RelationId, TabletId, TaskId
    from ebla.catalog.transactions import Transaction


class Flip(Work):
    """A write whose files are there already, and stay whatever becomes of it."""

    def __init__(
        self,
        context: Context,
        relation: Relation,
        transaction: Transaction,
        staged: Sequence[Run],
        tasks: Collection[TaskId],
    ) -> None:
        super().__init__(context, relation, transaction)
        self.runs = list(staged)
        self._ids = frozenset(run.id for run in staged)
        self._tasks = frozenset(tasks)

    def write_indexes(self, *, emptied: bool = False) -> None:
        few = sum(run.rows for run in self.runs) <= self.context.settings.batch_rows_max
        if few and self.upkeep.indexes and not self.followers:
            self._settled = self._rows()
        super().write_indexes(emptied=emptied)

    def _rows(self) -> tuple[pa.Table, pa.Array]:
        """The rows, few enough for the driver, and what is done with each."""
        tables, kinds = [], []
        for run in self.runs:
            read = self.roots[run.nodes[0]].open_parquet(run.path).read()
            tables.append(rf.align(read, self.relation.columns))
            gone = read[DELETED] if DELETED in read.column_names else pa.repeat(False, read.num_rows)
            kinds += pc.if_else(gone, b.DELETE, b.UPSERT).to_pylist()
        return pa.concat_tables(tables), pa.array(kinds, pa.string())

    def run_update(self) -> c.Update:
        return c.SetRunState(runs=self._ids, state=RunState.NORMAL)

    def requirements(self) -> list[c.Requirement]:
        return [
            *super().requirements(),
            c.TasksOpen(tasks=self._tasks),
            c.RunsStaged(relation=self.relation.id, runs=self._ids),
        ]

    def _remove_files(self) -> None:
        for _, work in self.followers:
            work._remove_files()
        self.forget_scratch()


def process(context: Context, base: RelationId, tablets: Collection[TabletId], tasks: Collection[TaskId]) -> bool:
    """Make the oldest staged load of these tablets visible; False: nothing of them is staged."""
    with context.catalog.reading() as connection:
        known = reads.relation_by_id(connection, base)
        waiting = reads.staged_runs(connection, base, tablets)
    if known is None or not waiting:
        return False
    due = [run for run in waiting if run.begin_version == waiting[0].begin_version]
    reason = f"staged rows of {known.name}: {sum(run.rows for run in due)} visible"
    relation, transaction, _ = opened(context, known.name, reason=reason)
    flip = Flip(context, relation, transaction, due, tasks)
    try:
        if relation.id != base:
            raise ConflictError(f"{known.name}: expected the table that was loaded into, found another; look again")
        with context.kept_alive(transaction.id):
            flip.write_indexes()
            hit("staging.before_flip")
            flip.commit(reason, reads_target=False)
    except BaseException as error:
        flip.give_up(error)
        raise
    hit("staging.flipped")
    return True
