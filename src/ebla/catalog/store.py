"""The catalog: one transactional database in which everything is decided.

Theory of operation. All relations share one sequence of versions. A commit is one database transaction, or shares one
with others of its process that wait at the same moment (`ebla.catalog.group`): take the commit lock (SQLite: the write
lock; PostgreSQL: an advisory lock), check what the decision requires, apply its updates at the next version, write the
history row. *Exclusive* decisions (schema, topology) also require that no other exclusive commit came since they read
their state; *data* decisions do not conflict with each other beyond what they require. A reader's snapshot is a
version; rows of the manifest say from which version to which they hold.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, select

from ebla.base import lazy, user_requests
from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, Version
from ebla.base.user_requests import UserRequest
from ebla.catalog import history, memory
from ebla.catalog import schema as s
from ebla.catalog.database import CatalogDatabase, now_us
from ebla.catalog.engines import is_postgres
from ebla.catalog.failures import FILE
from ebla.catalog.own_commits import OwnCommits
from ebla.errors import CatalogError, CatalogUnavailableError, ConflictError

if TYPE_CHECKING:
    from ebla.model import changes as c
else:
    c = lazy.Module("ebla.model.changes")  # commits need them, reads do not

__all__ = ["FILE", "Catalog", "insisted", "is_postgres", "now_us"]

NO_NODE = NodeId("")

Done = TypeVar("Done")
P = ParamSpec("P")


class Catalog(CatalogDatabase):
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
        super().__init__(engine, where, clock, retry_s=retry_s, read_only=read_only)
        self.own_commits = OwnCommits()
        self.announce: Callable[[], None] = lambda: None
        """Called when this process has committed something that others may wait for; it must return at once."""

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
