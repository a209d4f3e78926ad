"""How the catalog's database is reached: a file `catalog.db` in a directory, or an address of PostgreSQL.

A new file is filled under another name and then linked to its own, so that a catalog is there whole or not at all,
and of several processes that create it at once all use the same one.

A user who may not write the file or its directory reads it. SQLite's write-ahead log lets readers of a file in only
with the two files beside it, which are there as long as a writer has it open. While there are none, the file itself is
everything, and is read as it stands (`immutable`). That is right as long as no writer changes the file meanwhile, so
such a read notes the file's stamp first, and counts only if the stamp is the same at its end.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from ebla.base.rights import make_directory, make_file
from ebla.catalog import migrations
from ebla.catalog.failures import BUSY_TIMEOUT_S, FILE, unavailable, without_password
from ebla.catalog.server_clock import ServerClock
from ebla.errors import CatalogError

PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""After how many seconds (the last: milliseconds) a server that says nothing at all is taken for gone; an address may
say otherwise. The system's own limits are hours."""
POSTGRES = ("postgresql", "postgres")
CREATE_HINT = "create it with ebla.connect() or `ebla sql 'CREATE TABLE …'`"

SETTLE_S = 0.02
"""Two changes of a file that lie closer together than this may have the same time."""
POLL_S = 0.005


def is_postgres(url: str) -> bool:
    """An address, not a directory whose name begins like one."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme.partition("+")[0] in POSTGRES


# ---- a directory ----------------------------------------------------------------------------------------


def require_directory(url: str) -> Path:
    if "://" in url:
        raise CatalogError(
            f"{without_password(url)}: expected a directory or a postgresql:// address, found another kind of address"
        )
    return Path(url)


def make_room(folder: Path, *, create: bool, mask: int) -> bool:
    """See that the directory is one to keep a catalog in; whether the catalog's file is still to be made."""
    try:
        if (folder / FILE).exists():
            return False
        if folder.exists() and not folder.is_dir():
            raise CatalogError(f"{folder}: expected a directory, found a file; choose another place")
        if not create:
            raise CatalogError(f"{folder}: expected an Ebla warehouse, found none; {CREATE_HINT}")
        # Another process may be creating the same catalog at this moment.
        if folder.exists() and any(p.name != "data" and not p.name.startswith(FILE) for p in folder.iterdir()):
            raise CatalogError(
                f"{folder}: expected an Ebla warehouse or an empty directory, found other files; "
                "choose another directory"
            )
        make_directory(folder, mask)
        return True
    except OSError as error:
        raise CatalogError(f"{folder}: expected a directory to keep a warehouse in, found: {error}") from error


@contextlib.contextmanager
def new_file(folder: Path, mask: int) -> Iterator[Path]:
    """A file to fill with a new catalog. It takes its name at the end, unless another process came first."""
    temporary = folder / f"{FILE}-{uuid.uuid4().hex}.new"
    try:
        make_file(temporary, mask, new=True)
    except OSError as error:
        raise CatalogError(f"{folder}: expected a directory to keep a warehouse in, found: {error}") from error
    try:
        yield temporary
        with contextlib.suppress(FileExistsError):
            try:
                os.link(temporary, folder / FILE)
            except (PermissionError, NotImplementedError):  # a file system without links
                if not (folder / FILE).exists():
                    os.replace(temporary, folder / FILE)
    finally:
        for left in (temporary, Path(f"{temporary}-journal")):
            left.unlink(missing_ok=True)


def may_write(folder: Path) -> bool:
    """SQLite writes files beside the catalog's too."""
    return os.access(folder / FILE, os.W_OK) and os.access(folder, os.W_OK)


def sqlite_engine(file: Path) -> Engine:
    address = URL.create("sqlite", database=str(file))  # not text: a directory's name may hold `?`
    return _prepared(create_engine(address, connect_args={"timeout": BUSY_TIMEOUT_S}))


