"""First rows over a large level 0 read the row groups that have them, and no others."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ebla.base.caches import CacheName, Caches
from ebla.model.relation import TOKEN, Relation
from ebla.predicates import conditions as c
from ebla.query.fetch import fetch
from ebla.query.overlay import Source
from ebla.query.plan import fit, plan
from ebla.query.row_search import RowSearch
from ebla.query.streams import Seek
from ebla.storage import runs as rf
from ebla.storage.layers import Key
from ebla.storage.store import Store
from support.level0 import INDEX, TABLE, Level0, keys_of, newest_of, path_of

ROWS = 3_000


def key(n: int) -> Key:
    return float(n), "a", 0


def first(source: Source, relation: Relation, count: int, **asked: object) -> pa.Table:
    path = path_of(relation)
    request = c.request(relation, order_by=[k.path for k in path.key], **asked)  # type: ignore[arg-type]
    fitted = fit(path, request)
    assert fitted is not None
    seek = Seek(source, fitted, request.order)
    seek.selection.extent()
    places = [place for (_, _, place, _), _ in zip(seek.rows(in_order=True), range(count), strict=False)]
    return seek.taken(places, relation.columns)


@pytest.fixture
def caches() -> Caches:
    return Caches(2**30)


def arrays_read(caches: Caches) -> int:
    return caches.cache(CacheName.COLUMNS).usage.entries


@pytest.mark.parametrize("relation", [TABLE, INDEX], ids=lambda one: one.name)
def test_first_rows_read_few_row_groups(tmp_path: Path, caches: Caches, relation: Relation) -> None:
    level0, store = Level0(tmp_path, relation), Store(caches)
    level0.begin({key(n): n for n in range(ROWS)})
    level0.append_tablets({key(n): (None if n % 4 else ROWS + n) for n in range(0, ROWS, 2)})
    source = level0.source(level0.snapshot(), store, rows_max=0)
    moved = relation is INDEX
    wanted = [n for n in range(ROWS) if n % 2][:10] if moved else [n for n in range(ROWS) if n % 2 or not n % 4][:10]
    assert keys_of(first(source, relation, 10)) == [key(n) for n in wanted]
    before = arrays_read(caches)
    in_level0 = sum(-(-run.rows // 3) for run in level0.runs)
    # Of an index's level 0, the keys of all rows are read once, to know which entries it replaced.
    assert before <= 100 + (3 * in_level0 if moved else 0)

    if moved:
        assert len(first(source, relation, 10, where={"x": c.Range(2_000, None)})) == 10
        assert arrays_read(caches) <= before + 100


def test_rows_in_the_order_of_the_key_are_asked_for_only_where_there_are_tombstones(tmp_path: Path, caches: Caches):
    level0, store = Level0(tmp_path), Store(caches)
    level0.begin({key(n): n for n in range(ROWS)})
    level0.append_tablets({key(n): ROWS + n for n in range(0, ROWS, 2)})
    level0.append_tablets({key(n): 2 * ROWS + n for n in range(0, ROWS, 3)})
    assert _asked(level0, store) == 0
    assert _asked(level0, store, where={"x": c.Range(0, None)}) > 0, "a newer version may not fulfil the condition"
    level0.append_tablets({key(4): None})
    assert _asked(level0, store, without=4) >= 30


def _asked(level0: Level0, store: Store, without: int | None = None, **asked: object) -> int:
    """How many rows were looked up in newer runs, for the first 30, which are right."""
    path = path_of(TABLE)
    request = c.request(TABLE, order_by=["f", "s", "b"], **asked)  # type: ignore[arg-type]
    fitted = fit(path, request)
    assert fitted is not None
    seek = Seek(level0.source(level0.snapshot(), store, rows_max=0), fitted, request.order)
    seek.selection.extent()
    places = [place for (_, _, place, _), _ in zip(seek.rows(in_order=True), range(30), strict=False)]
    found = seek.taken(places, TABLE.columns)
    wanted = [n for n in range(31) if n != without][:30]
    assert keys_of(found) == [key(n) for n in wanted]
    assert found["x"].to_pylist() == [n + (2 * ROWS if n % 3 == 0 else 0 if n % 2 else ROWS) for n in wanted]
    return seek.examined


def test_no_row_is_looked_up_behind_the_last_that_is_shown(tmp_path: Path, caches: Caches) -> None:
    """The first batch of lookups has a row more than are shown, and no more: a second one would double the cost."""
    level0, store = Level0(tmp_path, INDEX), Store(caches)
    level0.begin({key(n): n for n in range(ROWS)})
    first_batch, gone = 48, 17
    level0.append_tablets({key(n): ROWS + n for n in (*range(gone), *range(100, 1_000 - gone))})
    source, path = level0.source(level0.snapshot(), store, rows_max=0), path_of(INDEX)
    request = c.request(INDEX, order_by=[k.path for k in path.key], limit=first_batch - gone - 1)
    fitted = fit(path, request)
    assert fitted is not None
    seek = Seek(source, fitted, request.order)
    found = RowSearch((source, path), plan(request, fitted, seek.selection.extent()), seek).rows()
    assert found["x"].to_pylist() == list(range(gone, first_batch))
    assert seek.examined == first_batch


def test_rows_by_key_read_the_row_groups_that_have_them(tmp_path: Path, caches: Caches) -> None:
    level0, store = Level0(tmp_path), Store(caches)
    level0.begin({key(n): n for n in range(ROWS)})
    for step in (2, 3):
        level0.append_tablets({key(n): n * step for n in range(0, ROWS, step)})
    level0.append({key(12): 1})
    source = level0.source(level0.snapshot(), store, rows_max=1)
    found = fetch(source, path_of(), [key(n) for n in (12, 3, 2, 1)], TABLE.columns)
    assert found["x"].to_pylist() == [1, 9, 4, 1]
    assert arrays_read(caches) <= 60


def test_keys_that_a_commit_wrote_are_not_looked_for_in_older_files(tmp_path: Path) -> None:
    level0 = Level0(tmp_path)
    for step in (1, 2):
        level0.append_tablets({key(n): n + step for n in range(20)})
    older = [run for run in level0.runs if run.begin_version == 1]
    level0.append_tablets({key(0): None})
    level0.append({key(1): 7})
    for run in older:
        (tmp_path / run.path).unlink()
    wanted = [key(n) for n in range(4)]
    for rows_max in (0, 1):
        assert newest_of(level0, wanted, rows_max) == {key(0): None, key(1): 7, key(2): 4, key(3): 5}
    with pytest.raises(duckdb.IOException):
        newest_of(level0, [key(20)], 0)


def test_rows_that_spark_wrote_are_hashed_once(tmp_path: Path, caches: Caches) -> None:
    level0, cache = Level0(tmp_path), rf.LevelZeroCache(caches.cache(CacheName.LEVEL0))
    run = level0.append({key(n): n for n in range(10)}, with_tokens=False)
    source = level0.source(level0.snapshot(), Store(caches))
    found = rf.mutations(TABLE, [run], source.roots, cache)
    kept = cache.get(run.path)
    assert kept is not None
    assert kept[TOKEN].to_pylist() == found[TOKEN].to_pylist()
    assert rf.mutations(TABLE, [run], source.roots, cache) == found
    assert cache.get(run.path) is kept
