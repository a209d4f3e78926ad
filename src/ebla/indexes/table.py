"""`system.indexes` and SHOW INDEXES."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from sqlalchemy import Connection, func, select

from ebla.build import shown
from ebla.build.model import Build
from ebla.catalog import building
from ebla.catalog import schema as s
from ebla.ids import RelationId
from ebla.indexes import definition
from ebla.indexes.definition import Index
from ebla.storage import types
from ebla.storage.model import FOREVER

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
    builds = building.builds(connection)
    rows = [_row(connection, index, builds) for index in definition.all_indexes(connection)]
    return types.table_of(COLUMNS, rows)


def _row(connection: Connection, index: Index, builds: Mapping[RelationId, Build]) -> dict[str, object]:
    names = {c.physical: c.name for c in index.base.columns}
    live = (
        select(func.sum(s.runs.c.row_count - 2 * s.runs.c.tombstones), func.sum(s.runs.c.bytes))
        .where(s.runs.c.relation_id == index.id, s.runs.c.end_version == FOREVER)
        .where(s.runs.c.host_id == index.relation.placement[0][0])
    )
    entries, size = connection.execute(live).one()
    return {
        "name": index.name,
        "relation": index.base.name,
        "state": index.state.value,
        "percent": shown.of_index(connection, index, builds, now=0).progress.percent,
        "is_unique": index.unique,
        "columns": ", ".join(i.text + (" DESC" if i.descending else "") for i in index.items),
        "included": ", ".join(names[p] for p in index.include) or None,
        "condition": index.where,
        "read_version": index.stands.read_version,
        "entries": max(0, int(entries or 0)),
        "bytes": int(size or 0),
        "message": index.stands.message,
    }
