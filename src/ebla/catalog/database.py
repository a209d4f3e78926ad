"""The database of a catalog: a file of SQLite or a PostgreSQL server, opened, and its transactions.

A database that does not answer is waited for (`ebla.catalog.patience`), and what it says when something is wrong is
said in our words (`ebla.catalog.failures`).
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError, DBAPIError

from ebla.base.ids import Version
from ebla.base.precedence import PRECEDENCE
from ebla.base.rights import PRIVATE
from ebla.catalog import engines, failures, job_tables, memory, preparation
from ebla.catalog.engines import is_postgres
from ebla.catalog.failures import FILE, without_password
from ebla.catalog.group import Queue
from ebla.catalog.newest_version import NewestVersion
from ebla.catalog.patience import Patience
from ebla.errors import CatalogError

Done = TypeVar("Done")


def now_us() -> int:
    return time.time_ns() // 1000


class CatalogDatabase:
    """An open database. Safe to use from several threads."""

    def __init__(
        self,
        engine: Engine,
        where: str,
        clock: Callable[[], int] = now_us,
        *,
        retry_s: float = 0.0,
        read_only: str | None = None,
    ) -> None:
        self.engine = engine
        self.where = where
        self.clock = clock
        self.patience = Patience(retry_s)
        self.read_only = read_only
        """Why this user can only read; `None` when nothing says so."""
        self.queue = Queue(self._transaction)
        self._newest = NewestVersion(self._connect_alone)
        self._has_answered = False
        """Whether the database was there once: then a host name that is not known will be again."""

    # ---- opening ----------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        url: str,
        *,
        create: bool = True,
        clock: Callable[[], int] = now_us,
        retry_s: float = 0.0,
        mask: int = PRIVATE,
        table_names: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Open the catalog at a directory (SQLite) or a `postgresql://` address; create it where there is none.

        A database that does not answer is waited for, `retry_s` at most. A new directory and file get the rights that
        `mask` leaves. `table_names` are for tables of jobs: a new catalog gets them, another has them or is refused.
        """
        job_tables.check(table_names)
        opened = functools.partial(cls._opened, tables=table_names)
        if is_postgres(url):
            engine, server = engines.postgres_engine(url)
            return opened(engine, url, server if clock is now_us else clock, create=create, retry_s=retry_s)
        folder = engines.require_directory(url)
        if engines.make_room(folder, create=create, mask=mask):
            with engines.new_file(folder, mask) as file:
                opened(engines.sqlite_engine(file), url, clock, create=True, write_ahead=False).close()
        if engines.may_write(folder):
            return opened(engines.sqlite_engine(folder / FILE), url, clock, create=create, retry_s=retry_s)
        reason = f"no write permission for {FILE} and its directory"
        return opened(engines.sqlite_reader(folder / FILE), url, clock, retry_s=retry_s, read_only=reason)

    @classmethod
    def _opened(
        cls,
        engine: Engine,
        url: str,
        clock: Callable[[], int],
        *,
        create: bool = False,
        write_ahead: bool = True,
        retry_s: float = 0.0,
        read_only: str | None = None,
        tables: Mapping[str, str],
    ) -> Self:
        catalog = cls(engine, url, clock, retry_s=retry_s, read_only=read_only)
        try:
            prepare = functools.partial(preparation.prepare, create=create, write_ahead=write_ahead, tables=tables)
            catalog.patience.insist(lambda: prepare(catalog))
            catalog._has_answered = True
        except DatabaseError as error:
            engine.dispose()
            raise CatalogError(
                f"{without_password(url)}: expected an Ebla catalog, found: {failures.first_line(error)}"
            ) from error
        except BaseException:
            engine.dispose()
            raise
        return catalog

    def close(self) -> None:
        self.patience.end()
        self._newest.close()
        self.engine.dispose()

    # ---- database transactions --------------------------------------------------------------------------

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent read of the catalog. A database that does not answer at its beginning is waited for."""
        connection = self.patience.insist(self._begin_read)
        with self.answering(), contextlib.closing(connection):
            try:
                yield connection
                connection.commit()
            finally:
                engines.require_still(connection, self.where)

    def read(self, use: Callable[[Connection], Done]) -> Done:
        """One consistent read that is done again as a whole where the database falls silent in the middle of it."""

        def once() -> Done:
            with self.reading() as connection:
                return use(connection)

        return self.patience.insist(once)

    def newest_version(self) -> Version | None:
        """A version that was the newest after this call began, for less than a read; `None` where only a read can tell.

        A reader without write permission may see a torn file, which the end of a whole read finds out.
        """
        PRECEDENCE.give_way()
        return self._newest.ask() if self.read_only is None else None

    def _connect_alone(self) -> Connection:
        connection = self.engine.connect()
        return connection.execution_options(isolation_level="AUTOCOMMIT") if _is_server(connection) else connection

    def _begin_read(self) -> Connection:
        with self.answering():
            return _begun_to_read(self.engine)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """One atomic change of the catalog, alone: other writers wait."""

        def begin() -> tuple[contextlib.ExitStack, Connection]:
            with contextlib.ExitStack() as begun:
                connection = begun.enter_context(self.queue.alone())
                return begun.pop_all(), connection

        begun, connection = self.patience.insist(begin)
        with begun:
            yield connection

    def change(self, change: Callable[[Connection], Done]) -> Done:
        """One atomic change of the catalog, in one database transaction with others that wait at the same moment.

        It only uses the connection that it is given: another thread may carry it out, and twice if the first time was
        rolled back.
        """
        return self.queue.run(change)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """One database transaction that writes, and holds the commit lock."""
        connection = self._begin_write()
        with self.answering(), contextlib.closing(connection):
            yield connection
            connection.commit()

    def _begin_write(self) -> Connection:
        if self.read_only is not None:
            raise failures.read_only(self.where, self.read_only)
        with self.answering():
            return _begun_to_write(self.engine)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Say in our words what the database says. A commit that it was silent about may have happened."""
        try:
            yield
        except DBAPIError as error:
            ours = failures.translated(error, self.where, has_answered=self._has_answered)
            if ours is None:
                raise
            raise ours from error


