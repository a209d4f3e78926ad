"""What the process that leads the topology does for tablets in transition, beside the steps that it commits.

It makes the copies that stages ask for, several tablets at a time and in threads of their own, and aborts transactions
that keep a barrier waiting for too long. A copy that fails is noted in the transition, which then goes back. What is
under way is remembered only so that it is not begun twice: another leader finds what is missing in the manifest.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection

from ebla.base.ids import TransactionId, Version
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.errors import EblaError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.scopes import TOPOLOGY
from ebla.model.topology import Topology, Transition
from ebla.tables.context import Context
from ebla.topology import barrier
from ebla.topology.streaming import stream

log = logging.getLogger("ebla.topology")

STREAMS_MAX = 4
"""Tablets that are copied at a time."""


class Migration:
    """The copies of one process that leads."""

    def __init__(self, context: Context, then: Callable[[], None]) -> None:
        """`then`: called when a tablet was copied, or could not be."""
        self._context = context
        self._then = then
        self._under_way: set[str] = set()
        """The sessions of tablets that are being copied."""
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=STREAMS_MAX, thread_name_prefix="ebla-stream")

    def act(self, topology: Topology) -> None:
        """Begin the copies that are wanted, and end what bars the way."""
        for one in topology.transitions.values():
            if one.session is not None and one.failure is None and topology.lacking.get(one.tablet):
                self._begin(one, one.session)
        for late in self._late(topology):
            if tx.abort(self._context.catalog, late):
                log.info("transaction=%d aborted reason=it kept a tablet in transition waiting", late)

    def close(self) -> None:
        """Begin nothing more, and wait for the files that are being copied."""
        self._stopping.set()
        self._pool.shutdown(cancel_futures=True)

    def _begin(self, one: Transition, session: str) -> None:
        with self._lock:
            if session in self._under_way or len(self._under_way) >= STREAMS_MAX or self._stopping.is_set():
                return
            self._under_way.add(session)
        self._pool.submit(self._copy, one, session)

    def _copy(self, one: Transition, session: str) -> None:
        try:
            copied = stream(self._context, one.tablet, session, self._stopping.is_set)
            why = None if one.pending is None else copied.failed.get(one.pending.host)
            if why is not None:
                self._fail(one, why)
        except EblaError as error:  # the session was closed, or the catalog does not answer: the next round looks again
            log.info("tablet=%d of=%d copies ended reason=%s", one.tablet[1], one.tablet[0], error)
        finally:
            with self._lock:
                self._under_way.discard(session)
            self._then()

    def _fail(self, one: Transition, why: str) -> None:
        failed = t.FailTransition(tablet=one.tablet, stage=one.stage, failure=why)
        reason = f"tablet {one.tablet[1]} of relation {one.tablet[0]}: copying failed"

        def decide(connection: Connection, at: Version) -> c.Decision:
            return c.Decision(reason=reason, updates=(failed,), guards=frozenset({TOPOLOGY}))

        self._context.catalog.decide(decide, node=self._context.node)

    def _late(self, topology: Topology) -> list[TransactionId]:
        waiting = [one.since for one in topology.transitions.values() if not barrier.holds(topology, one.since)]
        if not waiting:
            return []
        now, newest = self._context.catalog.clock(), max(waiting)
        with self._context.catalog.reading() as connection:
            stepped = reads.committed_at(connection, [newest]).get(newest, now)
            found = tx.in_the_way(connection, {relation for relation, _ in topology.transitions}, now)
        at_work = [barrier.Open(row.transaction_id, Version(row.topology_version)) for row in found]
        return barrier.late(at_work, newest, stepped, now, int(self._context.settings.barrier_grace_s * 1e6))
