"""Tablets are split and become one while everything goes on: builds, writes, reads of older versions, compaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Connection

import ebla
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.tablets import tablet_around
from ebla.model.topology import Resize, ResizeType
from ebla.tables.cutting import crossing, cut_runs
from support.catalogs import exclusively
from support.indexes import assert_exact
from support.steps import Steps
from support.warehouse import connect, later, live_runs, named, rows, stored

pytestmark = [pytest.mark.spark]

VIEW = "SELECT t.id, t.n, g.name FROM t LEFT JOIN g ON t.a = g.a"
SUMS = "SELECT a, count(*) AS c, sum(n) AS n FROM t GROUP BY a"
QUIET: dict[str, Any] = {"auto_refresh": False, "tablets": 2}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "w", spark, **QUIET) as database:
        database.sql("CREATE TABLE t (id BIGINT, a STRING, n BIGINT, PRIMARY KEY (id))")
        database.sql("CREATE TABLE g (a STRING, name STRING, PRIMARY KEY (a))")
        database.table("g").upsert([{"a": f"a{i}", "name": f"g{i}"} for i in range(3)])
        write(database, *range(24))
        yield database


def write(db: ebla.Database, *numbers: int, **changed: Any) -> None:
    db.table("t").upsert([{"id": i, "a": f"a{i % 4}", "n": i, **changed} for i in numbers])


def resize(db: ebla.Database, name: str, tablets: int) -> None:
    """Have the background split tablets, or make them fewer, and wait for it."""
    request = db.sql(f"ALTER TABLE {name} SET (tablets = {tablets})").rows()[0][0]
    assert db.sql(f"WAIT FOR REQUEST {request}").rows() == [(request, f"{name} has {tablets} tablets")]


def at_once(db: ebla.Database, name: str, tablets: int) -> None:
    """The next map of a table, whatever lies across it."""

    def decide(connection: Connection, _: Version) -> c.Decision:
        resized = c.SetTabletMap(relation=reads.relation(connection, name).id, tablets=tablets)
        return c.Decision(reason=f"{name}: {tablets} tablets", updates=(resized,))

    db.context.catalog.decide(decide)


def maps_of(db: ebla.Database, name: str) -> list[int]:
    with db.context.catalog.reading() as connection:
        return [tablets for _, tablets in reads.relation_maps(connection, reads.relation(connection, name).id)]


def assert_right(db: ebla.Database) -> None:
    db.sql("FLUSH v, s")
    assert rows(db, "v") == rows(db, VIEW)
    assert rows(db, "s") == rows(db, SUMS)
    assert_exact(db, "i")


def test_c4_builds_go_on_through_splits_and_merges(db: ebla.Database, steps: Steps) -> None:
    maps = iter([4, 8, 2, 1, 4])
    due: set[int] = set()

    def between(number: int) -> None:
        write(db, number, 100 + number, n=1000 + number)
        if number in due:
            resize(db, "t", next(maps))
        if number == 5:
            db.sql("DELETE FROM t WHERE id < 4")

    steps.at("build.before_chunk", between)
    due |= {1, 3, 6, 8}
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW v WITH (chunk_rows = 3) AS {VIEW}")
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW s WITH (chunk_rows = 5) AS {SUMS}")
    db.sql("WAIT FOR v, s")
    due |= {steps.passed["build.before_chunk"]}  # before the first entries of the index are committed
    db.sql("CREATE ASYNC INDEX i ON t (n DESC) INCLUDE (a); WAIT FOR i")
    steps.at("build.before_chunk", lambda number: None)
    assert (maps_of(db, "t"), maps_of(db, "i")) == ([2, 4, 8, 4, 2, 1, 2, 4], [1, 2, 4])
    for table in ("view_building_tasks", "view_builds", "view_building_segments"):
        assert db.sql(f"SELECT * FROM system.{table}").rows() == [], table
    assert_right(db)


def test_a_table_is_read_written_and_compacted_on_either_side_of_a_resize(db: ebla.Database) -> None:
    db.sql(f"CREATE INDEX i ON t (n); CREATE MATERIALIZED VIEW v AS {VIEW}; CREATE MATERIALIZED VIEW s AS {SUMS}")
    db.sql("COMPACT t; COMPACT i")
    write(db, 3, 30, n=-1)
    before, then = db.context.catalog.version(), rows(db, "t")
    with pytest.raises(ConflictError, match=r"t: expected every level 1 run in one of 8 tablets.*; cut it first"):
        at_once(db, "t", 8)
    write(db, 5, 31, n=-2)
    level0 = {run.id for run in live_runs(db, "t") if run.level == 0}
    resize(db, "t", 8)
    assert {run.id for run in live_runs(db, "t") if run.level == 0} == level0, "a split folds nothing"
    assert all(tablet_around(run.tokens, 8) is not None for run in live_runs(db, "t") if run.level == 1)
    assert maps_of(db, "t") == maps_of(db, "i") == [2, 4, 8]
    db.sql("DELETE FROM t WHERE id = 7")
    assert rows(db, f"SELECT * FROM t VERSION AS OF {before}") == then
    assert_right(db)
    by_tablet = [db.table("t").scan(tablets=[t]).count() for t in range(8)]
    assert sum(by_tablet) == len(rows(db, "t"))
    now = rows(db, "t")
    db.sql("COMPACT t; COMPACT i")
    assert all(tablet_around(run.tokens, 8) is not None for run in live_runs(db, "t"))
    assert len(live_runs(db, "t")) == sum(1 for count in by_tablet if count)
    assert rows(db, "t") == now
    assert_right(db)
    merged = db.context.catalog.version()
    resize(db, "t", 2)
    write(db, 9, 32, n=-3)
    assert_right(db)
    db.sql("COMPACT t; COMPACT i")
    assert sorted(run.tablet for run in live_runs(db, "t")) == [0, 1]
    assert_right(db)
    assert rows(db, f"SELECT * FROM t VERSION AS OF {before}") == then
    assert rows(db, f"SELECT * FROM t VERSION AS OF {merged}") == now
    changed = db.table("t").changes(since=before).toPandas()
    assert sorted(changed["id"]) == [5, 7, 9, 31, 32]
    later(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)
    assert maps_of(db, "t") == [2]
    assert_right(db)


def test_a_compaction_between_decision_and_finalization_keeps_the_cut(db: ebla.Database) -> None:
    db.sql("CREATE INDEX i ON t (n)")
    decide(db)
    for _ in range(2):
        db.sql("COMPACT t; COMPACT i")
        for name in ("t", "i"):
            assert all(tablet_around(run.tokens, 4) is not None for run in live_runs(db, name))
        write(db, *range(24), n=5)
    at_once(db, "t", 4)
    assert_exact(db, "i")


def decide(db: ebla.Database) -> None:
    with db.context.catalog.reading() as connection:
        table = reads.relation(connection, "t")
    resize = Resize(type=ResizeType.SPLIT, number=1, tablets=4)  # as many as are asked for: it is not revoked
    exclusively(db.context.catalog, t.SetResize(relation=table.id, resize=resize))


def test_level_0_runs_are_cut_into_runs_of_one_tablet_each(db: ebla.Database) -> None:
    """As a tablet that moves needs it: the rows, their order among commits and their tombstones stay."""
    db.sql("COMPACT t")
    write(db, 1, 2, 3, 40, n=7)
    db.sql("DELETE FROM t WHERE id IN (4, 5, 6)")
    write(db, 1, 4, n=8)
    before, then = db.context.catalog.version(), rows(db, "t")
    spanning = [run for run in live_runs(db, "t") if run.level == 0]
    assert cut_runs(db.context, "t", 2, lambda snapshot: crossing(snapshot.level0, 2)) == len(crossing(spanning, 2)) > 0
    after = [run for run in live_runs(db, "t") if run.level == 0]
    assert all(tablet_around(run.tokens, 2) is not None for run in after)
    assert {run.begin_version for run in after} == {run.begin_version for run in spanning}
    assert sum(run.tombstones for run in after) == sum(run.tombstones for run in spanning) == 3
    assert rows(db, "t") == then == rows(db, f"SELECT * FROM t VERSION AS OF {before}")
    assert db.table("t").changes(since=before).count() == 0, "the same rows again are no changes"
    db.sql("COMPACT t")
    assert rows(db, "t") == then
    later(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)
