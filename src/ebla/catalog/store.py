"""The catalog: one transactional database in which everything is decided.

Theory of operation. All relations share one sequence of versions. A commit is one database transaction: take the
commit lock (SQLite: the write lock; PostgreSQL: an advisory lock), check what the decision requires, apply its
updates at the next version, write the history row. *Exclusive* decisions (schema, topology) also require that no other
exclusive commit came since they read their state; *data* decisions do not conflict with each other beyond what they
require. A reader's snapshot is a version; rows of the manifest say from which version to which they hold.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from ebla.catalog import changes as c
from ebla.catalog import migrations
from ebla.catalog import schema as s
from ebla.catalog.apply import apply, check, counter, take
from ebla.errors import CatalogError, ConflictError
from ebla.failpoint import hit
from ebla.ids import NodeId, Version

BUSY_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10
POLL_S = 0.005

FILE = "catalog.db"
POSTGRES = ("postgresql", "postgres")
SECRETS = ("password", "sslpassword")
NOBODY = NodeId("")
CREATE_HINT = "create it with ebla.connect() or `ebla sql 'CREATE TABLE …'`"


def now_us() -> int:
    return time.time_ns() // 1000


class Catalog:
    """An open catalog. Safe to use from several threads."""

    def __init__(self, engine: Engine, where: str, clock: Callable[[], int] = now_us) -> None:
        self.engine = engine
        self.where = where
        self.clock = clock

    # ---- opening ----------------------------------------------------------------------------------------

    @classmethod
    def open(cls, url: str, *, create: bool = True, clock: Callable[[], int] = now_us) -> Catalog:
        """Open the catalog at a directory (SQLite) or a `postgresql://` address; create it where there is none."""
        engine = _postgres(url) if is_postgres(url) else _sqlite(url, create=create)
        catalog = cls(engine, url, clock)
        try:
            catalog._prepare(create=create)
        except DatabaseError as error:
            engine.dispose()
            raise CatalogError(
                f"{_without_password(url)}: expected an Ebla catalog, found: {_first_line(error)}"
            ) from error
        except BaseException:
            engine.dispose()
            raise
        return catalog

    def _prepare(self, *, create: bool) -> None:
        where = _without_password(self.where)
        with self.reading() as connection:
            empty = migrations.is_empty(connection)
            if empty and not create:
                raise CatalogError(f"{where}: expected an Ebla catalog, found none; {CREATE_HINT}")
            newest = None if empty else self._newest_migration(connection, where)
        # Only now is the place known to be ours or empty: another program's database must stay as it was.
        if self.engine.dialect.name == "sqlite":
            self._use_write_ahead_log()
        if newest != migrations.MIGRATIONS[-1].number:
            with self.writing() as connection:
                self._create_namespace(connection)
                migrations.migrate(connection, self.clock(), where)

    def _create_namespace(self, connection: Connection) -> None:
        # Not CREATE … IF NOT EXISTS, which asks for a right on the database even where there is nothing to create.
        namespace = migrations.namespace(connection)
        if namespace is not None and not inspect(connection).has_schema(namespace):
            connection.exec_driver_sql(f"CREATE SCHEMA {namespace}")

    def _use_write_ahead_log(self) -> None:
        """The file remembers it. While another process looks at the file, SQLite refuses at once instead of waiting."""
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            with self._answering(), self.engine.connect() as connection:
                raw: Any = connection.connection.driver_connection
                try:
                    raw.execute("PRAGMA journal_mode = WAL")
                    return
                except sqlite3.OperationalError as error:
                    if "locked" not in str(error) or time.monotonic() > deadline:
                        raise self._silent(str(error)) from error
            time.sleep(POLL_S)

    def _newest_migration(self, connection: Connection, where: str) -> int | None:
        migrations.require_ebla(connection, where)
        numbers = list(connection.execute(select(s.migrations.c.number)).scalars())
        return max(numbers, default=None)

    def close(self) -> None:
        self.engine.dispose()

    # ---- database transactions --------------------------------------------------------------------------

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent read of the catalog."""
        with self._answering(), self.engine.connect() as raw:
            postgres = raw.dialect.name == "postgresql"
            connection = raw.execution_options(isolation_level="REPEATABLE READ") if postgres else raw
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """One atomic change of the catalog, alone: other writers wait.

        In PostgreSQL every statement must see what was committed before the lock was got, which READ COMMITTED does
        and a stricter default of the database would not.
        """
        with self._answering(), self.engine.connect() as raw:
            postgres = raw.dialect.name == "postgresql"
            connection = raw.execution_options(ebla_write=True)
            if postgres:
                connection = connection.execution_options(isolation_level="READ COMMITTED")
            with connection.begin():
                if postgres:
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('ebla.commit'))")
                yield connection

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Say in our words that the database does not answer. A commit that it was silent about may have happened."""
        try:
            yield
        except DBAPIError as error:
            if not isinstance(error, OperationalError) and not error.connection_invalidated:
                raise
            raise self._silent(_first_line(error)) from error

    def _silent(self, said: str) -> CatalogError:
        return CatalogError(
            f"{_without_password(self.where)}: expected a database that answers, found: {said}; "
            "check the address, that the server runs and that the database exists"
        )

    # ---- commits ----------------------------------------------------------------------------------------

    def commit(self, decision: c.Decision, *, node: NodeId = NOBODY) -> c.Committed:
        """Make a decision true, or raise and change nothing."""
        with self.writing() as connection:
            committed = self._carry_out(connection, decision, node)
        hit("catalog.commit.done")
        return committed

    def _carry_out(self, connection: Connection, decision: c.Decision, node: NodeId) -> c.Committed:
        now = self.clock()
        hit("catalog.commit.begun")
        for requirement in decision.requires:
            check(connection, requirement, now)
        hit("catalog.commit.checked")
        version = Version(take(connection, "version"))
        created = None
        for change in decision.updates:
            created = apply(connection, change, version, now, created) or created
            hit("catalog.commit.applied")
        if decision.exclusive:
            connection.execute(
                s.counters.update().where(s.counters.c.name == "exclusive_version").values(value=version)
            )
        committed_at = max(now, self._last_commit_at(connection, version) + 1)
        connection.execute(
            insert(s.history),
            {
                "version": version,
                "kind": "exclusive" if decision.exclusive else "data",
                "reason": decision.reason,
                "committed_at": committed_at,
                "node_id": node,
                "transaction_id": decision.transaction,
                "relation_id": created or decision.relation,
            },
        )
        hit("catalog.commit.before_commit")
        return c.Committed(version=version, committed_at=committed_at, relation=created)

    def _last_commit_at(self, connection: Connection, version: Version) -> int:
        before = select(s.history.c.committed_at).where(s.history.c.version == version - 1)
        return int(connection.execute(before).scalar() or 0)

    def decide(
        self,
        make: Callable[[Connection, Version], c.Decision | None],
        *,
        node: NodeId = NOBODY,
        attempts: int = 5,
    ) -> c.Committed | None:
        """Read state at an exclusive version, decide, commit if it is still that version; else start over.

        The last attempt reads and decides while it holds the commit lock, so that no race can be lost for ever. `make`
        therefore only reads, and through the connection it is given; it may be called several times.
        """
        for _ in range(attempts - 1):
            with self.reading() as connection:
                decision = _guarded(connection, make)
            if decision is None:
                return None
            try:
                return self.commit(decision, node=node)
            except ConflictError as conflict:
                if not conflict.retryable:
                    raise
        with self.writing() as connection:
            decision = _guarded(connection, make)
            if decision is None:
                return None
            committed = self._carry_out(connection, decision, node)
        hit("catalog.commit.done")
        return committed

    def located(self, root: str) -> str:
        """A storage root as an address. One inside the warehouse is recorded relative to it, so that it can move."""
        return str(Path(self.where) / root[2:]) if root.startswith("./") else root

    def cluster_id(self) -> str:
        """What tells this catalog from every other one."""
        with self.reading() as connection:
            query = select(s.meta.c.value).where(s.meta.c.key == "cluster_id")
            return str(connection.execute(query).scalar_one())

    def version(self) -> Version:
        with self.reading() as connection:
            return Version(counter(connection, "version"))


def _guarded(connection: Connection, make: Callable[[Connection, Version], c.Decision | None]) -> c.Decision | None:
    at = Version(counter(connection, "exclusive_version"))
    decision = make(connection, at)
    if decision is None:
        return None
    guard = c.ExclusiveVersionIs(version=at)
    return replace(decision, requires=(guard, *decision.requires), exclusive=True)


def is_postgres(url: str) -> bool:
    """An address, not a directory whose name begins like one."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme.partition("+")[0] in POSTGRES


