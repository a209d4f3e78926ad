"""The leases of this process's open transactions, renewed while their work goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from sqlalchemy.exc import SQLAlchemyError

from ebla.base.ids import TransactionId
from ebla.base.services import HEARTS, Scheduler
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import EblaError


class Leases:
    """The service that renews each lease three times before it would run out. Safe to use from several threads."""

    name = "transactions"
    wanted = True

    def __init__(self, catalog: Catalog, lease_s: float, services: Scheduler) -> None:
        self._catalog = catalog
        self._lease_s = lease_s
        self._services = services
        self._open: set[TransactionId] = set()
        self._lock = threading.Lock()
        services.add(self, lane=HEARTS)

    @property
    def lease_us(self) -> int:
        return int(self._lease_s * 1e6)

    @contextlib.contextmanager
    def renewed(self, transaction: TransactionId) -> Iterator[None]:
        """Renew a transaction's lease in the background."""
        with self._lock:
            self._open.add(transaction)
        self._services.wake_in(self.name, self._lease_s / 3)  # it has just begun
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(transaction)

    def step(self, now_s: float) -> float:
        with self._lock:
            due = sorted(self._open)
        for transaction in due:
            # A closed transaction's commit will say so; a database that does not answer is asked again.
            with contextlib.suppress(EblaError, OSError, SQLAlchemyError):
                tx.renew(self._catalog, transaction, self.lease_us)
        return now_s + self._lease_s / 3

    def stop(self) -> None:
        """Leases of transactions are not given back: those of open ones run out."""
