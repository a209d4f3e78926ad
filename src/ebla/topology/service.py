"""The topology in the background of a process: it follows the versions, and leads where requests wait for an answer.

Theory of operation. Level-triggered. Every process looks at the version of the topology now and then, and says in its
row in `system.processes` which one it follows: a barrier waits for that. A process that finds a request or a transition
that has not ended asks for the lease; the one that has it lets the coordinator decide on the state as it is, commits
under its term, and looks again, until nothing is left to do. Then it gives the lease back, so that an idle warehouse is
not written to. A leader that dies is followed by any other process, which finds the same state and goes on.

A process that is open for a moment does not look at all, unless it asks for something itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlalchemy import Connection

from ebla.base.backoff import Backoff
from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import layouts
from ebla.catalog import topology as stored_topology
from ebla.errors import EblaError, StaleTermError
from ebla.model import changes as c
from ebla.model.topology import LEASE, Layout, RequestKind, Tablet, Topology
from ebla.topology import coordinator, loader
from ebla.topology.migration import STREAMS_MAX, Migration
from ebla.topology.ports import Host, Threads
from ebla.topology.rebuilds import REBUILDS_MAX, Rebuilds
from ebla.topology.threads import Pool

log = logging.getLogger("ebla.topology")

NAME = "topology"
"""The name of the service."""
LOOK_S = 1.0
"""How often a process looks at the version of the topology."""
SIZES_S = 30.0
"""How often a process looks at the sizes of tablets, which change without a version."""
POLL_S = 0.1
"""How often a process looks at the whole topology at first, while a step waits for other processes; then less often."""


class Coordination:
    """One process's part in the topology. Safe to use from several threads."""

    name = NAME

    def __init__(
        self,
        host: Host,
        own: Callable[[], frozenset[NodeId]],
        saw: Callable[[], None],
        threads: Callable[[str, int], Threads] = Pool,
        sizes_s: float = SIZES_S,
    ) -> None:
        """`own`: the nodes that live with this process. `saw`: called when the process follows another version."""
        self._host = host
        self.own = own
        self._saw = saw
        self._opened_s = host.services.clock()
        self._is_asked = False
        self._is_quiet = False
        """Whether nothing waited for an answer when the process last looked."""
        self.rounds = 0
        """How often the process has looked; grows behind each look."""
        self._sizes_s = sizes_s
        self._sizes_due_s = self._opened_s + sizes_s
        self._sizes: layouts.Sizes = {}
        """Of tablets, as they were when they were last due."""
        self._layouts: Mapping[RelationId, Layout] = {}
        """Those of the last state."""
        self._counted: Mapping[Tablet, int] = {}
        """How many copies tablets lacked in it."""
        self._undecided: Topology | None = None
        """The last state that gave no reason to a step: as long as it stays, nothing is decided again."""
        self._waits = 0
        """How often it has waited in a row."""
        self._due_s = self._opened_s
        """When to look at all of it, if nothing comes between."""
        self._elsewhere_s = LOOK_S
        """For how long another process leads, if it renews nothing."""
        self.seen = Version(0)
        """The version of the topology that this process follows."""
        self._rebuilds = Rebuilds(host, threads("ebla-rebuild", REBUILDS_MAX), self.ask)
        self._migration = Migration(host, threads("ebla-stream", STREAMS_MAX), self.ask)
        self.pauses = self._migration.pauses
        """Behind transitions that went back while this process led."""
        host.services.add(self)

    @property
    def wanted(self) -> bool:
        return not self._host.catalog.read_only

    def start(self) -> None:
        """Look at the topology from now on, after a while."""
        if self.wanted:
            self._host.services.wake_in(NAME, LOOK_S)

    def ask(self) -> None:
        """This process has asked for something, or waits for it: look at once."""
        self._is_asked = True
        self._host.services.wake(NAME)

    @property
    def waits_for_transactions(self) -> bool:
        """Whether this process leads and a step waits for transactions alone."""
        return self._migration.waited_for is not None

    def ended(self) -> None:
        """A transaction has ended, in this process or in another one: a step may have waited for it."""
        if self.waits_for_transactions:
            self._host.services.wake(NAME)

    def wait_round(self, rounds: int) -> bool:
        """Wait until the process has looked once more than so often, for a while; whether it has."""
        return self._host.services.wait_for(lambda: self.rounds != rounds, LOOK_S)

    # ---- the service ------------------------------------------------------------------------------------

    def step(self, now_s: float) -> float:
        try:
            return self._look(now_s)
        finally:
            self.rounds += 1

    def _look(self, now_s: float) -> float:
        asked, self._is_asked = self._is_asked, False
        version = self._host.catalog.read(stored_topology.version)
        moved = self._follow(version)
        if moved or asked:
            self._waits = 0
        if now_s >= self._sizes_due_s:
            self._sizes_due_s, self._sizes = now_s + self._sizes_s, {}
            if self._host.catalog.read(self._is_due):
                self._round(of_sizes=True)
        if self._is_quiet and not moved and not asked:
            return now_s + LOOK_S
        if not moved and not asked and now_s < self._due_s and self._host.catalog.read(self._migration.still_waits):
            return self._due_s
        self._due_s = self._host.services.clock() + self._round()
        return self._due_s

    def stop(self) -> None:
        """Others lead at once."""
        self._rebuilds.close()
        self._migration.close()
        try:
            self._host.leadership.give_back(LEASE)
        except EblaError as error:
            log.warning("topology: expected to give the lease back, found reason=%s; it runs out", error)

    def _follow(self, version: Version) -> bool:
        """Note the version that this process has read; whether it is another one."""
        if version == self.seen:
            return False
        self.seen = version
        self._saw()
        return True

    def _is_due(self, connection: Connection) -> bool:
        """Whether to take the lease: no other process leads, and a leader would decide or do anything. Asked without
        the lease, which is a write; a process that does not lead reads no tablets while another one does."""
        elsewhere_s = self._host.leadership.elsewhere_s(connection, LEASE)
        self._elsewhere_s = LOOK_S if elsewhere_s is None else elsewhere_s
        if elsewhere_s is not None:
            return False
        state = self._load(connection)
        goes_on = bool(state.transitions) or any(one.kind is RequestKind.REBUILD for one in state.requests)
        return goes_on or self._decide(state) is not None

    def _decide(self, state: Topology) -> c.Decision | None:
        if state == self._undecided:
            return None
        decision = coordinator.step(state, self._host.settings.tablet_bytes_target)
        self._undecided = state if decision is None else None
        return decision

    def _load(self, connection: Connection) -> Topology:
        host = self._host
        state = loader.load(
            connection,
            host.catalog.clock(),
            holder=host.holder,
            own=self.own(),
            rebuilt=self._rebuilds.done,
            paused=self.pauses.at(host.services.clock()),
            sizes=self._sizes,
            counted=self._counted,
            is_copied=self._migration.is_copied,
        )
        self._counted = state.lacking
        self._sizes = {relation: layout.bytes for relation, layout in state.layouts.items()}
        before = self._layouts
        kept = {
            relation: before[relation] if before.get(relation) == one else one
            for relation, one in state.layouts.items()
        }
        if len(kept) != len(before) or any(before.get(relation) is not one for relation, one in kept.items()):
            self._layouts = kept
        return replace(state, layouts=self._layouts)  # what was counted of those that stay is still true

    def _wait(self) -> float:
        """How many seconds until the next look where nothing has changed: more each time."""
        self._waits += 1
        return Backoff(POLL_S, LOOK_S).after(self._waits)

    def _round(self, *, of_sizes: bool = False) -> float:
        """Take one step of what is to be done; how many seconds until the next look. `of_sizes`: sizes alone may give
        reason to one."""
        self._is_quiet = not of_sizes and self._host.catalog.read(loader.is_at_rest)
        if self._is_quiet:
            self._host.leadership.give_back(LEASE)
            return LOOK_S
        leads = self._host.leadership.held(LEASE) is not None  # then the step itself says what is due
        if not of_sizes and not leads and not self._host.catalog.read(self._is_due):
            return min(self._wait(), self._elsewhere_s)
        lease = self._host.leadership.take(LEASE, from_the_gone=True, until_given_back=True)
        if lease is None:
            return self._wait()
        if not leads:
            self._waits = 0
        term = c.TermIs(lease=LEASE, holder=lease.holder, term=lease.term)
        decisions, states = list[c.Decision](), list[Topology]()

        def decide(connection: Connection, at: Version) -> c.Decision | None:
            states.append(self._load(connection))
            decision = self._decide(states[-1])
            if decision is None:
                return None
            decisions.append(decision)
            hit("topology.before_commit")
            return replace(decision, requires=(term, *decision.requires))

        try:
            committed = self._host.catalog.decide(decide, node=self._host.node)
        except StaleTermError:
            self._host.leadership.lost(LEASE)
            return self._wait()
        if committed is None:
            self._rebuilds.act(states[-1])
            self._migration.act(states[-1])
            return self._wait()
        self._waits = 0
        hit("topology.committed")
        log.info("topology: version=%d %s", committed.version, decisions[-1].reason)
        self.pauses.note(states[-1].transitions, decisions[-1].updates, self._host.services.clock())
        self._follow(committed.version)
        return 0.0
