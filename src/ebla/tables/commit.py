"""The commit of rows: what it requires, and everything that it makes visible at one version.

All that write rows commit them through this module, in one of three ways, and each requires that the transaction is
open:

- `Commit.decision`: rows of a relation that is there, of writers, loads, epochs, chunks of a build, compaction, the
  flip of staged runs and the Spark sink. The relation's columns must be at most one step ahead of those that the rows
  were made for, and none of its indexes may have gone further than one step. With the rows come the entries of the
  indexes that follow them, and what the writer adds.
- `Commit.creation`: the relation comes with its rows, and there is nothing of it yet that could have changed. What the
  rows were made from and what goes with the commit must be as it was read.
- `filling`: entries of indexes that are filled. Each index must be filled as it was found: a step of its life makes
  other entries due.

The catalog itself refuses a run that too few replicas of its tablets have.

A write that read what it writes over is compared with what others committed since. Writers of other keys may commit
between the comparison and the commit for ever, so that alone starts nothing over: what came between is compared too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import reads
from ebla.errors import ConflictError, TransactionClosedError
from ebla.model import changes as c
from ebla.model.relation import Relation, Run
from ebla.model.snapshot import Snapshot
from ebla.relations.indexes import Index
from ebla.storage import runs as rf
from ebla.tables.lookup import shared_key
from ebla.tables.sink import Sink
from ebla.tables.transaction import OpenTransaction


class Overtaken(ConflictError):
    """Another write of one of the same keys or values committed first."""


class Commit:
    """The commit of what a sink has written. `emptied`: the rows replace all that the relation has."""

    def __init__(self, sink: Sink, *, emptied: bool = False) -> None:
        self.sink = sink
        self.context = sink.context
        self.transaction = sink.transaction
        self.upkeep = sink.transaction.upkeep
        self.emptied = emptied
        self.seen = sink.transaction.snapshot
        """The version at which keys and values were looked up. Newer writes are compared with this one."""
        self.followers: list[tuple[Index, Sink]] = []
        """What the write brings to the indexes of its relation."""
        self._found_empty = False

    def snapshot_of(self, relation: Relation) -> Snapshot:
        """A relation as the write sees it."""
        with self.context.catalog.reading() as connection:
            return reads.snapshot(connection, relation, self.seen)

    # ---- indexes ----------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Write what becomes of the relation's indexes."""
        if not self.upkeep.indexes or not self.sink.runs or self.followers:
            return
        if self.sink.settled is not None:
            self.follow_rows(*self.sink.settled)
        else:  # Spark has cut the rows into tablets
            self._begin_followers()
            emptied, before = self.emptied, None if self.emptied else self.snapshot_of(self.sink.relation)
            if before is not None and not before.level1 and not before.level0:
                emptied = self._found_empty = True  # and still is, or the commit starts over
            self.context.index_maintainer.follow_files(self, before, emptied=emptied)
        hit("write.indexes_written")

    def follow_rows(self, table: pa.Table, kinds: pa.Array) -> None:
        """Write what some of the rows, which are on the driver, do to the indexes."""
        self._begin_followers()
        self.context.index_maintainer.follow_rows(self, table, kinds, emptied=self.emptied)

    def _begin_followers(self) -> None:
        if not self.followers:
            self.followers = [(index, Sink(self.transaction, index.relation)) for index in self.upkeep.indexes]

    # ---- the commit -------------------------------------------------------------------------------------

    def decision(
        self,
        reason: str,
        *,
        rows: Sequence[c.Update] | None = None,
        requires: Sequence[c.Requirement] = (),
        updates: Sequence[c.Update] = (),
        work: c.WorkKind | None = None,
    ) -> c.Decision:
        """The rows, and more with them. `rows`: what makes them visible, if they are not simply added.

        `work`: what the commit is, if not what the transaction is for.
        """
        relation = self.sink.relation
        emptied = (c.TruncateRelation(relation=relation.id),) if self.emptied else ()
        return self.transaction.decision(
            reason,
            relation=relation.id,
            requires=(
                c.SchemaWithinOne(relation=relation.id, schema_version=relation.schema_version),
                self.upkeep.requirement(),
                *requires,
            ),
            # They are applied in order: the relation is emptied before the new rows are there.
            updates=(
                *emptied,
                *(self.sink.added() if rows is None else rows),
                *(update for _, entries in self.followers for update in entries.added()),
                *updates,
            ),
            work=work,
        )

    def creation(self, gone: Sequence[c.Update] | None, read: Collection[RelationId]) -> c.Decision | None:
        """The relation with its rows. `gone`: the updates that drop what it takes the place of, `None` if that stays;
        `read`: the relations that the rows were made from."""
        if gone is None:
            return None
        table, transaction = self.sink.relation, self.transaction
        unchanged = [
            c.NoWritesSince(relation=one.relation, version=transaction.snapshot)
            for one in gone
            if isinstance(one, c.DropRelation) and one.relation in read
        ]
        created = c.CreateRelation(
            name=table.name,
            kind=table.kind,
            tablets=table.tablets,
            replication=table.replication,
            columns=table.columns,
            placement=table.placement,
            comment=table.comment,
            options=table.options,
            number=table.id,
        )
        return transaction.decision(
            f"{'replace' if gone else 'create'} table {table.name} as a query",
            requires=unchanged,
            updates=(*gone, created, *self.sink.added()),
        )

    def commit(
        self,
        reason: str,
        *,
        reads_target: bool,
        rows: Sequence[c.Update] | None = None,
        requires: Sequence[c.Requirement] = (),
    ) -> Version:
        """Commit once every write since the snapshot is known to have touched other keys, where that matters."""
        is_unique = not self.emptied and any(index.enforced for index in self.upkeep.indexes)
        if not (reads_target or is_unique or self._found_empty):
            return self.transaction.commit(self.decision(reason, rows=rows, requires=requires))
        while True:
            unchanged = c.NoWritesSince(relation=self.sink.relation.id, version=self.seen)
            decision = self.decision(reason, rows=rows, requires=(*requires, unchanged))
            try:
                return self.transaction.commit(decision)
            except TransactionClosedError:
                raise
            except ConflictError:
                if not self._compare_with_newer():
                    raise  # for another reason

    def _compare_with_newer(self) -> bool:
        """Compare this write's keys and values with all that was committed meanwhile; whether anything was."""
        relation, since = self.sink.relation, self.seen
        with self.context.catalog.reading() as connection:
            newest = reads.newest_write(connection, relation.id)
            if newest <= since:
                return False
            truncated = reads.truncated_between(connection, relation, since, newest)
            newer = reads.writes_between(connection, relation, since, newest)
        if truncated:
            raise Overtaken(f"{relation.name}: truncated at version {truncated[-1]} during the write; retry it")
        found = shared_key(self.context.storage, relation, self.sink.runs, newer, self.transaction.roots)
        if found is not None:
            raise Overtaken(
                f"{relation.name}: expected {rf.show_key(relation, found)} unchanged since version "
                f"{self.transaction.snapshot}, found a newer write of it; retry the statement"
            )
        self.context.index_maintainer.refuse_shared(self, since, newest)
        self.seen = newest
        return True


def filling(
    transaction: OpenTransaction,
    base: RelationId,
    entries: Sequence[tuple[Index, Sequence[Run]]],
    reason: str,
    *,
    requires: Sequence[c.Requirement],
    updates: Sequence[c.Update],
) -> c.Decision:
    """Entries of indexes of a base, of one transaction that goes on. `updates`: what of the base they cover."""
    as_found = (
        c.IndexIs(index=one.id, state=one.stands.state, since=one.stands.since, read_version=one.stands.read_version)
        for one, _ in entries
    )
    return transaction.decision(
        reason,
        relation=base,
        requires=(*requires, *as_found),
        updates=(*(c.AddRuns(runs=tuple(runs)) for _, runs in entries), *updates),
        ends=False,
    )
