"""What a process is working on, as it tells others."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator

Progress = Callable[[str, float | None], None]
"""Called with what is being done and, where that can be computed, the share that is done (0 to 1)."""


class Activities:
    """The names of what is being done now. Safe to use from several threads."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        with self._lock:
            self._counts[what] += 1
        try:
            yield
        finally:
            with self._lock:
                self._counts[what] -= 1

    def now(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(+self._counts))
