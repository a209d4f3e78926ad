"""Planning a read costs what the read touches, not what the manifest holds."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.catalog.reads import newest_write
from ebla.catalog.runs import current_cutoffs
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.model.relation import Relation
from ebla.model.tablets import token_range, token_ranges
from support.catalogs import add, commit, create, put_nodes, relation, run, statements

RUNS = 100_000
TABLETS = 1_024
SPANNING = 20
FOLDS = 10
LOOKS = 20
MILLISECONDS_MAX = 20.0


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    folder: Path = tmp_path_factory.mktemp("large") / "catalog"
    catalog = Catalog.open(str(folder))
    put_nodes(catalog, "node1")
    target = create(catalog, "orders", tablets=TABLETS)
    add(catalog, *(run(target.id, tablet=n % TABLETS, tablets=TABLETS, level=1) for n in range(RUNS - SPANNING)))
    for _ in range(FOLDS):
        commit(catalog, c.SetCutoff(relation=target.id, tablets=tuple(token_ranges(TABLETS)), cutoff=catalog.version()))
    add(catalog, *(run(target.id) for _ in range(SPANNING)))
    yield catalog
    catalog.close()


def milliseconds(catalog: Catalog, target: Relation, tablet: int) -> float:
    """Of work in this thread, in which SQLite does its own; a busy machine makes no difference."""
    begin = time.thread_time()
    with catalog.reading() as connection:
        found = reads.snapshot(connection, target, tokens=[token_range(tablet, TABLETS)])
    took = (time.thread_time() - begin) * 1000
    assert len(found.level0) == SPANNING
    assert {r.tablet for r in found.level1} == {tablet}
    assert len(found.level1) >= RUNS // TABLETS
    return took


def test_a_snapshot_of_one_tablet_among_a_hundred_thousand_runs(large: Catalog):
    target = relation(large, "orders")
    rng = random.Random(1)
    milliseconds(large, target, 0)  # warms the connection
    median = statistics.median(milliseconds(large, target, rng.randrange(TABLETS)) for _ in range(LOOKS))
    print(f"snapshot of one of {TABLETS} tablets, {RUNS} runs: median {median:.2f} ms")
    assert median <= MILLISECONDS_MAX


@pytest.mark.parametrize("tablets", [1, TABLETS])
def test_a_fold_asks_once_for_the_cutoffs_of_all_its_tablets(large: Catalog, tablets: int):
    target = relation(large, "orders")
    places = token_ranges(TABLETS)[:tablets]
    with large.reading() as connection, statements(large) as sent:
        found = current_cutoffs(connection, target.id, places)
    assert set(found) == set(places)
    assert len(set(found.values())) == len(sent) == 1


def plans(catalog: Catalog, read: Callable[[Connection], object]) -> list[str]:
    """How SQLite finds the rows of every query that a read makes."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        asked.append((statement, parameters))

    with catalog.reading() as connection:
        event.listen(connection, "before_cursor_execute", note)
        read(connection)
        event.remove(connection, "before_cursor_execute", note)
        assert asked
        return [
            str(step[-1])
            for statement, parameters in asked
            for step in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]


def test_no_query_about_few_runs_scans_the_manifest(large: Catalog):
    """The figure above holds for any size because the plans say so."""
    target = relation(large, "orders")
    end = large.version()
    one_tablet = plans(large, lambda connection: reads.snapshot(connection, target, tokens=[token_range(5, TABLETS)]))
    for found_by in ("fork>? AND fork<?", "fork=? AND end_version>?"):
        assert any(f"runs_by_fork (relation_id=? AND {found_by})" in p for p in one_tablet), one_tablet
    changes = plans(large, lambda connection: reads.writes_between(connection, target, Version(end - 1), end))
    assert any("runs_by_begin (relation_id=? AND source=? AND begin_version>?" in p for p in changes), changes
    last_write = plans(large, lambda connection: newest_write(connection, target.id))
    assert any("runs_by_begin (relation_id=? AND source=?)" in p for p in last_write), last_write
    cutoff = plans(large, lambda connection: current_cutoffs(connection, target.id, [token_range(5, TABLETS)]))
    for found_folds in (one_tablet, cutoff):
        assert any("folds" in p and "(relation_id=? AND token_min=?" in p for p in found_folds), found_folds
    scans = [step for step in (*one_tablet, *changes, *last_write) if "SCAN runs" in step or "SCAN folds" in step]
    assert scans == []
