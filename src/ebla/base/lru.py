"""A bounded cache for several threads: things by name, least recently used out first."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from operator import itemgetter
from typing import Generic, TypeVar

from cachetools import LRUCache

Kept = TypeVar("Kept")


class Lru(Generic[Kept]):
    """Things by name, up to a size. One that is larger than that is kept alone; with a size of 0 nothing is kept."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._kept: LRUCache[Hashable, tuple[Kept, int]] = LRUCache(size_max, getsizeof=itemgetter(1))
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Of all that is kept."""
        return int(self._kept.currsize)

    def get(self, name: Hashable) -> Kept | None:
        with self._lock:
            found = self._kept.get(name)
        return None if found is None else found[0]

    def put(self, name: Hashable, thing: Kept, size: int = 1) -> None:
        if self._size_max == 0:
            return
        with self._lock:
            self._kept[name] = thing, min(size, self._size_max)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