def sqlite_reader(file: Path) -> Engine:
    """An engine that only reads. Writers may come and go, so each connection looks anew how the file can be read."""
    return _prepared(create_engine("sqlite://", creator=lambda: _open_to_read(file), poolclass=NullPool))


def _prepared(engine: Engine) -> Engine:
    @event.listens_for(engine, "connect")
    def _on_connect(dbapi: Any, _record: ConnectionPoolEntry) -> None:
        dbapi.isolation_level = None  # we begin transactions ourselves, with the lock that they need
        cursor = dbapi.cursor()
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("ebla_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


class StillConnection(sqlite3.Connection):
    """A connection to a file that no writer had open. What it read counts if the file is still the same."""

    file: Path
    stamp: tuple[int, ...]

    def moved(self) -> bool:
        return stamp(self.file) != self.stamp


def require_still(connection: Connection, where: str) -> None:
    """What was read beside SQLite's log holds only if no writer changed the file meanwhile."""
    if connection.invalidated or connection.closed:
        return
    raw = connection.connection.driver_connection
    if isinstance(raw, StillConnection) and raw.moved():
        raise unavailable(
            f"{where}/{FILE}: expected no writer while a user without write permission reads, found one; retry"
        )


def stamp(file: Path) -> tuple[int, ...]:
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _open_to_read(file: Path) -> sqlite3.Connection:
    address = f"file:{quote(str(file))}?mode=ro"
    if Path(f"{file}-wal").exists():
        return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    before = stamp(file)
    while abs(time.time() - file.stat().st_mtime) < SETTLE_S:
        time.sleep(POLL_S)
        before = stamp(file)
    still = sqlite3.connect(f"{address}&immutable=1", uri=True, check_same_thread=False, factory=StillConnection)
    still.file, still.stamp = file, before
    return still


# ---- an address -----------------------------------------------------------------------------------------


def postgres_engine(url: str) -> tuple[Engine, ServerClock]:
    """An engine, and the server's time: taken with each new connection, and now and then with a used one."""
    clock = ServerClock()
    try:
        parsed = make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):  # neither quoted nor chained: the text may hold a password
        raise CatalogError(
            "catalog address: expected postgresql://user:password@host:port/database, found one that cannot be read"
        ) from None
    schema = _schema_of(parsed)
    parsed = parsed.difference_update_query(["schema"])
    patience = {name: value for name, value in PATIENCE.items() if name not in parsed.query}
    # A ping before use costs a round trip and hides a restart of the server from the next statement.
    options = {migrations.SCHEMA_OPTION: schema}
    engine = create_engine(parsed, connect_args=patience, pool_pre_ping=True, execution_options=options)
    dialect: Any = engine.dialect

    @event.listens_for(engine, "connect")
    def _on_connect(dbapi: Any, _record: ConnectionPoolEntry) -> None:
        try:
            with dbapi.cursor() as cursor:
                clock.measure(cursor, before=f"SET search_path TO {schema}; ")
            dbapi.commit()
        except BaseException:
            dbapi.close()  # the pool does not know it yet, so it would stay open
            raise

    @event.listens_for(engine, "checkout")
    def _on_checkout(dbapi: Any, _record: ConnectionPoolEntry, _proxy: object) -> None:
        if not clock.is_due:
            return
        try:
            with dbapi.cursor() as cursor:
                clock.measure(cursor)
            dbapi.commit()
        except dialect.dbapi.Error as error:
            raise DisconnectionError(str(error)) from error  # the pool takes another one

    return engine, clock


def _schema_of(parsed: URL) -> str:
    """The schema that an address names for the catalog's tables."""
    found = parsed.query.get("schema", migrations.NAMESPACE)
    if not isinstance(found, str) or not re.fullmatch("[a-z_][a-z0-9_]{0,62}", found):
        names = found if isinstance(found, str) else ", ".join(found)
        raise CatalogError(
            f"catalog address: expected schema=name, of a to z, 0 to 9 and _, not a digit first, found schema={names}"
        )
    return found
