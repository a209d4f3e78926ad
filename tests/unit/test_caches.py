"""Bounded caches: what each holds, what it counts, and what goes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from ebla.base.caches import ENTRY_BYTES, ROOM_MIN, CacheName, Caches, InternTable, Lru
from ebla.base.ids import RelationId
from ebla.storage.runs import LevelZeroCache, table_bytes
from support.catalogs import run


def test_the_least_recently_used_goes_first():
    kept: Lru[str] = Lru("letters", 3 * (ENTRY_BYTES + 1))
    for name in "abc":
        kept.put(name, name, 1)
    assert kept.get("a") == "a"
    kept.put("d", "d", 1)
    assert [name for name in "abcd" if kept.get(name)] == ["a", "c", "d"]


def test_what_is_larger_than_the_bound_is_not_kept():
    kept: Lru[str] = Lru("letters", 10 * ENTRY_BYTES)
    kept.put("a", "a", 1)
    kept.put("b", "b", 10 * ENTRY_BYTES)
    assert (kept.get("a"), kept.get("b")) == ("a", None)


def test_without_room_nothing_is_kept():
    kept: Lru[str] = Lru("letters", 0)
    for number in range(100):
        kept.put(number, "x", 10)
    assert not any(kept.get(number) for number in range(100))


def test_a_cache_says_how_full_it_is_and_what_it_was_good_for():
    kept: Lru[str] = Lru("letters", 5_000)
    for number in range(100):
        kept.put(number, "x", 500)
        assert kept.usage.bytes <= 5_000
    assert kept.get(99) == "x"
    assert kept.get(0) is None
    now = kept.usage
    assert (now.name, now.entries, now.bytes, now.bytes_max, now.hits, now.misses) == ("letters", 5, 5_000, 5_000, 1, 1)
    kept.drop(lambda number: number != 99)
    assert (kept.usage.entries, kept.get(99)) == (1, "x")


def test_the_parts_of_a_budget_are_not_more_than_it():
    caches = Caches(1_000_000)
    of_budget = {one.name: one.bytes_max for one in caches.usage() if one.name in set(CacheName)}
    assert list(of_budget) == list(CacheName)
    assert sum(of_budget.values()) <= 1_000_000


def test_rows_that_are_asked_for_again_stay_and_others_go():
    made: list[int] = []

    def make(row: tuple[int]) -> int:
        made.append(row[0])
        return row[0]

    kept: InternTable[tuple[int], int] = InternTable("numbers", make, bytes_max=2**40, each=0)
    for number in range(5 * ROOM_MIN):
        assert kept.of([(-1,), (number,)]) == [-1, number]
        assert kept.usage.entries <= 2 * ROOM_MIN
    assert made.count(-1) == 1
    assert kept.of([(number,) for number in range(3 * ROOM_MIN)]) == list(range(3 * ROOM_MIN))
    made.clear()
    kept.of([(number,) for number in range(3 * ROOM_MIN)])
    assert not made, "a generation has room for all rows that are asked for at a time"


def test_the_bound_of_rows_counts_before_what_is_asked_for():
    kept: InternTable[tuple[int], int] = InternTable("numbers", lambda row: row[0], bytes_max=100 * ENTRY_BYTES, each=0)
    for turn in range(3):
        before = kept.usage.hits
        kept.of([(number,) for number in range(1_000)])
        assert kept.usage.bytes <= kept.usage.bytes_max
        assert kept.usage.hits - before == (50 if turn else 0), "what fits is found again"


# ---- level 0 --------------------------------------------------------------------------------------------


def test_a_small_table_counts_with_what_its_columns_take():
    small = pa.table({f"c{number}": [1] for number in range(17)})
    assert table_bytes(small) > 100 * small.nbytes
    whole = pa.table({"id": list(range(100_000))})
    assert table_bytes(whole.slice(0, 1)) > whole.nbytes, "a slice holds all that it was cut from"


def test_tables_of_folded_runs_go_with_the_next_fold():
    cache = LevelZeroCache(Lru("level 0", 2**20))
    runs = [replace(run(RelationId(1)), path=f"r1/t{number}-0.parquet") for number in range(4)]
    for one in runs:
        cache.put(one.path, pa.table({"id": [1]}))
    cache.end(RelationId(1), runs[:2])
    cache.end(RelationId(1), runs[:2])
    assert all(cache.get(one.path) for one in runs), "an epoch may not have read them"
    cache.end(RelationId(2), [])
    cache.end(RelationId(1), runs[2:3])
    assert [cache.get(one.path) is not None for one in runs] == [False, False, True, True]
