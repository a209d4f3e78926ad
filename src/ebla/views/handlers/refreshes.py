"""Refreshes of this process's views after changes of dictionaries: begun, paced, and brought to their ends.

Level-triggered: what is to be done next follows from the catalog, and the only thing that is remembered here is what
has been waited for. A chunk is waited for before it is done, so that N rows at R rows a second take at least N/R
seconds, and no lock is held meanwhile: epochs of the view go on between chunks, and a process that ends need not wait.
A new rate holds at once, for what is still to be waited for, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import reads, troubles
from ebla.catalog import transactions as tx
from ebla.catalog.troubles import Activity, Trouble
from ebla.errors import CatalogError, ConflictError
from ebla.model import changes as c
from ebla.model.handlers import DICTIONARY, Handler, Tuning, by_name, tuning
from ebla.model.refresh import Refresh, ahead
from ebla.model.throttle import Throttle
from ebla.relations import handlers as stored
from ebla.relations.cut import cut_of
from ebla.relations.views import View, moved
from ebla.tables import troubles as troubled
from ebla.tables.context import Context
from ebla.views.epoch import maintain
from ebla.views.epoch.attempt import Epoch, Target
from ebla.views.epoch.ranges import Ranges
from ebla.views.epoch.refresh import Chunk
from ebla.views.epoch.round import Round
from ebla.views.handlers import dictionary
from ebla.views.handlers.dictionary import Due, Running
from ebla.views.handlers.leases import is_gone

log = logging.getLogger("ebla.jobs")

CONFLICT_S = 0.2
"""How soon a chunk is tried again that another process was faster with, or is in the way of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a view is refreshed now."""

    rows_per_minute: int | None
    chunk_rows: int

    @classmethod
    def of(cls, tuned: Tuning, refresh: Refresh | None) -> Pace:
        """What `ALTER` has set for the refresh, else what holds for the handler. Rounded down: it is a bound."""
        rate = None if tuned.dictionary_rows_per_s is None else max(1, int(tuned.dictionary_rows_per_s * 60))
        rows = tuned.dictionary_rows_per_scan
        if refresh is not None:
            rate = rate if refresh.rows_per_minute is None else refresh.rows_per_minute
            rows = refresh.chunk_rows or rows
        return cls(rows_per_minute=rate, chunk_rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """A view's next chunk, and what is owed before it is done."""

    chunk: object
    """Which refresh, and where it is; `None`: no chunk is decided."""
    rows: int
    throttle: Throttle


def planned(
    before: Waited | None, chunk: object, rows_left: int, pace: Pace, now_us: int, *, whole: bool = False
) -> Waited:
    """The next chunk under a pace. What is owed stays owed, unless the rate has changed: then it is planned anew.

    `whole`: all rows that are left are written in one epoch, and waited for before it.
    """
    throttle = Throttle(rows_per_minute=pace.rows_per_minute, at_us=now_us)
    if before is not None and before.throttle.rows_per_minute == pace.rows_per_minute:
        if before.chunk == chunk:
            return before
        throttle = before.throttle
    rows = max(1, rows_left if whole else min(throttle.rows_now(pace.chunk_rows), rows_left))
    return Waited(chunk=chunk, rows=rows, throttle=throttle.spent(rows, now_us))


