"""How fast each build may go, over all its batches on all nodes of this process.

Theory of operation. A build has one debt of rows (`ebla.model.throttle`) in this process, whichever shards and nodes
its batches run on: so its rate is that of the build, not of a batch. A new leader's process begins without debt.
"""

from __future__ import annotations

import threading

from ebla.base.ids import RelationId
from ebla.model.throttle import Throttle


class BuildThrottles:
    """The throttle of each view and index that is built here. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._throttles: dict[RelationId, Throttle] = {}

    def wait_us(self, view: RelationId, rate: int | None, now_us: int) -> int | None:
        """How long a build must not go on, at this rate from now on; `None`: until the rate is altered."""
        with self._lock:
            throttle = self._throttles.get(view) or Throttle(rows_per_minute=rate, at_us=now_us)
            if throttle.rows_per_minute != rate:
                throttle = throttle.altered(rate, now_us)
            self._throttles[view] = throttle
            return throttle.wait_us(now_us)

    def rows_now(self, view: RelationId, chunk_rows: int) -> int:
        with self._lock:
            return self._throttles[view].rows_now(chunk_rows)

    def spent(self, view: RelationId, rows: int, now_us: int) -> None:
        with self._lock:
            self._throttles[view] = self._throttles[view].spent(rows, now_us)
