"""`system.indexes` and SHOW INDEXES."""

from __future__ import annotations

import pyarrow as pa
from sqlalchemy import Connection, func, select

from ebla.build.states import Permission
from ebla.catalog import schema as s
from ebla.indexes import definition
from ebla.indexes.definition import Index
from ebla.storage.model import FOREVER

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("relation", pa.string()),
        ("state", pa.string()),
        ("percent", pa.float64()),
        ("is_unique", pa.bool_()),
        ("columns", pa.string()),
        ("included", pa.string()),
        ("condition", pa.string()),
        ("read_version", pa.int64()),
        ("entries", pa.int64()),
        ("bytes", pa.int64()),
        ("message", pa.string()),
    ]
)


def table(connection: Connection) -> pa.Table:
    return pa.Table.from_pylist([_row(connection, i) for i in definition.all_indexes(connection)], schema=SCHEMA)


def _row(connection: Connection, index: Index) -> dict[str, object]:
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
        "percent": percent(connection, index),
        "is_unique": index.unique,
        "columns": ", ".join(i.text + (" DESC" if i.descending else "") for i in index.items),
        "included": ", ".join(names[p] for p in index.include) or None,
        "condition": index.where,
        "read_version": index.stands.read_version,
        "entries": max(0, int(entries or 0)),
        "bytes": int(size or 0),
        "message": index.stands.message,
    }


def percent(connection: Connection, index: Index) -> float:
    """100 exactly when it can be read."""
    if index.readable:
        return 100.0
    if index.state is not Permission.BACKFILLING:
        return 0.0
    tasks = s.view_building_tasks
    left = connection.execute(select(func.count()).where(tasks.c.view_id == index.id)).scalar_one()
    return min(99.0, round(100.0 * (index.base.tablets - left) / index.base.tablets, 1))
