"""Waiting for a database that does not answer: how long, and what may be done again meanwhile.

A connection that cannot be made is tried again, which is always safe. What failed half way is repeated as a whole: a
read, a statement, a write. None of them is repeated once this thread has committed something meanwhile, for that would
be done twice; a commit itself is settled by its id (`ebla.catalog.store`). The limit counts from the first failure,
also through several layers that wait: the error carries that moment.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from ebla.base.backoff import Backoff
from ebla.errors import CatalogUnavailableError

log = logging.getLogger("ebla.catalog")

Done = TypeVar("Done")

PAUSE_S = Backoff(0.05, 1.0)
LOG_AFTER_S = 1.0
"""A wait that takes longer is worth a line of the log."""


class Patience:
    """How long the users of one open catalog wait for it. Safe to use from several threads."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._closing = threading.Event()
        self._mine = threading.local()

    def committed(self) -> None:
        """This thread has committed: what it is in the middle of must not be repeated."""
        self._mine.commits = self._commits + 1

    @property
    def _commits(self) -> int:
        return getattr(self._mine, "commits", 0)

    def insist(self, use: Callable[[], Done], *, twice: bool = False) -> Done:
        """Do something until the database has answered or the limit has passed.

        `twice`: it may be done again also after it has committed.
        """
        first: float | None = None
        failures, before = 0, self._commits
        while True:
            try:
                return use()
            except CatalogUnavailableError as error:
                failures += 1
                now = time.monotonic()
                first = min(t for t in (first, error.since, now) if t is not None)
                error.since = first
                begun = not twice and self._commits != before
                if begun or not error.settled or not self._wait(first, failures, error):
                    raise

    def _wait(self, first: float, failures: int, error: CatalogUnavailableError) -> bool:
        """Pause; False when there is no time left."""
        waited_s = time.monotonic() - first
        if self.limit_s <= waited_s or self._closing.is_set() or getattr(self._mine, "none", False):
            return False
        pause = PAUSE_S.after(failures) * random.uniform(0.5, 1.0)
        if waited_s < LOG_AFTER_S <= waited_s + pause:
            log.warning("catalog: waits up to %g s reason=%s", self.limit_s, error)
        self._closing.wait(min(pause, self.limit_s - waited_s))
        return not self._closing.is_set()

    @contextlib.contextmanager
    def without(self) -> Iterator[None]:
        """This thread does not wait: what it cleans up after a failure is cleaned up by others too."""
        before = getattr(self._mine, "none", False)
        self._mine.none = True
        try:
            yield
        finally:
            self._mine.none = before

    def end(self) -> None:
        """The catalog is about to be closed: every wait ends now, and none begins."""
        self._closing.set()
