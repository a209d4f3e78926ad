"""Views built while everything goes on: the scenarios B1 to B14 by name, chunk by chunk."""

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
from sqlalchemy import delete, select

import ebla
from ebla.base.failpoint import EXIT_CODE
from ebla.base.ids import NodeId
from ebla.build import engine
from ebla.build.loop import LOOK_AGAIN_S
from ebla.catalog import build_tasks
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.model.tasks import LEASE
from ebla.storage import runs as rf
from ebla.storage.files import MARKER
from ebla.tables import batch as b
from ebla.tables import chunk_scan as scanned
from ebla.tables.sink import Sink
from ebla.tables.transaction import begin
from ebla.tables.writes import commit
from support.processes import Processes, Sharing
from support.steps import Steps
from support.warehouse import HOUR_US, eventually, later, named, names_of, refused, shown, stored

pytestmark = [pytest.mark.spark]

CARD = "SELECT o.id, o.total, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id"
SUMS = "SELECT o.customer, count(*) AS n, sum(o.total) AS total FROM orders o GROUP BY o.customer"
QUIET: dict[str, Any] = {"auto_compact": False, "auto_refresh": False, "fsync": False, "tablets": 2}
LEFT_OVER = ("view_building_tasks", "view_builds", "view_building_segments")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **QUIET) as database:
        prepare(database)
        yield database


def prepare(db: ebla.Database, rows: int = 8) -> None:
    db.sql(
        "CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id));"
        "CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id))"
    )
    if rows:
        db.table("orders").upsert([{"id": i, "customer": i % 3, "total": i} for i in range(rows)])
    db.table("customers").upsert([{"id": i, "name": f"c{i}"} for i in range(3)])


def bag(db: ebla.Database, text: str) -> Counter[tuple[Any, ...]]:
    return Counter(db.sql(text).rows())


def assert_exact(db: ebla.Database, view: str = "card", query: str = CARD) -> None:
    """The view equals its query at the version that it names, and, flushed, at the newest one; nothing is left over."""
    applied = db.sql(f"SELECT applied_version FROM system.views WHERE name = '{view}'").one()[0]
    at = {t: f"{t} VERSION AS OF {applied}" for t in ("orders", "customers")}
    then = query.replace("orders o", f"{at['orders']} o").replace("customers c", f"{at['customers']} c")
    assert shown(db, view) == bag(db, then)
    db.sql(f"FLUSH {view}")
    assert shown(db, view) == bag(db, query)
    assert_nothing_left(db)


def assert_nothing_left(db: ebla.Database) -> None:
    for table in LEFT_OVER:
        assert db.sql(f"SELECT * FROM system.{table}").rows() == [], table
    mine = f"state = 'open' AND holder = '{db.context.holder}'"  # those of a dead process end with their lease
    assert db.sql(f"SELECT * FROM system.transactions WHERE {mine}").rows() == []
    assert db.sql("SELECT * FROM system.meta WHERE key = 'view_building_processing_base'").rows() == []


def chunks(db: ebla.Database, view: str) -> int:
    query = f"SELECT count(*) FROM system.history WHERE reason LIKE 'build of {view}: % read, %'"
    return int(db.sql(query).one()[0])


# ---- B1 to B3 -------------------------------------------------------------------------------------------


def test_b1_an_empty_base_is_built_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **QUIET) as db:
        prepare(db, rows=0)
        db.sql(f"CREATE MATERIALIZED VIEW card AS {CARD}; CREATE MATERIALIZED VIEW sums AS {SUMS}")
        assert db.sql("SELECT count(*) FROM card").one() == (0,)
        assert [row[1] for row in db.sql("SELECT view_id, built_version FROM system.built_views").rows()]
        assert_exact(db)
        assert_exact(db, "sums", SUMS)


def test_b2_keys_below_and_above_the_position_change_between_two_chunks(db: ebla.Database, steps: Steps) -> None:
    orders = db.table("orders")

    def change(number: int) -> None:
        orders.upsert([{"id": number % 8, "customer": 2, "total": 100 + number}, {"id": 100 + number, "customer": 1}])
        orders.delete([{"id": (number * 3 + 1) % 8}])
        if number % 3 == 1:
            db.table("customers").upsert([{"id": number % 3, "name": f"n{number}"}])
        if number % 4 == 3:
            db.epochs.of_handler("default")  # covered segments go to one version, the rest is left alone

    steps.at("build.chunk_committed", lambda number: change(number) if number < 8 else None)
    db.sql(f"CREATE MATERIALIZED VIEW card WITH (chunk_rows = 1) AS {CARD}")
    assert chunks(db, "card") >= 8
    assert_exact(db)


