"""Rows of windows that go on from the rows in front of them: what is read of the view, and what running columns carry.

Pure: what the view has is asked of `ViewRows`, so that generated tests do the same without Spark.

    start  the first row that may have changed: `ahead` rows in front of the first changed position
    read   the first row whose inputs are read: `before` rows in front of the start
    last   the rows of the last position in front of what is read: they show what running columns had come to

All of them are positions, that is, values of the order's first column: rows that share one are taken together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebla.algebra.nodes import Carry
from ebla.algebra.tails import Continuation, Course, RunningColumn
from ebla.storage.positions import Position, from_on, in_order
from ebla.storage.rows import TooLarge, distinct


class ViewRows(Protocol):
    """The rows that a view has, in the order of one column."""

    def value_before(self, position: Position, count: int) -> Position | None:
        """Where the row is that lies `count` rows in front of a position; `None`: there are fewer."""
        ...

    def rows_from(self, position: Position | None) -> pa.Table:
        """Rows at a position or behind it; `None`: all rows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    start: Position | None
    """`None`: the beginning."""
    old: pa.Table
    """The view's rows from the start on, hidden columns too."""
    values: pa.Table
    """The values, in a column `c0`, that rows have in the order's first column, old and new, from `read` on."""
    last: pa.Table
    """The view's rows at the last position in front of those; none if there is none."""


def moved_back(rows: ViewRows, position: Position | None, count: int) -> Position | None:
    return position if position is None or count == 0 else rows.value_before(position, count)


def tail_of(
    cursor: duckdb.DuckDBPyConnection,
    rows: ViewRows,
    course: Course,
    affected: pa.Table,
    start: Position | None,
    made: Continuation,
) -> Tail:
    """What is to be known of the view. `affected` are the values that changed rows have, in a column `c0`.

    Rows of the query that did not change are rows of the view, so their values are known from there.
    """
    read = moved_back(rows, start, made.before)
    kept = moved_back(rows, read, 1) if made.running else read
    every = rows.rows_from(kept)
    inside = from_on(cursor, every, course, read)
    last = every.slice(0, 0)
    if kept is not None and made.running:
        behind = every.append_column("_ebla_at", pa.array(np.arange(every.num_rows)))
        there = from_on(cursor, behind, course, read)["_ebla_at"]
        last = every.filter(pc.invert(pc.is_in(behind["_ebla_at"], value_set=there.combine_chunks())))
    values = pa.concat_tables([affected, pa.table({"c0": inside[course.column]}).cast(affected.schema)])
    return Tail(start=start, old=from_on(cursor, inside, course, start), values=distinct(values), last=last)


def carried_on(
    cursor: duckdb.DuckDBPyConnection, running: tuple[RunningColumn, ...], new: pa.Table, last: pa.Table
) -> pa.Table:
    """Rows that the query gives for a part of its inputs, as it gives them for all: behind the `last` rows.

    Raises `TooLarge` where those do not tell what a column had come to, and where a number does not fit.
    """
    if last.num_rows == 0:
        return new
    for one in running:
        place = new.schema.get_field_index(one.column)
        came_to = _come_to(cursor, one, last)
        try:
            column = _gone_on(new[one.column], came_to, one.carry)
        except pa.ArrowInvalid as error:
            raise TooLarge(f"{one.column} does not fit behind the rows before") from error
        new = new.set_column(place, new.schema.field(place), column)
    return new


def _come_to(cursor: duckdb.DuckDBPyConnection, one: RunningColumn, last: pa.Table) -> Position:
    """What a running column has come to at the end of these rows."""
    column = last[one.column]
    match one.carry:
        case Carry.COUNT | Carry.GREATEST:
            return pc.max(column)
        case Carry.LEAST:
            return pc.min(column)
        case Carry.RANK:  # rows of one rank count each
            greatest = pc.max(column)
            peers = pc.sum(pc.equal(column, greatest)).as_py()
            return pa.scalar(greatest.as_py() + peers - 1, column.type)
        case Carry.FIRST:
            return _only(one, column)
        case Carry.SUM:
            return _only(one, _at_end(cursor, one.order, last)[one.column])


def _at_end(cursor: duckdb.DuckDBPyConnection, order: tuple[Course, ...], rows: pa.Table) -> pa.Table:
    """The last of some rows; several if the order leaves them equal."""
    columns = {f"c{i}": rows[part.column] for i, part in enumerate(order)}
    cursor.register("last_rows", pa.table({**columns, "at": pa.array(np.arange(rows.num_rows))}))
    by = ", ".join(in_order(part, f"c{i}", backwards=True) for i, part in enumerate(order))
    text = f"SELECT r.at FROM last_rows r QUALIFY rank() OVER (ORDER BY {by}) = 1 ORDER BY r.at"
    return rows.take(cursor.sql(text).to_arrow_table()["at"])


def _only(one: RunningColumn, values: pa.ChunkedArray) -> Position:
    found = pc.unique(values)
    if len(found) != 1:
        raise TooLarge(f"ORDER BY does not tell which {one.column} is the last")
    return found[0]


def _gone_on(column: pa.ChunkedArray, came_to: Position, carry: Carry) -> pa.ChunkedArray:
    """A running column behind rows where it had come to some value, NULL if nothing counted so far."""
    if carry is Carry.FIRST:
        return pa.chunked_array([pa.repeat(came_to, len(column))], column.type)
    if not came_to.is_valid:
        return column
    match carry:
        case Carry.COUNT | Carry.RANK | Carry.SUM:
            return pc.coalesce(_added(column, came_to), came_to)
        case Carry.LEAST:
            return pc.coalesce(pc.if_else(pc.less(column, came_to), column, came_to), came_to)
        case Carry.GREATEST:
            return pc.coalesce(pc.if_else(pc.greater(column, came_to), column, came_to), came_to)


def _added(column: pa.ChunkedArray, came_to: Position) -> pa.ChunkedArray:
    """The sum, in the column's type; raises if it does not fit."""
    kind = column.type
    if not pa.types.is_decimal(kind):
        return pc.add_checked(column, came_to)
    enough = pa.decimal256(kind.precision, kind.scale)
    return pc.add_checked(column.cast(enough), came_to.cast(enough)).cast(kind)
