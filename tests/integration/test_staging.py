"""B15: files that are loaded while a view is being built are staged, and become visible exactly once.

`begun` leaves a view with its first chunks covered and no process that goes on: what a load finds during a build.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.base.backoff import Backoff
from ebla.base.failpoint import EXIT_CODE
from ebla.build import chunks
from ebla.catalog import reads, troubles
from ebla.model.relation import FOREVER
from ebla.tables import staging as staged
from ebla.tables import writes
from support.indexes import assert_exact as assert_index_exact
from support.processes import Processes, Sharing
from support.warehouse import eventually, later, named, stored

pytestmark = [pytest.mark.spark]

QUERY = "SELECT o.id, o.total * 2 AS twice FROM orders o"
QUIET: dict[str, Any] = {"auto_compact": False, "auto_refresh": False, "fsync": False, "tablets": 2}
LOADED = [(3, 300), *((i, i) for i in range(100, 110))]
"""One row that replaces another, and ten new ones, in both tablets."""
STAGED = (
    f"SELECT count(*), coalesce(sum(row_count), 0) FROM system.runs WHERE state = 'staging' AND end_version = {FOREVER}"
)
TASKS = "SELECT base_tablet_id, view_id FROM system.view_building_tasks WHERE type = 'process_staging' ORDER BY 1"
FLIPS = "SELECT count(*) FROM system.history WHERE reason LIKE 'staged rows of orders: %'"


class _Enough(Exception):
    pass


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **QUIET) as database:
        prepare(database)
        yield database
        later(database)
        database.vacuum(retain_s=0)
        assert stored(database) == named(database)


def prepare(db: ebla.Database) -> None:
    db.sql("CREATE TABLE orders (id BIGINT, total BIGINT, PRIMARY KEY (id))")
    db.table("orders").upsert([{"id": i, "total": i} for i in range(8)])


def begun(db: ebla.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view two chunks of which are there."""
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (chunk_rows = 1) AS {QUERY}")
    passed: Counter[str] = Counter()

    def hit(point: str) -> None:
        passed[point] += 1
        if passed["build.before_chunk"] >= 3:
            raise _Enough

    with monkeypatch.context() as patch:
        patch.setattr(chunks, "hit", hit)
        patch.setattr(
            troubles, "BACKOFF_US", Backoff(1000, 30_000_000)
        )  # it is tried again some times before the statement gives up
        with pytest.raises(ebla.EblaError, match="unexpected _Enough"):
            db.sql("WAIT FOR card")
    with db.context.catalog.reading() as connection:
        card = reads.relation(connection, "card").id
    troubles.clear(db.context.catalog, card)  # it goes on as one that was merely left
    assert db.progress("card").progress.rows == 2


def file_of(folder: Path, rows: list[tuple[int, int]], name: str = "in.parquet") -> Path:
    ids, totals = zip(*rows, strict=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "total": pa.array(totals, pa.int64())}), folder / name)
    return folder / name


def bag(db: ebla.Database, text: str) -> Counter[tuple[Any, ...]]:
    return Counter(db.sql(text).rows())


def orders(*changes: tuple[int, int]) -> Counter[tuple[Any, ...]]:
    return Counter({**{i: i for i in range(8)}, **dict(changes)}.items())


def settle(db: ebla.Database, spark: SparkSession) -> None:
    """Let a process that works in the background do what is left."""
    with ebla.connect(str(db.context.catalog.where), spark=spark, **{**QUIET, "auto_refresh": True}) as other:
        eventually(lambda: other.sql(TASKS).rows() == [])
        assert other.sql(STAGED).one() == (0, 0)


def assert_view_exact(db: ebla.Database) -> None:
    db.sql("WAIT FOR card; FLUSH card")
    assert bag(db, "SELECT * FROM card") == bag(db, QUERY)


# ---- B15 ------------------------------------------------------------------------------------------------


