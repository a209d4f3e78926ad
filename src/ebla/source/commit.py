"""The commit of what Spark wrote through the source: rows, and the entries of the table's indexes.

Spark commits a Python source in a process of its own, which has no session. So entries are made there by Arrow, piece
by piece, as they are for a small write on the driver. An index that needs Spark, because it has an expression or a
condition that only Spark understands, cannot be kept that way: such a write is refused before its first task.

Neither the rows of a DataFrame nor their entries depend on a snapshot. Only whether a unique index takes them does:
that is asked at the version that is newest when the tasks are done. A write of one of the same keys or values that
commits meanwhile makes the entries, not the rows, be made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.errors import ConflictError, UsageError
from ebla.indexes.maintainer import EntryMaintainer
from ebla.model import changes as c
from ebla.model.relation import Relation, Run
from ebla.relations.indexes import Index
from ebla.source.options import Origin
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.tables.commit import Commit, Overtaken
from ebla.tables.context import Context
from ebla.tables.sink import Sink
from ebla.tables.transaction import join

UNIQUE_ROWS_MAX = 5_000_000
"""The values of a unique index are compared all at once, in memory."""

ELSEWHERE = "write to it with db.table(…).upsert(frame) or MERGE, which have a Spark session for that"
NEEDS_SPARK = (
    "expected a write whose indexes are kept without Spark, found one that needs it (a unique index with many level 0 "
    f"rows, or files of an older schema): COMPACT the table first, or {ELSEWHERE}"
)


def commit(
    origin: Origin,
    transaction: tx.Transaction,
    relation: Relation,
    level0: tuple[Run, ...],
    tablets: tuple[Run, ...],
    *,
    emptied: bool,
) -> None:
    """Commit runs of tasks with the entries of all indexes that there are by now. `emptied`: they replace all rows."""
    context = Context.open(
        origin.catalog, origin.settings, maintainer=EntryMaintainer(), node=origin.node, without_spark=NEEDS_SPARK
    )
    added = (c.AddRuns(runs=tablets, level1_if_empty=True), c.AddRuns(runs=level0))
    attempts = origin.settings.write_attempts
    try:
        for _ in range(attempts):
            sink = Sink(join(context, transaction, relation))
            sink.runs = [*level0, *tablets]
            built = Commit(sink, emptied=emptied)
            if built.upkeep.indexes:
                follow(built)
            try:
                built.commit(transaction.reason, reads_target=False, rows=added)
                return
            except Overtaken:
                sink.transaction.remove_files()
    finally:
        context.release()  # the catalog stays the origin's
    raise ConflictError(
        f"{relation.name}: expected its keys unchanged for a moment, found newer writes of them {attempts} times; "
        "nothing was written: run it again"
    )


def refuse_what_needs_spark(relation: Relation, indexes: Sequence[Index]) -> None:
    for index in indexes:
        if index.needs_spark:
            raise UsageError(
                f'{relation.name}: expected indexes that format("ebla") can keep, found {index.name}, which has an '
                "expression or a condition that only Spark computes; Spark commits a source in a process without a "
                f"session: {ELSEWHERE}"
            )


def follow(commit: Commit) -> None:
    """Write the entries of the rows, as of the newest version."""
    with commit.context.catalog.reading() as connection:
        commit.seen = reads.current_version(connection)
    refuse_what_needs_spark(commit.sink.relation, commit.upkeep.indexes)
    for rows in _pieces(commit):
        commit.follow_rows(rows, pa.array([b.UPSERT] * rows.num_rows, pa.string()))


def _pieces(commit: Commit) -> Iterator[pa.Table]:
    """The rows that were written, some at a time; all at once where values must be compared with each other."""
    sink = commit.sink
    if not any(index.unique for index in commit.upkeep.indexes):
        size = commit.context.settings.batch_rows_max or 1
        for run in sink.runs:
            rows = _rows(sink, run)
            for start in range(0, rows.num_rows, size):
                yield rows.slice(start, size)
    elif sink.rows > UNIQUE_ROWS_MAX:
        raise UsageError(
            f"{sink.relation.name}: expected up to {UNIQUE_ROWS_MAX:,} rows for a table with a unique index, "
            f"found {sink.rows:,}; write fewer at a time, or {ELSEWHERE}"
        )
    elif sink.runs:
        yield pa.concat_tables([_rows(sink, run) for run in sink.runs])


def _rows(sink: Sink, run: Run) -> pa.Table:
    read = sink.transaction.roots[run.nodes[0]].open_parquet(run.path).read()
    return rf.align(read, sink.relation.columns).select([col.physical for col in sink.relation.columns])
