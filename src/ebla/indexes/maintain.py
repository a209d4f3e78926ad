"""What a write does to the indexes of its relation, in the write's own commit.

Theory of operation. An index has one entry for a row at most, and level 0 of an index says of a row what has become of
its entry: a mutation of the same base row replaces whatever entry the row had before, wherever that one is sorted. So a
writer needs no old rows. It makes the entries of the rows that it writes, and tombstones for those that it deletes or
that a partial index does not want; nothing is read, and two writers of one row need not know of each other. Of a row
that was not there before, nothing needs to be removed. The states of the indexes are those at the beginning of the
transaction; the commit requires that none has gone further than one step (`ebla.model.lifecycle.index` says why that is
enough).

A few rows are done by Arrow on the driver, without a Spark job unless an expression needs one. Rows that were cut into
tablets by Spark are read back from their files and stay in Spark: one projection and one write for each index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.ids import TransactionId
from ebla.indexes import entries
from ebla.model.lifecycle.index import writer_inserts
from ebla.model.relation import DELETED, ROW_TXN, Relation
from ebla.relations.indexes import Index
from ebla.spark import scan as sscan
from ebla.spark.sessions import Sessions
from ebla.storage import runs as rf
from ebla.storage.store import single
from ebla.tables import batch as b
from ebla.tables.upkeep import Upkeep
from ebla.values import types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of an index: entries that come, or replace the entry of their row, and rows that have none now."""

    gained: pa.Table
    lost: pa.Table
    """The keys of the base's rows."""

    def mutations(self, index: Index) -> tuple[pa.Table, pa.Array]:
        """Rows of the index, and what is done with each."""
        table = pa.concat_tables([self.gained, rf.align(self.lost, index.relation.columns)])
        kinds = [b.UPSERT] * self.gained.num_rows + [b.DELETE] * self.lost.num_rows
        return table, pa.array(kinds, pa.string())


# ---- on the driver --------------------------------------------------------------------------------------


def changes(
    sessions: Sessions, upkeep: Upkeep, table: pa.Table, kinds: pa.Array, transaction: TransactionId, *, emptied: bool
) -> list[Change]:
    """Of each index, what settled rows bring and which have no entry any more. `emptied`: there were no others."""
    base, indexes = upkeep.base, upkeep.indexes
    names = [column.physical for column in entries.needed(base, indexes)]
    comes = pc.not_equal(kinds, b.DELETE)
    new = table.filter(comes).select(names)
    computed = entries.by_spark(sessions, base, indexes, new)
    may_replace = pa.array([False] * table.num_rows) if emptied else _may_replace(base, table, kinds, transaction)
    key = [column.physical for column in base.key]
    old, deleted = (table.filter(pc.and_(may_replace, some)).select(key) for some in (comes, pc.invert(comes)))
    made = []
    for index in indexes:
        rows, taken = entries.entries(index, new, computed)
        if not writer_inserts(index.state):
            change = Change(gained=rows.slice(0, 0), lost=pa.concat_tables([old, deleted]))
        elif taken is None:
            change = Change(gained=rows, lost=deleted)
        else:
            unwanted = pc.and_(may_replace.filter(comes), pc.invert(taken))
            change = Change(
                gained=rows.filter(taken), lost=pa.concat_tables([new.filter(unwanted).select(key), deleted])
            )
        made.append(change)
    return made


def _may_replace(base: Relation, table: pa.Table, kinds: pa.Array, transaction: TransactionId) -> pa.Array:
    """Rows whose key may be there: not inserts, which were looked for, and not those that this write numbered."""
    old = pc.not_equal(kinds, b.INSERT)
    if base.keyless:
        old = pc.and_(old, pc.not_equal(single(table[ROW_TXN]), transaction))
    return old


# ---- in Spark -------------------------------------------------------------------------------------------


def mutations(upkeep: Upkeep, index: Index, rows: DataFrame, *, emptied: bool) -> DataFrame:
    """Entries and tombstones of one index, from all rows of a write (with `_deleted`). No join, no shuffle."""
    gone = f"coalesce({DELETED}, false)"
    alive, dead = rows.filter(f"NOT {gone}"), rows.filter(gone)
    computed = entries.computed(alive, upkeep.base, [index])
    inserts = writer_inserts(index.state)
    comes = entries.entries_of(computed, index) if inserts else entries.entries_of(computed, index).limit(0)
    made = comes.selectExpr("*", f"false AS {DELETED}")
    if emptied:
        return made
    lost = [dead]
    if not inserts:
        lost.append(alive)
    elif index.where is not None:
        lost.append(computed.filter(f"NOT {sscan.quoted(entries.flag_name(index))}"))
    for some in lost:
        made = made.unionAll(some.selectExpr(*_tombstone(index), f"true AS {DELETED}"))
    return made


def _tombstone(index: Index) -> list[str]:
    key = {column.physical for column in index.relation.identity}
    return [
        sscan.quoted(c_.physical)
        if c_.physical in key
        else f"CAST(NULL AS {types.to_spark(c_.type).simpleString()}) AS {sscan.quoted(c_.physical)}"
        for c_ in index.relation.columns
    ]
