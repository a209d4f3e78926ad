"""Building in the background of a process: one thread leads, if no other process does, and carries out decisions.

Theory of operation. Level-triggered. The loop runs while there is something to build and this process builds: Spark
and epochs run in its background, or a statement waits in it for a view. It takes the lease, reads the state, lets the
coordinator step, commits under its term and sends calls; any event, and the time that the coordinator names, starts the
next round. With nothing left to build it gives the lease back and sleeps.

A view whose last task is done is *settled*: an epoch brings what chunks of different versions left to one version, and
a sample of its rows is compared with its query. Then the coordinator marks it built. An index needs no epoch; it is
compared with its base. And the process that leads takes indexes from state to state (`ebla.indexes.walk`): one step in
each round.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId
from ebla.build import stored
from ebla.build.coordinator import Answered, Call, CallFailed, Coordinator, Event, Limits, TermRefused
from ebla.build.engine import is_told
from ebla.build.node import LocalNode, LocalNodes
from ebla.build.node import TermRefused as Refused
from ebla.build.pace import Paces
from ebla.build.ports import Filler
from ebla.build.reach import Reach
from ebla.build.state import State
from ebla.catalog import building, troubles
from ebla.catalog import transactions as tx
from ebla.catalog.troubles import Activity
from ebla.errors import (
    ConflictError,
    DuplicateKeyError,
    EblaError,
    StaleTermError,
    UnknownNameError,
)
from ebla.model import changes as c
from ebla.model.relation import Kind
from ebla.model.tasks import LEASE
from ebla.tables.context import Context

log = logging.getLogger("ebla.build")

LOOK_AGAIN_S = 0.25
"""How often a statement that waits for a view looks at it, and has the loop look, though nothing was said."""
QUIET_S = 5.0
"""How long a statement that waited for a view waits, at most, for the loop to give its lease back."""
POLL_S = 0.02
"""How soon a check is made again that an epoch is in the way of."""


class Walked(Protocol):
    """What came of a step of indexes from state to state."""

    @property
    def moved(self) -> bool: ...

    @property
    def wait_us(self) -> int | None: ...


class Loop:
    """This process's part in building. Safe to use from several threads."""

    def __init__(
        self,
        context: Context,
        fillers: Mapping[Kind, Filler],
        settle: Callable[[RelationId], None],
        check: Callable[[RelationId], bool],
        walk: Callable[[Sequence[c.Requirement]], Walked],
        on_built: Callable[[Collection[RelationId]], None],
        forgive: Callable[[RelationId], None],
        limits: Limits | None = None,
    ) -> None:
        self._context = context
        self._settle = settle
        self._check = check
        self._walk = walk
        self._on_built = on_built
        self._forgive = forgive
        self._limits = limits or Limits()
        paces = Paces()
        self.nodes = LocalNodes(
            Reach(context).nodes,
            lambda host: LocalNode(context, host, fillers, paces, self._load, self._went_wrong),
        )
        self._changed = threading.Condition()
        self._events: list[Event] = []
        self._asked: set[Call] = set()
        self._woken = False
        self._in_round = False
        self._stopping = False
        self._waiting = 0
        self._waiting_for_walk = 0
        self._thread: threading.Thread | None = None
        self._coordinator: Coordinator | None = None
        self._lease: tx.Lease | None = None
        self._checked: set[RelationId] = set()
        self._settling: dict[RelationId, threading.Thread] = {}
        self._errors: dict[RelationId, list[Exception]] = {}
        self._rounds = 0

    # ---- for others -------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something was committed here, or Spark was started."""
        with self._changed:
            if self._stopping or not self._wanted():
                return
            self._woken = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ebla-building", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(
        self, views: Sequence[RelationId], over: Callable[[], bool], *, only_walk: bool = False
    ) -> dict[RelationId, list[Exception]]:
        """Build until a condition holds, or one of these views fails; what went wrong meanwhile, by view.

        `only_walk`: for this one nothing has to be filled; indexes are taken from state to state, and that is all.
        """
        with self._changed:
            self._waiting += not only_walk
            self._waiting_for_walk += only_walk
            for view in views:
                self._errors.pop(view, None)
        try:
            self.wake()
            while not self._context.catalog.patience.insist(over, twice=True):
                with self._changed:
                    found = {view: self._errors[view] for view in views if view in self._errors}
                    if found or self._stopping:
                        return found
                    rounds = self._rounds
                    went_on = self._changed.wait_for(
                        lambda before=rounds: self._rounds != before or self._stopping,  # type: ignore[misc]
                        LOOK_AGAIN_S,
                    )
                if not went_on:  # never after a round of its own: the two would keep each other, and a core, busy
                    self.wake()
            return {}
        finally:
            with self._changed:
                self._waiting -= not only_walk
                self._waiting_for_walk -= only_walk
                self._woken = True
                self._changed.notify_all()
                # No statement is left for which to lead: the one that waited leaves no lease behind.
                self._changed.wait_for(lambda: self._leads_not() or self._wanted() or self._stopping, QUIET_S)

    def stop(self) -> None:
        """Finish the chunks that are running, begin no other, and give the lease back."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self.nodes.close()
        for thread in list(self._settling.values()):
            thread.join()

    # ---- the thread -------------------------------------------------------------------------------------

    def _leads_not(self) -> bool:
        """Whether no lease is held, and no round that began before may take one."""
        return self._lease is None and not self._in_round

    def _wanted(self) -> bool:
        return self.builds or self._waiting_for_walk > 0

    @property
    def builds(self) -> bool:
        """Whether this process has workers do tasks."""
        return self._context.maintains or self._waiting > 0

    def _run(self) -> None:
        wake_at = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda at=wake_at: self._woken or self._events or self._stopping or time.monotonic() >= at,  # type: ignore[misc]
                    None if wake_at == float("inf") else max(0.0, wake_at - time.monotonic()),
                )
                if self._stopping:
                    break
                self._woken, self._in_round = False, True
                wanted, builds = self._wanted(), self.builds
            try:
                wake_at = time.monotonic() + (self._round(builds) if builds or not wanted else self._walk_only())
            except EblaError as error:
                log.warning("building: round failed reason=%s", error)
                wake_at = time.monotonic() + 0.2
            except Exception:
                log.exception("building: round failed")
                wake_at = time.monotonic() + 1.0
            with self._changed:
                self._rounds += 1
                self._in_round = False
                self._changed.notify_all()
        try:
            self._resign()
        except EblaError as error:
            log.warning("building: expected to give the lease back, found reason=%s; it runs out", error)

    def _round(self, wanted: bool) -> float:
        """One look at the catalog and what follows from it; when to look again, in seconds."""
        state = self._load()
        self.nodes.observed(state)
        nothing_left = not state.builds and not state.tasks and not state.walking
        if nothing_left:
            self._checked.clear()
        tidying = nothing_left and state.processing is not None  # the last view was dropped: its base is let go
        if not tidying and (nothing_left or not wanted):
            self._resign()
            return float("inf")
        if not self._lead():
            return self._limits.poll_us / 1e6 if wanted else float("inf")
        coordinator = self._coordinator
        assert coordinator is not None
        with self._changed:
            events, self._events = self._events, []
        now = self._context.catalog.clock()
        decision = coordinator.step(state, events, now)
        if decision.resigned:
            self._coordinator = self._lease = None
            return self._limits.poll_us / 1e6
        committed = self._commit(decision.commit())
        forgiven = self._forgive_mended(state)
        for call in decision.calls:
            self._send(call)
        if state.readable() and committed:
            self._on_built(state.readable())
        self._settle_covered(state, now)
        walked = self._walk_on(state)
        if decision.updates or forgiven or (walked is not None and walked.moved):
            return 0.0  # look at what it led to
        wait_us = max(0, decision.wake_us - now)
        if walked is not None and walked.wait_us is not None:
            wait_us = min(wait_us, walked.wait_us)
        return wait_us / 1e6

    def _walk_only(self) -> float:
        """A round of a process in which a statement waits for an index to go, and for nothing to be filled."""
        state = self._load()
        self._forget()
        if not state.walking:
            return self._round(wanted=False)
        walked = self._walk_on(state) if self._lead() else None
        if walked is not None and walked.moved:
            return 0.0
        return (self._limits.poll_us if walked is None or walked.wait_us is None else walked.wait_us) / 1e6

    def _walk_on(self, state: State) -> Walked | None:
        """Take indexes one step on, under this leader's term."""
        if not state.walking or self._lease is None:
            return None
        try:
            return self._walk([c.TermIs(lease=LEASE, holder=self._lease.holder, term=self._lease.term)])
        except StaleTermError:
            self._lease = self._coordinator = None
            return None

    def _load(self) -> State:
        with self._context.catalog.reading() as connection:
            unchecked = [v for v in building.builds(connection) if v not in self._checked]
            return stored.load(connection, self.nodes.alive, unchecked)

    # ---- leading ----------------------------------------------------------------------------------------

    def _lead(self) -> bool:
        lease_us = int(self._context.settings.leader_lease_s * 1e6)
        now = self._context.catalog.clock()
        fresh = self._lease is None
        if self._lease is None or self._lease.expires_at - now < lease_us * 2 // 3:
            self._lease = tx.lead(self._context.catalog, LEASE, self._context.holder, lease_us)
        if self._lease is None:
            self._forget()
            return False
        if fresh:
            log.info("building: leads term=%d", self._lease.term)
        if self._coordinator is None or self._coordinator.term != self._lease.term:
            self._coordinator = Coordinator(self._context.holder, self._lease.term, self._limits)
        return True

    def _resign(self) -> None:
        if self._lease is not None:
            tx.resign(self._context.catalog, self._lease)
        self._lease = None
        self._forget()

    def _forget(self) -> None:
        """A process that does not lead remembers nothing: answers to its former calls mean nothing and wake no thread.

        Its batches end after the chunks that run: the next leader's process does what is left of them.
        """
        self._coordinator = None
        self.nodes.let_go()
        with self._changed:
            self._events.clear()

    def _commit(self, decision: c.Decision | None) -> bool:
        if decision is None:
            return False
        hit("build.before_coordinator_commit")
        try:
            self._context.catalog.commit(decision, node=self._context.node)
        except StaleTermError:
            self._lease = self._coordinator = None
            return False
        except ConflictError as error:
            log.info("building: decided anew reason=%s", error)
            return False
        log.info("building: %s", decision.reason)
        hit("build.coordinator_committed")
        return True

    # ---- calls ------------------------------------------------------------------------------------------

    def _send(self, call: Call) -> None:
        """A call that is still being waited for is not sent again: here no message is lost."""
        with self._changed:
            if call in self._asked:
                return
            self._asked.add(call)
        threading.Thread(target=self._ask, args=(call,), name="ebla-build-call", daemon=True).start()

    def _ask(self, call: Call) -> None:
        event: Event
        try:
            answer = self.nodes.work_on_view_building_tasks(call.replica.host, call.term, call.replica.shard, call.ids)
            hit("build.answered")
            event = Answered(
                replica=call.replica, finished=answer.finished, failed=answer.failed, waits_us=answer.waits_us
            )
        except Refused as refused:
            event = TermRefused(term=refused.term)
        except BaseException as error:  # a cancelled call, too: the node is closing
            event = CallFailed(replica=call.replica, error=str(error))
        with self._changed:
            self._asked.discard(call)
            self._events.append(event)
            self._changed.notify_all()

    def _went_wrong(self, view: RelationId, error: Exception) -> None:
        with self._changed:
            self._errors.setdefault(view, []).append(error)
            self._changed.notify_all()

    # ---- settling ---------------------------------------------------------------------------------------

    def _forgive_mended(self, state: State) -> bool:
        """Builds that failed on a row go on where they were as soon as an input was written to."""
        if not state.held:
            return False
        with self._context.catalog.reading() as connection:
            found = stored.mended(connection, [view for view in state.builds if view in state.held])
        for view in found:
            log.info("relation=%d build goes on: an input was written to", view)
            with contextlib.suppress(ConflictError, UnknownNameError):
                self._forgive(view)
        return bool(found)

    def _settle_covered(self, state: State, now: int) -> None:
        """Those whose tasks are done: to one version, then checked. One thread for each, which looks for itself."""
        for view in state.builds:
            if view in state.open_of or view in state.held or view not in state.spans:
                continue
            if state.retry_us.get(view, 0) > now:
                continue
            if state.is_level(view) and view not in state.unchecked:
                continue
            running = self._settling.get(view)
            if running is None or not running.is_alive():
                level = state.is_level(view)
                self._settling[view] = threading.Thread(
                    target=self._settle_one, args=(view, level), name=f"ebla-settle-{view}", daemon=True
                )
                self._settling[view].start()

    def _settle_one(self, view: RelationId, level: bool) -> None:
        try:
            if level:
                hit("build.before_check")
                if self._check(view):
                    self._checked.add(view)
                else:
                    with self._changed:
                        self._changed.wait_for(lambda: self._stopping, POLL_S)
            else:
                hit("build.before_catching_up")
                self._settle(view)
            troubles.clear(self._context.catalog, view, Activity.BUILD)
        except (ConflictError, UnknownNameError):
            pass  # another epoch came first, or it was dropped: look again
        except Exception as error:
            self._unsettled(view, error)
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def _unsettled(self, view: RelationId, error: Exception) -> None:
        rows = isinstance(error, DuplicateKeyError)  # they are to blame, and nothing is wrong with the build
        log.log(logging.INFO if rows else logging.WARNING, "relation=%d cannot be settled reason=%s", view, error)
        log.debug("relation=%d", view, exc_info=error)
        if is_told(self._context, view, error):
            self._went_wrong(view, error)
