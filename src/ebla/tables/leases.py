"""The leases of this process's open transactions, renewed while their work goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from sqlalchemy.exc import SQLAlchemyError

from ebla.base.ids import TransactionId
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import EblaError


class Leases:
    """One thread that renews each lease three times before it would run out."""

    def __init__(self, catalog: Catalog, lease_s: float) -> None:
        self._catalog = catalog
        self._lease_s = lease_s
        self._open: set[TransactionId] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def lease_us(self) -> int:
        return int(self._lease_s * 1e6)

    @contextlib.contextmanager
    def renewed(self, transaction: TransactionId) -> Iterator[None]:
        """Renew a transaction's lease in the background."""
        with self._lock:
            self._open.add(transaction)
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew, name="ebla-leases", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(transaction)

    def _renew(self) -> None:
        while not self._stopped.wait(self._lease_s / 3):
            with self._lock:
                due = sorted(self._open)
            for transaction in due:
                # A closed transaction's commit will say so; a database that does not answer is asked again.
                with contextlib.suppress(EblaError, OSError, SQLAlchemyError):
                    tx.renew(self._catalog, transaction, self.lease_us)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