def test_b2_a_value_that_had_another_one_at_each_version_of_a_segment(db: ebla.Database, steps: Steps) -> None:
    """What changed and changed back is no change for one segment, and one for the other."""
    query = "SELECT o.id, o.total, c.name FROM orders o JOIN customers c ON o.customer = c.id"

    def change(number: int) -> None:
        if number < 6:
            db.table("customers").upsert([{"id": 1, "name": ("other", "c1")[number % 2]}])
            db.table("customers").delete([{"id": 2}]) if number % 2 else db.table("customers").upsert(
                [{"id": 2, "name": "c2"}]
            )

    steps.at("build.chunk_committed", change)
    db.sql(f"CREATE MATERIALIZED VIEW card WITH (chunk_rows = 1) AS {query}")
    assert steps.passed["build.epoch_committed"] == 1
    assert_exact(db, "card", query)


def test_b2_a_row_of_the_base_makes_several_rows_and_a_join_shows_its_key(db: ebla.Database, steps: Steps) -> None:
    query = "SELECT l.o, l.n, o.total FROM orders o JOIN lines l ON l.o = o.id"
    db.sql("CREATE TABLE lines (o BIGINT, n INT, PRIMARY KEY (o, n))")
    lines = db.table("lines")
    lines.upsert([{"o": i, "n": n} for i in range(8) for n in range(i % 3)])

    def change(number: int) -> None:
        if number < 6:
            lines.upsert([{"o": number, "n": 7 + number}, {"o": 7 - number, "n": 50}])
            lines.delete([{"o": (number * 3 + 2) % 8, "n": 0}])
            db.table("orders").upsert([{"id": (number * 5) % 8, "customer": 1, "total": 900 + number}])

    steps.at("build.chunk_committed", change)
    db.sql(f"CREATE MATERIALIZED VIEW both WITH (chunk_rows = 1) AS {query}")
    assert "in chunks of orders, by (o)" in db.sql("EXPLAIN MATERIALIZED VIEW both").one()[0]
    assert chunks(db, "both") >= 8
    db.sql("FLUSH both")
    assert bag(db, "SELECT * FROM both") == bag(db, query)
    assert_nothing_left(db)


def test_b2_too_large_a_change_is_computed_anew_for_what_is_covered(
    spark: SparkSession, tmp_path: Path, steps: Steps
) -> None:
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **{**QUIET, "batch_rows_max": 2}) as db:
        prepare(db)

        def change(number: int) -> None:
            if number == 1:
                db.sql("UPDATE orders SET total = total + 1000; DELETE FROM orders WHERE id IN (0, 5)")

        steps.at("build.chunk_committed", change)
        db.sql(f"CREATE MATERIALIZED VIEW card WITH (chunk_rows = 3) AS {CARD}")
        reason = db.sql("SELECT last_reason FROM system.views WHERE name = 'card'").one()[0]
        assert "changed rows of orders" in reason
        assert_exact(db)


@pytest.mark.process
def test_b3_rows_leave_below_the_position_between_a_crash_and_the_restart(
    db: ebla.Database, spark_processes: Sharing
) -> None:
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (chunk_rows = 1) AS {CARD}")
    where, point = str(db.context.catalog.where), "build.chunk_committed=exit@4"
    assert spark_processes.run("support.build_tasks:wait_for", where, "card", {}, failpoints=point) == EXIT_CODE
    assert db.progress("card").progress.rows == 4
    db.sql("DELETE FROM orders WHERE id < 4; UPDATE orders SET id = id + 1000 WHERE id >= 6")
    db.sql("WAIT FOR card")
    assert_exact(db)


# ---- B4 to B6 -------------------------------------------------------------------------------------------

