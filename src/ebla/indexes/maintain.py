"""What a write does to the indexes of its relation, in the write's own commit.

Theory of operation. A writer knows the new rows. It looks up the rows that they replace, by key, at its snapshot, makes
the entries of both, and writes level 0 of every index: tombstones of entries that are gone, and entries that are new or
different. An entry that stays the same is not written. The rows that were looked up must still be there when the write
commits, so a write to a relation with indexes is one that read: a commit since its snapshot that shares a key makes it
start over. The states of the indexes are those at the beginning of the transaction; the commit requires that none has
gone further than one step (`ebla.build.states` says why that is enough).

A few rows are done by Arrow on the driver, without a Spark job unless an expression needs one. Rows that were cut into
tablets by Spark are read back from their files and stay in Spark: one join with the rows that they replace, one write
for each index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from ebla.build.states import Permission, writer_inserts
from ebla.catalog import changes as c
from ebla.ids import RelationId, TransactionId
from ebla.indexes import entries
from ebla.indexes.definition import Index
from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.storage import types
from ebla.storage.model import DELETED, ROW_TXN, Column, Relation, Run
from ebla.storage.snapshot import Snapshot
from ebla.tables import batch as b
from ebla.tables.by_key import rows_by_key
from ebla.tables.context import Context
from ebla.views import lookup
from ebla.views.lookup import LEVEL0_TIMES
from ebla.views.rows import difference, without_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of an index: entries that come (or replace one of the same key), and entries that go."""

    gained: pa.Table
    lost: pa.Table


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    """The indexes of a relation as a transaction found them."""

    base: Relation
    indexes: tuple[Index, ...] = ()
    known: dict[RelationId, Permission] = field(default_factory=dict)

    @classmethod
    def read(cls, context: Context, connection: Connection, base: Relation) -> Upkeep:
        found = context.indexes.of_base(connection, base)
        return cls(
            base=base,
            indexes=tuple(i for i in found if i.maintained),
            known={i.id: i.state for i in found if i.state is not Permission.ABSENT},
        )

    def requirement(self) -> c.IndexesFollow:
        return c.IndexesFollow(base=self.base.id, planned=self.known)


# ---- on the driver --------------------------------------------------------------------------------------


def changes(
    context: Context,
    upkeep: Upkeep,
    snapshot: Snapshot | None,
    table: pa.Table,
    kinds: pa.Array,
    transaction: TransactionId,
) -> list[tuple[Index, Change]]:
    """The entries that settled rows bring and take. Without a snapshot nothing is replaced."""
    base, indexes = upkeep.base, upkeep.indexes
    columns = entries.needed(base, indexes)
    names = [column.physical for column in columns]
    new = table.filter(pc.not_equal(kinds, b.DELETE)).select(names)
    old = new.slice(0, 0)
    replacing = table.filter(_may_replace(base, table, kinds, transaction))
    if snapshot is not None and replacing.num_rows:
        old = _old_rows(context, snapshot, replacing, columns).cast(old.schema)
    rows = pa.concat_tables([old, new])
    computed = entries.by_spark(context, base, indexes, rows)
    made = []
    for index in indexes:
        was = entries.entries(index, old, computed)
        comes = entries.entries(index, new, computed, old.num_rows)
        made.append((index, _change(index, was, comes)))
    return made


