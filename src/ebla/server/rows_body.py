"""Rows in the body of a request: an Arrow stream, or JSON, as rows of a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.errors import TypeMismatchError, UsageError
from ebla.model.relation import Kind, Relation
from ebla.server import formats
from ebla.values import jsons, tagged_json, texts, types

ROWS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["rows"],
                    "properties": {"rows": {"type": "array", "items": {"type": "object"}}},
                },
                "example": {"rows": [{"id": 5, "total": "10.50", "day": "2026-11-18"}]},
            },
            formats.ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


def rows(catalog: Catalog, name: str, body: bytes, content_type: str, *, only_key: bool) -> object:
    """The rows of a body: an Arrow stream, JSON, or JSON with the values of Python (`…; values=tagged`)."""
    if content_type.startswith(formats.ARROW):
        return formats.read_arrow(body)
    if "values=tagged" in content_type:
        return tagged_json.decode(_document(json.loads, body))
    found = _document(lambda text: jsons.read(text, jsons.Leniency(allow_single_quotes=False)), body)
    relation = catalog.read(lambda connection: reads.relation(connection, name))
    if relation.kind is not Kind.TABLE:
        raise UsageError(f"{name}: expected a table, found a {relation.kind.value}, which is not written to")
    return _stored(relation, found, only_key=only_key)


def _document(read: Any, body: bytes) -> list[Any]:
    try:
        found = read(body.decode())
    except jsons.Unreadable as error:
        raise UsageError(f"the body: expected JSON, found: {error} at character {error.at}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body: expected JSON in UTF-8, found: {error}") from error
    rows = found.get("rows") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError('the body: expected {"rows": [{"column": value, …}, …]}, found something else')
    return rows


def _stored(relation: Relation, rows: Sequence[dict[str, Any]], *, only_key: bool) -> pa.Table | list[Any]:
    """Rows of JSON as a table: texts are dates, times and decimals where the column is."""
    if not rows:
        return []
    names = list(rows[0])
    for number, row in enumerate(rows):
        if list(row) != names and set(row) != set(names):
            raise TypeMismatchError(
                f"{relation.name}: expected the columns of the first row in every row, found others in row {number}: "
                f"{', '.join(row) or 'none'}"
            )
    columns = relation.key if only_key else relation.visible
    declared = {column.name.lower(): column.name for column in columns}
    unknown = [name for name in names if name.lower() not in declared]
    if unknown and not only_key:
        raise TypeMismatchError(
            f"{relation.name}: expected columns {', '.join(declared.values())}, found column {unknown[0]}"
        )
    given = {declared[name.lower()]: [row[name] for row in rows] for name in names if name.lower() in declared}
    return types.gather(
        given,
        len(rows),
        [column for column in columns if column.name in given],
        store=lambda values, tree: jsons.store(values, tree, texts.FILES),
        relation=relation.name,
        show=jsons.text_of,
    )
