"""What a process keeps in memory: things by name, bounded in bytes, least recently used out first.

The caches of one open database are parts of one budget, the setting `read_cache_bytes`. Sizes count what a thing takes
in memory, and not only its values: of an Arrow table of five rows the values are the smallest part.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

Kept = TypeVar("Kept")

ENTRY_BYTES = 500
"""What an entry takes besides the thing: its name, and its places in dictionaries."""


ROOM_MIN = 2048
"""Rows of a generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How full a cache is, and what it was good for."""

    name: str
    entries: int
    bytes: int
    bytes_max: int
    hits: int
    misses: int


class Lru(Generic[Kept]):
    """Things by name, up to a size in bytes. One that is larger is not kept. Safe to use from several threads."""

    def __init__(self, name: str, bytes_max: int) -> None:
        self.name = name
        self.bytes_max = bytes_max
        self._kept: OrderedDict[Hashable, tuple[Kept, int]] = OrderedDict()
        """The least recently used first."""
        self._bytes = 0
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    def get(self, name: Hashable) -> Kept | None:
        with self._lock:
            found = self._kept.get(name)
            if found is None:
                self._misses += 1
                return None
            self._kept.move_to_end(name)
            self._hits += 1
            return found[0]

    def get_all(self, names: Iterable[Hashable]) -> list[Kept] | None:
        """All of these things; `None` if one of them is not kept."""
        with self._lock:
            kept = self._kept
            found: list[Kept] = []
            for name in names:
                one = kept.get(name)
                if one is None:
                    self._misses += 1
                    return None
                kept.move_to_end(name)
                found.append(one[0])
            self._hits += len(found)
            return found

    def names(self) -> list[Any]:
        """The names of the things that the cache has."""
        with self._lock:
            return list(self._kept)

    def put(self, name: Hashable, thing: Kept, size: int) -> None:
        taken = size + ENTRY_BYTES
        if taken > self.bytes_max:
            return
        with self._lock:
            self._forget(name)
            while self._bytes + taken > self.bytes_max:
                self._forget(next(iter(self._kept)))
            self._kept[name] = thing, taken
            self._bytes += taken

    def _forget(self, name: Hashable) -> None:
        gone = self._kept.pop(name, None)
        if gone is not None:
            self._bytes -= gone[1]

    def drop(self, is_gone: Callable[[Any], bool]) -> None:
        """Forget the things whose names are said to be gone."""
        with self._lock:
            for name in [name for name in self._kept if is_gone(name)]:
                self._forget(name)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    @property
    def usage(self) -> Usage:
        with self._lock:
            return Usage(
                name=self.name,
                entries=len(self._kept),
                bytes=self._bytes,
                bytes_max=self.bytes_max,
                hits=self._hits,
                misses=self._misses,
            )


Row = TypeVar("Row", bound=Iterable[object])
_of_process: list[InternTable[Any, Any]] = []
"""The caches that all connections of a process share."""


class InternTable(Generic[Row, Kept]):
    """Values that equal rows stand for, all of about one size.

    Two generations: a row that is asked for lies in the younger one. When that is full, it becomes the older one before
    the next rows are asked for, and rows that were not asked for meanwhile are gone. A generation has room for what was
    asked for at a time, twice, and for half of the bound at most: of more rows at a time the last are not kept.
    """

    def __init__(self, name: str, make: Callable[[Row], Kept], *, bytes_max: int, each: int) -> None:
        self.name = name
        self._make = make
        self._each = each + ENTRY_BYTES
        self._bytes_max = bytes_max
        self._room = ROOM_MIN
        self._young: dict[Hashable, Kept] = {}
        self._old: dict[Hashable, Kept] = {}
        self._hits = self._misses = 0
        _of_process.append(self)

    def of(self, rows: Sequence[Row]) -> list[Kept]:
        self._room = max(self._room, 2 * len(rows))
        if len(self._young) >= self._generation:
            self._old, self._young, self._room = self._young, {}, max(ROOM_MIN, 2 * len(rows))
        return [self._of(row) for row in rows]

    @property
    def _generation(self) -> int:
        """How many values a generation has at most."""
        return min(self._room, self._bytes_max // (2 * self._each))

    def _of(self, row: Row) -> Kept:
        name = tuple(row)
        found = self._young.get(name)
        if found is not None:
            self._hits += 1
            return found
        found = self._old.get(name)
        if found is None:
            self._misses += 1
            found = self._make(row)
        else:
            self._hits += 1
        if len(self._young) < self._generation:
            self._young[name] = found
        return found

    @property
    def usage(self) -> Usage:
        entries = len(self._young) + len(self._old)
        return Usage(
            name=self.name,
            entries=entries,
            bytes=entries * self._each,
            bytes_max=self._bytes_max,
            hits=self._hits,
            misses=self._misses,
        )


class CacheName(StrEnum):
    """The caches of an open database, by what they hold."""

    COLUMNS = "columns"
    LEVEL0 = "level 0"
    LAYERS = "layers"
    FOOTERS = "footers"
    SNAPSHOTS = "snapshots"
    FRAMES = "frames"
    PLANS = "plans"
    RESERVES = "reserves"


SHARES = {
    CacheName.COLUMNS: 6,
    CacheName.LEVEL0: 4,
    CacheName.LAYERS: 3,
    CacheName.FOOTERS: 1,
    CacheName.SNAPSHOTS: 1,
    CacheName.FRAMES: 1,
    CacheName.PLANS: 1,
    CacheName.RESERVES: 1,
}
"""The weight of each cache in the budget."""


class Caches:
    """The caches of one open database."""

    def __init__(self, bytes_max: int) -> None:
        whole = sum(SHARES.values())
        self.others: list[Callable[[], Sequence[Usage]]] = []
        """What else the database keeps, on its disk."""
        self._caches = {name: Lru[Any](name.value, bytes_max * share // whole) for name, share in SHARES.items()}

    def cache(self, name: CacheName) -> Lru[Any]:
        return self._caches[name]

    def usage(self) -> Sequence[Usage]:
        """How full each is, and those that the process shares."""
        others = (usage for usages in self.others for usage in usages())
        return [*(kept.usage for kept in self._caches.values()), *(kept.usage for kept in _of_process), *others]