def test_b15_staged_files_are_invisible_survive_a_restart_and_are_processed_once(
    db: ebla.Database, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(db, monkeypatch)
    before = db.table("orders").version
    rows, version, waiting, note = db.sql(f"LOAD ASYNC INTO orders FROM '{file_of(tmp_path, LOADED)}'").one()
    assert (rows, version, waiting) == (11, db.version, 11)
    assert note == f"staged at version {version}; becomes visible tablet by tablet: SHOW PROGRESS"
    shown = (
        "SELECT base, phase, percent, rows, rows_expected, tablets FROM system.build_progress WHERE phase = 'staged'"
    )
    assert db.sql(shown).rows() == [("orders", "staged", 0.0, 0, 11, "0/2")]
    assert db.sql("SHOW PROGRESS").rows()[0][0] == "card"
    assert db.sql(STAGED).one() == (2, 11)
    assert db.sql(TASKS).rows() == [(0, None), (1, None)]

    def assert_invisible(db: ebla.Database) -> None:
        assert bag(db, "SELECT * FROM orders") == orders()
        assert db.query("orders", where={"id": 3}).rows() == [(3, 3)]
        assert db.table("orders").changes(before).count() == 0
        assert db.table("orders").version == before

    assert_invisible(db)
    db.sql("COMPACT orders")
    db.vacuum(retain_s=0)
    assert_invisible(db)
    where = str(db.context.catalog.where)
    with ebla.connect(where, spark=spark, **QUIET) as again:
        assert_invisible(again)
        assert again.sql(STAGED).one() == (2, 11)
    last = db.version
    settle(db, spark)
    assert db.sql(shown).rows() == []
    assert bag(db, "SELECT * FROM orders") == orders(*LOADED)
    assert bag(db, f"SELECT * FROM orders VERSION AS OF {last}") == orders()
    assert db.sql(FLIPS).one() == (1,)
    changed = db.table("orders").changes(last).select("id", "_commit_version").collect()
    assert sorted(row.id for row in changed) == sorted(i for i, _ in LOADED)
    assert {row._commit_version for row in changed} == {db.table("orders").version}
    assert_view_exact(db)


def test_b15_a_load_returns_when_its_rows_are_visible(
    db: ebla.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(db, monkeypatch)
    written = db.table("orders").load(str(file_of(tmp_path, LOADED)))
    assert (written.rows, written.staged) == (11, 11)
    assert bag(db, f"SELECT * FROM orders VERSION AS OF {written.version}") == orders(*LOADED)
    assert bag(db, f"SELECT * FROM orders VERSION AS OF {int(written.version or 0) - 1}") == orders()
    assert_view_exact(db)


@pytest.mark.parametrize("rows_max", [200_000, 2], ids=["on the driver", "by Spark"])
def test_b15_entries_of_indexes_come_with_the_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **QUIET, batch_rows_max=rows_max) as db:
        prepare(db)
        db.sql("CREATE INDEX by_total ON orders (total)")
        begun(db, monkeypatch)
        assert db.sql(f"LOAD ASYNC INTO orders FROM '{file_of(tmp_path, LOADED)}'").one()[2] == 11
        db.sql("CREATE ASYNC INDEX descending ON orders (total DESC)")  # after the rows; no process builds it yet
        assert_index_exact(db, "by_total")
        db.table("orders").upsert([{"id": 100, "total": 7}, {"id": 3, "total": 8}])
        settle(db, spark)
        db.sql("WAIT FOR descending")
        assert_index_exact(db, "by_total", "descending")
        assert bag(db, "SELECT * FROM orders") == orders(*LOADED)
        assert_view_exact(db)


def test_b15_the_row_that_becomes_visible_last_wins(
    db: ebla.Database, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write between staging and processing is older; of two loads the later one is processed later."""
    begun(db, monkeypatch)
    load = db.table("orders").load
    load(str(file_of(tmp_path, [(3, 1), (4, 1)])), wait=False)
    load(str(file_of(tmp_path, [(4, 2), (5, 2)])), wait=False)
    db.table("orders").upsert([{"id": i, "total": 9} for i in (3, 4, 5, 6)])
    settle(db, spark)
    assert bag(db, "SELECT * FROM orders") == orders((3, 1), (4, 2), (5, 2), (6, 9))
    assert db.sql(FLIPS).one() == (2,)
    assert_view_exact(db)


def test_b15_a_truncated_table_has_no_staged_rows(
    db: ebla.Database, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(db, monkeypatch)
    db.table("orders").load(str(file_of(tmp_path, LOADED)), wait=False)
    db.sql("TRUNCATE TABLE orders")
    settle(db, spark)
    assert bag(db, "SELECT * FROM orders") == Counter()
    assert db.sql(FLIPS).one() == (0,)
    assert_view_exact(db)


def test_b15_rows_that_nobody_would_miss_are_visible_at_once(
    db: ebla.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(row: tuple[int, int]) -> None:
        written = db.sql(f"LOAD INTO orders FROM '{file_of(tmp_path, [row])}'").one()
        assert written == (1, db.version, 0, None)
        assert db.query("orders", where={"id": row[0]}).rows() == [row]

    load((50, 20))  # no view
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW late WITH (rows_per_minute = 0) AS {QUERY}")
    load((50, 30))  # a view that has not begun
    db.sql("DROP MATERIALIZED VIEW late")
    db.sql("CREATE UNIQUE INDEX one ON orders (total)")
    begun(db, monkeypatch)
    load((50, 50))  # the index must be able to refuse the statement
    with pytest.raises(ebla.DuplicateKeyError, match="unique index one"):
        db.sql(f"LOAD INTO orders FROM '{file_of(tmp_path, [(51, 50)])}'")
    db.sql("DROP INDEX one; WAIT FOR card")
    load((50, 3))  # a view that is built
    assert_view_exact(db)


def test_b15_rows_that_a_later_unique_index_refuses_stay_staged_and_the_load_says_so(
    db: ebla.Database, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(db, monkeypatch)
    written = db.table("orders").load(str(file_of(tmp_path, [(50, 4)])), wait=False)
    db.sql("CREATE UNIQUE INDEX one ON orders (total)")
    with pytest.raises(ebla.DuplicateKeyError, match="unique index one"):
        db.waits.wait_visible(written)
    assert db.sql(STAGED).one() == (1, 1)
    db.sql("DELETE FROM orders WHERE id = 4")
    settle(db, spark)
    assert db.query("orders", where={"total": 4}).rows() == [(50, 4)]
    assert_index_exact(db, "one")
    assert_view_exact(db)


# ---- crashes --------------------------------------------------------------------------------------------

POINTS = {
    "write.files_written=exit": "nothing",
    "staging.staged=exit": "staged",
    "staging.before_flip=exit": "staged",
    "staging.flipped=exit": "visible",
    "build.before_report=exit": "visible",
    "build.answered=exit": "visible",
}
WITH_ITS_SPARK = "staging.before_flip=exit"
"""Where a process dies together with a Spark of its own; at the other places it shares the one of the tests."""


def test_b15_every_failpoint_is_tried() -> None:
    text = "".join(Path(str(module.__file__)).read_text(encoding="utf-8") for module in (staged, writes))
    found = set(re.findall(r'\bhit\("(staging\.[^"]+)"\)', text))
    assert found == {name for name in (point.partition("=")[0] for point in POINTS) if name.startswith("staging.")}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_b15_a_process_that_dies_at_this_step_of_a_staged_load(
    db: ebla.Database,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: Processes,
    spark_processes: Sharing,
    point: str,
) -> None:
    db.sql("CREATE INDEX by_total ON orders (total)")
    begun(db, monkeypatch)
    db.sql("ALTER MATERIALIZED VIEW card PAUSE")  # what the process does is all about the load
    load = f"LOAD INTO orders FROM '{file_of(tmp_path, LOADED)}'"
    where = str(db.context.catalog.where)
    run = processes.run if point == WITH_ITS_SPARK else spark_processes.run
    assert run("support.build_tasks:run", where, load, {}, failpoints=point) == EXIT_CODE
    left = POINTS[point]
    assert db.sql(STAGED).one() == ((2, 11) if left == "staged" else (0, 0))
    assert len(db.sql(TASKS).rows()) == (0 if left == "nothing" else 2)
    assert bag(db, "SELECT * FROM orders") == (orders(*LOADED) if left == "visible" else orders())
    assert_index_exact(db, "by_total")
    settle(db, spark)
    assert bag(db, "SELECT * FROM orders") == (orders() if left == "nothing" else orders(*LOADED))
    assert db.sql(FLIPS).one() == (0 if left == "nothing" else 1,)
    assert_index_exact(db, "by_total")
    db.sql("ALTER MATERIALIZED VIEW card RESUME")
    assert_view_exact(db)
