"""Building in the background of a process: the service that leads, if no other process does, and has tasks done.

Theory of operation. Level-triggered. The loop runs while there is something to build and this process builds: Spark
and epochs run in its background, or a statement waits in it for a view. It takes the lease, reads the state, lets the
coordinator step, commits under its term and sends calls (`ebla.build.leader`); any event, and the time that the
coordinator names, starts the next round. With nothing left to build it gives the lease back and sleeps.

A view whose last task is done is *settled* (`ebla.build.settlement`); then the coordinator marks it built. And the
process that leads takes indexes from state to state (`ebla.indexes.walk`): one step in each round.

What the loop reads and changes stands behind ports (`ebla.build.ports`), so it runs in a simulation as it runs here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ebla.base.backoff import Backoff
from ebla.base.ids import RelationId, Term
from ebla.base.services import Scheduler
from ebla.build.coordinator import Limits
from ebla.build.leader import Leader
from ebla.build.ports import Leases, Nodes, Settlement, Store, WalkResult
from ebla.build.state import State
from ebla.build.trouble import Failures
from ebla.errors import EblaError, StaleTermError
from ebla.model import changes as c
from ebla.model.tasks import LEASE

log = logging.getLogger("ebla.build")

BUILDING = "building"
"""The name of the service."""
LOOK_AGAIN_S = 0.25
"""How often a statement that waits for a view looks at it, and has the loop look, though no event came."""
QUIET_S = 5.0
"""How long a statement that waited for a view waits, at most, for the loop to give its lease back."""
BACKOFF_S = Backoff(0.2, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the loop works with."""

    services: Scheduler
    leases: Leases
    store: Store
    nodes: Nodes
    settlement: Settlement
    failures: Failures
    clock_us: Callable[[], int]
    maintains: Callable[[], bool]
    """Whether this process builds in the background, whether or not a statement waits."""
    walk: Callable[[Sequence[c.Requirement]], WalkResult]
    """Take indexes one step on."""
    built: Callable[[Collection[RelationId]], None]
    """Called when relations were marked built."""


