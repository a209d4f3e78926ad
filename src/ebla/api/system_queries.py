"""Queries that name only system tables: answered by DuckDB, without Spark."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.api.system import read, table_schema
from ebla.base.issue import Code
from ebla.errors import UnknownNameError
from ebla.model.relation import Kind
from ebla.validate.facts import RelationFacts
from ebla.values import types

if TYPE_CHECKING:
    from ebla.api.system_select import TranslatedQuery
    from ebla.sql.query import Query
    from ebla.tables.context import Context

UTC_NAMES = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")


def answer(
    context: Context, query: Query, parameters: Mapping[str, object], settings: Mapping[str, str] | None
) -> pa.Table | None:
    """The rows of a query that names only system tables, or `None` if that needs Spark.

    `settings` are those of the session that Spark would answer in; `None` if they cannot be known. Raises
    `UnknownNameError` for a column that certainly is not there.
    """
    import duckdb

    from ebla.api.system_select import Unlike, translate

    names = sorted({ref.name.lower() for ref in query.refs})
    columns = {name: {f.name: types.from_arrow(f.type) for f in table_schema(name)} for name in names}
    now = context.catalog.clock()
    moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=now)
    in_utc = settings is not None and settings.get("spark.sql.session.timeZone") in UTC_NAMES
    try:
        if settings is not None and settings.get("spark.sql.caseSensitive", "").lower() == "true":
            return None
        translated = translate(query, columns, parameters, moment, is_utc=in_utc)
    except Unlike:
        _require_columns(query, columns)
        return None
    with context.catalog.reading() as connection:
        tables = {name: read(connection, name, now, context) for name in names}
    with contextlib.closing(context.duck()) as cursor:
        for number, ref in enumerate(query.refs):
            cursor.register(f"leaf_{number}", _without_zone(tables[ref.name.lower()]))
        try:
            rows = cursor.sql(translated.sql).to_arrow_table()
            return _as_spark(rows, translated)
        except (duckdb.Error, pa.ArrowInvalid):
            return None


def _require_columns(query: Query, columns: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse a name that Spark cannot find either: it need not be started to say so."""
    from ebla.validate.columns import resolve

    inputs = {
        f"system.{name}": RelationFacts(name=f"system.{name}", kind=Kind.TABLE, columns=kinds)
        for name, kinds in columns.items()
    }
    for one in resolve(query.text, inputs)[1]:
        if one.code in (Code.UNKNOWN_COLUMN, Code.UNKNOWN_ALIAS):
            has = "; ".join(f"columns of system.{name} are {', '.join(kinds)}" for name, kinds in columns.items())
            raise UnknownNameError(f"{one.message}; {has}")


def _without_zone(table: pa.Table) -> pa.Table:
    plain = [pa.field(f.name, pa.timestamp("us") if pa.types.is_timestamp(f.type) else f.type) for f in table.schema]
    return table.cast(pa.schema(plain))


_ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def _as_spark(rows: pa.Table, translated: TranslatedQuery) -> pa.Table:
    """DuckDB's rows under Spark's names, in Spark's types."""
    columns = [
        _durations(column) if kind == "interval" else column.cast(_ARROW[kind])
        for column, kind in zip(rows.columns, translated.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, names=list(translated.names))


def _durations(column: pa.ChunkedArray) -> pa.Array:
    lengths = [
        None if one is None else dt.timedelta(days=one.days, microseconds=one.nanoseconds // 1000)
        for one in column.to_pylist()
    ]
    return pa.array(lengths, pa.duration("us"))
