"""Which process does a work that one process does at a time: the one that holds its lease.

Theory of operation. A process takes a lease before the work and prolongs it when a third of it is over: where it asks
again often, by asking; in the middle of long work, by its heart. Who takes a lease from another holder has a new term,
and what is committed under a term is refused once there is a newer one. A lease is given back at the end of the work,
or left to run out: so one process goes on with a work as long as it is busy with it, and an idle warehouse is not
written to.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from ebla.base.services import HEARTS, Scheduler
from ebla.base.system_processes import is_there
from ebla.catalog import processes
from ebla.catalog import transactions as tx
from ebla.catalog.rows import State
from ebla.catalog.store import Catalog
from ebla.errors import EblaError

log = logging.getLogger("ebla.leases")

SHARE = 3
"""A lease is renewed after its length divided by this."""


def is_gone(holder: str) -> bool:
    """Whether a holder (`host/pid/…`) was a process of this machine that has ended; nothing is known of others."""
    host, _, rest = holder.rpartition("/")[0].rpartition("/")
    return host == socket.gethostname() and rest.isdigit() and not is_there(int(rest))


class Leadership:
    """The leases of one process. Safe to use from several threads."""

    name = "leadership"
    wanted = True

    def __init__(self, catalog: Catalog, holder: str, lease_s: float, services: Scheduler) -> None:
        self._catalog = catalog
        self._holder = holder
        self._lease_us = int(lease_s * 1e6)
        self._services = services
        self._lock = threading.Lock()
        self._held: dict[str, tx.Lease] = {}
        self._busy: dict[str, int] = {}
        services.add(self, lane=HEARTS)

    def held(self, name: str) -> tx.Lease | None:
        """The lease as this process took it last; another process may have taken it since."""
        with self._lock:
            return self._held.get(name)

    def elsewhere_s(self, connection: Connection, name: str) -> float | None:
        """For how many seconds another process has a lease, as far as is known; `None`: no other one has it."""
        now = self._catalog.clock()
        held = tx.lease(connection, name, now)
        if held is None or held.holder == self._holder or is_gone(held.holder):
            return None
        return (held.expires_at - now) / 1e6

    def take(self, name: str, *, from_the_gone: bool = False, until_given_back: bool = False) -> tx.Lease | None:
        """Take or prolong a lease; `None` while another process has it.

        `from_the_gone`: one whose holder was a process of this machine that has ended is taken at once.
        `until_given_back`: a holder keeps it until it gives it back, so one that let it run out is silent
        (`ebla.catalog.processes.silence`).
        """
        mine = self.held(name)
        if mine is not None and mine.expires_at - self._catalog.clock() > self._lease_us * (SHARE - 1) // SHARE:
            return mine
        return self._lead(name, from_the_gone=from_the_gone, until_given_back=until_given_back)

    def _lead(self, name: str, *, from_the_gone: bool, until_given_back: bool = False) -> tx.Lease | None:
        gone = is_gone if from_the_gone else lambda holder: False

        def silence(state: State, holder: str, now: int) -> None:
            processes.silence(state, holder, now if gone(holder) else None, self._lease_us)

        taken = tx.lead(
            self._catalog,
            name,
            self._holder,
            self._lease_us,
            is_gone=gone,
            succeeds=silence if until_given_back else lambda state, holder, now: None,
        )
        with self._lock:
            before = self._held.pop(name, None)
            if taken is not None:
                self._held[name] = taken
        if taken is not None and (before is None or before.term != taken.term):
            log.info("lease=%s taken term=%d", name, taken.term)
        return taken

    def lost(self, name: str) -> None:
        """The catalog has refused the term: another process has the lease."""
        with self._lock:
            self._held.pop(name, None)

    def give_back(self, name: str) -> None:
        """Let others take a lease at once."""
        with self._lock:
            lease = self._held.pop(name, None)
        if lease is not None:
            tx.resign(self._catalog, lease)

    # ---- while work goes on -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def working(self, name: str) -> Iterator[None]:
        """Prolong a lease for as long as the work under it goes on."""
        with self._lock:
            self._busy[name] = self._busy.get(name, 0) + 1
        self._services.wake(self.name)
        try:
            yield
        finally:
            with self._lock:
                self._busy[name] -= 1
                if not self._busy[name]:
                    del self._busy[name]

    def is_working(self, name: str) -> bool:
        """Whether work under a lease goes on in this process."""
        with self._lock:
            return name in self._busy

    def step(self, now_s: float) -> float | None:
        """Prolong the leases under which work goes on."""
        with self._lock:
            busy = sorted(self._busy)
        for name in busy:
            try:
                if self._lead(name, from_the_gone=True) is None:
                    log.warning("lease=%s expected to be held, found it lost; its work goes on to its commit", name)
            except (EblaError, OSError, SQLAlchemyError) as error:
                log.warning("lease=%s cannot be renewed reason=%s", name, error)
        return now_s + self._lease_us / 1e6 / SHARE if busy else None

    def stop(self) -> None:
        """Give all leases back, so that others need not wait for their end."""
        for name in list(self._held):
            with contextlib.suppress(EblaError, OSError, SQLAlchemyError):  # it runs out
                self.give_back(name)