POINTS = [
    "build.created=exit",
    "build.before_chunk=exit@2",
    "build.chunk_written=exit@2",
    "build.before_chunk_commit=exit@2",
    "build.chunk_committed=exit@2",
    "build.before_report=exit",
    "build.answered=exit",
    "build.before_coordinator_commit=exit@2",
    "build.coordinator_committed=exit@2",
    "build.before_catching_up=exit",
    "build.before_epoch_commit=exit",
    "build.epoch_committed=exit",
    "build.before_check=exit",
]
LATE = ("chunk_committed", "before_report", "answered", "before_catching_up", "epoch_committed", "before_check")
"""Places at which something is covered."""
WITH_ITS_SPARK = "build.chunk_written=exit@2"
"""Where a process dies together with a Spark of its own; at the other places it shares the one of the tests."""


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ebla.Database]:
    where = tmp_path_factory.mktemp("shop")
    with ebla.connect(str(where), spark=spark, **QUIET) as database:
        prepare(database)
        yield database
        later(database)
        database.vacuum(retain_s=0)
        assert stored(database) == named(database)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_b4_a_process_that_dies_at_this_step_of_a_build(
    shop: ebla.Database, processes: Processes, spark_processes: Sharing, point: str
) -> None:
    """The build resumes at its checkpoint, whatever was written meanwhile, and the result is exact."""
    db, where = shop, str(shop.context.catalog.where)
    run = processes.run if point == WITH_ITS_SPARK else spark_processes.run
    create = f"MATERIALIZED VIEW card WITH (chunk_rows = 3) AS {CARD}"
    if point == "build.created=exit":
        status = run("support.build_tasks:run", where, f"CREATE {create}", {}, failpoints=point)
    else:
        db.sql(f"CREATE ASYNC {create}")
        status = run("support.build_tasks:wait_for", where, "card", {}, failpoints=point)
    assert status == EXIT_CODE
    covered = db.progress("card").progress.rows
    assert covered > 0 or not any(place in point for place in LATE)
    db.sql("DELETE FROM orders WHERE id IN (1, 6); UPDATE orders SET total = total + 1")
    seen: list[int] = []
    db.context.progress = lambda what, part: seen.append(db.progress("card").progress.rows)
    db.sql("WAIT FOR card")
    assert all(rows >= covered for rows in seen[:1])
    assert_exact(db)
    db.sql("DROP MATERIALIZED VIEW card")
    db.table("orders").upsert([{"id": i, "customer": i % 3, "total": i} for i in range(8)])


