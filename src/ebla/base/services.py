"""Services: what runs in the background of a process, and the scheduler that runs it.

Theory of operation. A service does one piece of work in a `step` and says when the next one is due; a wake-up makes it
due at once. Services are level-triggered: a step looks at the state and not at who woke it, so one step serves any
number of wake-ups, and a wake-up that comes during a step leads to another one. The scheduler has the clock, the
threads, and the pauses after failures. Services of one lane take turns in one thread, which starts with the first
wake-up and ends with the last service of the lane. A service whose steps take long has a lane of its own; those that
only renew something share the lane `hearts`.

A service of a rank gives way to those of ranks before its own: its step begins when none of theirs runs or is due.
Work of a rank that a user waits for, in a thread of no service, counts as a step that runs (`requested`).
Where their steps follow each other it waits for `GIVE_WAY_S`, and then for the end of a step that runs (`END_S` at
most), so that it comes to its turn under any load. A step that takes long asks `should_yield` between its pieces, and
ends early.

Without threads a test runs the same services: it moves the clock and calls `run_due`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from ebla.base.backoff import Backoff
from ebla.base.precedence import PRECEDENCE
from ebla.errors import ConflictError, EblaError

log = logging.getLogger("ebla.services")

HEARTS = "hearts"
"""The lane of services that renew leases and rows: short steps at long intervals."""
BACKOFF_S = Backoff(0.2, 30.0)
GIVE_WAY_S = 2.0
"""How long a step waits for services of earlier ranks, where their steps follow each other."""
END_S = 60.0
"""How long it then waits for the end of a step that began meanwhile."""


class Rank(IntEnum):
    """Which work in the background goes first on a node, where it has too few cores for all."""

    EPOCH = 1
    COMPACTION = 2
    VACUUM = 3


def gives_way(
    rank: Rank | None, at_work: Iterable[Rank | None], waited_s: float, running: Iterable[Rank | None] = ()
) -> bool:
    """Whether work that has been due for a while lets others go first: some of a rank before its own, not for ever.

    `running`: those whose steps run and began in the first `GIVE_WAY_S`.
    """

    def go_first(others: Iterable[Rank | None]) -> bool:
        return any(other is not None and rank is not None and other < rank for other in others)

    return go_first(at_work) if waited_s < GIVE_WAY_S else waited_s < END_S and go_first(running)


class Service(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def wanted(self) -> bool:
        """Whether this process has anything to do for it; if not, a wake-up does nothing."""
        ...

    def step(self, now_s: float) -> float | None:
        """Do what is due; when the next step is due, by the scheduler's clock. `None`: with the next wake-up."""
        ...

    def stop(self) -> None:
        """Give back what is held. Called once, behind the last step."""
        ...


@dataclass(slots=True, eq=False)
class _Entry:
    service: Service
    lane: _Lane
    backoff: Backoff
    rank: Rank | None = None
    due_s: float = math.inf
    """When the next step is due, as the last one said."""
    asked_s: float = math.inf
    """When the next step is due, as callers have asked since the last one began."""
    not_before_s: float = -math.inf
    """The end of the pause after a failure."""
    held_s: float | None = None
    """Since when it is due and gives way to others."""
    woken: bool = False
    stepping: bool = False
    began_s: float = -math.inf
    """When its last step began."""
    failures: int = 0
    steps: int = 0
    stepped_s: float = 0.0
    gave_way_s: float = 0.0

    @property
    def next_s(self) -> float:
        return max(self.not_before_s, -math.inf if self.woken else min(self.due_s, self.asked_s))

    def usage(self) -> ServiceUsage:
        return ServiceUsage(
            name=self.service.name,
            stepping=self.stepping,
            failures=self.failures,
            steps=self.steps,
            stepped_s=self.stepped_s,
            gave_way_s=self.gave_way_s,
        )


@dataclass(slots=True, eq=False)
class _Lane:
    name: str
    changed: threading.Condition
    entries: list[_Entry] = field(default_factory=list)
    thread: threading.Thread | None = None

    def first(self) -> _Entry | None:
        return min(self.entries, key=lambda entry: entry.next_s, default=None)


