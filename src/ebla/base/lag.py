"""How far the epochs of this process are behind what was committed, and writers that are held back for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ebla.base.services import Scheduler

HOLD_S_MAX = 5.0
"""How long one write is held back at most. Then it goes on: writers are slowed down, and never stopped."""


def is_too_great(lag_s: float, max_lag_s: float | None) -> bool:
    """Whether writes are held back."""
    return max_lag_s is not None and lag_s > max_lag_s


class Lag:
    """For how long epochs of this process have had a commit to read. Safe to use from several threads."""

    def __init__(self, services: Scheduler, max_lag_s: float | None) -> None:
        self._services = services
        self._max_lag_s = max_lag_s
        self._lock = threading.Lock()
        self._unread: dict[str, float] = {}
        self._being_read: dict[str, float] = {}
        self.held = 0
        """How many writes were held back,"""
        self.held_s = 0.0
        """and for how long together."""

    def committed(self, handler: str, period_s: float | None = None) -> None:
        """There is a commit that epochs of a handler have to read once its period is over."""
        with self._lock:
            self._unread.setdefault(handler, self._services.clock() + (period_s or 0.0))

    @contextlib.contextmanager
    def reading(self, handler: str) -> Iterator[None]:
        """Epochs read what was committed before. What they could not read is tried again, and holds no writer back."""
        with self._lock:
            since_s = self._unread.pop(handler, None)
            if since_s is not None:
                self._being_read[handler] = since_s
        try:
            yield
        finally:
            with self._lock:
                self._being_read.pop(handler, None)

    def forget(self, handler: str) -> None:
        """The epochs of a handler do not run here any more."""
        with self._lock:
            self._unread.pop(handler, None)

    @property
    def seconds(self) -> float:
        with self._lock:
            since_s = min((*self._unread.values(), *self._being_read.values()), default=None)
        return 0.0 if since_s is None else max(0.0, self._services.clock() - since_s)

    def hold(self) -> None:
        """Hold a write back while the lag is greater than `max_lag_s`, not longer than `HOLD_S_MAX`."""
        if not is_too_great(self.seconds, self._max_lag_s):
            return
        began_s = self._services.clock()
        self._services.wait_for(lambda: not is_too_great(self.seconds, self._max_lag_s), HOLD_S_MAX)
        with self._lock:
            self.held += 1
            self.held_s += self._services.clock() - began_s
