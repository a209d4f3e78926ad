"""Which process runs the epochs of a handler in the background: the one that holds the lease `handler/<name>`.

A process takes the lease before an epoch, renews it while the epoch runs, and leaves it to run out when there is
nothing to do: so one process goes on with a handler as long as it is busy, and an idle warehouse is not written to. At
close it is given back. Another process takes it when it ran out, or at once where the holder was a process of this
machine that is gone. Were two to hold it for a moment, their commits would still be guarded by the position of each
view.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Iterator

from sqlalchemy.exc import SQLAlchemyError

from ebla.catalog import transactions as tx
from ebla.errors import EblaError
from ebla.tables.context import Context

log = logging.getLogger("ebla.jobs")

LOOK_S = 1.0
"""How often a process looks whether a lease that another one holds is free."""


def is_gone(holder: str) -> bool:
    """Whether a holder (`host/pid/…`) was a process of this machine that has ended; nothing is known of others."""
    host, _, rest = holder.rpartition("/")[0].rpartition("/")
    if host != socket.gethostname() or not rest.isdigit():
        return False
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it is there, and another user's
    return False


class Leases:
    """The leases of one process. Safe to use from several threads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lease_us = int(context.settings.leader_lease_s * 1e6)
        self._lock = threading.Lock()
        self._held: dict[str, tx.Lease] = {}
        self._busy: dict[str, int] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, name: str) -> float:
        """Take or prolong a lease: 0 if it is this process's now, else after how many seconds to ask again."""
        with self._lock:
            mine = self._held.get(name)
        if mine is not None and mine.expires_at - self._context.catalog.clock() > self._lease_us * 2 // 3:
            return 0.0
        return self._lead(name)

    def _lead(self, name: str) -> float:
        catalog = self._context.catalog
        taken = tx.lead(catalog, name, self._context.holder, self._lease_us, is_gone=is_gone)
        with self._lock:
            before = self._held.pop(name, None)
            if taken is not None:
                self._held[name] = taken
        if taken is None:
            return LOOK_S
        if before is None or before.term != taken.term:
            log.info("lease=%s taken term=%d", name, taken.term)
        return 0.0

    @contextlib.contextmanager
    def working(self, name: str) -> Iterator[None]:
        """Renew a lease for as long as the work under it goes on."""
        with self._lock:
            self._busy[name] = self._busy.get(name, 0) + 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew, name="ebla-handler-leases", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._busy[name] -= 1
                if not self._busy[name]:
                    del self._busy[name]

    def _renew(self) -> None:
        while not self._stopped.wait(self._lease_us / 3e6):
            with self._lock:
                due = sorted(self._busy)
            for name in due:
                try:
                    if self._lead(name):
                        log.warning("lease=%s expected to be held, found it lost; its work goes on to its commit", name)
                except (EblaError, OSError, SQLAlchemyError) as error:
                    log.warning("lease=%s cannot be renewed reason=%s", name, error)

    def stop(self) -> None:
        """Give all leases back, so that others need not wait for their end."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        for lease in self._held.values():
            with contextlib.suppress(EblaError, OSError, SQLAlchemyError):  # it runs out
                tx.resign(self._context.catalog, lease)
        self._held.clear()
