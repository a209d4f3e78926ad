"""Answers as JSON, as Arrow streams, as Parquet or as CSV, as the client prefers."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from fastapi import Response

from ebla.errors import LimitError, UsageError
from ebla.spark.result import Result
from ebla.values import types
from ebla.values.columns import python_values
from ebla.values.json_values import to_json

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
JSON = "application/json"


def type_name(kind: pa.DataType) -> str:
    try:
        return types.from_arrow(kind)
    except UsageError:
        return str(kind)


def columns(schema: pa.Schema) -> list[dict[str, str]]:
    return [{"name": field.name, "type": type_name(field.type)} for field in schema]


def rows(table: pa.Table) -> list[list[Any]]:
    lists = [_json_values(column) for column in table.columns]
    return [list(row) for row in zip(*lists, strict=True)] if lists else [[] for _ in range(table.num_rows)]


def _json_values(column: pa.ChunkedArray) -> list[Any]:
    values = python_values(column)
    is_json = pa.types.is_integer(column.type) or pa.types.is_string(column.type) or pa.types.is_boolean(column.type)
    return values if is_json else [to_json(value) for value in values]


def facts(result: Result) -> dict[str, Any]:
    found = {"applied_version": result.applied_version, "age_s": result.age_s, "next": result.next}
    return {name: value for name, value in found.items() if value is not None}


def json_bytes(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def arrow_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def require_rows(table: pa.Table, rows_max: int) -> None:
    if table.num_rows > rows_max:
        raise LimitError(
            f"the answer: expected {rows_max:,} rows at most, found {table.num_rows:,}; add a LIMIT, or ask in parts"
        )


def parquet_bytes(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def csv_bytes(table: pa.Table) -> bytes:
    """Strings stand in quotes and NULL is nothing, so that the two are not confused. What is neither a number nor a
    boolean is the text that JSON has for it."""
    import pyarrow.csv as pa_csv

    sink = pa.BufferOutputStream()
    columns = [column if _is_plain(column.type) else _texts(column) for column in table.columns]
    pa_csv.write_csv(pa.Table.from_arrays(columns, names=table.column_names), sink)
    return bytes(sink.getvalue())


def _is_plain(kind: pa.DataType) -> bool:
    return any((pa.types.is_integer(kind), pa.types.is_floating(kind), pa.types.is_boolean(kind)))


def _texts(column: pa.ChunkedArray) -> pa.Array:
    found = _json_values(column)
    texts = [one if one is None or isinstance(one, str) else json_bytes(one).decode() for one in found]
    return pa.array(texts, pa.string())


BYTES = {ARROW: arrow_bytes, PARQUET: parquet_bytes, CSV: csv_bytes}


def answer(table: pa.Table, facts: dict[str, Any], accept: str | None) -> Response:
    """The whole answer, as JSON unless the client asks for something else. Beside rows in another format, the other
    facts of the answer are in the header `Ebla-Facts`."""
    for kind, write in BYTES.items():
        if accept is not None and kind in accept:
            return Response(write(table), media_type=kind, headers={"Ebla-Facts": json.dumps(facts)})
    document = {"columns": columns(table.schema), "rows": rows(table), **facts}
    return Response(json_bytes(document), media_type=JSON)


def read_arrow(body: bytes) -> pa.Table:
    """The table of an Arrow stream."""
    source, batches = pa.BufferReader(body), list[pa.RecordBatch]()
    try:
        with pa.ipc.open_stream(source) as reader:
            for batch in reader:
                batch.validate(full=True)
                batches.append(batch)
            return pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        place = f"in batch {len(batches) + 1}, read up to byte {source.tell():,}"
        raise UsageError(
            f"the body: expected an Arrow stream, found {len(body):,} bytes that are none {place}: {error}"
        ) from error
