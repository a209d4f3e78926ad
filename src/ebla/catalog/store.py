"""The catalog: one transactional database in which everything is decided.

Theory of operation. All relations share one sequence of versions. A commit is one database transaction, or shares one
with others of its process that wait at the same moment (`ebla.catalog.group`): take the commit lock (SQLite: the write
lock; PostgreSQL: an advisory lock), check what the decision requires, apply its updates at the next version, write the
history row. *Exclusive* decisions (schema, topology) also require that no other exclusive commit came since they read
their state; *data* decisions do not conflict with each other beyond what they require. A reader's snapshot is a
version; rows of the manifest say from which version to which they hold.
"""

from __future__ import annotations

import contextlib
import functools
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import DatabaseError, DBAPIError

from ebla.base import lazy, user_requests
from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, Version
from ebla.base.precedence import PRECEDENCE
from ebla.base.rights import PRIVATE
from ebla.base.user_requests import UserRequest
from ebla.catalog import engines, failures, history, memory, opening
from ebla.catalog import schema as s
from ebla.catalog.engines import is_postgres
from ebla.catalog.failures import FILE, without_password
from ebla.catalog.group import Queue
from ebla.catalog.own_commits import OwnCommits
from ebla.catalog.patience import Patience
from ebla.errors import CatalogError, CatalogUnavailableError, ConflictError

if TYPE_CHECKING:
    from ebla.model import changes as c
else:
    c = lazy.Module("ebla.model.changes")  # commits need them, reads do not

__all__ = ["FILE", "Catalog", "insisted", "is_postgres", "now_us"]

NO_NODE = NodeId("")

Done = TypeVar("Done")
P = ParamSpec("P")


def now_us() -> int:
    return time.time_ns() // 1000


class Catalog:
    """An open catalog. Safe to use from several threads."""

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
        self.own_commits = OwnCommits()
        self.announce: Callable[[], None] = lambda: None
        """Called when this process has committed something that others may wait for; it must return at once."""
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
    ) -> Self:
        """Open the catalog at a directory (SQLite) or a `postgresql://` address; create it where there is none.

        A database that does not answer is waited for, `retry_s` at most. A new directory and file get the rights that
        `mask` leaves.
        """
        if is_postgres(url):
            engine, server = engines.postgres_engine(url)
            return cls._opened(engine, url, server if clock is now_us else clock, create=create, retry_s=retry_s)
        folder = engines.require_directory(url)
        if engines.make_room(folder, create=create, mask=mask):
            with engines.new_file(folder, mask) as file:
                cls._opened(engines.sqlite_engine(file), url, clock, create=True, write_ahead=False).close()
        if engines.may_write(folder):
            return cls._opened(engines.sqlite_engine(folder / FILE), url, clock, create=create, retry_s=retry_s)
        reason = f"no write permission for {FILE} and its directory"
        return cls._opened(engines.sqlite_reader(folder / FILE), url, clock, retry_s=retry_s, read_only=reason)

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
    ) -> Self:
        catalog = cls(engine, url, clock, retry_s=retry_s, read_only=read_only)
        try:
            catalog.patience.insist(lambda: opening.prepare(catalog, create=create, write_ahead=write_ahead))
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

    # ---- commits ----------------------------------------------------------------------------------------

    def commit(self, decision: c.Decision, *, node: NodeId = NO_NODE) -> c.CommitRecord:
        """Make a decision true, or raise and change nothing."""
        committed = self._settle(lambda connection: decision, node)
        assert committed is not None
        return committed

    def _settle(self, decide: Callable[[Connection], c.Decision | None], node: NodeId) -> c.CommitRecord | None:
        """Decide under the commit lock and carry it out, once, however often the database falls silent.

        Each commit has an id of its own in the history. Where the answer was lost, the next try first looks for that
        id. It does so under the commit lock, which the lost one holds until it is committed or rolled back.
        """
        identifier = uuid.uuid4().hex
        request = user_requests.current()
        tried = False
        decision: c.Decision | None = None

        def settled(connection: Connection) -> c.CommitRecord | None:
            nonlocal tried, decision
            committed = history.committed_as(connection, identifier) if tried else None
            if committed is None:
                decision = decide(connection)
                if decision is None:
                    return None
                committed = _carry_out(connection, decision, self.clock(), node, identifier, request)
            tried = True  # what fails from here on may have happened
            return committed

        def once() -> c.CommitRecord | None:
            committed = self.change(settled)
            if committed is not None:
                hit("catalog.commit.done")
            return committed

        try:
            done = self.patience.insist(once)
            if done is not None:
                self.patience.committed()
                self.announce()
                if request is not None:
                    request.committed = True
                self.own_commits.note(done.version, decision)
            return done
        except CatalogError as error:  # also one that another try to connect met
            if not tried:
                raise
            lost = CatalogUnavailableError(
                f"{error}; whether the commit happened is not known: "
                f"SELECT * FROM system.history WHERE commit_id = '{identifier}' says so"
            )
            lost.settled = False
            if isinstance(error, CatalogUnavailableError):
                lost.since = error.since
            raise lost from error

    def decide(
        self,
        make: Callable[[Connection, Version], c.Decision | None],
        *,
        node: NodeId = NO_NODE,
        attempts: int = 5,
    ) -> c.CommitRecord | None:
        """Read state at an exclusive version, decide, commit if it is still that version; else start over.

        The last attempt reads and decides while it holds the commit lock, so that no race can be lost for ever. `make`
        therefore only reads, and through the connection it is given; it may be called several times.
        """
        for _ in range(attempts - 1):
            decision = self.read(lambda connection: _guarded(connection, make))
            if decision is None:
                return None
            try:
                return self.commit(decision, node=node)
            except ConflictError as conflict:
                if not conflict.retryable:
                    raise
        return self._settle(lambda connection: _guarded(connection, make), node)

    def located(self, root: str) -> str:
        """A storage root as an address. One inside the warehouse is recorded relative to it, so that it can move."""
        return str(Path(self.where) / root[2:]) if root.startswith("./") else root

    def cluster_id(self) -> str:
        """What tells this catalog from every other one."""
        query = select(s.meta.c.value).where(s.meta.c.key == "cluster_id")
        return str(self.read(lambda connection: connection.execute(query).scalar_one()))

    def version(self) -> Version:
        return Version(self.read(lambda connection: memory.counters(connection)["version"]))


