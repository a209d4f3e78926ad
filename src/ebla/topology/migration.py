"""What the process that leads the topology does for tablets in transition, beside the steps that it commits.

It makes the copies that stages ask for, several tablets at a time and in threads of their own, and aborts transactions
that keep a barrier waiting for too long. A copy that fails is noted in the transition, which then goes back. What is
under way is remembered only so that it is not begun twice: another leader finds what is missing in the manifest.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection

from ebla.base.ids import NodeId, RelationId, Version
from ebla.errors import EblaError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.scopes import of_tablet
from ebla.model.topology import Topology, Transition
from ebla.tables import blockers
from ebla.topology import barrier, loader
from ebla.topology.pauses import Pauses
from ebla.topology.ports import Host, Threads
from ebla.topology.run_copies import stream

log = logging.getLogger("ebla.topology")

STREAMS_MAX = 4
"""Tablets that are copied at a time. Those of one relation that come to one node are copied one after the other: a run
that spans both is copied once."""

Place = tuple[RelationId, NodeId | None]
"""A relation, and the node that its tablets come to; none, where nodes that keep them get what they lack."""


class Migration:
    """The copies of one process that leads."""

    def __init__(self, host: Host, threads: Threads, then: Callable[[], None]) -> None:
        """`then`: called when a tablet was copied or a failure was noted. Where nothing was done the next round looks
        again, in its time."""
        self._host = host
        self._threads = threads
        self._then = then
        self._under_way: dict[str, Place] = {}
        """The sessions of tablets that are being copied, and where to."""
        self.pauses = Pauses()
        """What has gone back while this process led, and is not to be tried yet."""
        self.waited_for: Version | None = None
        """The oldest step that waited for transactions alone when the leader last looked."""
        self._relations: frozenset[RelationId] = frozenset()
        """The relations of tablets in transition when the leader last looked."""
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    def act(self, topology: Topology) -> None:
        """Begin the copies that are wanted, and end what bars the way."""
        for one in topology.transitions.values():
            if one.session is not None and one.failure is None and topology.lacking.get(one.tablet):
                self._begin(one, one.session)
        self._relations = frozenset(relation for relation, _ in topology.transitions)
        self.waited_for = barrier.waited_for(topology)
        self._abort_late(topology)

    def is_copied(self, one: Transition) -> bool:
        """Whether this process copies what the tablet lacks, or what comes before it to the same node: it lacks copies
        until then. The end of that is news, or the next round finds it."""
        with self._lock:
            return one.session in self._under_way or _place(one) in self._under_way.values()

    def still_waits(self, connection: Connection) -> bool:
        """Whether the step that waited for transactions alone still does."""
        if self.waited_for is None:
            return False
        oldest = loader.oldest_open(connection, self._relations, self._host.catalog.clock())
        return oldest is not None and oldest < self.waited_for

    def close(self) -> None:
        """Begin nothing more, and wait for the files that are being copied."""
        self._stopping.set()
        self._threads.close()

    def _begin(self, one: Transition, session: str) -> None:
        with self._lock:
            place = _place(one)
            busy = session in self._under_way or place in self._under_way.values()
            if busy or len(self._under_way) >= STREAMS_MAX or self._stopping.is_set():
                return
            self._under_way[session] = place
        self._threads.begin(partial(self._copy, one, session))

    def _copy(self, one: Transition, session: str) -> None:
        is_news = False
        try:
            is_news = self._stream(one, session)
        except EblaError as error:  # the session was closed, or the catalog does not answer: the next round looks again
            log.info("tablet=%d of=%d copies ended reason=%s", one.tablet[1], one.tablet[0], error)
        finally:
            with self._lock:
                del self._under_way[session]
            if is_news:
                self._then()

    def _stream(self, one: Transition, session: str) -> bool:
        """Copy what a tablet lacks, or note why that failed; whether anything was done."""
        try:
            copied = stream(self._host, one.tablet, session, self._stopping.is_set)
        except EblaError:
            raise
        except Exception as error:  # what is not foreseen would come again with the next look
            log.exception("tablet=%d of=%d expected copies, found an error", one.tablet[1], one.tablet[0])
            self._fail(one, f"{type(error).__name__}: {error}")
            return True
        why = None if one.pending is None else copied.failed.get(one.pending.host)
        if why is not None:
            self._fail(one, why)
        return why is not None or copied.made > 0

    def _fail(self, one: Transition, why: str) -> None:
        failed = t.FailTransition(tablet=one.tablet, stage=one.stage, failure=why)
        reason = f"tablet {one.tablet[1]} of relation {one.tablet[0]}: copying failed"

        def decide(connection: Connection, at: Version) -> c.Decision:
            return c.Decision(reason=reason, updates=(failed,), guards=frozenset({of_tablet(*one.tablet)}))

        self._host.catalog.decide(decide, node=self._host.node)

    def _abort_late(self, topology: Topology) -> None:
        """End the transactions that have kept tablets in transition waiting for too long."""
        if not topology.transitions:
            return
        passed = barrier.holds_up_to(topology)
        waiting = [one.since for one in topology.transitions.values() if passed < one.since]
        if waiting:
            blockers.pass_by(self._host, self._relations, max(waiting))


def _place(one: Transition) -> Place:
    return one.tablet[0], None if one.pending is None else one.pending.host
