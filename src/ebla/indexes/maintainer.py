"""The maintainer of indexes that writes call (`ebla.tables.upkeep`): entries go into the commit of their rows."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T

from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.indexes import file_uniqueness, maintain, uniqueness
from ebla.model.relation import DELETED
from ebla.model.snapshot import Snapshot
from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.tables.commit import Commit, Overtaken


class EntryMaintainer:
    """Stateless: all that it knows is the commit's."""

    def follow_rows(self, commit: Commit, table: pa.Table, kinds: pa.Array, *, emptied: bool) -> None:
        context, upkeep, transaction = commit.context, commit.upkeep, commit.transaction
        made = maintain.changes(context.sessions, upkeep, table, kinds, transaction.id, emptied=emptied)
        for (index, follower), change in zip(commit.followers, made, strict=True):
            if index.enforced:
                there, before = (
                    None if emptied else commit.snapshot_of(relation) for relation in (index.relation, upkeep.base)
                )
                uniqueness.refuse_values_taken(context, there, before, index, change.gained, table)
            follower.put_level0(*change.mutations(index))

    def follow_files(self, commit: Commit, before: Snapshot | None, *, emptied: bool) -> None:
        context, sink = commit.context, commit.sink
        schema = sscan.struct(sink.relation.columns).add(DELETED, T.BooleanType())
        paths = rf.paths(commit.transaction.roots, sink.runs)
        for index, follower in commit.followers:
            # Expressions are those of the session that created the index.
            spark = context.view_session(index.settings, small=False) if index.settings else context.writer
            new = sscan.files(spark, paths, schema)
            follower.put_more(maintain.mutations(commit.upkeep, index, new, emptied=emptied))
            if index.enforced:
                there = None if emptied else commit.snapshot_of(index.relation)
                file_uniqueness.refuse_in_files(context, index, follower.runs, there, before)
            follower.bulk = index.readable and not any(run.tombstones for run in follower.runs)
            if index.readable and not emptied:
                # The next query asks which entries of older runs these replaced.
                context.storage.store.prepare_rows_by_token(
                    commit.transaction.roots, follower.runs, index.relation.identity
                )

    def refuse_shared(self, commit: Commit, since: Version, until: Version) -> None:
        """The next snapshot shows whose value it is."""
        for index, follower in commit.followers:
            if not index.enforced:
                continue
            with commit.context.catalog.reading() as connection:
                newer = reads.writes_between(connection, index.relation, since, until)
            if uniqueness.shared_value(commit.context.storage, index, follower.runs, newer) is not None:
                raise Overtaken(
                    f"unique index {index.name}: expected its values unchanged since version "
                    f"{commit.transaction.snapshot}, found a newer write of one of them; retry the statement"
                )