def test_b5_a_worker_that_has_finished_answers_at_once_and_b6_an_old_term_is_refused(
    db: ebla.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (chunk_rows = 4) AS {CARD}")
    catalog, nodes = db.context.catalog, db.builder.nodes
    first = tx.lead(catalog, LEASE, "a leader that dies", HOUR_US)
    assert first is not None
    with catalog.reading() as connection:
        ids = [task.id for task in build_tasks.tasks(connection)]
    finished: set[str] = set()
    while len(finished) < len(ids):
        finished |= nodes.work_on_view_building_tasks(db.context.node, first.term, 0, ids).finished
    before = chunks(db, "card")
    with monkeypatch.context() as patch:
        patch.setattr(engine.SparkEngine, "start", lambda *_: pytest.fail("expected an answer from memory, found work"))
        again = nodes.work_on_view_building_tasks(db.context.node, first.term, 0, ids)
    assert again.finished == frozenset(ids)
    tx.resign(catalog, first)
    db.sql("WAIT FOR card")  # the next leader asks again
    assert chunks(db, "card") == before
    with pytest.raises(ebla.StaleTermError, match="another leader rules"):
        nodes.work_on_view_building_tasks(db.context.node, first.term, 0, ids)
    assert_exact(db)


def test_b6_of_two_processes_that_wait_one_leads_and_no_chunk_is_read_twice(
    db: ebla.Database, spark: SparkSession
) -> None:
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (chunk_rows = 1) AS {CARD}")
    patient = {**QUIET, "leader_lease_s": 3600.0}  # who leads goes on, however slow this machine is
    where = str(db.context.catalog.where)
    with ebla.connect(where, spark=spark, **patient) as one, ebla.connect(where, spark=spark, **patient) as other:
        waiting = [threading.Thread(target=each.sql, args=("WAIT FOR card",)) for each in (one, other)]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
    assert chunks(db, "card") <= 8 + 2
    assert db.sql("SELECT max(term) FROM system.leases").one()[0] <= 2
    assert_exact(db)


def test_b6_one_that_waits_for_nothing_leaves_no_lease_behind(
    db: ebla.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (rows_per_minute = 0) AS {CARD}")
    loop, leading, lead = db.builder.loop, threading.Event(), tx.lead

    def slow_lead(*args: Any, **options: Any) -> tx.Lease | None:
        leading.set()
        time.sleep(3 * LOOK_AGAIN_S)
        try:
            return lead(*args, **options)
        finally:
            leading.clear()

    monkeypatch.setattr(tx, "lead", slow_lead)
    loop.wait([], leading.is_set)  # over while the loop is about to lead
    assert not leading.is_set()
    with db.context.catalog.reading() as connection:
        assert set(connection.execute(select(s.leases.c.expires_at)).scalars()) == {0}
    db.sql("CANCEL BUILD card")
    assert_nothing_left(db)


# ---- B7 to B9 -------------------------------------------------------------------------------------------


def test_b7_views_of_one_base_share_a_scan_and_one_may_go(
    db: ebla.Database, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[int] = []
    rows = scanned.base_rows

    def counted(*given: Any) -> Any:
        scans.append(1)
        return rows(*given)

    monkeypatch.setattr(scanned, "base_rows", counted)
    for name in ("one", "two", "three"):
        db.sql(f"CREATE ASYNC MATERIALIZED VIEW {name} AS {CARD}")
    steps.at("build.chunk_written", lambda number: db.sql("DROP MATERIALIZED VIEW two") if number == 0 else None)
    db.sql("WAIT FOR one, three")
    assert len(scans) == 1
    assert_exact(db, "one")
    assert_exact(db, "three")


def test_b7_a_view_that_comes_later_goes_its_own_way(db: ebla.Database, steps: Steps) -> None:
    def later_one(number: int) -> None:
        if number == 1:
            db.sql(f"CREATE ASYNC MATERIALIZED VIEW second AS {CARD} WHERE o.total > 2")

    steps.at("build.chunk_committed", later_one)
    db.sql(f"CREATE MATERIALIZED VIEW first WITH (chunk_rows = 1) AS {CARD}; WAIT FOR second")
    assert_exact(db, "first")
    assert_exact(db, "second", f"{CARD} WHERE o.total > 2")


def test_b7_the_only_view_is_dropped(db: ebla.Database, steps: Steps) -> None:
    steps.at("build.chunk_committed", lambda number: db.sql("DROP MATERIALIZED VIEW card") if number == 2 else None)
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (chunk_rows = 1) AS {CARD}")
    with pytest.raises(ebla.UnknownNameError):
        db.sql("WAIT FOR card")
    assert_nothing_left(db)
    later(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)


def test_b8_columns_are_added_to_and_renamed_in_the_base(db: ebla.Database, steps: Steps) -> None:
    db.sql("ALTER TABLE orders ADD COLUMN note STRING")

    def alter(number: int) -> None:
        if number == 1:
            db.sql("ALTER TABLE orders ADD COLUMN more BIGINT")
        if number == 3:
            db.sql(
                "ALTER TABLE orders RENAME COLUMN note TO remark; UPDATE orders SET more = 5, total = 7 WHERE id = 3"
            )

    steps.at("build.chunk_committed", alter)
    db.sql(f"CREATE MATERIALIZED VIEW card WITH (chunk_rows = 1) AS {CARD}")
    assert_exact(db)


def test_b9_the_base_is_truncated(db: ebla.Database, steps: Steps) -> None:
    steps.at("build.chunk_committed", lambda number: db.sql("TRUNCATE TABLE orders") if number == 2 else None)
    db.sql(f"CREATE MATERIALIZED VIEW card WITH (chunk_rows = 1) AS {CARD}")
    assert db.sql("SELECT count(*) FROM card").one() == (0,)
    assert_exact(db)


# ---- B10 and B11 ----------------------------------------------------------------------------------------


def test_b10_a_rate_of_zero_pauses_and_a_rate_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "warehouse")
    with ebla.connect(where, spark=spark, **{**QUIET, "auto_refresh": True}) as db:
        prepare(db)
        db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (rows_per_minute = 0) AS {CARD}")
        assert db.progress("card").progress.detail == "RESUME: it is paused"
        db.table("orders").upsert([{"id": 1, "customer": 2, "total": 55}])  # writes go on
        db.sql("ALTER MATERIALIZED VIEW card SET (rows_per_minute = 0, chunk_rows = 2)")
        assert chunks(db, "card") == 0
    with ebla.connect(where, spark=spark, **QUIET) as db:
        assert db.sql("SELECT rows_per_minute, chunk_rows FROM system.build_progress").one() == (0, 2)
        began = time.monotonic()
        db.sql("ALTER MATERIALIZED VIEW card SET (rows_per_minute = 240)")
        db.sql("WAIT FOR card")
        assert time.monotonic() - began >= 8 / 240 * 60
        assert chunks(db, "card") >= 4
        assert_exact(db)
        with refused(db, ebla.UsageError, "expected a build that goes on, found it built"):
            db.sql("ALTER MATERIALIZED VIEW card PAUSE")


def test_b10_a_pause_keeps_the_rate_and_a_concurrency_bounds_the_tablets_of_a_chunk(db: ebla.Database) -> None:
    def pace() -> tuple[Any, ...]:
        return db.sql("SELECT rows_per_minute, concurrency, on_hold FROM system.view_builds").one()

    db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (rows_per_minute = 6000000) AS {CARD}")
    db.sql("ALTER MATERIALIZED VIEW card PAUSE")
    assert pace() == (6000000, None, True)
    assert db.progress("card").progress.detail == "RESUME: it is paused"
    db.sql("ALTER MATERIALIZED VIEW card SET (concurrency = 1)")
    assert pace() == (6000000, 1, True)
    db.sql("ALTER MATERIALIZED VIEW card RESUME")
    assert pace() == (6000000, 1, False)
    db.sql("WAIT FOR card")
    assert chunks(db, "card") == QUIET["tablets"]
    assert_exact(db)


@pytest.mark.parametrize(
    "point", ["build.before_chunk", "build.chunk_written", "build.chunk_committed", "build.before_catching_up"]
)
def test_b11_a_cancel_leaves_nothing(db: ebla.Database, steps: Steps, point: str) -> None:
    steps.at(point, lambda number: db.sql("CANCEL BUILD IF EXISTS card") if number == 0 else None)
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (chunk_rows = 3) AS {CARD}")
    with pytest.raises(ebla.UnknownNameError):
        db.sql("WAIT FOR card")
    db.sql(f"CREATE MATERIALIZED VIEW card AS {CARD}")  # the name is free
    assert_exact(db)
    with refused(db, ebla.UsageError, "found it built", "DROP MATERIALIZED VIEW"):
        db.sql("CANCEL BUILD card")
    db.sql("DROP MATERIALIZED VIEW card")
    later(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)


# ---- B12 to B14 -----------------------------------------------------------------------------------------


def test_b12_a_view_being_built_says_how_far_it_is_and_a_name_is_taken_once(db: ebla.Database, steps: Steps) -> None:
    said: list[str] = []

    def read(number: int) -> None:
        with pytest.raises(ebla.SnapshotError) as caught:
            db.sql("SELECT * FROM card").rows()
        said.append(str(caught.value))
        assert db.progress("card").progress.percent < 100

    steps.at("build.chunk_committed", read)
    made: list[object] = []

    def create() -> None:
        try:
            db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (chunk_rows = 3) AS {CARD}")
            made.append(True)
        except ebla.DuplicateNameError as error:
            made.append(error)

    threads = [threading.Thread(target=create) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.count(True) == 1
    assert len(made) == 5
    db.sql("WAIT FOR card")
    assert "scanning" in said[0]
    assert "%" in said[0]
    assert "WAIT FOR card" in said[0]
    assert db.progress("card").progress.percent == 100
    assert_exact(db)


def test_b13_a_build_ends_although_writers_are_faster(spark: SparkSession, tmp_path: Path) -> None:
    settings = {**QUIET, "auto_refresh": True, "epoch_period_s": 0.1}
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **settings) as db:
        prepare(db, rows=40)
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                db.table("orders").upsert(
                    [{"id": (number * 7 + i) % 80, "customer": i % 3, "total": number} for i in range(5)]
                )
                db.table("orders").delete([{"id": number % 80}])

        writer = threading.Thread(target=write)
        writer.start()
        try:
            db.sql(f"CREATE MATERIALIZED VIEW card WITH (chunk_rows = 10) AS {CARD}")
        finally:
            stop.set()
            writer.join()
        assert_exact(db)


def test_b14_every_chunk_advances_over_long_runs_of_tombstones(spark: SparkSession, tmp_path: Path) -> None:
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **QUIET) as db:
        prepare(db, rows=500)
        db.compact("orders")
        db.sql("DELETE FROM orders WHERE id % 100 <> 7")
        db.sql(f"CREATE MATERIALIZED VIEW card WITH (chunk_rows = 1) AS {CARD}")
        assert chunks(db, "card") <= 5 + 2
        assert_exact(db)


# ---- validation, older catalogs -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [b.DELETE, b.UPSERT])
def test_a_view_that_differs_from_its_query_never_becomes_readable(db: ebla.Database, steps: Steps, kind: str) -> None:
    def damage(number: int) -> None:
        if number == 0:
            sink = Sink(begin(db.context, "card", reason="damage"))
            relation = sink.relation
            row = pa.table({"id": pa.array([3], pa.int64())})
            sink.put(b.ArrowBatch(table=rf.align(row, relation.columns), kinds=kind, ordered=False))
            commit(sink, "damage", reads_target=False)

    steps.at("build.before_check", damage)
    missing, spurious = ("1 missing", "0 too many") if kind == b.DELETE else ("1 missing", "1 too many")
    with pytest.raises(ebla.CorruptRunError, match=f"{missing} and {spurious}"):
        db.sql(f"CREATE MATERIALIZED VIEW card AS {CARD}")
    assert db.sql("SHOW VIEWS").rows() == []
    assert_nothing_left(db)


def test_views_from_before_there_were_tasks_are_adopted(db: ebla.Database, spark: SparkSession) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW sums AS {SUMS}; CREATE ASYNC MATERIALIZED VIEW card AS {CARD}")
    with db.context.catalog.writing() as connection:
        for table in (s.built_views, s.view_builds, s.view_building_tasks, s.view_states):
            connection.execute(delete(table))
        connection.execute(delete(s.migrations).where(s.migrations.c.number >= 10))  # which adds states
    with ebla.connect(str(db.context.catalog.where), spark=spark, **QUIET) as other:
        assert len(other.sql("SELECT * FROM system.built_views").rows()) == 1
        assert other.progress("sums").progress.percent == 100
        other.sql("WAIT FOR card")
        assert_exact(other)


# ---- several nodes --------------------------------------------------------------------------------------


def test_tasks_of_every_node_whose_root_is_reached_are_done_and_the_others_wait(
    spark: SparkSession, tmp_path: Path
) -> None:
    where, nodes = str(tmp_path / "warehouse"), {"node2": str(tmp_path / "two")}
    marker, away = tmp_path / "two" / MARKER, tmp_path / "away"
    with ebla.connect(where, spark=spark, nodes=nodes, **QUIET) as db:
        prepare(db)
        db.sql("CREATE TABLE near (id BIGINT, PRIMARY KEY (id)) WITH (tablets = 1); INSERT INTO near VALUES (1), (2)")
        db.sql(f"CREATE MATERIALIZED VIEW both AS {CARD}")
        assert_exact(db, "both")
        db.sql(f"CREATE ASYNC MATERIALIZED VIEW card AS {CARD}")
        hosts = db.sql("SELECT DISTINCT host_id FROM system.view_building_tasks").rows()
        assert names_of(db, {host for (host,) in hosts}) == {"node1", "node2"}
    marker.rename(away)  # as if the disk were not mounted
    with ebla.connect(where, spark=spark, **QUIET) as db:  # a process that is node1 alone
        db.sql("CREATE MATERIALIZED VIEW copy AS SELECT id FROM near")
        assert db.sql("SELECT count(*) FROM copy").one() == (2,)
        said = f"storage root {tmp_path / 'two'} of node node2: expected to reach it, found it missing"
        assert db.progress("card").progress.detail == said
        left = db.sql("SELECT host_id FROM system.view_building_tasks").rows()
        assert names_of(db, {host for (host,) in left}) == {"node2"}
        away.rename(marker)
        db.sql("WAIT FOR card")
        assert_exact(db)


def test_builds_go_on_in_the_background(spark: SparkSession, tmp_path: Path) -> None:
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, **{**QUIET, "auto_refresh": True}) as db:
        prepare(db)
        db.sql(f"CREATE ASYNC MATERIALIZED VIEW card AS {CARD}; CREATE ASYNC MATERIALIZED VIEW sums AS {SUMS}")
        eventually(lambda: all(p == 100 for (p,) in db.sql("SELECT percent FROM system.build_progress").rows()))
        assert_exact(db)
        assert_exact(db, "sums", SUMS)


def test_a_view_of_another_node_is_named_in_the_error(db: ebla.Database) -> None:
    term = tx.lead(db.context.catalog, LEASE, "another", 1)
    assert term is not None
    with pytest.raises(
        ebla.UnknownNameError, match="node nowhere: expected one whose storage root this process reaches"
    ):
        db.builder.nodes.work_on_view_building_tasks(NodeId("nowhere"), term.term, 0, [])