def _carry_out(
    connection: Connection, decision: c.Decision, now: int, node: NodeId, commit_id: str, request: UserRequest | None
) -> c.CommitRecord:
    from ebla.catalog.apply import carry_out

    hit("catalog.commit.begun")
    version, created = carry_out(connection, decision, now)
    committed = history.record(
        connection, decision, version, now, created=created, node=node, commit_id=commit_id, request=request
    )
    hit("catalog.commit.before_commit")
    return committed


def insisted(function: Callable[Concatenate[Catalog, P], Done]) -> Callable[Concatenate[Catalog, P], Done]:
    """A function of a catalog that may be done twice, and is done again while the database does not answer."""

    @functools.wraps(function)
    def again(catalog: Catalog, /, *args: P.args, **kwargs: P.kwargs) -> Done:
        return catalog.patience.insist(lambda: function(catalog, *args, **kwargs))

    return again


def _guarded(connection: Connection, make: Callable[[Connection, Version], c.Decision | None]) -> c.Decision | None:
    at = Version(memory.counters(connection)["exclusive_version"])
    decision = make(connection, at)
    if decision is None:
        return None
    guard = c.ExclusiveVersionIs(version=at, scopes=decision.guards)
    return replace(decision, requires=(guard, *decision.requires), exclusive=True)


def _begun_to_read(engine: Engine) -> Connection:
    PRECEDENCE.give_way()
    raw = engine.connect()
    with _closed_on_error(raw):
        postgres = raw.dialect.name == "postgresql"
        connection = raw.execution_options(isolation_level="REPEATABLE READ") if postgres else raw
        connection.begin()
        if not isinstance(raw.connection.driver_connection, engines.StillConnection):  # it may read a torn file
            memory.begin(connection)
        return connection


LOCK_IDLE_S = 10
"""How long a process may hold the commit lock without a word; then the server takes it, and the commit, away."""

_LOCK = (
    f"SELECT set_config('idle_in_transaction_session_timeout', '{LOCK_IDLE_S}s', true), "
    "pg_advisory_xact_lock(hashtext('ebla.commit'))"
)


def _begun_to_write(engine: Engine) -> Connection:
    """Begin and take the commit lock.

    In PostgreSQL every statement must see what was committed before the lock was got, which READ COMMITTED does and a
    stricter default of the database would not. A process that is stopped while it holds the lock would stop all others:
    the server ends such a transaction.
    """
    raw = engine.connect()
    with _closed_on_error(raw):
        postgres = raw.dialect.name == "postgresql"
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
