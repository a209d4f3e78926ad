"""Epochs in the background of an embedded process: one thread for each handler that has views, one for dictionaries.

Level-triggered: a write wakes the runner, and so does a commit of another process at its next look, but what is done
follows from the catalog. It runs only where Spark runs already: a process that writes without Spark leaves the epochs
to those that have it. Of several processes one runs the epochs of a handler, the one that has its lease
(`ebla.views.handlers.leases`); the others ask for it as long as there may be something to do.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping

from ebla.base.backoff import Backoff
from ebla.base.ids import Version
from ebla.catalog import reads, troubles
from ebla.catalog.troubles import Activity
from ebla.errors import ConflictError, EblaError
from ebla.model.handlers import DICTIONARY, by_name, owners, tuning
from ebla.model.plans import Plan
from ebla.model.relation import Kind
from ebla.relations import handlers as stored
from ebla.tables.context import Context
from ebla.views.handlers.epochs import LOOK_S as REFRESH_LOOK_S
from ebla.views.handlers.epochs import Epochs
from ebla.views.handlers.leases import Leases

log = logging.getLogger("ebla.jobs")

BACKOFF_S = Backoff(0.2, 30.0)
LOOK_S = 1.0
"""How often the runner looks for commits of other processes."""


def lease_of(handler: str) -> str:
    return f"handler/{handler.lower()}"


class Job:
    """A thread that does its work once for any number of wake-ups, after a pause in which it gathers them."""

    def __init__(self, name: str, once: Callable[[], bool], pause_s: Callable[[float], float]) -> None:
        self.name = name
        self._once = once
        """Does the work; whether there is more of it."""
        self._pause_s = pause_s
        """How long to wait after being woken at this time."""
        self._changed = threading.Condition()
        self._woken = False
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name=f"ebla-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Begin no other work."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def join(self) -> None:
        self._thread.join()

    def _loop(self) -> None:
        failures = 0
        while self._wait(failures):
            again = True
            try:
                again = self._once()
                failures = 0
            except ConflictError:
                failures = max(failures, 1)  # another process came first
            except EblaError as error:
                failures += 1
                log.warning("job=%s failed reason=%s", self.name, error)
            except Exception:
                failures += 1
                if not self._stopping:
                    log.exception("job=%s failed", self.name)
            if again:
                self.wake()

    def _wait(self, failures: int) -> bool:
        """Until there is work and the pause is over; the pause may change meanwhile. False: stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._woken or self._stopping)
            woken_at = time.monotonic()
            while not self._stopping:
                left_s = woken_at + max(self._pause_s(woken_at), BACKOFF_S.after(failures)) - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            self._woken = False
            return not self._stopping


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

    def put_back(self, names: set[str]) -> None:
        """Their turn was lost to a failure: it comes again at once."""
        self._pending |= names
        self._last |= {n: time.monotonic() - self.periods_s.get(n, 0.0) for n in names}

    def has_more(self) -> bool:
        return bool(self._pending)