def _sqlite(url: str, *, create: bool) -> Engine:
    if "://" in url:
        raise CatalogError(
            f"{_without_password(url)}: expected a directory or a postgresql:// address, found another kind of address"
        )
    folder = Path(url)
    file = folder / FILE
    try:
        if not file.exists():
            _make_room(folder, create=create)
    except OSError as error:
        raise CatalogError(f"{folder}: expected a directory to keep a warehouse in, found: {error}") from error
    address = URL.create("sqlite", database=str(file))  # not text: a directory's name may hold `?`
    engine = create_engine(address, connect_args={"timeout": BUSY_TIMEOUT_S})

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


def _make_room(folder: Path, *, create: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise CatalogError(f"{folder}: expected a directory, found a file; choose another place")
    if not create:
        raise CatalogError(f"{folder}: expected an Ebla warehouse, found none; {CREATE_HINT}")
    # Another process may be creating the same catalog at this moment.
    if folder.exists() and any(p.name != "data" and not p.name.startswith(FILE) for p in folder.iterdir()):
        raise CatalogError(
            f"{folder}: expected an Ebla warehouse or an empty directory, found other files; choose another directory"
        )
    folder.mkdir(parents=True, exist_ok=True)


def _postgres(url: str) -> Engine:
    try:
        parsed = make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):  # neither quoted nor chained: the text may hold a password
        raise CatalogError(
            "catalog address: expected postgresql://user:password@host:port/database, found one that cannot be read"
        ) from None
    timeout = {} if "connect_timeout" in parsed.query else {"connect_timeout": CONNECT_TIMEOUT_S}
    # A ping before use costs a round trip and hides a restart of the server from whoever comes next.
    engine = create_engine(parsed, connect_args=timeout, pool_pre_ping=True)

    @event.listens_for(engine, "connect")
    def _on_connect(dbapi: Any, _record: ConnectionPoolEntry) -> None:
        with dbapi.cursor() as cursor:
            cursor.execute(f"SET search_path TO {migrations.NAMESPACE}")
        dbapi.commit()

    return engine


def _without_password(url: str) -> str:
    if "://" not in url:
        return url
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return url.partition("://")[0] + "://…"
    return parsed.difference_update_query(SECRETS).render_as_string(hide_password=True)


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if error.orig else str(error)
