"""The service that looks at the catalog, and runs the services that its handlers want.

Level-triggered: a write wakes the runner, and so does a commit of another process at its next look, but what is done
follows from the catalog. It runs only where Spark runs already: a process that writes without Spark leaves the epochs
to those that have it.
"""

from __future__ import annotations

import logging

from ebla.base.backoff import Backoff
from ebla.base.ids import Version
from ebla.base.services import Rank, Service
from ebla.build.loop import BUILDING
from ebla.catalog import memory, reads, troubles
from ebla.catalog.troubles import Activity
from ebla.model.handlers import DICTIONARY, Handler, by_name, owners, tuning
from ebla.model.relation import Kind
from ebla.node.jobs import Dictionaries, epochs_of, service_of
from ebla.relations import handlers as stored
from ebla.tables.context import Context
from ebla.views.handlers.epochs import HANDLER, Epochs

log = logging.getLogger("ebla.jobs")

BUILDING_LOOK_S = 0.25
"""How often commits that bring nothing but rows, positions and tasks have the building loop look."""
LOOK_S = 1.0
"""How often the runner looks for commits of other processes, and tries again when a look has failed."""


class Runner:
    """Starts, wakes and ends the services of handlers in one process as the catalog says."""

    name = "runner"

    def __init__(self, context: Context, epochs: Epochs) -> None:
        self._context = context
        self._epochs = epochs
        self._dictionaries = Dictionaries(context, epochs)
        self._jobs: dict[str, Service] = {}
        self._periods_s: dict[str, float | None] = {}
        self._seen: Version | None = None
        self._shape: int | None = None
        self._next_try_us: int | None = None
        """When a view in trouble is tried again, by the catalog's clock."""
        context.services.add(self, backoff=Backoff(LOOK_S, LOOK_S))

    @property
    def wanted(self) -> bool:
        return self._context.maintains

    def step(self, now_s: float) -> float:
        self._look(now_s)
        self._context.lag.publish()
        return self._context.services.clock() + self._rest_s()

    def _rest_s(self) -> float:
        """Until the next look: not longer than until a view is tried again."""
        if self._next_try_us is None:
            return LOOK_S
        return min(LOOK_S, max(0.01, (self._next_try_us - self._context.catalog.clock()) / 1e6))

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
                return
            shape = memory.counters(connection)["shape"]
            handlers = stored.handlers(connection)
            views = reads.relation_ids(connection, Kind.VIEW)
        job = by_name(handlers, DICTIONARY)
        busy = {h.name: h for h in owners(views, handlers).values() if h.should_run}
        gathers = self._tune(busy, job)
        self._dictionaries.want(gathers, now_s)
        self._run({service_of(name): name for name in busy} | ({DICTIONARY: DICTIONARY} if gathers else {}))
        for name in busy:
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

    def _run(self, wanted: dict[str, str]) -> None:
        """Start and end services, by name, so that those of these handlers run."""
        services = self._context.services
        for name in [n for n in self._jobs if n not in wanted]:
            log.info("job=%s stopped", name)
            services.drop(name)
            self._context.lag.forget(name)
            del self._jobs[name]
        for name in sorted(wanted.keys() - self._jobs.keys()):
            log.info("job=%s started", name)
            self._jobs[name] = self._job(wanted[name])
            services.add(self._jobs[name], rank=Rank.EPOCH)

    def _job(self, handler: str) -> Service:
        if handler == DICTIONARY:
            return self._dictionaries
        return epochs_of(self._context, self._epochs, handler, lambda: self._periods_s.get(handler))

    def stop(self) -> None:
        """Nothing is held."""
