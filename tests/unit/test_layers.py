"""Which level 0 runs are merged in memory, and what one more of them costs."""

from __future__ import annotations

import math
import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ebla.storage.layers import Key, folded, segments
from support.level0 import TABLE, TABLETS, Level0, path_of, store_of, tablets_of


def rows(number: int, count: int = 10) -> dict[Key, int | None]:
    return {(float(n), "a", number): n for n in range(count)}


def spans(sizes: list[int]) -> list[tuple[int, int]]:
    return [(one.start, one.stop) for one in segments(sizes)]


def test_runs_are_cut_into_neighbours_that_shrink() -> None:
    assert spans([]) == []
    assert spans([1000]) == [(0, 1)]
    assert spans([1000] * 3) == [(0, 3)]
    assert spans([1000] * 4) == [(0, 3), (3, 4)]
    assert spans([1000] * 20) == [(0, 13), (13, 18), (18, 20)]
    assert spans([100_000, 1, 1, 1, 1]) == [(0, 1), (1, 4), (4, 5)]
    assert spans([1, 1, 1, 1, 100_000]) == [(0, 5)]
    assert spans([0] * 500)[0][0] == 0


@pytest.mark.parametrize("seed", range(20))
def test_few_layers_and_little_merging(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice([1, 10, 1000, 1000, chance.randrange(1, 20_000)]) for _ in range(200)]
    merged = 0
    before: set[tuple[int, int]] = set()
    for count in range(1, len(sizes) + 1):
        found = spans(sizes[:count])
        assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
        assert found[-1][1] == count
        assert len(found) <= 1 + math.log2(sum(sizes[:count]))
        merged += sum(sum(sizes[start:end]) for start, end in set(found) - before)
        before = set(found)
    assert merged <= sum(sizes) * (1 + math.log(sum(sizes), 1.5))


def test_one_run_more_is_all_that_is_read(tmp_path: Path) -> None:
    level0, store, path = Level0(tmp_path), store_of(), path_of()
    for number in range(30):
        run = level0.append(rows(number))
        found = level0.layers(store, path, level0.snapshot())
        assert sum(len(layer.keys) for layer in found) == 10 * (number + 1)
        (tmp_path / run.path).unlink()
    assert len(found) <= 4


def test_the_two_newest_snapshots_have_their_layers_and_older_ones_have_none(tmp_path: Path) -> None:
    level0, store, path = Level0(tmp_path), store_of(), path_of()
    found = []
    for number in range(60):
        level0.append(rows(number))
        found.append(level0.layers(store, path, level0.snapshot()))
        assert store._layers.usage.entries <= 16, "what was merged into another layer is gone"
    for version in (60, 59):
        layers = level0.layers(store, path, level0.snapshot(version))
        assert all(a is b for a, b in zip(layers, found[version - 1], strict=True))
    assert all(
        sorted(key for layer in layers for key in layer.keys) == sorted(level0.expected(level0.snapshot(version)))
        for version, layers in enumerate(found, 1)
    )


def test_nothing_is_kept_of_runs_that_have_ended(tmp_path: Path) -> None:
    level0, store, path = Level0(tmp_path), store_of(), path_of()
    for number in range(5):
        level0.append(rows(number))
        source = level0.source(level0.snapshot(), store)
        for run in level0.runs:
            store.columns(source.roots, run, 0, TABLE.columns)
        level0.layers(store, path, level0.snapshot())
    level0.runs, level0.written = level0.runs[-1:], level0.written[-1:]
    level0.append(rows(9))
    level0.layers(store, path, level0.snapshot())
    assert store._footers.usage.entries == 1
    assert store._columns.usage.entries == len(TABLE.columns)


def test_a_fold_of_one_tablet_leaves_newer_layers_alone(tmp_path: Path) -> None:
    level0, store, path = Level0(tmp_path), store_of(), path_of()
    level0.append(rows(0, 100))
    gone = tablets_of(list(rows(0, 100)))[0]
    level0.layers(store, path, level0.snapshot())
    level0.fold(gone)
    level0.append(rows(1, 5))
    old, new = level0.layers(store, path, level0.snapshot())
    assert len(old.keys) == sum(tablet != gone for tablet in tablets_of(list(rows(0, 100)))) < 100
    assert len(new.keys) == 5
    snapshot = level0.snapshot()
    assert folded(snapshot.level0[:1], snapshot) == ((gone, 1),)
    assert folded(snapshot.level0[1:], snapshot) == ()
    level0.fold(gone)
    kept, _ = level0.layers(store, path, level0.snapshot())
    assert kept is old


def test_a_layer_takes_about_what_it_says(tmp_path: Path) -> None:
    level0, path = Level0(tmp_path), path_of()
    level0.append({(float(n), f"name {n}", n): n for n in range(20_000)})
    tracemalloc.start()
    try:
        [layer] = level0.layers(store_of(), path, level0.snapshot())
        taken, _ = tracemalloc.get_traced_memory()  # Arrow's columns are not among it
    finally:
        tracemalloc.stop()
    assert taken / 1.5 <= layer.bytes - layer.rows.nbytes <= taken * 1.5


def test_layers_beyond_the_bound_are_given_up(tmp_path: Path) -> None:
    level0, path = Level0(tmp_path), path_of()
    for number in range(40):
        level0.append(rows(number))
    [whole, *_] = level0.layers(store_of(), path, level0.snapshot())
    store = store_of(2 * whole.bytes)
    for version in reversed(range(1, 41)):  # each older than the newest, so that none makes another one go
        level0.layers(store, path, level0.snapshot(version))
    assert whole.bytes < store._layers.usage.bytes <= 2 * whole.bytes


def test_threads_share_layers(tmp_path: Path) -> None:
    level0, store, path = Level0(tmp_path), store_of(40_000), path_of()
    for number in range(24):
        level0.append(rows(number % 5, number) | {(0.0, "a", 9): None if number % 2 else number})
        if number % 7 == 3:
            level0.fold(number % TABLETS)

    def ask(version: int) -> bool:
        snapshot = level0.snapshot(version)
        found: dict[Key, int | None] = {}
        for layer in level0.layers(store, path, snapshot):
            values = layer.rows.column("x").to_pylist()
            found |= {key: None if layer.dead and layer.dead[at] else values[at] for key, at in layer.places.items()}
        return found == level0.expected(snapshot)

    versions = [random.Random(n).randrange(level0.version + 1) for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, versions))
