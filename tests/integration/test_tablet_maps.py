"""Tablets are split and become one while everything goes on: builds, writes, reads of older versions, compaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Connection

import ebla
from ebla.base.ids import TaskId, Version
from ebla.build import moves
from ebla.build.state import State
from ebla.catalog import building, reads
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.tablets import tablet_around
from ebla.tables.compaction import compact
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


def resize(db: ebla.Database, name: str, tablets: int) -> int:
    """The next map of a table, in one commit with the tasks; the version."""

    def decide(connection: Connection, _: Version) -> c.Decision:
        table = reads.relation(connection, name)
        state = State.of(building.tasks(connection))
        tasks = moves.after_resize(state, table.id, tablets, lambda: TaskId(str(uuid.uuid4())))
        return c.Decision(
            reason=f"{name}: {tablets} tablets", updates=(c.SetTabletMap(relation=table.id, tablets=tablets), *tasks)
        )

    committed = db.context.catalog.decide(decide)
    assert committed is not None
    return committed.version


def maps_of(db: ebla.Database, name: str) -> list[int]:
    with db.context.catalog.reading() as connection:
        return [tablets for _, tablets in reads.relation_maps(connection, reads.relation(connection, name).id)]


def assert_right(db: ebla.Database) -> None:
    db.sql("FLUSH v, s")
    assert rows(db, "v") == rows(db, VIEW)
    assert rows(db, "s") == rows(db, SUMS)
    assert_exact(db, "i")


def test_builds_go_on_through_splits_and_merges(db: ebla.Database, steps: Steps) -> None:
    maps = iter([4, 8, 2, 1, 16])
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
    assert (maps_of(db, "t"), maps_of(db, "i")) == ([2, 4, 8, 2, 1, 16], [1, 16])
    for table in ("view_building_tasks", "view_builds", "view_building_segments"):
        assert db.sql(f"SELECT * FROM system.{table}").rows() == [], table
    assert_right(db)


def test_a_table_is_read_written_and_compacted_on_either_side_of_a_resize(db: ebla.Database) -> None:
    db.sql(f"CREATE INDEX i ON t (n); CREATE MATERIALIZED VIEW v AS {VIEW}; CREATE MATERIALIZED VIEW s AS {SUMS}")
    db.sql("COMPACT t; COMPACT i")
    write(db, 3, 30, n=-1)
    before, then = db.context.catalog.version(), rows(db, "t")
    with pytest.raises(ConflictError, match=r"t: expected every level 1 run in one of 8 tablets.*; cut it first"):
        resize(db, "t", 8)
    for name in ("t", "i"):
        compact(db.context, name, tablets=8)
    write(db, 5, 31, n=-2)
    split = resize(db, "t", 8)
    db.sql("DELETE FROM t WHERE id = 7")
    assert rows(db, f"SELECT * FROM t VERSION AS OF {before}") == then
    assert db.sql(f"SELECT tablets FROM system.tablet_maps WHERE begin_version = {split}").rows() == [(8,), (8,)]
    assert_right(db)
    by_tablet = [db.table("t").scan(tablets=[t]).count() for t in range(8)]
    assert sum(by_tablet) == len(rows(db, "t"))
    now = rows(db, "t")
    db.sql("COMPACT t; COMPACT i")
    assert all(tablet_around(run.tokens, 8) is not None for run in live_runs(db, "t"))
    assert len(live_runs(db, "t")) == sum(1 for count in by_tablet if count)
    assert rows(db, "t") == now
    assert_right(db)
    merged = resize(db, "t", 2)
    write(db, 9, 32, n=-3)
    assert_right(db)
    db.sql("COMPACT t; COMPACT i")
    assert sorted(run.tablet for run in live_runs(db, "t")) == [0, 1]
    assert_right(db)
    assert rows(db, f"SELECT * FROM t VERSION AS OF {before}") == then
    assert rows(db, f"SELECT * FROM t VERSION AS OF {merged - 1}") == now
    changed = db.table("t").changes(since=before).toPandas()
    assert sorted(changed["id"]) == [5, 7, 9, 31, 32]
    later(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)
    assert maps_of(db, "t") == [2]
    assert_right(db)
