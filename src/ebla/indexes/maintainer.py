"""The maintainer of indexes that writes call (`ebla.tables.upkeep`): entries go into the commit of their rows."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T

from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.errors import ConflictError
from ebla.indexes import maintain, unique
from ebla.model.relation import DELETED
from ebla.model.snapshot import Snapshot
from ebla.spark import scan as sscan
from ebla.tables.writes import Work


class EntryMaintainer:
    """Stateless: all that it knows is the write's."""

    def follow_rows(self, work: Work, table: pa.Table, kinds: pa.Array, *, emptied: bool) -> None:
        context = work.context
        made = maintain.changes(context, work.upkeep, table, kinds, work.transaction.id, emptied=emptied)
        for (index, follower), (_, change) in zip(work.followers, made, strict=True):
            if index.enforced:
                there, before = (None, None) if emptied else (follower.snapshot(), work.snapshot())
                unique.refuse_known(context, there, before, index, change.gained, table)
            follower.runs = maintain.level0(context, index, change, work.transaction.id, work.roots)

    def follow_files(self, work: Work, before: Snapshot | None, *, emptied: bool) -> None:
        context = work.context
        schema = sscan.struct(work.relation.columns).add(DELETED, T.BooleanType())
        paths = [work.roots[run.nodes[0]].full(run.path) for run in work.runs]
        for index, follower in work.followers:
            # Expressions are those of the session that created the index.
            spark = context.view_session(index.settings, small=False) if index.settings else context.writer
            new = sscan.files(spark, paths, schema)
            follower.put_more(maintain.mutations(work.upkeep, index, new, emptied=emptied))
            if index.enforced:
                unique.refuse_in_files(context, index, follower.runs, None if emptied else follower.snapshot(), before)
            follower.bulk = index.readable and not any(run.tombstones for run in follower.runs)

    def refuse_shared(self, work: Work, since: Version, until: Version) -> None:
        """Whose value it is, is seen from the next snapshot."""
        for index, follower in work.followers:
            if not index.enforced:
                continue
            with work.context.catalog.reading() as connection:
                newer = reads.writes_between(connection, index.relation, since, until)
            if unique.shared_value(work.context, index, follower.runs, newer) is not None:
                raise ConflictError(
                    f"unique index {index.name}: expected its values unchanged since version "
                    f"{work.transaction.snapshot}, found a newer write of one of them; retry the statement"
                )
