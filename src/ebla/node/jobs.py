"""The services of handlers: the epochs of one handler, and the changes of dictionaries of all.

Of several processes one runs the epochs of a handler: the one that the job coordinator chose, once it has the lease.
Were two to hold it for a moment, their commits would still be guarded by the position of each view.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Collection, Mapping

from sqlalchemy import Connection

from ebla.catalog import reads
from ebla.model.handlers import DICTIONARY, Handler, by_name, owners
from ebla.model.plans import Plan
from ebla.model.relation import Kind
from ebla.relations import handlers as stored
from ebla.tables.context import Context
from ebla.views.handlers.epochs import HANDLER, Epochs
from ebla.views.handlers.epochs import LOOK_S as REFRESH_LOOK_S

log = logging.getLogger("ebla.jobs")

LOOK_S = 1.0
"""How often a process asks for a lease that another one holds."""


def service_of(handler: str) -> str:
    """The name of the service that runs the epochs of a handler, and of its lease."""
    return f"{HANDLER}{handler.lower()}"


def busy_handlers(connection: Connection) -> tuple[dict[str, Handler], Handler | None]:
    """The handlers that have views and should run, by name; and the one of dictionaries."""
    handlers = stored.handlers(connection)
    views = reads.relation_ids(connection, Kind.VIEW)
    busy = {one.name: one for one in owners(views, handlers).values() if one.should_run}
    return busy, by_name(handlers, DICTIONARY)


def may_run(context: Context, handler: str) -> bool:
    """Whether this process may run the epochs of a handler now. Spark may be gone since its service was started."""
    return context.maintains and context.leadership.take(service_of(handler), from_the_gone=True) is not None


GATHER_S_MAX = 1.0
"""How long wake-ups are gathered at most, where no period is set."""


def begins_s(woken_s: float, last: tuple[float, float] | None, period_s: float | None) -> float:
    """When work begins that is wanted since a moment; `last`: when it began and ended before.

    With a period, when that is over. Without, at once where nothing was done lately; where wake-ups follow each other,
    a pause as long as the last work gathers them, so that work of a fixed price takes half of the time at most.
    """
    if period_s is not None:
        return woken_s + period_s
    if last is None:
        return woken_s
    began_s, ended_s = last
    return max(woken_s, ended_s + min(ended_s - began_s, GATHER_S_MAX))


class Job:
    """A service that does its work once for any number of wake-ups, after a pause in which it gathers them."""

    wanted = True

    def __init__(
        self, name: str, once: Callable[[], float], period_s: Callable[[], float | None], clock: Callable[[], float]
    ) -> None:
        self.name = name
        self._once = once
        """Does the work; 0, or after how many seconds to try again, because it could not be done."""
        self._period_s = period_s
        """May change while wake-ups are gathered."""
        self._clock = clock
        self._woken_s: float | None = None
        self._last: tuple[float, float] | None = None
        self._not_before_s = -math.inf

    def step(self, now_s: float) -> float | None:
        if self._woken_s is None:
            self._woken_s = now_s
        due_s = max(begins_s(self._woken_s, self._last, self._period_s()), self._not_before_s)
        if now_s < due_s:
            return due_s
        self._woken_s = now_s  # of the next try, should this one fail
        wait_s = self._once()
        if wait_s > 0:
            self._not_before_s = now_s + wait_s
            return self._not_before_s
        self._woken_s, self._last = None, (now_s, self._clock())
        return None

    def stop(self) -> None:
        """Nothing is held."""


def epochs_of(context: Context, epochs: Epochs, handler: str, period_s: Callable[[], float | None]) -> Job:
    """The epochs of one handler."""
    name = service_of(handler)

    def once() -> float:
        if not may_run(context, handler):
            context.lag.forget(name)
            return LOOK_S
        with context.leadership.working(name), context.lag.reading(name):
            for one in epochs.of_handler(handler):
                if one.plan not in (Plan.NOTHING, Plan.UNCHANGED):
                    log.info("handler=%s view=%s epoch=%s version=%d +%d -%d", handler, one.view, one.plan,
                             one.applied_version, one.gained, one.lost)  # fmt: skip
        return 0.0

    return Job(name, once, period_s, context.services.clock)


class Turns:
    """When the dictionaries of each handler are due: each has a period of its own."""

    def __init__(self) -> None:
        self.periods_s: Mapping[str, float] = {}
        self._last: dict[str, float] = {}
        self._pending: set[str] = set()

    def want(self, now: float) -> None:
        """Something was written: every handler's dictionaries want a look."""
        for name in self.periods_s:
            self._last.setdefault(name, now)
        self._pending = set(self.periods_s)

    def pause_s(self, now: float) -> float:
        waits = [self._last[n] + self.periods_s[n] - now for n in self._pending if n in self.periods_s]
        return max(0.0, min(waits, default=0.0))

    def take(self, now: float) -> set[str]:
        """The handlers whose turn it is."""
        due = {n for n in self._pending if n in self.periods_s and self._last[n] + self.periods_s[n] <= now}
        self._pending = {n for n in self._pending - due if n in self.periods_s}
        self._last |= dict.fromkeys(due, now)
        return due

    def put_back(self, names: set[str], now: float) -> None:
        """Their turn was lost to a failure: it comes again at once."""
        self._pending |= names
        self._last |= {n: now - self.periods_s.get(n, 0.0) for n in names}

    def has_more(self) -> bool:
        return bool(self._pending)