def _old_rows(context: Context, snapshot: Snapshot, rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    if sum(run.rows for run in snapshot.level0) > context.settings.level0_rows_max * LEVEL0_TIMES:
        names = [column.name for column in columns]
        found = lookup.replaced_rows(context, snapshot, rows, names)  # by Spark
        return found.rename_columns([column.physical for column in columns])
    return rows_by_key(context, snapshot, rows, columns)


def _may_replace(base: Relation, table: pa.Table, kinds: pa.Array, transaction: TransactionId) -> pa.Array:
    """Rows whose key may be there: not inserts, which were looked for, and not those that this write numbered."""
    old = pc.not_equal(kinds, b.INSERT)
    if base.keyless:
        old = pc.and_(old, pc.not_equal(_single(table[ROW_TXN]), transaction))
    return old


def _single(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined


def _change(index: Index, was: pa.Table, comes: pa.Table) -> Change:
    if not writer_inserts(index.state):
        return Change(gained=comes.slice(0, 0), lost=was)
    gained, lost = difference(comes, was)
    # The two zeros are one key, though not one value.
    key = [k.physical for k in index.relation.key]
    lost = without_keys(types.normalize_keys(lost, key), types.normalize_keys(gained, key), key)
    return Change(gained=gained, lost=lost)


def level0(context: Context, index: Index, change: Change, transaction: TransactionId, *, first: int = 0) -> list[Run]:
    """One level 0 file for each set of replicas, as of any write."""
    table = pa.concat_tables([change.gained, _whole(index, change.lost)])
    if table.num_rows == 0:
        return []
    kinds = pa.array([b.UPSERT] * change.gained.num_rows + [b.DELETE] * change.lost.num_rows, pa.string())
    return b.level0_runs(table, kinds, index.relation, transaction, context.roots(), first=first)


def _whole(index: Index, lost: pa.Table) -> pa.Table:
    return rf.align(lost, index.relation.columns)


# ---- in Spark -------------------------------------------------------------------------------------------


def mutations(context: Context, upkeep: Upkeep, index: Index, new: DataFrame, old: DataFrame | None) -> DataFrame:
    """Entries and tombstones of one index, from all rows of a write (with `_deleted`) and those that they replace.

    Without old rows there are no tombstones and no join. Otherwise one full join on the entry's key.
    """
    alive = new.filter(f"NOT coalesce({DELETED}, false)")
    comes = entries.entries_of(entries.computed(alive, upkeep.base, [index]), index)
    if not writer_inserts(index.state):
        comes = comes.limit(0)
    if old is None:
        return comes.selectExpr("*", f"false AS {DELETED}")
    was = entries.entries_of(entries.computed(old, upkeep.base, [index]), index)
    names = [column.physical for column in index.relation.columns]
    key = {column.physical for column in index.relation.key}
    left = comes.selectExpr(*sscan.renamed([(n, f"_n_{n}") for n in names]), "true AS _n")
    right = was.selectExpr(*sscan.renamed([(n, f"_o_{n}") for n in names]), "true AS _o")
    q = sscan.quoted
    from pyspark.sql import functions as F

    on = " AND ".join(f"{q(f'_n_{n}')} <=> {q(f'_o_{n}')}" for n in names if n in key)
    beside = [column for column in index.relation.columns if column.key_position is None]
    equal = [f"{q(f'_n_{n.physical}')} <=> {q(f'_o_{n.physical}')}" for n in beside]
    # What Spark cannot compare is written again.
    same = " AND ".join(["_n", "_o", *equal]) if all(types.is_key_type(n.type) for n in beside) else "false"
    both = left.join(right, F.expr(on), "full_outer").filter(f"NOT coalesce({same}, false)")
    return both.selectExpr(
        *[
            f"IF(_n IS NULL, {q(f'_o_{n}')}, {q(f'_n_{n}')}) AS {q(n)}" if n in key else f"{q(f'_n_{n}')} AS {q(n)}"
            for n in names
        ],
        f"_n IS NULL AS {DELETED}",
    )


def replaced(context: Context, base: Relation, snapshot: Snapshot, new: DataFrame) -> DataFrame | None:
    """The rows of the snapshot that have a key of the new ones, in Spark. One shuffled or broadcast semi join."""
    from pyspark.sql import functions as F

    if not snapshot.level1 and not snapshot.level0:
        return None
    key = [column.physical for column in base.key]
    stored = sscan.merged(
        new.sparkSession, snapshot, context.roots(), context.cache, rows_max=context.settings.level0_rows_max
    )
    keys = new.selectExpr(*sscan.renamed([(k, f"_w_{k}") for k in key]))
    on = " AND ".join(f"{sscan.quoted(k)} <=> {sscan.quoted(f'_w_{k}')}" for k in key)
    return stored.join(keys, F.expr(on), "left_semi")
