"""One leader's rounds: decide, commit, send.

Theory of operation. The coordinator decides. What it decides on, where its decisions go, and how its calls reach the
workers, stands behind ports, so that the same rounds run in a process and in a simulation.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ebla.base.failpoint import hit
from ebla.base.ids import Term
from ebla.build.coordinator import Coordinator, Event, Limits
from ebla.build.ports import Rpc, Store
from ebla.build.state import State
from ebla.errors import ConflictError, StaleTermError
from ebla.model import changes as c

log = logging.getLogger("ebla.build")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What came of one round."""

    changed: bool
    """Whether anything was to be committed: then there is something new to look at."""
    committed: bool
    wake_us: int
    """When the next round is due even if no event comes."""


class Leader:
    """What one process remembers while it leads. Safe to use from several threads."""

    def __init__(
        self, holder: str, store: Store, rpc: Rpc, wake: Callable[[], None], limits: Limits | None = None
    ) -> None:
        self.limits = limits or Limits()
        self._holder = holder
        self._store = store
        self._rpc = rpc
        self._wake = wake
        """Called when an event has come."""
        self._events: deque[Event] = deque()
        """Other threads add to them at any time."""
        self._coordinator: Coordinator | None = None

    def hear(self, event: Event) -> None:
        self._events.append(event)
        self._wake()

    def round(self, state: State, term: Term, now_us: int) -> Round | None:
        """One look at a state and what follows from it; `None`: another process leads."""
        if self._coordinator is None or self._coordinator.term != term:
            self._coordinator = Coordinator(self._holder, term, self.limits)
        events = [self._events.popleft() for _ in range(len(self._events))]
        decision = self._coordinator.step(state, events, now_us)
        if decision.resigned:
            return None
        try:
            committed = self._commit(decision.commit())
        except StaleTermError:
            return None
        for call in decision.calls:
            self._rpc.send(call, self.hear)
        return Round(changed=bool(decision.updates), committed=committed, wake_us=decision.wake_us)

    def _commit(self, decision: c.Decision | None) -> bool:
        if decision is None:
            return False
        hit("build.before_coordinator_commit")
        try:
            self._store.commit(decision)
        except StaleTermError:
            raise
        except ConflictError as error:
            log.info("building: decided anew reason=%s", error)
            return False
        log.info("building: %s", decision.reason)
        hit("build.coordinator_committed")
        return True

    def forget(self) -> None:
        """One that does not lead remembers nothing: answers to its former calls mean nothing."""
        self._coordinator = None
        self._events.clear()
