"""What is done before a catalog is used: looking whether it is one, and bringing it to this release's schema.

Opening looks before it touches: another program's database must stay as it was.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, inspect, select

from ebla.catalog import failures, job_tables, migrations
from ebla.catalog import schema as s
from ebla.catalog.engines import CREATE_HINT, POLL_S
from ebla.catalog.failures import BUSY_TIMEOUT_S, without_password
from ebla.errors import CatalogError

if TYPE_CHECKING:
    from ebla.catalog.database import CatalogDatabase


def prepare(
    catalog: CatalogDatabase, *, create: bool, write_ahead: bool, tables: job_tables.Names = MappingProxyType({})
) -> None:
    """`tables`: the names that the tables of jobs get in a new catalog, and must have in one that is there."""
    where = without_password(catalog.where)
    with catalog.reading() as connection:
        empty = migrations.is_empty(connection)
        if empty and not create:
            raise CatalogError(f"{where}: expected an Ebla catalog, found none; {CREATE_HINT}")
        meta = {} if empty else migrations.require_ebla(connection, where)
        newest = None if empty else _newest_migration(connection)
        if newest is not None and catalog.read_only is None:
            catalog.read_only = _only_reads(connection)
    if not empty:
        _follow(catalog, meta, tables)
    expected = migrations.MIGRATIONS[-1].number
    if catalog.read_only is not None:
        migrations.refuse_newer(newest, where)
        if newest != expected:
            raise CatalogError(
                f"{where}: expected a catalog of schema {expected}, found {newest}, which this user cannot bring "
                "up to date; let a user who may write open it once with this release"
            )
        return
    # Only now is the place known to be ours or empty: another program's database must stay as it was.
    if write_ahead and catalog.engine.dialect.name == "sqlite":
        _use_write_ahead_log(catalog)
    if newest != expected:
        with catalog.writing() as connection:
            _create_namespace(connection)
            if migrations.migrate(connection, catalog.clock(), where) == len(migrations.MIGRATIONS):
                job_tables.name_tables(connection, tables)
            meta = migrations.require_ebla(connection, where)
        _follow(catalog, meta, tables)


def _follow(catalog: CatalogDatabase, meta: Mapping[str, str], tables: job_tables.Names) -> None:
    found = job_tables.named(meta)
    job_tables.require(found, tables, without_password(catalog.where))
    job_tables.use(catalog.engine, found)


def _create_namespace(connection: Connection) -> None:
    # Not CREATE … IF NOT EXISTS, which asks for a right on the database even where there is nothing to create.
    namespace = migrations.namespace(connection)
    if namespace is not None and not inspect(connection).has_schema(namespace):
        connection.exec_driver_sql(f"CREATE SCHEMA {namespace}")


def _use_write_ahead_log(catalog: CatalogDatabase) -> None:
    """The file remembers it. While another process looks at the file, SQLite refuses at once instead of waiting."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        with catalog.answering(), catalog.engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            try:
                raw.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise failures.of_sqlite(error, catalog.where) or error from error
        time.sleep(POLL_S)


def _newest_migration(connection: Connection) -> int | None:
    numbers = list(connection.execute(select(s.migrations.c.number)).scalars())
    return max(numbers, default=None)


def _only_reads(connection: Connection) -> str | None:
    """Why a user of PostgreSQL cannot write: the server is a standby, or the rights are missing."""
    if connection.dialect.name != "postgresql":
        return None
    allowed = f"has_table_privilege('{s.counters.name}', 'UPDATE')"
    if connection.exec_driver_sql("SHOW transaction_read_only").scalar() == "on":
        return "the server is a standby, or the session may only read"
    return None if connection.exec_driver_sql(f"SELECT {allowed}").scalar() else "no right to change its tables"