def done(waited: Waited, rows: int, now_us: int) -> Waited:
    """Behind the chunk: rows that it had and that were not planned for are owed."""
    return Waited(chunk=None, rows=0, throttle=waited.throttle.spent(max(0, rows - waited.rows), now_us))


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
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
        self._waited: dict[RelationId, Waited] = {}

    def advance(
        self,
        begin: Collection[str],
        go_on: Collection[str],
        *,
        without: Collection[str] = (),
        stopping: Callable[[], bool] = lambda: False,
    ) -> Advanced:
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
        return Advanced(done=found, wait_s=min(waits, default=None), failed=failed)

    def _views(self, begin: Collection[str], go_on: Collection[str]) -> list[View]:
        with self._context.catalog.reading() as connection:
            going = [one.view for one in dictionary.running(connection, go_on)]
            return going + [one.view for one in dictionary.due(connection, begin)]

    def _failed(self, view: View, error: Exception) -> float:
        """Record what went wrong, and say when it is tried again: soon, if another process came first."""
        if isinstance(error, ConflictError):
            return CONFLICT_S
        trouble = troubled.note(self._context, view.relation, Activity.DICTIONARY, error)
        log.warning("view=%s refresh failed attempts=%d code=%s reason=%s",
                    view.relation.name, trouble.attempts, trouble.code, trouble.message)  # fmt: skip
        log.debug("view=%s", view.relation.name, exc_info=error)
        return troubles.BACKOFF_US.after(trouble.attempts) / 1e6

    # ---- one view ---------------------------------------------------------------------------------------

    def _one(self, name: str, begin: Collection[str], go_on: Collection[str]) -> tuple[list[Epoch], float | None]:
        """Do what is due of a view, and say how long until more is; `None`: nothing is left."""
        one = self._look(name, begin, go_on)
        if one is None or one.is_paused:
            return [], None  # the commit that lets it go on wakes the runner
        wait_s = max(one.pause_s, self._wait_s(one) or 0.0)
        if wait_s > 0.0:
            return [], wait_s
        if self._is_busy_elsewhere(one.view):
            return [], CONFLICT_S
        try:
            with self._exclusively(name):
                again = self._look(name, begin, go_on)  # what was read before the view's lock was held may be old
                if again is None or again.chunk != one.chunk:
                    return [], 0.0
                epochs = self._act(again)
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

    def _free(self, one: _Next) -> None:
        """Let epochs that left the view out come before the next chunk. What goes wrong there is not the chunk's."""
        try:
            self._on_free(one.view, one.handler)
        except Exception as error:  # the handler's own job was woken, tries the same, and notes it
            log.warning("handler=%s epoch behind a chunk failed reason=%s", one.handler.name, error)
            log.debug("handler=%s", one.handler.name, exc_info=error)

    def _look(self, name: str, begin: Collection[str], go_on: Collection[str]) -> _Next | None:
        with self._context.catalog.reading() as connection:
            going = _named(dictionary.running(connection, go_on), name)
            due = None if going is not None else _named(dictionary.due(connection, begin), name)
            one = going or due
            if one is None:
                return None
            trouble = troubles.find(connection, one.view.relation.id, Activity.DICTIONARY)
            tuned = tuning(one.handler, self._context.settings, by_name(stored.handlers(connection), DICTIONARY))
            return _Next(
                view=one.view,
                handler=one.handler,
                going=going,
                due=due,
                tuned=tuned,
                pace=Pace.of(tuned, None if going is None else going.refresh),
                fan_out=_fan_out(connection, due) if due is not None and due.concerned else None,
                in_trouble=trouble is not None,
                pause_s=self._pause_s(trouble),
            )

    def _pause_s(self, trouble: Trouble | None) -> float:
        retry_at = None if trouble is None else trouble.retry_at
        return 0.0 if retry_at is None else max(0, retry_at - self._context.catalog.clock()) / 1e6

    def _act(self, one: _Next) -> list[Epoch]:
        context = self._context.tuned(batch_rows_max=one.tuned.batch_rows_max)
        if one.going is not None:
            if one.going.mended is not None:
                return self._counted(one, self._epoch(context, one.view, one.going.mended))
            refresh, rows_max = one.going.refresh, self._waited[one.view.relation.id].rows
            chunk = Chunk(up_to=refresh.up_to, to=refresh.to, rows_max=rows_max)
            return self._counted(one, self._epoch(context, one.view, one.going.target, chunk))
        assert one.due is not None
        if one.fan_out is None:
            dictionary.move_on(context, one.due)
            return []
        if isinstance(one.fan_out.by, str):
            return self._counted(one, self._whole(context, one.due))
        if one.pace.rows_per_minute is None and one.fan_out.view_rows <= one.pace.chunk_rows:
            return self._whole(context, one.due)
        return self._begin(context, one.due, one.fan_out.by, one.pace)

    def _begin(self, context: Context, due: Due, by: tuple[str, ...], pace: Pace) -> list[Epoch]:
        """Count what the change touches, and begin with nothing of it done. If it is little, do it at once."""
        view, position = due.view, due.view.position
        assert position is not None
        with context.catalog.reading() as connection:
            relations = {n: reads.relation(connection, n) for n in view.inputs}
            target = due.standing.versions(relations, reads.current_version(connection))
        refresh = Refresh(to={n: int(v) for n, v in due.moved.items()}, by=by, started_us=context.catalog.clock())
        expected = Ranges(view, relations, by, Round(context)).count(ahead(position.read, refresh, target))
        if expected == 0 or (pace.rows_per_minute is None and expected <= pace.chunk_rows):
            return self._whole(context, due)
        begun = replace(position, refresh=replace(refresh, expected=expected))
        context.catalog.commit(
            c.Decision(
                reason=f"refresh of {view.relation.name}: begin, {expected} values of ({', '.join(by)}) to come",
                requires=(c.ProgressIs(name=view.progress_name, value=view.stored),),
                updates=moved(view, begun),
            ),
            node=context.node,
        )
        hit("refresh.begun")
        return []

    def _whole(self, context: Context, due: Due) -> list[Epoch]:
        """All of a change in one epoch; where no commit is behind it, the position alone moves."""
        done = self._epoch(context, due.view, Target(stream=due.stream, batch=due.versions))
        if done and all(epoch.idle for epoch in done):
            dictionary.move_on(context, due)
        return done

    def _epoch(self, context: Context, view: View, target: Target, chunk: Chunk | None = None) -> list[Epoch]:
        name = view.relation.name.lower()
        return maintain.refresh(context, {name: target}, chunk=chunk, retry={name}, at_once=True, of_dictionaries=True)

    # ---- pace -------------------------------------------------------------------------------------------

    def _wait_s(self, one: _Next) -> float | None:
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

    def _counted(self, one: _Next, epochs: list[Epoch]) -> list[Epoch]:
        number, rows = one.view.relation.id, sum(epoch.gained + epoch.lost for epoch in epochs)
        self._waited[number] = done(self._waited[number], rows, time.monotonic_ns() // 1000)
        return epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class _FanOut:
    """What a change of dictionaries is to a view."""

    by: tuple[str, ...] | str
    """The columns of the cut, or why there are none."""
    view_rows: int
    rows: int
    """Of the view, that the change touches, if dictionaries' rows are used equally often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Next:
    """What is to be done with a view: begin a refresh, or go on with it."""

    view: View
    handler: Handler
    going: Running | None
    due: Due | None
    tuned: Tuning
    pace: Pace
    fan_out: _FanOut | None
    """Of a change that begins and concerns the view."""
    in_trouble: bool
    pause_s: float
    """How long until it is tried again."""

    @property
    def chunk(self) -> object:
        """What tells this chunk from any other."""
        if self.going is not None:
            return tuple(self.going.refresh.to.items()), self.going.refresh.up_to
        assert self.due is not None
        return tuple(self.due.moved.items())

    @property
    def is_paused(self) -> bool:
        if self.going is None:
            return False
        refresh = self.going.refresh
        return refresh.on_hold or self.pace.rows_per_minute == 0 or (refresh.cancelled and not self.going.again)

    @property
    def is_whole(self) -> bool:
        """Whether all that is left is one epoch: the view cannot be cut, or a row is mended on which it failed."""
        return self.going is None or self.going.mended is not None

    @property
    def rows_left(self) -> int | None:
        """Rows to write, about; `None` where no pace is kept, because no row is written."""
        if self.going is not None:
            return self.going.refresh.rows_left
        return self.fan_out.rows if self.fan_out is not None and isinstance(self.fan_out.by, str) else None


def _fan_out(connection: Connection, due: Due) -> _FanOut:
    relations = {n: reads.relation(connection, n) for n in due.view.inputs}
    rows = reads.snapshot(connection, due.view.relation).rows_at_most
    assert due.view.position is not None
    by = cut_of(due.view, relations, due.batch)
    if any(relations[name].horizon > due.view.position.read[name] for name in due.batch):
        by = "the dictionaries as the view has them were vacuumed"  # it came to them late
    share = 0.0
    for name, version in due.moved.items():
        read, relation = Version(due.view.position.read[name]), relations[name]
        written = sum(run.rows for run in reads.writes_between(connection, relation, read, version))
        share += written / max(1, reads.snapshot(connection, relation, version).rows_at_most)
    return _FanOut(by=by, view_rows=rows, rows=max(1, round(rows * min(1.0, share))))


Named = TypeVar("Named", Due, Running)


def _named(found: Iterable[Named], name: str) -> Named | None:
    return next((one for one in found if one.view.relation.name.lower() == name), None)
