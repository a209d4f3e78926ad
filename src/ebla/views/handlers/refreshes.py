"""Refreshes of this process's views after changes of dictionaries: begun, paced, and brought to their ends.

Level-triggered: what is to be done next follows from the catalog, and the only thing that is remembered here is what
has been waited for. A chunk is waited for before it is done, so that N rows at R rows a second take at least N/R
seconds, and no lock is held meanwhile: epochs of the view go on between chunks, and a process that ends need not wait.
A new rate holds at once, for what is still to be waited for, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ebla.base.ids import RelationId
from ebla.catalog import transactions as tx
from ebla.catalog import troubles
from ebla.catalog.leadership import is_gone
from ebla.catalog.troubles import Activity
from ebla.errors import CatalogError, ConflictError
from ebla.model.handlers import Handler
from ebla.relations.views import View
from ebla.tables import troubles as troubled
from ebla.tables.context import Context
from ebla.views.epoch.attempt import Epoch
from ebla.views.handlers import dictionary_views
from ebla.views.handlers.next_refresh import NextRefresh, look
from ebla.views.handlers.refresh_speed import PacedChunk, done, planned
from ebla.views.handlers.refresh_step import act

log = logging.getLogger("ebla.jobs")

CONFLICT_S = 0.2
"""How soon a chunk is tried again after another process committed first, or held the view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshResult:
    """What one look did. `wait_s`: how long until there is more to do; `None`: there is nothing left."""

    done: list[Epoch] = field(default_factory=list)
    wait_s: float | None = None
    failed: dict[str, Exception] = field(default_factory=dict)


class Refreshes:
    """The refreshes that one process does. One thread at a time."""

    def __init__(
        self,
        context: Context,
        exclusively: Callable[[str], AbstractContextManager[object]],
        on_free: Callable[[View, Handler], None],
    ) -> None:
        self._context = context
        self._exclusively = exclusively
        """The lock of a view."""
        self._on_free = on_free
        """Called when a view can be worked on again."""
        self._waited: dict[RelationId, PacedChunk] = {}

    def advance(
        self,
        begin: Collection[str],
        go_on: Collection[str],
        *,
        without: Collection[str] = (),
        stopping: Callable[[], bool] = lambda: False,
    ) -> RefreshResult:
        """Begin what is due of some handlers, and go on with refreshes of others: one chunk of each view."""
        found: list[Epoch] = []
        waits: list[float] = []
        failed: dict[str, Exception] = {}
        for view in self._views(begin, go_on):
            name = view.relation.name.lower()
            if stopping():
                break
            if name in without:
                continue
            try:
                epochs, wait_s = self._one(name, begin, go_on)
                found += epochs
            except CatalogError:
                raise  # of this process, not of the view
            except Exception as error:  # one view's trouble is not another's
                failed[name] = error
                wait_s = self._failed(view, error)
            if wait_s is not None:
                waits.append(wait_s)
        return RefreshResult(done=found, wait_s=min(waits, default=None), failed=failed)

    def _views(self, begin: Collection[str], go_on: Collection[str]) -> list[View]:
        with self._context.catalog.reading() as connection:
            going = [one.view for one in dictionary_views.running(connection, go_on)]
            return going + [one.view for one in dictionary_views.due(connection, begin)]

    def _failed(self, view: View, error: Exception) -> float:
        """Record what went wrong, and say when it is tried again: soon, if another process came first."""
        if isinstance(error, ConflictError):
            return CONFLICT_S
        trouble = troubled.note(self._context.catalog, self._context.holder, view.relation, Activity.DICTIONARY, error)
        log.warning("view=%s refresh failed attempts=%d code=%s reason=%s",
                    view.relation.name, trouble.attempts, trouble.code, trouble.message)  # fmt: skip
        log.debug("view=%s", view.relation.name, exc_info=error)
        return troubles.BACKOFF_US.after(trouble.attempts) / 1e6

    # ---- one view ---------------------------------------------------------------------------------------

    def _one(self, name: str, begin: Collection[str], go_on: Collection[str]) -> tuple[list[Epoch], float | None]:
        """Do what is due of a view, and say how long until more is; `None`: nothing is left."""
        one = look(self._context.catalog, self._context.settings, name, begin, go_on)
        if one is None or one.is_paused:
            return [], None  # the commit that lets it go on wakes the runner
        wait_s = max(one.pause_s, self._wait_s(one) or 0.0)
        if wait_s > 0.0:
            return [], wait_s
        if self._is_busy_elsewhere(one.view):
            return [], CONFLICT_S
        try:
            with self._exclusively(name):
                # Read under the view's lock.
                again = look(self._context.catalog, self._context.settings, name, begin, go_on)
                if again is None or again.chunk != one.chunk:
                    return [], 0.0
                epochs = self._do(again)
        finally:
            self._free(one)
        if any(epoch.stopped for epoch in epochs):
            return epochs, None  # on a row: until an input has changed
        if one.in_trouble:
            troubles.clear(self._context.catalog, one.view.relation.id, Activity.DICTIONARY)
        return epochs, 0.0

    def _is_busy_elsewhere(self, view: View) -> bool:
        """Whether another process is in an epoch of a view, such as a FLUSH: with a chunk first, it would start over.

        It is waited for as long as it lives: what it brings the view to may end the refresh.
        """
        catalog = self._context.catalog
        with catalog.reading() as connection:
            others = tx.epochs_elsewhere(connection, [view.relation.id], self._context.holder, catalog.clock())
        return not all(map(is_gone, others))

    def _free(self, one: NextRefresh) -> None:
        """Let epochs that left the view out come before the next chunk. What goes wrong there is not the chunk's."""
        try:
            self._on_free(one.view, one.handler)
        except Exception as error:  # the handler's own job was woken, tries the same, and notes it
            log.warning("handler=%s epoch behind a chunk failed reason=%s", one.handler.name, error)
            log.debug("handler=%s", one.handler.name, exc_info=error)

    # ---- pace -------------------------------------------------------------------------------------------

    def _wait_s(self, one: NextRefresh) -> float | None:
        """How long to wait before the next chunk; `None`: until the rate is altered."""
        rows_left = one.rows_left
        if rows_left is None:
            return 0.0
        now_us, number = time.monotonic_ns() // 1000, one.view.relation.id
        waited = self._waited[number] = planned(
            self._waited.get(number), one.chunk, rows_left, one.pace, now_us, whole=one.is_whole
        )
        wait_us = waited.throttle.wait_us(now_us)
        return None if wait_us is None else wait_us / 1e6

    def _do(self, one: NextRefresh) -> list[Epoch]:
        number = one.view.relation.id
        waited = self._waited.get(number)
        epochs = act(self._context, one, rows_max=0 if waited is None else waited.rows)
        if waited is not None and one.is_paced:
            rows = sum(epoch.gained + epoch.lost for epoch in epochs)
            self._waited[number] = done(waited, rows, time.monotonic_ns() // 1000)
        return epochs
