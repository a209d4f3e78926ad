"""`SELECT … FROM system.<table>`: the catalog's tables as they are, times as timestamps, and some that are computed.

Small by nature, so they come through the driver, read in one consistent catalog transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlalchemy import BigInteger, Boolean, Connection, Integer, Table, select

from ebla.build import shown
from ebla.catalog import schema
from ebla.errors import UnknownNameError
from ebla.indexes import table as indexes
from ebla.jobs import stored
from ebla.views import freshness

TABLES: dict[str, Table] = {t.name: t for t in schema.metadata.sorted_tables}

COMPUTED: dict[str, tuple[pa.Schema, Callable[[Connection, int], pa.Table]]] = {
    "views": (freshness.SCHEMA, freshness.table),
    "indexes": (indexes.SCHEMA, lambda connection, now: indexes.table(connection)),
    "build_progress": (shown.SCHEMA, shown.table),
    "handlers": (stored.SCHEMA, lambda connection, now: stored.table(connection)),
}
"""What is worked out from the catalog's rows and the time."""


def names() -> Sequence[str]:
    return sorted([*TABLES, *COMPUTED])


def _arrow_type(name: str, kind: object) -> pa.DataType:
    if name.endswith("_at"):
        return pa.timestamp("us", "UTC")
    if isinstance(kind, Boolean):
        return pa.bool_()
    if isinstance(kind, BigInteger | Integer):
        return pa.int64()
    return pa.string()


def table_schema(name: str) -> pa.Schema:
    if name.lower() in COMPUTED:
        return COMPUTED[name.lower()][0]
    found = TABLES.get(name.lower())
    if found is None:
        raise UnknownNameError(f"system.{name}: expected one of {', '.join(names())}")
    return pa.schema([pa.field(c.name, _arrow_type(c.name, c.type)) for c in found.columns])


def read(connection: Connection, name: str, now: int) -> pa.Table:
    """The rows of a system table; `now` is in microseconds, as the catalog's clock."""
    wanted = table_schema(name)
    if name.lower() in COMPUTED:
        return COMPUTED[name.lower()][1](connection, now)
    rows = connection.execute(select(TABLES[name.lower()])).all()
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in wanted]
    return pa.table([pa.array(values, type=f.type) for values, f in zip(columns, wanted, strict=True)], schema=wanted)
