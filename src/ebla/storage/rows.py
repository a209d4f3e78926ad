"""Bags of rows on the driver: what one has and the other has not, and which stored rows that is."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebla.values.columns import python_rows


class TooLarge(Exception):
    """The change touches more rows than fit this way, or cannot be bounded: the view is computed another way."""


def numbered(table: pa.Table) -> pa.Table:
    """The same with columns `c0`, `c1`, …: names that no other column can have by chance."""
    return table.rename_columns([f"c{i}" for i in range(table.num_columns)])


def distinct(table: pa.Table) -> pa.Table:
    """Each row once, as far as Arrow can compare rows."""
    if table.num_rows < 2 or any(pa.types.is_nested(f.type) for f in table.schema):
        return table
    plain = numbered(table)  # Arrow takes a name such as `.a` for a path
    return plain.group_by(plain.schema.names, use_threads=False).aggregate([]).rename_columns(table.schema.names)


def difference(new: pa.Table, old: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows that are in one bag and not in the other: gained, lost. Each row as often as it is missing."""
    names = new.schema.names
    if new.num_rows == 0 or old.num_rows == 0:
        return new, old
    if any(pa.types.is_nested(f.type) for f in new.schema):
        return _difference_by_value(new, old)
    sides = numbered(pa.concat_tables([new, old.select(names).cast(new.schema)]))
    weight = pa.array(np.repeat(np.array([1, -1], np.int64), [new.num_rows, old.num_rows]))
    by = sides.schema.names
    summed = sides.append_column("weight", weight).group_by(by, use_threads=False).aggregate([("weight", "sum")])
    net = summed["weight_sum"].to_numpy()
    rows = summed.select(by).rename_columns(names)

    def times(count: np.ndarray) -> pa.Table:
        return rows.take(pa.array(np.repeat(np.arange(len(count)), np.maximum(count, 0))))

    return times(net), times(-net)


def _difference_by_value(new: pa.Table, old: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The same for columns that Arrow cannot group by, on the rows as Python values."""
    remaining: dict[str, list[int]] = {}
    for i, row in enumerate(python_rows(old.select(new.schema.names))):
        remaining.setdefault(repr(row), []).append(i)
    gained = []
    for i, row in enumerate(python_rows(new)):
        places = remaining.get(repr(row))
        if places:
            places.pop()
        else:
            gained.append(i)
    lost = sorted(i for places in remaining.values() for i in places)
    return new.take(pa.array(gained, pa.int64())), old.take(pa.array(lost, pa.int64()))


def without_keys(lost: pa.Table, gained: pa.Table, key: Sequence[str]) -> pa.Table:
    """Lost rows whose key has no new row: the others are replaced, not deleted."""
    if lost.num_rows == 0 or gained.num_rows == 0:
        return lost
    both = numbered(pa.concat_tables([lost.select(list(key)), gained.select(list(key))]))
    place = pa.array(np.arange(both.num_rows))
    by = both.schema.names
    newest = both.append_column("at", place).group_by(by, use_threads=False).aggregate([("at", "max")])["at_max"]
    return lost.take(newest.filter(pc.less(newest, lost.num_rows)))


def stored_rows(old: pa.Table, lost: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Stored rows, with their hidden ids, that make up the lost bag."""
    due: dict[str, int] = {}
    for row in python_rows(lost.select(list(columns))):
        due[repr(row)] = due.get(repr(row), 0) + 1
    chosen = []
    for i, row in enumerate(python_rows(old.select(list(columns)))):
        text = repr(row)
        if due.get(text, 0) > 0:
            due[text] -= 1
            chosen.append(i)
    return old.take(pa.array(chosen, pa.int64()))


def matching(
    cursor: duckdb.DuckDBPyConnection, rows: pa.Table, by: Sequence[str], values: pa.Table, *, negated: bool = False
) -> pa.Table:
    """Rows whose `by` columns are, or are not, among the values (by position), NULL equal to NULL."""
    if rows.num_rows == 0 or (values.num_rows == 0 and negated):
        return rows
    if values.num_rows == 0:
        return rows.slice(0, 0)
    marked = numbered(rows.select(list(by))).append_column("at", pa.array(np.arange(rows.num_rows)))
    cursor.register("some_rows", marked)
    cursor.register("some_values", numbered(values))
    match = " AND ".join(f"r.c{i} IS NOT DISTINCT FROM v.c{i}" for i in range(len(by)))
    join = "ANTI" if negated else "SEMI"
    found = cursor.sql(f"SELECT r.at FROM some_rows r {join} JOIN some_values v ON {match} ORDER BY r.at")
    return rows.take(found.to_arrow_table()["at"])