class Runner:
    """Starts, wakes and ends the jobs of one process as the catalog says."""

    def __init__(self, context: Context, epochs: Epochs) -> None:
        self._context = context
        self._epochs = epochs
        epochs.on_free = self._nudge
        self._leases = Leases(context)
        self._not_before: dict[str, float] = {}
        """When to ask again for the lease of a handler that another process holds."""
        self.also_wakes: Callable[[], None] = lambda: None
        """Called when anything was committed, here or in another process."""
        self._changed = threading.Condition()
        self._woken = False
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._seen: Version | None = None
        self._next_try_us: int | None = None
        """When a view in trouble is tried again, by the catalog's clock."""
        self._jobs: dict[str, Job] = {}
        self._ended: list[Job] = []
        self._periods_s: dict[str, float] = {}
        self._turns = Turns()
        self._turns_lock = threading.Lock()
        self._refresh_at: float | None = 0.0
        """When refreshes that have begun go on; there may be one from the start."""
        self._begin: set[str] = set()
        """Handlers whose gathered changes are not all taken in."""
        self._ungathered: set[str] = set()
        """Handlers whose turn has come, and whose dictionaries have not been looked at since."""

    def wake(self) -> None:
        """Something was committed here, or Spark was started."""
        if not self._context.maintains:
            return
        with self._changed:
            if self._stopping:
                return
            self._woken = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="ebla-runner", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _nudge(self) -> None:
        """Views are free again: epochs that left them out have something to do, whether or not there was a commit."""
        for job in list(self._jobs.values()):
            if job.name != DICTIONARY:
                job.wake()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._woken or self._stopping, self._rest_s())
                if self._stopping:
                    return
                self._woken = False
            try:
                self._look()
            except EblaError as error:
                log.warning("job=runner failed reason=%s", error)  # the next look comes soon
            except Exception:
                if not self._stopping:
                    log.exception("job=runner failed")

    def _rest_s(self) -> float:
        """Until the next look: not longer than until a view is tried again."""
        if self._next_try_us is None:
            return LOOK_S
        return min(LOOK_S, max(0.01, (self._next_try_us - self._context.catalog.clock()) / 1e6))

    def _look(self) -> None:
        """Compare what runs with what should; wake what runs if anything was committed, or is to be tried again."""
        with self._context.catalog.reading() as connection:
            version = reads.current_version(connection)
            tries, now = troubles.retries(connection, Activity.EPOCH), self._context.catalog.clock()
            self._next_try_us = min((at for at in tries if at > now), default=None)
            if version == self._seen:
                if any(at <= now for at in tries):
                    self._nudge()
                return
            handlers = stored.handlers(connection)
            views = reads.relation_ids(connection, Kind.VIEW)
        settings, job = self._context.settings, by_name(handlers, DICTIONARY)
        busy = {h.name: h for h in owners(views, handlers).values() if h.should_run}
        tuned = {name: tuning(h, settings, job) for name, h in busy.items()}
        self._periods_s = {name: t.epoch_period_s for name, t in tuned.items()}
        wanted = set(busy)
        gathers = job is not None and job.should_run
        with self._turns_lock:
            self._turns.periods_s = {n: tuned[n].dictionary_period_s for n, h in busy.items() if h.batch and gathers}
            self._turns.want(time.monotonic())
        if self._turns.periods_s:
            wanted.add(DICTIONARY)
        for name in [n for n in self._jobs if n not in wanted]:
            log.info("job=%s stopped", name)
            self._jobs[name].stop()
            self._ended.append(self._jobs.pop(name))
        for name in sorted(wanted - self._jobs.keys()):
            log.info("job=%s started", name)
            self._jobs[name] = self._job(name)
            self._jobs[name].start()
        if self._turns.periods_s and self._epochs.refreshing(set(self._turns.periods_s)):
            self._refresh_at = time.monotonic()  # one may have been resumed, or its process may have ended
        self._seen = version
        self.also_wakes()
        for running in self._jobs.values():
            running.wake()

    def _job(self, name: str) -> Job:
        if name == DICTIONARY:
            return Job(name, self._dictionaries, self._until_turn)
        return Job(name, lambda: self._epoch(name), lambda woken_at: self._until_epoch(name, woken_at))

    def _is_mine(self, name: str) -> bool:
        """Whether this process may run the epochs of a handler; else when to ask again is noted."""
        wait_s = self._leases.take(lease_of(name)) if self._context.maintains else LOOK_S  # Spark may be gone
        self._not_before[name] = time.monotonic() + wait_s
        return wait_s == 0.0

    def _until_epoch(self, name: str, woken_at: float) -> float:
        return max(self._periods_s.get(name, 0.0), self._not_before.get(name, 0.0) - woken_at)

    def _epoch(self, name: str) -> bool:
        if not self._is_mine(name):
            return True
        with self._leases.working(lease_of(name)):
            self._epoch_here(name)
        return False

    def _epoch_here(self, name: str) -> None:
        for one in self._epochs.of_handler(name):
            if one.plan not in (Plan.NOTHING, Plan.UNCHANGED):
                log.info("handler=%s view=%s epoch=%s version=%d +%d -%d", name, one.view, one.plan,
                         one.applied_version, one.gained, one.lost)  # fmt: skip

    def _until_turn(self, woken_at: float) -> float:
        """Until changes of dictionaries are gathered again, or a refresh may go on."""
        with self._turns_lock:
            waits = [self._turns.pause_s(woken_at)] if self._turns.has_more() else []
        if self._refresh_at is not None:
            waits.append(self._refresh_at - woken_at)
        return max(0.0, min(waits, default=0.0))

    def _dictionaries(self) -> bool:
        """Gather and begin for the handlers whose turn it is; a chunk of every refresh that may go on.

        Of handlers whose epochs this process runs: then an epoch and a chunk never work against each other.
        """
        with self._turns_lock:
            due = self._turns.take(time.monotonic())
            handlers = set(self._turns.periods_s)
        self._begin = (self._begin | due) & handlers
        self._ungathered = (self._ungathered | due) & handlers
        try:
            wanted = self._begin | self._epochs.refreshing(handlers)
            mine = {name for name in wanted if self._is_mine(name)}
            with contextlib.ExitStack() as working:
                for name in mine:
                    working.enter_context(self._leases.working(lease_of(name)))
                if self._ungathered & mine:
                    self._epochs.gather()
                    self._ungathered -= mine
                step = self._epochs.refresh(self._begin & mine, mine)
        except BaseException:
            with self._turns_lock:
                self._turns.put_back(due)
            raise
        if step.wait_s is None:
            self._begin -= mine
        waits = [] if step.wait_s is None else [min(step.wait_s, REFRESH_LOOK_S)]
        waits += [LOOK_S] if wanted - mine else []  # their process may end
        self._refresh_at = time.monotonic() + min(waits) if waits else None
        with self._turns_lock:
            return self._turns.has_more() or self._refresh_at is not None

    def stop(self) -> None:
        """Finish the epochs that are running, begin no other."""
        self._epochs.stopping.set()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        for job in self._jobs.values():
            job.stop()
        for job in (*self._jobs.values(), *self._ended):
            job.join()
        self._leases.stop()
