"""`FLUSH` and `WAIT FOR`: statements that return when views and indexes are up to date or built."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.base.services import Rank
from ebla.catalog import reads
from ebla.errors import EblaError, ViewStoppedError
from ebla.model.relation import Kind
from ebla.relations import failed_builds as failed
from ebla.relations import indexes as index_definition
from ebla.relations import views as definition
from ebla.spark.result import Result
from ebla.views import replace

if TYPE_CHECKING:
    from ebla.api.database import Database


class Arrivals:
    """Waits for views and indexes of one open database."""

    def __init__(self, database: Database) -> None:
        self._context = database.context
        self._epochs = database.epochs
        self._waits = database.waits

    def flush(self, *names: str) -> Result:
        """Bring views up to every write committed before this call."""
        self._require(names)
        with self._saying_what_goes_on():
            self._waits.wait(names or None, retry=bool(names))
        for view in self._require(names):
            if view.building:
                raise _stopped(view.relation.name, None if view.position is None else view.position.message)
        with self._context.services.requested(Rank.EPOCH):
            done = self._epochs.flush(*names)
        asked = {n.lower() for n in names}
        for one in done:
            if one.stopped and one.view.lower() in asked:
                raise _stopped(one.view, one.reason)
            if one.waits and asked and one.error is not None:
                raise _waits(one.view, one.error) from one.error  # one that was asked for, or that one of them reads
        return Result(
            table=pa.table(
                {
                    "view": pa.array([d.view for d in done], pa.string()),
                    "applied_version": pa.array([int(d.applied_version) for d in done], pa.int64()),
                    "plan": pa.array([d.plan for d in done], pa.string()),
                    "reason": pa.array([d.reason for d in done], pa.string()),
                    "gained": pa.array([d.gained for d in done], pa.int64()),
                    "lost": pa.array([d.lost for d in done], pa.int64()),
                    "seconds": pa.array([d.seconds for d in done], pa.float64()),
                }
            )
        )

    def wait_for(self, *names: str) -> Result:
        """Return when these views and indexes are built; the first process that can builds them."""
        with self._saying_what_goes_on():
            return self.built(*names)

    def built(self, *names: str) -> Result:
        """Return when these are built; raise why one of them is not."""
        with self._context.catalog.reading() as connection:
            for name in names:
                failure = failed.of_name(connection, name)
                if failure is not None:
                    raise failed.error_of(failure, later=True)
            of_index = [n for n in names if (r := reads.find_relation(connection, n)) and r.kind is Kind.INDEX]
            indexes = [index_definition.load(connection, name) for name in of_index]
        names = tuple(name for name in names if name not in of_index)
        self._require(names)
        beside = [replace.name_of_build(self._context.catalog, name) for name in names]
        self._waits.wait(beside)
        for view in self._require([name for name in beside if name not in names and self._is_there(name)]):
            if view.position is None or not view.position.built:
                name = view.relation.name.removeprefix(definition.REPLACEMENT)
                raise _stopped(name, None if view.position is None else view.position.message)
        replace.exchange(self._context.catalog, self._context.node)
        self._waits.indexes.wait([index for index in indexes if not index.readable])
        views = self._require(names)
        for view in views:
            if view.position is None or view.position.failed:
                raise _stopped(view.relation.name, None if view.position is None else view.position.message)
        versions = [int(v.position.applied_version) for v in views if v.position is not None]
        none = [None] * len(indexes)  # its writers keep it: it is never behind
        return Result(
            table=pa.table(
                {
                    "view": pa.array([*(v.relation.name for v in views), *(i.name for i in indexes)], pa.string()),
                    "applied_version": pa.array([*versions, *none], pa.int64()),
                }
            )
        )

    @contextlib.contextmanager
    def _saying_what_goes_on(self) -> Iterator[None]:
        """A statement that stops waiting for a build does not stop the build, and says so."""
        try:
            yield
        except KeyboardInterrupt as interrupted:
            interrupted.add_note("only the waiting ended: the build goes on; CANCEL BUILD ends it")
            raise

    def _is_there(self, name: str) -> bool:
        with self._context.catalog.reading() as connection:
            return reads.find_relation(connection, name) is not None

    def _require(self, names: Sequence[str]) -> list[definition.View]:
        if not names:
            return []
        with self._context.catalog.reading() as connection:
            return [definition.load(connection, name) for name in names]


def _stopped(view: str, why: str | None) -> ViewStoppedError:
    return ViewStoppedError(
        f"view {view}: stopped: {why}; mend the rows; then it goes on by itself, or at once with FLUSH {view}"
    )


def _waits(view: str, error: Exception) -> EblaError:
    if isinstance(error, EblaError):
        return error
    return EblaError(f"view {view}: unexpected {type(error).__name__}: {error}; it is tried again by itself")