def _running(
    entries: Iterable[_Entry], requested: Iterable[tuple[Rank, float]], before_s: float = math.inf
) -> set[Rank | None]:
    """The ranks of steps, and of work that was requested, that run and began before a moment."""
    work = [*((one.rank, one.began_s) for one in entries if one.stepping), *requested]
    return {rank for rank, began_s in work if began_s < before_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUsage:
    """What a service has done since it was added."""

    name: str
    stepping: bool
    failures: int
    """The number of failures in a row; 0 if the last step went well."""
    steps: int
    stepped_s: float
    gave_way_s: float
    """How long its steps were due and let others go first."""


class Scheduler:
    """Runs the services of one open database. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, threads: bool = True) -> None:
        self.clock = clock
        self._threads = threads
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        """Notified behind each step, and when services are stopped."""
        self._entries: dict[str, _Entry] = {}
        self._lanes: dict[str, _Lane] = {}
        self._requested: list[tuple[Rank, float]] = []
        self._closing = False

    def add(
        self, service: Service, *, lane: str | None = None, backoff: Backoff = BACKOFF_S, rank: Rank | None = None
    ) -> None:
        """Run a service from now on. Its first step comes with a wake-up. Nothing begins while all is being closed."""
        name = service.name if lane is None else lane
        with self._lock:
            if self._closing:
                return
            place = self._lanes.setdefault(name, _Lane(name, threading.Condition(self._lock)))
            entry = _Entry(service, place, backoff, rank)
            assert service.name not in self._entries, f"service {service.name}: expected to be added once"
            self._entries[service.name] = entry
            place.entries.append(entry)

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._entries

    def wake(self, *names: str) -> None:
        """Have these services step, if this process has anything to do for them. Unknown names are left alone."""
        with self._lock:
            found = [self._entries[name] for name in names if name in self._entries]
        for entry in found:
            if entry.service.wanted:  # not under the lock: it may ask others
                self._wake(entry)

    def wake_in(self, name: str, after_s: float) -> None:
        """Have a service step after a while, if it is not due before, and this process has anything to do for it."""
        with self._lock:
            entry, due_s = self._entries.get(name), self.clock() + after_s
        if entry is None or not entry.service.wanted:
            return
        with self._lock:
            if entry in entry.lane.entries and due_s < entry.asked_s:
                entry.asked_s = due_s
                self._go(entry.lane)

    def wake_group(self, prefix: str) -> None:
        """Have the services step whose names begin so."""
        with self._lock:
            names = [name for name in self._entries if name.startswith(prefix)]
        self.wake(*names)

    def _wake(self, entry: _Entry) -> None:
        with self._lock:
            if entry not in entry.lane.entries:
                return
            entry.woken = True
            self._go(entry.lane)

    def _go(self, lane: _Lane) -> None:
        """Have the lane's thread look at what is due. Under the lock."""
        if lane.thread is None and self._threads:
            thread = threading.Thread(target=self._run, args=(lane,), name=f"ebla-{lane.name}", daemon=True)
            thread.start()
            lane.thread = thread
        lane.changed.notify_all()

    # ---- steps ------------------------------------------------------------------------------------------

    def _run(self, lane: _Lane) -> None:
        while True:
            with self._lock:
                while (entry := self._due(lane)) is None:
                    first = lane.first()
                    if first is None:
                        lane.thread = None
                        del self._lanes[lane.name]
                        return
                    lane.changed.wait(self._pause_s(first))
            self._step(entry)

    def _due(self, lane: _Lane) -> _Entry | None:
        """The service of a lane whose turn it is; from now on it steps."""
        entry, now_s = lane.first(), self.clock()
        if entry is None or entry.next_s > now_s:
            return None
        held_s = now_s if entry.held_s is None else entry.held_s
        running = _running(self._entries.values(), self._requested, before_s=held_s + GIVE_WAY_S)
        if gives_way(entry.rank, self._at_work(), now_s - held_s, running):
            entry.held_s = held_s
            return None
        entry.gave_way_s += now_s - held_s
        entry.woken, entry.asked_s, entry.stepping, entry.held_s = False, math.inf, True, None
        entry.began_s = now_s
        return entry

    def _pause_s(self, entry: _Entry) -> float | None:
        """Until a service that is not to step now may step; `None`: not before it is woken. Under the lock."""
        until_s, now_s = entry.next_s, self.clock()
        if entry.held_s is not None:
            until_s = entry.held_s + (GIVE_WAY_S if now_s < entry.held_s + GIVE_WAY_S else END_S)
        return None if until_s == math.inf else max(0.0, until_s - now_s)

    def _at_work(self) -> set[Rank | None]:
        """The ranks of which a step runs or is due. Under the lock."""
        now_s = self.clock()
        due = {entry.rank for entry in self._entries.values() if entry.next_s <= now_s}
        return due | _running(self._entries.values(), self._requested)

    @contextlib.contextmanager
    def requested(self, rank: Rank) -> Iterator[None]:
        """Work that a user waits for goes first as a step of this rank does, from now to its end."""
        with self._lock:
            self._requested.append(work := (rank, self.clock()))
        try:
            yield
        finally:
            with self._lock:
                self._requested.remove(work)
                self.notify()

    def should_yield(self, rank: Rank) -> bool:
        """Whether a step of this rank is to end early: one of a rank before it runs or is due."""
        with self._lock:
            return gives_way(rank, self._at_work(), 0.0)

    def _step(self, entry: _Entry) -> None:
        due_s: float | None = None
        failures, began_s = entry.failures + 1, self.clock()
        try:
            with PRECEDENCE.behind():
                due_s = entry.service.step(began_s)
            failures = 0
        except ConflictError as error:  # another process came first: the pause does not grow
            log.debug("service=%s starts over reason=%s", entry.service.name, error)
            failures = max(entry.failures, 1)
        except EblaError as error:
            log.warning("service=%s failed reason=%s", entry.service.name, error)
        except Exception:
            if not self._threads:
                raise  # a test wants to know
            if self.is_running(entry.service):
                log.exception("service=%s failed", entry.service.name)
        finally:
            with self._lock:
                entry.stepping, entry.failures = False, failures
                entry.steps, entry.stepped_s = entry.steps + 1, entry.stepped_s + self.clock() - began_s
                entry.due_s = math.inf if due_s is None else due_s
                if failures:
                    entry.due_s = entry.not_before_s = self.clock() + entry.backoff.after(failures)
                self.notify()

    def run_due(self) -> int:
        """Without threads: every step that is due now, one after the other; how many there were."""
        assert not self._threads, "threads run the services"
        count = 0
        while due := [entry for lane in list(self._lanes.values()) if (entry := self._due(lane)) is not None]:
            for entry in due:
                self._step(entry)
                count += 1
        return count

    @property
    def next_s(self) -> float:
        """When the next step is due; infinite: with the next wake-up."""
        with self._lock:
            return min((entry.next_s for entry in self._entries.values()), default=math.inf)

    # ---- waiting and stopping ---------------------------------------------------------------------------

    def is_running(self, service: Service) -> bool:
        """Whether a service was added and not stopped."""
        with self._lock:
            entry = self._entries.get(service.name)
            return entry is not None and entry.service is service

    def spent(self) -> list[ServiceUsage]:
        """What each service has done, by name."""
        with self._lock:
            return [entry.usage() for _, entry in sorted(self._entries.items())]

    def is_stepping(self, name: str) -> bool:
        with self._lock:
            return name in self._entries and self._entries[name].stepping

    def notify(self) -> None:
        """Have those look again who wait for a condition, or for the end of what goes before them."""
        with self._lock:
            for condition in (self._changed, *(lane.changed for lane in self._lanes.values())):
                condition.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until a condition holds that steps, stops and `notify` may change; whether it does."""
        with self._lock:
            return self._changed.wait_for(condition, timeout_s)

    def wait_idle(self, name: str, timeout_s: float) -> bool:
        """Wait until a service has nothing to do before the next wake-up."""

        def is_idle() -> bool:
            entry = self._entries.get(name)
            return entry is None or (not entry.stepping and entry.next_s == math.inf)

        return self.wait_for(is_idle, timeout_s)

    def stop(self, *names: str, timeout_s: float | None = None) -> bool:
        """End services: begin no other step, wait for those that run, have each give back what it holds.

        False: a step ran on behind the timeout. Its service gives nothing back.
        """
        with self._lock:
            found = [self._entries.pop(name) for name in names if name in self._entries]
            for entry in found:
                entry.lane.entries.remove(entry)
                entry.lane.changed.notify_all()
            self._changed.notify_all()
            self.wait_for(lambda: not any(entry.stepping for entry in found), timeout_s)
            over = [entry for entry in found if not entry.stepping]
        for entry in over:
            try:
                entry.service.stop()
            except Exception:  # the others give back what they hold
                log.exception("service=%s cannot be stopped", entry.service.name)
        return len(over) == len(found)

    def drop(self, name: str) -> None:
        """Begin no other step of a service. One that runs goes on to its end, and `stop` is not called."""
        with self._lock:
            entry = self._entries.pop(name, None)
            if entry is not None:
                entry.lane.entries.remove(entry)
                entry.lane.changed.notify_all()
                self._changed.notify_all()

    def close(self, timeout_s: float | None = None) -> None:
        """Stop all services: those that renew something last, because the others need it to their ends."""
        with self._lock:
            self._closing = True
            work = [name for name, entry in self._entries.items() if entry.lane.name != HEARTS]
        for names in (work, list(self._entries)):
            self.stop(*names, timeout_s=timeout_s)
            with self._lock:
                ending = [lane.thread for lane in self._lanes.values() if not lane.entries and lane.thread is not None]
            for thread in ending:  # of services that were dropped, too
                thread.join(timeout_s)
