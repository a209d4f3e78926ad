"""Staged runs become visible: the one commit that a `process_staging` task makes.

Theory of operation. A load into a table with a view under way commits its runs as `staging`, one for each tablet that
it has rows in, with a task for each of these tablets (`ebla.model.staging` says when, `ebla.tables.writes` does it).
Nothing reads such a run: no query, no change, no epoch, no compaction. Vacuum keeps it, because the manifest names it.

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
from ebla.model.relation import DELETED, Run, RunState
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.tables.commit import Commit
from ebla.tables.sink import Sink
from ebla.tables.transaction import begin
from ebla.tables.write_access import WriteAccess

if TYPE_CHECKING:
    from ebla.base.ids import RelationId, TaskId
    from ebla.model.tablets import TokenRange


def process(context: WriteAccess, base: RelationId, tokens: Collection[TokenRange], tasks: Collection[TaskId]) -> bool:
    """Make the oldest staged load of these tokens visible; False: nothing of them is staged."""
    with context.catalog.reading() as connection:
        table = reads.relation_by_id(connection, base)
        waiting = [] if table is None else reads.staged_runs(connection, table, tokens)
    if table is None or not waiting:
        return False
    due = [run for run in waiting if run.begin_version == waiting[0].begin_version]
    reason = f"staged rows of {table.name}: {sum(run.rows for run in due)} visible"
    transaction = begin(context, table.name, reason=reason)
    try:
        if transaction.relation.id != base:
            raise ConflictError(f"{table.name}: expected the table that was loaded into, found another; look again")
        with context.kept_alive(transaction.id):
            _flip(Sink(transaction), due, frozenset(tasks), reason)
    except BaseException as error:
        transaction.give_up(error)  # which leaves the staged runs alone: they are another transaction's
        raise
    hit("staging.flipped")
    return True


def _flip(sink: Sink, due: Sequence[Run], tasks: frozenset[TaskId], reason: str) -> None:
    sink.runs = list(due)
    if sink.transaction.upkeep.indexes and sink.rows <= sink.context.settings.batch_rows_max:
        sink.settled = _rows(sink)
    commit = Commit(sink)
    commit.follow()
    hit("staging.before_flip")
    runs = frozenset(run.id for run in due)
    commit.commit(
        reason,
        reads_target=False,
        rows=(c.SetRunState(runs=runs, state=RunState.NORMAL),),
        requires=(c.TasksOpen(tasks=tasks), c.RunsStaged(relation=sink.relation.id, runs=runs)),
    )


def _rows(sink: Sink) -> tuple[pa.Table, pa.Array]:
    """The rows, few enough for the driver, and what is done with each."""
    tables, kinds = [], []
    for run in sink.runs:
        read = sink.transaction.roots[run.nodes[0]].open_parquet(run.path).read()
        tables.append(rf.align(read, sink.relation.columns))
        gone = read[DELETED] if DELETED in read.column_names else pa.repeat(False, read.num_rows)
        kinds += pc.if_else(gone, b.DELETE, b.UPSERT).to_pylist()
    return pa.concat_tables(tables), pa.array(kinds, pa.string())
