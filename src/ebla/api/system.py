"""`SELECT … FROM system.<table>`: the catalog's tables as they are, times as timestamps, and some that are computed.

Small by nature, so they come through the driver, read in one consistent catalog transaction. Queries that name no
other table are answered by `ebla.api.system_queries`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlalchemy import BigInteger, Boolean, Connection, Float, Integer

from ebla.base.caches import Usage
from ebla.base.services import ServiceUsage
from ebla.catalog import tables as catalog_tables
from ebla.catalog.tables import TABLES
from ebla.errors import UnknownNameError
from ebla.relations import builds as build_progress
from ebla.relations import copies, freshness, jobs
from ebla.relations import handlers as stored
from ebla.relations import index_table as indexes
from ebla.values import types

if TYPE_CHECKING:
    from ebla.tables.context import Context

COMPUTED: dict[str, tuple[Mapping[str, str], Callable[[Connection, int], pa.Table]]] = {
    "views": (freshness.COLUMNS, freshness.table),
    "indexes": (indexes.COLUMNS, lambda connection, now: indexes.table(connection)),
    "build_progress": (build_progress.COLUMNS, build_progress.table),
    "under_replicated": (copies.UNDER_REPLICATED, lambda connection, now: copies.table(connection)),
    "handlers": (stored.COLUMNS, lambda connection, now: stored.table(connection)),
    "jobs": (jobs.JOBS, jobs.jobs_table),
}
"""What is worked out from the catalog's rows and the time."""

CACHES = {
    "name": "string",
    "entries": "bigint",
    "bytes": "bigint",
    "bytes_max": "bigint",
    "hits": "bigint",
    "misses": "bigint",
}
SERVICES = {
    "name": "string",
    "stepping": "boolean",
    "failures": "bigint",
    "steps": "bigint",
    "stepped_s": "double",
    "gave_way_s": "double",
}
OF_PROCESS: dict[str, tuple[Mapping[str, str], Callable[[Context], Sequence[Usage | ServiceUsage]]]] = {
    "caches": (CACHES, lambda context: context.storage.caches.usage()),
    "services": (SERVICES, lambda context: context.services.spent()),
}
"""Tables with rows of this process alone."""


def names() -> Sequence[str]:
    return sorted([*TABLES, *COMPUTED, *OF_PROCESS])


def _arrow_type(name: str, kind: object) -> pa.DataType:
    if name.endswith(("_at", "timestamp")):
        return pa.timestamp("us", "UTC")
    if isinstance(kind, Boolean):
        return pa.bool_()
    if isinstance(kind, BigInteger | Integer):
        return pa.int64()
    if isinstance(kind, Float):
        return pa.float64()
    return pa.string()


def table_schema(name: str) -> pa.Schema:
    if name.lower() in OF_PROCESS:
        return types.schema_of(OF_PROCESS[name.lower()][0])
    if name.lower() in COMPUTED:
        return types.schema_of(COMPUTED[name.lower()][0])
    found = TABLES.get(name.lower())
    if found is None:
        raise UnknownNameError(f"system.{name}: expected one of {', '.join(names())}")
    return pa.schema([pa.field(c.name, _arrow_type(c.name, c.type)) for c in found.columns])


def read(connection: Connection, name: str, now: int, context: Context) -> pa.Table:
    """The rows of a system table; `now` is in microseconds, as the catalog's clock."""
    wanted = table_schema(name)
    if name.lower() in OF_PROCESS:
        of_columns, found = OF_PROCESS[name.lower()]
        return types.table_of(of_columns, [asdict(one) for one in found(context)])
    if name.lower() in COMPUTED:
        return COMPUTED[name.lower()][1](connection, now)
    rows = catalog_tables.rows(connection, name.lower())
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in wanted]
    return pa.table([pa.array(values, type=f.type) for values, f in zip(columns, wanted, strict=True)], schema=wanted)
