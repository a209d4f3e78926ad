"""The indexes of a table that Spark writes to through the source, kept in the commit of its rows.

Spark commits a Python source in a process of its own, which has no session. So entries are made there by Arrow, piece
by piece, as they are for a small write on the driver. An index that needs Spark, because it has an expression or a
condition that only Spark understands, cannot be kept that way: such a write is refused before its first task.

Neither the rows of a DataFrame nor their entries depend on a snapshot. Only whether a unique index takes them does:
that is asked at the version that is newest when the tasks are done. A write of one of the same keys or values that
commits meanwhile makes the entries, not the rows, be made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.base.ids import NodeId, RelationId, TransactionId, Version
from ebla.base.settings import Settings
from ebla.catalog import reads
from ebla.catalog.reads import newest_write
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError, TransactionClosedError, UsageError
from ebla.indexes import maintain, unique
from ebla.model import changes as c
from ebla.model.relation import Relation, Run
from ebla.model.snapshot import Snapshot
from ebla.relations.indexes import Index
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.tables import batch as b
from ebla.tables.context import Context
from ebla.tables.lookup import shared_key
from ebla.tables.upkeep import Upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNIQUE_ROWS_MAX = 5_000_000
"""The values of a unique index are compared all at once, in memory."""

NOT_YET = Version(0)

ELSEWHERE = "write to it with db.table(…).upsert(frame) or MERGE, which have a Spark session for that"


class Alone(Context):
    """A context in a process that has no Spark and must start none."""

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        super().__init__(catalog, settings, None)

    @property
    def spark(self) -> SparkSession:
        raise UsageError(
            "expected a write whose indexes are kept without Spark, found one that needs it (a unique index with "
            f"many level 0 rows, or files of an older schema): COMPACT the table first, or {ELSEWHERE}"
        )

    def close(self) -> None:
        """Close all but the catalog, which belongs to the caller."""
        self._heart.stop()
        self._close_duck()


def refuse_what_needs_spark(relation: Relation, indexes: Sequence[Index]) -> None:
    for index in indexes:
        if index.needs_spark:
            raise UsageError(
                f'{relation.name}: expected indexes that format("ebla") can keep, found {index.name}, which has an '
                "expression or a condition that only Spark computes; Spark commits a source in a process without a "
                f"session: {ELSEWHERE}"
            )


@dataclass(kw_only=True)
class Indexed:
    """The entries of one write, made as often as others come first."""

    context: Alone
    relation: Relation
    transaction: TransactionId
    runs: Sequence[Run]
    roots: Mapping[NodeId, Root]
    emptied: bool
    """Whether the write replaces all rows."""
    upkeep: Upkeep = field(init=False)
    made: dict[RelationId, list[Run]] = field(default_factory=dict)
    at: Version = NOT_YET
    """Up to this version no other writer has committed one of the keys."""

    def __post_init__(self) -> None:
        with self.context.catalog.reading() as connection:
            self.upkeep = Upkeep.read(self.context, connection, self.relation)

    def make(self) -> None:
        """Write the entries as of now, in place of those of an earlier attempt."""
        self.forget()
        with self.context.catalog.reading() as connection:
            self.upkeep = Upkeep.read(self.context, connection, self.relation)
            self.at = reads.current_version(connection)
            there = {
                index.id: None if self.emptied else reads.snapshot(connection, index.relation, self.at)
                for index in self._unique()
            }
            before = reads.snapshot(connection, self.relation, self.at) if there and not self.emptied else None
        refuse_what_needs_spark(self.relation, self.upkeep.indexes)
        for piece in self._pieces():
            self._make(piece, there, before)

    def _unique(self) -> list[Index]:
        return [index for index in self.upkeep.indexes if index.enforced]

    def _make(self, rows: pa.Table, there: Mapping[RelationId, Snapshot | None], before: Snapshot | None) -> None:
        kinds = pa.array([b.UPSERT] * rows.num_rows, pa.string())
        roots = self.context.roots()
        changes = maintain.changes(self.context, self.upkeep, rows, kinds, self.transaction, emptied=self.emptied)
        for index, change in changes:
            if index.id in there:
                unique.refuse_known(self.context, there[index.id], before, index, change.gained, rows)
            runs = self.made.setdefault(index.id, [])
            first = len(runs) * len(index.relation.replica_sets())
            runs += maintain.level0(self.context, index, change, self.transaction, roots, first=first)

    def _pieces(self) -> Iterator[pa.Table]:
        """The rows that were written, some at a time; all at once where values must be compared with each other."""
        size = self.context.settings.batch_rows_max or 1
        if any(index.unique for index in self.upkeep.indexes):
            size = sum(run.rows for run in self.runs)
            if size > UNIQUE_ROWS_MAX:
                raise UsageError(
                    f"{self.relation.name}: expected up to {UNIQUE_ROWS_MAX:,} rows for a table with a unique index, "
                    f"found {size:,}; write fewer at a time, or {ELSEWHERE}"
                )
            whole = [self._rows(run) for run in self.runs]
            if whole:
                yield pa.concat_tables(whole)
            return
        for run in self.runs:
            rows = self._rows(run)
            for start in range(0, rows.num_rows, size):
                yield rows.slice(start, size)

    def _rows(self, run: Run) -> pa.Table:
        read = self.roots[run.nodes[0]].open_parquet(run.path).read()
        return rf.align(read, self.relation.columns).select([col.physical for col in self.relation.columns])

    def commit(self, decide: Commit) -> None:
        """Commit rows and entries together; `decide` commits with these requirements and updates besides its own."""
        for _ in range(self.context.settings.write_attempts):
            self.make()
            try:
                while True:
                    if self._committed(decide):
                        return
            except _Shared:
                continue
        raise ConflictError(
            f"{self.relation.name}: expected its keys unchanged for a moment, found newer writes of them "
            f"{self.context.settings.write_attempts} times; nothing was written: run it again"
        )

    def _committed(self, decide: Commit) -> bool:
        requires: list[c.Requirement] = [self.upkeep.requirement()]
        if self._unique() and not self.emptied:
            requires.append(c.NoWritesSince(relation=self.relation.id, version=self.at))
        updates = [c.AddRuns(runs=tuple(runs)) for runs in self.made.values() if runs]
        try:
            decide(requires, updates)
            return True
        except TransactionClosedError:
            raise
        except ConflictError:
            with self.context.catalog.reading() as connection:
                newest = newest_write(connection, self.relation.id)
            if self.emptied or newest <= self.at or not self._unique():
                raise  # for another reason
            self._compare(newest)
            return False

    def _compare(self, newest: Version) -> None:
        """Go on with the entries if what others wrote has other keys and values."""
        with self.context.catalog.reading() as connection:
            if reads.truncated_between(connection, self.relation, self.at, newest):
                raise _Shared
            newer = reads.writes_between(connection, self.relation, self.at, newest)
            values = {
                index.id: reads.writes_between(connection, index.relation, self.at, newest) for index in self._unique()
            }
        if shared_key(self.context, self.relation, self.runs, newer, self.context.roots()) is not None:
            raise _Shared
        for index in self._unique():
            mine, theirs = self.made.get(index.id, []), values[index.id]
            if unique.shared_value(self.context, index, mine, theirs) is not None:
                raise _Shared
        self.at = newest

    def forget(self) -> None:
        """Remove the entries that were made."""
        roots = self.context.roots()
        for runs in self.made.values():
            for run in runs:
                for node in run.nodes:
                    roots[node].remove(run.path)
        self.made.clear()


Commit = Callable[[Sequence[c.Requirement], Sequence[c.Update]], None]


class _Shared(Exception):
    """Somebody else wrote one of the keys or values."""
