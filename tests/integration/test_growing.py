"""Views that are not made row by row, built in chunks all the same: each chunk is an epoch and a checkpoint."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.base.failpoint import EXIT_CODE
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.tables.sink import Sink
from ebla.tables.transaction import begin
from ebla.tables.writes import commit
from support.processes import Sharing
from support.recomputation import recomputed
from support.steps import Steps
from support.warehouse import eventually, later, named, shown, stored

pytestmark = [pytest.mark.spark]

QUIET: dict[str, Any] = {"auto_compact": False, "auto_refresh": False, "fsync": False, "tablets": 2}
SUMS = "SELECT o.customer, count(*) AS n, sum(o.total) AS total, max(o.id) AS top FROM orders o GROUP BY o.customer"
VIEWS = {
    "sums": SUMS,
    "everything": "SELECT count(*) AS n, sum(o.total) AS total, min(o.total) AS least FROM orders o",
    "names": "SELECT DISTINCT c.name FROM orders o JOIN customers c ON o.customer = c.id",
    "both": "SELECT customer AS x FROM orders UNION SELECT id AS x FROM customers",
    "all_of_them": "SELECT total AS x FROM orders UNION ALL SELECT id AS x FROM customers",
    "only": "SELECT customer AS x FROM orders EXCEPT SELECT total AS x FROM orders",
    "ranked": "SELECT id, customer, rank() OVER (PARTITION BY customer ORDER BY total DESC) AS place FROM orders",
    "pairs": "SELECT p.id, q.id AS other FROM orders p JOIN orders q ON p.customer = q.customer",
    "few": "SELECT customer, count(*) AS n FROM orders GROUP BY customer HAVING count(*) > 2",
    "bag": "SELECT customer, total % 2 AS odd FROM orders",
    "noted": "SELECT n.text, count(*) AS n FROM notes n LEFT JOIN orders o ON n.o = o.id GROUP BY n.text",
    "after_notes": "SELECT text, o FROM notes",
    "by_customer": "SELECT customer, sum(total) AS total FROM spread GROUP BY customer",
}
SPREAD = "SELECT o.id, o.customer, o.total, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **QUIET) as database:
        prepare(database)
        yield database


def prepare(db: ebla.Database, rows: int = 12) -> None:
    db.sql(
        "CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id));"
        "CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id));"
        "CREATE TABLE notes (o BIGINT, text STRING)"
    )
    db.table("orders").upsert([{"id": i, "customer": i % 3, "total": i} for i in range(rows)])
    db.table("customers").upsert([{"id": i, "name": f"c{i % 2}"} for i in range(3)])
    db.table("notes").upsert([{"o": i % 5, "text": "ab"[i % 2]} for i in range(8)])


def bag(db: ebla.Database, text: str) -> Counter[tuple[Any, ...]]:
    return Counter(db.sql(text).rows())


def chunks(db: ebla.Database, view: str) -> int:
    query = f"SELECT count(*) FROM system.history WHERE reason LIKE 'build of {view}: % read, %'"
    return int(db.sql(query).one()[0])


def assert_exact(db: ebla.Database, view: str = "sums") -> None:
    db.sql(f"FLUSH {view}")
    assert shown(db, view) == recomputed(db, VIEWS[view]), view
    for table in ("view_building_tasks", "view_builds", "view_building_segments"):
        assert db.sql(f"SELECT * FROM system.{table}").rows() == [], table


def change(db: ebla.Database, number: int) -> None:
    """Rows of every table come, go and move to other groups, before and behind any position."""
    orders = db.table("orders")
    orders.upsert([{"id": number % 12, "customer": (number + 1) % 3, "total": 100 + number}, {"id": 50 + number}])
    orders.delete([{"id": (number * 5 + 1) % 12}])
    db.table("customers").upsert([{"id": number % 3, "name": f"n{number}"}])
    db.sql(f"INSERT INTO notes VALUES ({number}, 'c'); DELETE FROM notes WHERE o = {number % 5} AND text = 'a'")


# ---- exact, whatever the shape --------------------------------------------------------------------------


@pytest.mark.parametrize("rows_max", [100_000, 2], ids=["driver", "spark"])
def test_views_of_every_kind_grow_while_everything_changes(
    spark: SparkSession, tmp_path: Path, steps: Steps, rows_max: int
) -> None:
    """`spark`: chunks and changes are too large for the driver."""
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **{**QUIET, "batch_rows_max": rows_max}) as db:
        prepare(db)
        db.sql(f"CREATE MATERIALIZED VIEW spread AS {SPREAD}")
        wanted = VIEWS if rows_max > 2 else {n: VIEWS[n] for n in ("sums", "all_of_them", "ranked")}

        def between(number: int) -> None:
            if number % 3 == 1 and number < 20:
                change(db, number)
                if number % 2:
                    db.epochs.of_handler("default")  # the rest is brought along by the next chunk

        steps.at("build.before_chunk", between)
        for name, query in wanted.items():
            db.sql(f"CREATE ASYNC MATERIALIZED VIEW {name} WITH (chunk_rows = 4) AS {query}")
            assert "in chunks of" in db.sql(f"EXPLAIN MATERIALIZED VIEW {name}").one()[0], name
        db.sql(f"WAIT FOR {', '.join(wanted)}")
        for name in wanted:
            assert chunks(db, name) >= 2, name
            assert_exact(db, name)


def test_by_default_the_first_chunk_is_everything(db: ebla.Database) -> None:
    for name in ("sums", "names", "all_of_them"):
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
        assert chunks(db, name) == 1
        assert db.sql(f"SELECT last_reason FROM system.views WHERE name = '{name}'").one() == ("first build",)
        assert_exact(db, name)


def test_the_base_is_truncated_between_two_chunks(db: ebla.Database, steps: Steps) -> None:
    steps.at("build.before_chunk", lambda number: db.sql("TRUNCATE TABLE orders") if number == 2 else None)
    db.sql(f"CREATE MATERIALIZED VIEW sums WITH (chunk_rows = 2) AS {SUMS}")
    assert db.sql("SELECT count(*) FROM sums").one() == (0,)
    assert_exact(db)


def test_columns_are_added_to_the_base_between_two_chunks(db: ebla.Database, steps: Steps) -> None:
    def alter(number: int) -> None:
        if number == 2:
            db.sql("ALTER TABLE orders ADD COLUMN more BIGINT; UPDATE orders SET more = 1, total = 7 WHERE id < 4")

    steps.at("build.before_chunk", alter)
    db.sql(f"CREATE MATERIALIZED VIEW sums WITH (chunk_rows = 2) AS {SUMS}")
    assert_exact(db)


def test_a_build_ends_although_writers_are_faster(spark: SparkSession, tmp_path: Path) -> None:
    settings = {**QUIET, "auto_refresh": True, "epoch_period_s": 0.1}
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **settings) as db:
        prepare(db)
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                change(db, number)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            db.sql(f"CREATE MATERIALIZED VIEW sums WITH (chunk_rows = 5) AS {SUMS}")
        finally:
            stop.set()
            writer.join()
        assert_exact(db)


# ---- pace, progress, crashes ----------------------------------------------------------------------------


def test_a_grouped_view_pauses_between_two_chunks_and_shows_how_far_it_is(
    spark: SparkSession, tmp_path: Path, steps: Steps
) -> None:
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **{**QUIET, "auto_refresh": True}) as db:
        prepare(db)
        steps.at(
            "build.chunk_committed",
            lambda number: db.sql("ALTER MATERIALIZED VIEW sums PAUSE") if number == 1 else None,
        )
        db.sql(f"CREATE ASYNC MATERIALIZED VIEW sums WITH (chunk_rows = 3) AS {SUMS}")
        eventually(lambda: db.progress("sums").progress.detail == "RESUME: it is paused")
        at = db.progress("sums").progress
        assert 0 < at.percent < 100
        assert at.rows == 6
        assert db.sql("SELECT rows, percent < 100 FROM system.build_progress").one() == (6, True)
        change(db, 1)  # writes go on
        db.epochs.of_handler("default")
        assert chunks(db, "sums") == 2
        db.sql("ALTER MATERIALIZED VIEW sums RESUME; WAIT FOR sums")
        assert chunks(db, "sums") >= 4
        assert db.progress("sums").progress.percent == 100
        assert_exact(db)


def test_a_rate_makes_small_chunks_of_a_grouped_view(db: ebla.Database, steps: Steps) -> None:
    seen: list[float] = []
    steps.at("build.before_chunk", lambda number: seen.append(db.progress("sums").progress.percent))
    began = time.monotonic()
    db.sql(f"CREATE MATERIALIZED VIEW sums WITH (rows_per_minute = 240) AS {SUMS}")
    assert time.monotonic() - began >= 12 / 240 * 60
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert len([percent for percent in seen if 0 < percent < 100]) >= 1
    assert_exact(db)


@pytest.mark.process
def test_a_process_that_dies_between_two_chunks_is_followed_by_one_that_goes_on(
    db: ebla.Database, spark_processes: Sharing
) -> None:
    """What changed below the position after the crash is applied, what changed above it is read by the next chunk."""
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW sums WITH (chunk_rows = 2) AS {SUMS}")
    where, point = str(db.context.catalog.where), "build.chunk_committed=exit@2"
    assert spark_processes.run("support.build_tasks:wait_for", where, "sums", {}, failpoints=point) == EXIT_CODE
    assert db.progress("sums").progress.rows == 4
    change(db, 3)
    db.sql("DELETE FROM orders WHERE id < 3; UPDATE orders SET customer = 7 WHERE id >= 9")
    db.sql("WAIT FOR sums")
    assert 4 <= chunks(db, "sums") <= 2 + 6
    assert_exact(db)


@pytest.mark.parametrize("point", ["build.before_chunk", "build.chunk_written", "build.chunk_committed"])
def test_a_cancel_leaves_nothing(db: ebla.Database, steps: Steps, point: str) -> None:
    steps.at(point, lambda number: db.sql("CANCEL BUILD IF EXISTS sums") if number == 1 else None)
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW sums WITH (chunk_rows = 3) AS {SUMS}")
    with pytest.raises(ebla.UnknownNameError):
        db.sql("WAIT FOR sums")
    later(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)


@pytest.mark.parametrize("kind", [b.DELETE, b.UPSERT])
def test_a_view_that_grew_and_differs_from_its_query_never_becomes_readable(
    db: ebla.Database, steps: Steps, kind: str
) -> None:
    def damage(number: int) -> None:
        if number == 0:
            sink = Sink(begin(db.context, "sums", reason="damage"))
            relation = sink.relation
            row = pa.table({"customer": pa.array([1], pa.int64()), "n": pa.array([99], pa.int64())})
            sink.put(b.ArrowBatch(table=rf.align(row, relation.columns), kinds=kind, ordered=False))
            commit(sink, "damage", reads_target=False)

    steps.at("build.before_check", damage)
    too_many = "0 too many" if kind == b.DELETE else "1 too many"
    with pytest.raises(ebla.CorruptRunError, match=f"1 missing and {too_many}"):
        db.sql(f"CREATE MATERIALIZED VIEW sums WITH (chunk_rows = 4) AS {SUMS}")
    assert db.sql("SHOW VIEWS").rows() == []


def test_an_expression_that_fails_in_a_later_chunk_stops_the_build_until_the_row_is_mended(db: ebla.Database) -> None:
    query = "SELECT o.customer, sum(100 / o.total) AS part FROM orders o WHERE o.id > 0 GROUP BY o.customer"
    db.table("orders").upsert([{"id": i, "customer": 1, "total": 1} for i in range(12)])
    db.table("orders").upsert([{"id": 20, "customer": 2, "total": 0}])
    with pytest.raises(ebla.EblaError, match=r"(?s)zero.*orders \(id = 20\)"):
        db.sql(f"CREATE MATERIALIZED VIEW parts WITH (chunk_rows = 2) AS {query}")