class Loop:
    """This process's part in building. Safe to use from several threads."""

    name = BUILDING

    def __init__(self, holder: str, ports: Ports, limits: Limits | None = None) -> None:
        self._holder = holder
        self._ports = ports
        self._leader = Leader(holder, ports.store, ports.nodes, lambda: ports.services.wake(BUILDING), limits)
        self._lock = threading.Lock()
        self._waiting = 0
        self._waiting_for_walk = 0
        self._leaving = 0
        """Statements that wait for the loop to give its lease back."""
        self._rounds = 0
        ports.services.add(self, backoff=BACKOFF_S)

    # ---- for statements ---------------------------------------------------------------------------------

    def wait(
        self, views: Sequence[RelationId], over: Callable[[], bool], *, only_walk: bool = False
    ) -> dict[RelationId, list[Exception]]:
        """Build until a condition holds, or one of these views fails; what went wrong meanwhile, by view.

        `only_walk`: for this one nothing has to be filled; indexes are taken from state to state, and that is all.
        """
        services = self._ports.services
        self._ports.failures.forget(views)
        with self._lock:
            self._waiting += not only_walk
            self._waiting_for_walk += only_walk
        try:
            services.wake(self.name)
            while not over():
                found, rounds = self._ports.failures.of(views), self._rounds
                if found or not services.is_running(self):
                    return found
                if not self._goes_on(rounds, views):
                    services.wake(self.name)  # never after a round: the two would keep each other, and a core, busy
            return {}
        finally:
            with self._lock:
                self._waiting -= not only_walk
                self._waiting_for_walk -= only_walk
            self._leave()

    def _goes_on(self, rounds: int, views: Sequence[RelationId]) -> bool:
        """Wait for the end of a round, or for an error; whether there was one."""
        services, failures = self._ports.services, self._ports.failures
        return services.wait_for(
            lambda: self._rounds != rounds or bool(failures.of(views)) or not services.is_running(self), LOOK_AGAIN_S
        )

    def _leave(self) -> None:
        """Wait until no lease is held for the sake of a statement that waits no more."""
        services = self._ports.services
        with self._lock:
            self._leaving += 1
        services.wake(self.name)

        def is_quiet() -> bool:
            leads = self._ports.leases.held(LEASE) is not None or services.is_stepping(self.name)
            return not leads or self._waiting + self._waiting_for_walk > 0 or not services.is_running(self)

        if not self._ports.maintains():
            services.wait_for(is_quiet, QUIET_S)
        with self._lock:
            self._leaving -= 1

    @property
    def builds(self) -> bool:
        """Whether this process has workers do tasks."""
        return self._ports.maintains() or self._waiting > 0

    def _is_asked(self) -> bool:
        return self.builds or self._waiting_for_walk > 0

    # ---- the service ------------------------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        return self._is_asked() or self._leaving > 0

    def step(self, now_s: float) -> float | None:
        try:
            builds = self.builds
            wait_us = self._walk_only() if self._is_asked() and not builds else self._round(builds=builds)
            return None if wait_us is None else self._ports.services.clock() + wait_us / 1e6
        finally:
            self._rounds += 1

    def stop(self) -> None:
        """Give the lease back. The chunks that run were finished before, or end with their services."""
        try:
            self._resign()
        except EblaError as error:
            log.warning("building: expected to give the lease back, found reason=%s; it runs out", error)
        self._ports.nodes.close()

    def _round(self, *, builds: bool) -> int | None:
        """One look at the catalog and what follows from it; how long until the next. `None`: until a wake-up."""
        ports, poll_us = self._ports, self._leader.limits.poll_us
        ports.settlement.begin_round()
        state = ports.store.load()
        ports.nodes.observed(state)
        nothing_left = not state.builds and not state.tasks and not state.walking
        if nothing_left:
            ports.settlement.forget()
        tidying = nothing_left and state.processing is not None  # the last view was dropped: its base is let go
        if not tidying and (nothing_left or not builds):
            self._resign()
            return None
        term = self._lead()
        if term is None:
            return poll_us if builds else None
        now_us = ports.clock_us()
        done = self._leader.round(state, term, now_us)
        if done is None:
            self._lose()
            return poll_us
        forgiven = ports.store.forgive(state)
        if done.committed and (readable := state.readable()):
            ports.built(readable)
        ports.settlement.look(state, now_us)
        walked = self._walk_on(state, term)
        if done.changed or forgiven or (walked is not None and walked.moved):
            return 0  # look at what it led to
        wait_us = max(0, done.wake_us - now_us)
        return wait_us if walked is None or walked.wait_us is None else min(wait_us, walked.wait_us)

    def _walk_only(self) -> int | None:
        """A round of a process in which a statement waits for an index to go, and for nothing to be filled."""
        state = self._ports.store.load()
        self._forget()
        if not state.walking:
            return self._round(builds=False)
        term = self._lead()
        walked = None if term is None else self._walk_on(state, term)
        if walked is None or walked.wait_us is None:
            return 0 if walked is not None and walked.moved else self._leader.limits.poll_us
        return 0 if walked.moved else walked.wait_us

    def _walk_on(self, state: State, term: Term) -> WalkResult | None:
        """Take indexes one step on, under this leader's term."""
        if not state.walking:
            return None
        try:
            return self._ports.walk([c.TermIs(lease=LEASE, holder=self._holder, term=term)])
        except StaleTermError:
            self._lose()
            return None

    # ---- leading ----------------------------------------------------------------------------------------

    def _lead(self) -> Term | None:
        """The term in which this process leads; `None`: another one does."""
        lease = self._ports.leases.take(LEASE)
        if lease is None:
            self._forget()
            return None
        return lease.term

    def _lose(self) -> None:
        """A worker, or the catalog, has seen a newer leader."""
        self._ports.leases.lost(LEASE)
        self._leader.forget()

    def _resign(self) -> None:
        self._ports.leases.give_back(LEASE)
        self._forget()

    def _forget(self) -> None:
        """The batches of a process that does not lead end after the chunks that run; the next leader does the rest."""
        self._leader.forget()
        self._ports.nodes.let_go()
