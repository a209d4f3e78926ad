"""`system.indexes` and SHOW INDEXES."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from sqlalchemy import Connection

from ebla.base.ids import RelationId
from ebla.catalog import build_tasks, manifest
from ebla.model.tasks import Build
from ebla.relations import builds as build_progress
from ebla.relations import indexes as definition
from ebla.relations.indexes import Index
from ebla.values import types

COLUMNS = {
    "name": "string",
    "relation": "string",
    "state": "string",
    "percent": "double",
    "is_unique": "boolean",
    "columns": "string",
    "included": "string",
    "condition": "string",
    "read_version": "bigint",
    "entries": "bigint",
    "bytes": "bigint",
    "message": "string",
}


def table(connection: Connection) -> pa.Table:
    builds = build_tasks.builds(connection)
    rows = [_row(connection, index, builds) for index in definition.all_indexes(connection)]
    return types.table_of(COLUMNS, rows)


def _row(connection: Connection, index: Index, builds: Mapping[RelationId, Build]) -> dict[str, object]:
    names = {c.physical: c.name for c in index.base.columns}
    entries, size = manifest.live(connection, index.relation)
    return {
        "name": index.name,
        "relation": index.base.name,
        "state": index.state.value,
        "percent": build_progress.of_index(connection, index, builds, now=0).progress.percent,
        "is_unique": index.unique,
        "columns": ", ".join(item.said for item in index.items),
        "included": ", ".join(names[p] for p in index.include) or None,
        "condition": index.where,
        "read_version": index.stands.read_version,
        "entries": entries,
        "bytes": size,
        "message": index.stands.message,
    }
