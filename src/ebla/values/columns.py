"""Columns as Python values, also where Python's types end.

Python's dates begin with the year 1 and end with the year 9999, in UTC for instants; columns hold more. Two ways around
that, and no other code turns a column that users declare into Python values:

- *Plain* values are for comparing, sorting and adding: a date is its days since 1970, a time its microseconds.
- *Python* values are for people: `date` and `datetime`, and beyond their years the text that ISO 8601 has for them,
  with a sign before the year: `+10000-01-01 07:59:59+00:00`, `-0044-03-15`. A literal of SQL takes that text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ebla.values.calendar import DAY_US, civil

# ---- plain ----------------------------------------------------------------------------------------------


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the plain values of a type."""
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table whose columns are not nested, as plain values."""
    schema = pa.schema([pa.field(f.name, plain_type(f.type)) for f in table.schema])
    found: list[dict[str, Any]] = table.cast(schema).to_pylist()
    return found


def plain_keys(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Some columns of each row as plain values."""
    lists = [table[name].cast(plain_type(table[name].type)).to_pylist() for name in names]
    return list(zip(*lists, strict=True))


def from_plain(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """The table of rows of plain values."""
    plain = pa.schema([pa.field(f.name, plain_type(f.type)) for f in schema])
    return pa.Table.from_pylist(list(rows), schema=plain).cast(schema)


# ---- Python ---------------------------------------------------------------------------------------------


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """A column's values for people. Maps become dicts, instants are aware datetimes in UTC."""
    kind = in_utc(column.type)
    if kind != column.type:
        column = column.cast(kind)
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="strict" if _has(column.type, pa.types.is_map) else None)
    except OverflowError:
        return [python_value(one) for one in column]
    return found


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    names = table.schema.names
    return [dict(zip(names, row, strict=True)) for row in python_tuples(table, names)]


def python_tuples(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Some columns of each row."""
    return zip(*[python_values(table[name]) for name in names], strict=True)


def python_row(table: pa.Table, names: Sequence[str], at: int = 0) -> list[Any]:
    """Some columns of one row."""
    return [python_value(table[name][at]) for name in names]


def python_value(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_struct(kind):
        return {kind.field(i).name: python_value(value[i]) for i in range(kind.num_fields)}
    if pa.types.is_map(kind):
        return {python_value(pair[0]): python_value(pair[1]) for pair in value.values}
    if pa.types.is_list(kind):
        return [python_value(one) for one in value.values]
    try:
        return value.as_py()
    except OverflowError:
        if pa.types.is_date32(kind):
            return _day(value.cast(pa.int32()).as_py())
        if pa.types.is_timestamp(kind):
            micros = value.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).as_py()
            return _moment(micros, in_zone=kind.tz is not None)
        raise


def _day(days: int) -> str:
    year, month, day = civil(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def _moment(micros: int, *, in_zone: bool) -> str:
    days, rest = divmod(micros, DAY_US)
    seconds, part = divmod(rest, 1_000_000)
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{_day(days)} {time}{f'.{part:06}' if part else ''}{'+00:00' if in_zone else ''}"


def in_utc(kind: pa.DataType) -> pa.DataType:
    """The type with its instants in UTC, however deep."""
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp("us", "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(in_utc(f.type)) for f in (kind.field(i) for i in range(kind.num_fields))])
    if pa.types.is_map(kind):
        return pa.map_(in_utc(kind.key_type), kind.item_field.with_type(in_utc(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(in_utc(kind.value_type)))
    return kind


def _has(kind: pa.DataType, is_such: Any) -> bool:
    return bool(is_such(kind)) or any(_has(kind.field(i).type, is_such) for i in range(kind.num_fields))