def _is_server(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def _begun_to_read(engine: Engine) -> Connection:
    PRECEDENCE.give_way()
    raw = engine.connect()
    with _closed_on_error(raw):
        connection = raw.execution_options(isolation_level="REPEATABLE READ") if _is_server(raw) else raw
        connection.begin()
        if not isinstance(raw.connection.driver_connection, engines.StillConnection):  # it may read a torn file
            memory.begin(connection)
        return connection


LOCK_IDLE_S = 10
"""How long a process may hold the commit lock without a word; then the server takes it, and the commit, away."""

_LOCK = (
    f"SELECT set_config('idle_in_transaction_session_timeout', '{LOCK_IDLE_S}s', true), "
    "pg_advisory_xact_lock(hashtext(coalesce(current_schema(), current_setting('search_path')) || '.commit'))"
)
"""The catalog's schema is the only one of the search path. It is no current one before it is made: its name counts."""


def _begun_to_write(engine: Engine) -> Connection:
    """Begin and take the commit lock.

    In PostgreSQL every statement must see what was committed before the lock was got, which READ COMMITTED does and a
    stricter default of the database would not. A process that is stopped while it holds the lock would stop all others:
    the server ends such a transaction.
    """
    raw = engine.connect()
    with _closed_on_error(raw):
        postgres = _is_server(raw)
        connection = raw.execution_options(ebla_write=True)
        if postgres:
            connection = connection.execution_options(isolation_level="READ COMMITTED")
        connection.begin()
        if postgres:
            connection.exec_driver_sql(_LOCK)
        memory.begin(connection)
        return connection


@contextlib.contextmanager
def _closed_on_error(connection: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise
