"""A unique index has every value once; NULLs do not conflict.

Writers look a new value up in the index, at their snapshot, and compare it at the commit with what others wrote since.
While the index is being filled they see a part of it. So when all of it is there, the build waits for those that began
before, and then looks at the whole index once: what came earlier is found by that, what comes later by the writers.

Until then there may be values that stand twice already. A write of such a row that leaves its value as it was has
not made that so, and goes on: while the index is filled, a value in doubt is compared with what the row was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ebla.errors import Culprit, DuplicateKeyError
from ebla.indexes import entries
from ebla.model.lifecycle.index import Permission
from ebla.model.relation import Column, Run
from ebla.model.snapshot import Snapshot
from ebla.relations.indexes import Index
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.storage.node_storage import NodeStorage
from ebla.tables.lookup import in_both
from ebla.tables.read_access import ReadAccess
from ebla.tables.value_lookup import rows_by
from ebla.values import types
from ebla.values.bounds import in_message
from ebla.values.columns import plain_keys, python_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def violation(index: Index, values: Sequence[object]) -> DuplicateKeyError:
    found = ", ".join(f"{item.text} = {in_message(value)}" for item, value in zip(index.items, values, strict=True))
    error = DuplicateKeyError(
        f"unique index {index.name} of {index.base.name}: expected every value once, found {found} more than once; "
        "change or delete one of the rows"
    )
    error.culprit = Culprit(None, found)
    return error


def without_nulls(table: pa.Table, columns: Sequence[Column]) -> pa.Table:
    mask: pa.Array | None = None
    for column in columns:
        valid = pc.is_valid(table[column.physical])
        mask = valid if mask is None else pc.and_(mask, valid)
    return table if mask is None else table.filter(mask)


def refuse_values_taken(
    context: ReadAccess,
    snapshot: Snapshot | None,
    base: Snapshot | None,
    index: Index,
    gained: pa.Table,
    rows: pa.Table,
) -> None:
    """Refuse entries whose value is twice among them, or in the index under a row that this write does not touch.

    `rows` are all rows of the write: entries of theirs are replaced, or go. Without snapshots of the index and of its
    base there were none before.
    """
    columns = index.value_columns
    values, identity = ([column.physical for column in some] for some in (columns, index.relation.identity))
    new = types.normalize_keys(without_nulls(gained, columns), values)
    if new.num_rows == 0:
        return
    counted = Counter(_keys(new, values))
    doubtful = {value for value, count in counted.items() if count > 1}
    if snapshot is not None:
        doubtful |= _elsewhere(context, snapshot, index, new, set(_keys(rows.select(identity), identity)))
    if not doubtful:
        return
    suspects = [value in doubtful for value in _keys(new, values)]
    new = new.filter(pa.array(suspects))
    if base is not None and index.state is Permission.BACKFILLING:
        keys = new.select(identity).rename_columns([f"c{i}" for i in range(len(identity))])
        before = entries.of_keys(context, index, base, keys)
        had = set(_keys(types.normalize_keys(before, values), [*values, *identity]))
        new = new.filter(pa.array([entry not in had for entry in _keys(new, [*values, *identity])], pa.bool_()))
    if new.num_rows:
        raise violation(index, python_row(new, values))


def _elsewhere(
    context: ReadAccess, snapshot: Snapshot, index: Index, new: pa.Table, touched: set[tuple[object, ...]]
) -> set[tuple[object, ...]]:
    """Values of entries that the index has under other rows than those that are touched."""
    columns = index.value_columns
    values, identity = ([column.physical for column in some] for some in (columns, index.relation.identity))
    wanted = new.select(values).rename_columns([f"c{i}" for i in range(len(values))])
    outputs = list({column.physical: column for column in (*columns, *index.relation.identity)}.values())
    found = rows_by(context, snapshot, [column.name for column in columns], wanted, [column.name for column in outputs])
    found = found.rename_columns([column.physical for column in outputs])
    pairs = zip(_keys(found, values), _keys(found, identity), strict=True)
    return {value for value, row in pairs if row not in touched}


def _keys(table: pa.Table, key: Sequence[str]) -> list[tuple[object, ...]]:
    return [tuple("NaN" if value != value else value for value in row) for row in plain_keys(table, key)]


def shared_value(storage: NodeStorage, index: Index, mine: Sequence[Run], theirs: Sequence[Run]) -> list[object] | None:
    """A value that two sets of runs write, if there is one."""
    if not mine or not theirs:
        return None
    values = [column.physical for column in index.value_columns]
    return in_both(storage.lookups, index.name, values, mine, theirs, storage.nodes.all(), nulls_equal=False)


def first_twice(index: Index, found: DataFrame) -> list[object] | None:
    """A value that has more than one entry, if any has. One job, one shuffle by value."""
    values = [sscan.quoted(column.physical) for column in index.value_columns]
    present = " AND ".join(f"{name} IS NOT NULL" for name in values)
    counted = found.filter(present).groupBy(*values).count()
    with swrite.translated(index.name):
        twice = counted.filter("count > 1").limit(1).toArrow()
    if twice.num_rows == 0:
        return None
    return python_row(twice, twice.schema.names[: len(values)])
