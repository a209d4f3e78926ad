"""A bounded cache."""

from __future__ import annotations

import pyarrow as pa

from ebla.base.lru import Lru
from ebla.storage.runs import LevelZeroCache


def test_the_least_recently_used_goes_first():
    kept: Lru[str] = Lru(3)
    for name in "abc":
        kept.put(name, name)
    assert kept.get("a") == "a"
    kept.put("d", "d")
    assert [name for name in "abcd" if kept.get(name)] == ["a", "c", "d"]


def test_what_is_too_large_is_kept_alone():
    kept: Lru[str] = Lru(3)
    kept.put("a", "a")
    kept.put("b", "b", 100)
    assert (kept.get("a"), kept.get("b"), kept.size) == (None, "b", 3)


def test_without_room_nothing_is_kept():
    kept: Lru[str] = Lru(0)
    for number in range(100):
        kept.put(number, "x", 10)
    assert not any(kept.get(number) for number in range(100))


def test_a_level_0_run_that_is_too_large_drives_no_other_out():
    cache = LevelZeroCache(1000)
    small, large = pa.table({"id": [1]}), pa.table({"id": list(range(1000))})
    cache.put("small", small)
    cache.put("large", large)
    assert cache.get("small") is small
    assert cache.get("large") is None
