"""When level 0 is merged and when it is folded, and how often a row is written again for it."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebla.catalog.manifest import Levels
from ebla.tables.tiers import LARGE_SHARE, SHARE, Due, alike, due, merge
from support.warehouse import connect, live_runs

RUNS_MAX = 8


@pytest.mark.parametrize(
    ("runs", "rows", "level1", "expected"),
    [
        (RUNS_MAX - 1, 1_000, 100, Due.NOTHING),
        (RUNS_MAX, 100, 0, Due.FOLD),
        (RUNS_MAX, 100, 100 * SHARE, Due.FOLD),
        (RUNS_MAX, 100, 100 * SHARE + 1, Due.MERGE),
        (1, 1_001, 1_001 * LARGE_SHARE, Due.FOLD),
        (1, 1_001, 1_001 * LARGE_SHARE + 1, Due.NOTHING),
        (RUNS_MAX, 1_001, 1_001 * LARGE_SHARE + 1, Due.MERGE),
    ],
)
def test_what_is_due(runs: int, rows: int, level1: int, expected: Due) -> None:
    levels = Levels(level0_runs=runs, level0_rows=rows, level1_rows=level1)
    assert due(levels, runs_max=RUNS_MAX, rows_max=1_000) is expected


@given(sizes=st.lists(st.integers(1, 60), max_size=30), rows_max=st.integers(1, 100))
def test_behind_a_merge_each_run_is_larger_than_the_next_or_both_are_too_large(sizes: list[int], rows_max: int) -> None:
    groups = alike(sizes, rows_max)
    merged = _after(sizes, groups)
    assert sum(merged) == sum(sizes)
    assert all(sum(sizes[place] for place in group) <= rows_max and len(group) > 1 for group in groups)
    assert all(older > newer or older + newer > rows_max for older, newer in itertools.pairwise(merged))
    assert not alike(merged, rows_max)


def _after(sizes: list[int], groups: list[range]) -> list[int]:
    starts = {group.start: group for group in groups}
    inside = {place for group in groups for place in group}
    return [
        sum(sizes[at] for at in starts[place]) if place in starts else size
        for place, size in enumerate(sizes)
        if place in starts or place not in inside
    ]


def test_a_commit_that_has_several_runs_is_merged_as_a_whole(tmp_path: Path) -> None:
    nodes = {"more": str(tmp_path / "more")}
    with connect(tmp_path / "w", auto_refresh=False, tablets=4, nodes=nodes) as db:
        db.sql("CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id))")
        for number in range(3):
            db.table("t").upsert([{"id": key, "n": number} for key in range(13)])
        assert sorted(run.rows for run in live_runs(db, "t")) == [6, 6, 6, 7, 7, 7]
        assert merge(db.context, "t") == 2
        assert db.query("t", order_by="id").rows() == [(key, 2) for key in range(13)]


@pytest.mark.parametrize("keys", [50, 2_000, 10**9])
@pytest.mark.parametrize("largest", [1, 40, 700])
def test_rows_are_written_again_as_often_as_the_bound_says(keys: int, largest: int) -> None:
    """Commits over a table, with few keys that are written all the time or with new ones; all as compaction does it."""
    chance, rows_max = random.Random(keys + largest), 2_000
    level0: list[set[int]] = []
    level1 = set(range(20_000))
    committed = merged = folded = most = 0
    for _ in range(3_000):
        level0.append({chance.randrange(keys) for _ in range(chance.randint(1, largest))})
        committed += len(level0[-1])
        while True:
            levels = Levels(level0_runs=len(level0), level0_rows=sum(map(len, level0)), level1_rows=len(level1))
            match due(levels, runs_max=RUNS_MAX, rows_max=rows_max):
                case Due.FOLD:
                    level1 = level1.union(*level0)
                    level0, folded = [], folded + len(level1)
                case Due.MERGE if groups := alike([len(run) for run in level0], rows_max):
                    for group in reversed(groups):
                        level0[group.start : group.stop] = [set[int]().union(*level0[group.start : group.stop])]
                        merged += len(level0[group.start])
                case _:
                    break
        most = max(most, len(level0))
    assert merged <= committed * (1 + math.log2(rows_max))
    assert folded <= committed * (1 + LARGE_SHARE)
    assert most <= RUNS_MAX + math.log2(rows_max) + len(level1) / LARGE_SHARE / rows_max * 2
    assert merged or folded