class Dictionaries:
    """Gathers changes of dictionaries, and refreshes views chunk by chunk."""

    name = DICTIONARY
    wanted = True

    def __init__(self, context: Context, epochs: Epochs) -> None:
        self._context = context
        self._epochs = epochs
        self._turns = Turns()
        self._gathers = False
        self._here = frozenset[str]()
        self._lock = threading.Lock()
        self._refresh_s: float | None = 0.0
        """When refreshes that have begun go on; there may be one from the start."""
        self._begin: set[str] = set()
        """Handlers whose gathered changes are not all taken in."""

    def want(self, periods_s: Mapping[str, float], now_s: float, *, here: Collection[str], gathers: bool) -> None:
        """Something was committed: these handlers have dictionaries, and look at them this often.

        `here`: those whose epochs this process runs. `gathers`: it gathers the changes for all processes; the others
        begin with what it has gathered.
        """
        with self._lock:
            self._here, self._gathers = frozenset(here), gathers
            self._turns.periods_s = periods_s
            self._turns.want(now_s)
        if here and self._epochs.refreshing(set(here)):
            self._refresh_s = now_s  # one may have been resumed, or its process may have ended

    def step(self, now_s: float) -> float | None:
        """Gather and begin for the handlers whose turn it is; a chunk of every refresh that may go on."""
        wait_s = self._wait_s(now_s)
        if wait_s > 0.0:
            return now_s + wait_s
        with self._lock:
            due = self._turns.take(now_s)
            here = set(self._here)
        try:
            self._advance(due, here)
        except BaseException:
            with self._lock:
                self._turns.put_back(due, self._context.services.clock())
            raise
        with self._lock:
            return now_s if self._turns.has_more() or self._refresh_s is not None else None

    def _wait_s(self, now_s: float) -> float:
        """Until changes of dictionaries are gathered again, or a refresh may go on."""
        with self._lock:
            waits = [self._turns.pause_s(now_s)] if self._turns.has_more() else []
        if self._refresh_s is not None:
            waits.append(self._refresh_s - now_s)
        return max(0.0, min(waits, default=0.0))

    def _advance(self, due: set[str], here: set[str]) -> None:
        """Refresh for handlers whose epochs run here: then an epoch and a chunk never work against each other."""
        self._begin = (self._begin | due) & here
        wanted = self._begin | self._epochs.refreshing(here)
        mine = {name for name in wanted if may_run(self._context, name)}
        with contextlib.ExitStack() as working:
            for name in mine:
                working.enter_context(self._context.leadership.working(service_of(name)))
            if due and self._gathers:
                self._epochs.gather()
            step = self._epochs.refresh(self._begin & mine, mine)
        if step.wait_s is None:
            self._begin -= mine
        waits = [] if step.wait_s is None else [min(step.wait_s, REFRESH_LOOK_S)]
        waits += [LOOK_S] if wanted - mine else []  # their process may end
        self._refresh_s = self._context.services.clock() + min(waits) if waits else None

    def stop(self) -> None:
        """Refreshes go on from their positions, here or in another process."""
