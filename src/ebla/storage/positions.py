"""Positions in the order of a column: what lies at one or behind it, for DuckDB, for Spark, and among rows at hand."""

from __future__ import annotations

from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from ebla.algebra.tails import Course
from ebla.values import types

POSITION = "_ebla_position"
"""A column that holds a position."""

Position: TypeAlias = "pa.Scalar[Any]"

_TYPES = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
}
_DAYS = range(-(2**31) + 2, 2**31 - 1)
_MICROSECONDS = range(-(2**63) + 2 * 86_400_000_000, 2**63 - 1)
"""The numbers of which DuckDB makes a date or a timestamp."""


def is_behind(course: Course, column: str, position: str | None = POSITION) -> str:
    """Whether a column, in the words of SQL, is at a position or behind it; `None`: the position is NULL."""
    sign = "<=" if course.descending else ">="
    if course.nulls_first:
        return "TRUE" if position is None else f"({column} {sign} {position})"
    return f"({column} IS NULL)" if position is None else f"({column} IS NULL OR {column} {sign} {position})"


def is_before(course: Course, column: str, position: str | None = POSITION) -> str:
    """Whether a column lies in front of a position."""
    sign = ">" if course.descending else "<"
    if course.nulls_first:
        return "FALSE" if position is None else f"({column} IS NULL OR {column} {sign} {position})"
    return f"({column} IS NOT NULL)" if position is None else f"({column} {sign} {position})"


def in_order(course: Course, column: str, *, backwards: bool = False) -> str:
    """An item of ORDER BY."""
    descending, nulls_first = course.descending != backwards, course.nulls_first != backwards
    return f"{column} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


def first_position(cursor: duckdb.DuckDBPyConnection, values: pa.Table, course: Course) -> Position:
    """The first of some values, which are a column `c0`."""
    cursor.register("affected_values", values)
    text = f"SELECT c0 FROM affected_values ORDER BY {in_order(course, 'c0')} LIMIT 1"
    found = cursor.sql(text).to_arrow_table()
    return found["c0"].cast(values.schema.field("c0").type)[0]


def from_on(cursor: duckdb.DuckDBPyConnection, rows: pa.Table, course: Course, position: Position | None) -> pa.Table:
    """Rows at a position or behind it, in their order; `None`: all of them."""
    if position is None or rows.num_rows == 0:
        return rows
    marked = pa.table({"at": pa.array(np.arange(rows.num_rows)), "c0": rows[course.column]})
    cursor.register("some_rows", marked)
    cursor.register("one_position", pa.table({POSITION: pa.array([position], position.type)}))
    condition = is_behind(course, "c0", POSITION if position.is_valid else None)
    found = cursor.sql(f"SELECT r.at FROM some_rows r, one_position WHERE {condition} ORDER BY r.at")
    return rows.take(found.to_arrow_table()["at"])


def literal(position: Position, kind: str) -> str | None:
    """A position as DuckDB writes a value of a column's type, so that it skips row groups.

    `None`: it cannot, or statistics of row groups leave values of the type out, as they do with NaN.
    """
    if not position.is_valid:
        return "NULL"
    value: Any = position.value if isinstance(position, pa.Date32Scalar | pa.TimestampScalar) else position.as_py()
    match kind.partition("(")[0]:
        case "date" if value in _DAYS:
            return f"(DATE '1970-01-01' + CAST({value:d} AS INTEGER))"
        case "timestamp" if value in _MICROSECONDS:
            return f"make_timestamptz({value:d})"
        case "timestamp_ntz" if value in _MICROSECONDS:
            return f"make_timestamp({value:d})"
        case "decimal":
            return f"CAST('{value:f}' AS {kind})"
        case "string" if "\0" not in value:
            return "'" + str(value).replace("'", "''") + "'"
        case "tinyint" | "smallint" | "int" | "bigint" as whole:
            return f"CAST({value:d} AS {_TYPES[whole]})"
        case _:
            return None


def as_position(value: Position, kind: str) -> Position:
    """A value that another column had, in a column's type."""
    return value.cast(types.to_arrow(kind))
