"""How far epochs are behind what was committed, and writers that are held back for it.

A process knows the lag of its own epochs. While that is too great it publishes it for writers of other processes, which
ask once in `LOOK_S` at most: two counters, which every transaction reads with all others, say since when a commit waits
to be read, and until when that holds. It is published again before then; of a process that has ended nothing stays.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from functools import partial

from ebla.base.services import Scheduler
from ebla.catalog import memory
from ebla.catalog.store import Catalog
from ebla.errors import CatalogUnavailableError

HOLD_S_MAX = 5.0
"""How long one write is held back at most. Then it goes on: writers are slowed down, and never stopped."""
LOOK_S = 1.0
"""How often a process asks for the lag of others."""
SINCE, UNTIL = "behind_since", "behind_until"
VALID_US = 3_000_000
"""How long what was published holds."""


def is_too_great(lag_s: float, max_lag_s: float | None) -> bool:
    """Whether writes are held back."""
    return max_lag_s is not None and lag_s > max_lag_s


class Lag:
    """For how long epochs have had a commit to read. Safe to use from several threads."""

    def __init__(self, catalog: Catalog, services: Scheduler, max_lag_s: float | None) -> None:
        self._catalog = catalog
        self._services = services
        self._max_lag_s = max_lag_s
        self._published_at_s: float | None = None
        """When this process last published; `None`: nothing of it stands in the catalog."""
        self._published_s, self._asked_s = 0.0, -math.inf
        self._lock = threading.Lock()
        self._unread: dict[str, float] = {}
        self._being_read: dict[str, float] = {}
        self.held = 0
        """How many writes were held back."""
        self.held_s = 0.0
        """For how long writes were held back, all together."""

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
        """The lag of the epochs that this process runs."""
        with self._lock:
            since_s = min((*self._unread.values(), *self._being_read.values()), default=None)
        return 0.0 if since_s is None else max(0.0, self._services.clock() - since_s)

    @property
    def elsewhere_s(self) -> float:
        """The lag of the epochs of other processes, where it is too great for them."""
        if self._published_at_s is not None:
            return 0.0  # what stands in the catalog is this process's
        now_s = self._services.clock()
        with self._lock:
            recent = now_s - self._asked_s < LOOK_S
            self._asked_s = self._asked_s if recent else now_s
        if not recent:
            self._published_s = published_s(self._catalog)
        return self._published_s

    @property
    def is_too_great(self) -> bool:
        """The lag of the epochs that this process runs."""
        return is_too_great(self.seconds, self._max_lag_s)

    def publish(self) -> None:
        """Let other processes know the lag of this one's epochs while it is too great, and when it is not any more."""
        lag_s, now_s, last_s = self.seconds, self._services.clock(), self._published_at_s
        if not is_too_great(lag_s, self._max_lag_s):
            if last_s is not None:
                withdraw(self._catalog)
                self._published_at_s = None
        elif last_s is None or now_s - last_s >= LOOK_S:
            publish(self._catalog, lag_s)
            self._published_at_s = now_s

    def hold(self) -> None:
        """Hold a write back while the lag is greater than `max_lag_s`, not longer than `HOLD_S_MAX`."""
        if self._max_lag_s is None or not self._is_too_great_anywhere():
            return
        began_s = self._services.clock()
        for _ in range(round(HOLD_S_MAX / LOOK_S)):
            self._services.wait_for(partial(self._has_caught_up, self.is_too_great), LOOK_S)
            if not self._is_too_great_anywhere():
                break
        with self._lock:
            self.held += 1
            self.held_s += self._services.clock() - began_s

    def _has_caught_up(self, was_too_great: bool) -> bool:
        return was_too_great and not self.is_too_great

    def _is_too_great_anywhere(self) -> bool:
        return self.is_too_great or is_too_great(self.elsewhere_s, self._max_lag_s)


# ---- in the catalog -----------------------------------------------------------------------------------


def publish(catalog: Catalog, lag_s: float) -> None:
    """Epochs of this process are that far behind; of several processes the one counts that has published last."""
    with catalog.writing() as connection:
        now = catalog.clock()
        memory.put(connection, SINCE, now - int(lag_s * 1e6))
        memory.put(connection, UNTIL, now + VALID_US)


def withdraw(catalog: Catalog) -> None:
    """Epochs of this process have caught up. Another process that has not publishes again."""
    with catalog.writing() as connection:
        memory.put(connection, UNTIL, 0)


def published_s(catalog: Catalog) -> float:
    """The lag that a process has published, in seconds; 0 if none has lately, or if the catalog does not answer."""
    try:
        with catalog.patience.without(), catalog.reading() as connection:
            counters = memory.counters(connection)
            now = catalog.clock()
    except CatalogUnavailableError:
        return 0.0  # the write that asks finds out by itself
    return (now - counters[SINCE]) / 1e6 if counters.get(UNTIL, 0) > now else 0.0
