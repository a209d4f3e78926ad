"""The service that looks at the catalog, and runs the services of the jobs of this process.

Level-triggered: a write wakes the runner, and so does a commit of another process at its next look, but what is done
follows from the catalog. It runs only where Spark runs already: a process that writes without Spark leaves the epochs
to those that have it.
"""

from __future__ import annotations

import logging

from sqlalchemy.exc import SQLAlchemyError

from ebla.base.backoff import Backoff
from ebla.base.ids import Version
from ebla.base.services import Rank, Service
from ebla.build.loop import BUILDING
from ebla.catalog import jobs, memory, reads, troubles
from ebla.catalog.troubles import Activity
from ebla.errors import EblaError
from ebla.model.handlers import DICTIONARY, Handler, tuning
from ebla.node.assignment import Assignment
from ebla.node.jobs import Dictionaries, busy_handlers, epochs_of, service_of
from ebla.tables.context import Context
from ebla.views.handlers.epochs import HANDLER, Epochs

log = logging.getLogger("ebla.jobs")

BUILDING_LOOK_S = 0.25
"""How often commits that bring nothing but rows, positions and tasks have the building loop look."""
ENDING_LOOK_S = 0.1
"""How often it looks while a job that was stopped works on."""


class Runner:
    """Starts, wakes and ends the services of handlers in one process as the catalog says."""

    name = "runner"

    def __init__(self, context: Context, epochs: Epochs) -> None:
        self._context = context
        self._epochs = epochs
        self.assignment = Assignment(
            context.catalog, context.settings, context.leadership, start=self._start, stop=self._stop
        )
        self._dictionaries = Dictionaries(context, epochs)
        self._jobs: dict[str, Service] = {}
        """What runs here, by the name of the service."""
        self._periods_s: dict[str, float | None] = {}
        self._seen: Version | None = None
        self._shape: int | None = None
        self._wanted = frozenset[str]()
        self._next_try_us: int | None = None
        """When a view in trouble is tried again, by the catalog's clock."""
        self._period_s = context.settings.jobs_period_s
        # A commit wakes compaction, too: until the runner has looked, and woken the epochs behind it, that waits.
        context.services.add(self, backoff=Backoff(self._period_s, self._period_s), rank=Rank.EPOCH)

    @property
    def wanted(self) -> bool:
        return self._context.maintains

    def step(self, now_s: float) -> float:
        self._look(now_s)
        self._context.lag.publish()
        return self._context.services.clock() + self._rest_s()

    def _rest_s(self) -> float:
        """Until the next look: not longer than until a view is tried again, or a job that ends has ended."""
        if self.assignment.is_ending:
            return ENDING_LOOK_S
        if self._next_try_us is None:
            return self._period_s
        return min(self._period_s, max(0.01, (self._next_try_us - self._context.catalog.clock()) / 1e6))

    def _look(self, now_s: float) -> None:
        """Compare what runs with what should; wake what runs if anything was committed, or is to be tried again."""
        services, clock = self._context.services, self._context.catalog.clock
        with self._context.catalog.reading() as connection:
            version = reads.current_version(connection)
            tries, now = troubles.retries(connection, Activity.EPOCH), clock()
            self._next_try_us = min((at for at in tries if at > now), default=None)
            if version == self._seen:
                if any(at <= now for at in tries):
                    services.wake_group(HANDLER)
                if not self.assignment.is_due(jobs.changed(connection)):
                    return
            shape = memory.counters(connection)["shape"]
            busy, job = busy_handlers(connection)
            is_due = self.assignment.is_due(jobs.changed(connection))
        gathered = self._tune(busy, job)
        wanted = {name: handler.text() for name, handler in busy.items()}
        if gathered and job is not None:
            wanted[DICTIONARY] = job.text()
        before = set(self.assignment.jobs)
        if is_due or wanted.keys() != self._wanted:
            self.assignment.look(wanted)
            self._wanted = frozenset(wanted)
        if version == self._seen and before == self.assignment.jobs:
            return
        self._gather(gathered, now_s)
        for name in self.assignment.jobs & busy.keys():
            self._context.lag.committed(service_of(name), self._periods_s[name])
        services.wake(*self._jobs)
        if shape == self._shape:
            services.wake_in(BUILDING, BUILDING_LOOK_S)
        else:
            services.wake(BUILDING)
        self._seen, self._shape = version, shape

    def _tune(self, busy: dict[str, Handler], job: Handler | None) -> dict[str, float]:
        """Take over the periods of handlers; those of the handlers whose dictionaries are looked at."""
        tuned = {name: tuning(handler, self._context.settings, job) for name, handler in busy.items()}
        self._periods_s = {name: t.epoch_period_s for name, t in tuned.items()}
        if job is None or not job.should_run:
            return {}
        return {name: tuned[name].dictionary_period_s for name, handler in busy.items() if handler.batch}

    def _gather(self, periods_s: dict[str, float], now_s: float) -> None:
        """Have dictionaries looked at for the handlers that run here, and gathered where that is this process's job."""
        here = self.assignment.jobs & periods_s.keys()
        gathers = DICTIONARY in self.assignment.jobs
        wanted = periods_s if gathers else {name: periods_s[name] for name in here}
        self._dictionaries.want(wanted, now_s, here=here, gathers=gathers)
        if not wanted:
            self._drop(DICTIONARY)
        elif DICTIONARY not in self._jobs:
            self._add(self._dictionaries)

    # ---- as the job coordinator says --------------------------------------------------------------------

    def _start(self, job: str) -> None:
        """Run a job here from now on. Dictionaries are looked at for jobs that run here (`_gather`)."""
        if job != DICTIONARY and service_of(job) not in self._jobs:
            self._add(epochs_of(self._context, self._epochs, job, lambda: self._periods_s.get(job)))

    def _stop(self, job: str) -> bool:
        """Begin no other epoch of a job here; whether none runs. Others may have its lease then."""
        if job == DICTIONARY:
            return True
        name = service_of(job)
        self._drop(name)
        if self._context.leadership.is_working(name):
            return False
        self._context.leadership.give_back(name)
        return True

    def _add(self, service: Service) -> None:
        self._jobs[service.name] = service
        self._context.services.add(service, rank=Rank.EPOCH)

    def _drop(self, name: str) -> None:
        if self._jobs.pop(name, None) is not None:
            self._context.services.drop(name)
            self._context.lag.forget(name)

    def stop(self) -> None:
        """Others run the jobs."""
        try:
            self.assignment.leave()
        except (EblaError, OSError, SQLAlchemyError) as error:
            log.warning("runner: expected to take its row away, found reason=%s; it runs out", error)
