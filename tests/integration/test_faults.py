"""Faults that are nothing: Spark loses jobs, stages and workers; epochs and builds wait, and go on where they were."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.catalog import build_tasks, reads, troubles
from ebla.catalog.troubles import LOST_JOB, Activity, Trouble
from ebla.model.lifecycle.index import Permission
from ebla.spark import write as swrite
from ebla.views.epoch import maintain
from ebla.views.epoch.apply import apply_epoch
from support.indexes import assert_exact, state
from support.saboteur import Saboteur
from support.steps import Steps
from support.warehouse import connect, eventually

pytestmark = pytest.mark.spark

LONG = "aggregate(sequence(1, 400000 + CAST({n} AS INT) % 2), 0L, (a, x) -> a ^ x)"
"""An expression that takes long enough for a job to be seen while it runs, most of the time."""
ENDLESS = "SELECT count(*) FROM range(1000000000000000) WHERE id < 0"
"""Its tasks look often whether they go on."""
SLOW = f"SELECT id, customer + 0 * {LONG.format(n='id')} AS c, total FROM orders"
PLAIN = "SELECT id, total FROM orders"
ROWS = 12


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    """Views follow by themselves, on Spark."""
    with connect(tmp_path / "w", spark, tablets=2, epoch_period_s=0.0, barrier_grace_s=0.1) as database:
        database.sql("CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id))")
        database.table("orders").upsert([order(i) for i in range(ROWS)])
        yield database


def order(number: int, **other: Any) -> dict[str, Any]:
    return {"id": number, "customer": 1 + number % 4, "total": number, **other}


def bag(db: ebla.Database, text: str) -> Counter[tuple[Any, ...]]:
    return Counter(db.sql(text).rows())


def shown(db: ebla.Database, view: str) -> dict[str, Any]:
    return next(row for row in db.sql("SHOW VIEWS").to_arrow().to_pylist() if row["name"] == view)


def trouble(db: ebla.Database, name: str) -> Trouble | None:
    with db.context.catalog.reading() as connection:
        return next(iter(troubles.by_name(connection, name)), None)


def assert_current(db: ebla.Database, view: str, query: str) -> None:
    assert bag(db, f"SELECT * FROM {view}") == bag(db, query)


def follows(db: ebla.Database, view: str) -> bool:
    found = shown(db, view)
    return found["status"] == "ready" and found["behind"] == 0 and trouble(db, view) is None


# ---- epochs ---------------------------------------------------------------------------------------------


def test_a_view_whose_job_was_lost_waits_and_goes_on(db: ebla.Database, spark: SparkSession) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW slow AS {SLOW}")
    with Saboteur(spark, ["job"], hold=True) as saboteur:
        db.table("orders").upsert([order(i, total=100 + i) for i in range(ROWS + 1)])
        eventually(lambda: trouble(db, "slow") is not None)
        found = trouble(db, "slow")
        assert found is not None
        assert (found.code, found.final, found.work) == (LOST_JOB, False, Activity.EPOCH)
        assert found.traceback is not None
        assert "SparkJobError" in found.traceback
        view = shown(db, "slow")
        assert view["status"] == "ready"
        assert view["message"].startswith("waiting: Spark lost a job, again ")
        with pytest.raises(ebla.SparkJobError, match="Spark lost a job") as lost:
            db.sql("FLUSH slow")
        assert lost.value.retryable
        eventually(lambda: (again := trouble(db, "slow")) is not None and again.attempts >= 3)
    assert saboteur.lost["job"] >= 2
    eventually(lambda: follows(db, "slow"))  # nothing was written meanwhile
    assert shown(db, "slow")["message"] is None
    assert_current(db, "slow", SLOW)


def test_the_others_go_on_while_a_view_loses_its_jobs(db: ebla.Database, spark: SparkSession) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW slow AS {SLOW}; CREATE MATERIALIZED VIEW plain AS {PLAIN}")
    number = itertools.count(100)

    def lost() -> bool:
        """A job may end before it is seen: then another one is needed."""
        db.table("orders").upsert([order(i, total=next(number)) for i in range(ROWS)])
        eventually(lambda: shown(db, "slow")["behind"] == 0 or trouble(db, "slow") is not None)
        return trouble(db, "slow") is not None

    with Saboteur(spark, ["job"]) as saboteur:
        eventually(lost)
        eventually(lambda: shown(db, "plain")["behind"] == 0)
        assert db.sql("FLUSH plain").rows() != []
    assert saboteur.lost["job"] >= 1
    eventually(lambda: follows(db, "slow"))
    assert_current(db, "slow", SLOW)
    assert_current(db, "plain", PLAIN)


def test_a_surprise_in_one_view_is_that_view_s(db: ebla.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW odd AS {PLAIN}; CREATE MATERIALIZED VIEW plain AS {PLAIN}")
    apply, surprised = apply_epoch, threading.Event()
    surprised.set()

    def surprising(context: Any, name: str, *args: Any, **named: Any) -> Any:
        if name == "odd" and surprised.is_set():
            raise KeyError('Field "d_w_id" does not exist in schema')
        return apply(context, name, *args, **named)

    monkeypatch.setattr(maintain, "apply_epoch", surprising)
    for number in (1, 2):  # the handler goes on for ever, not once
        db.table("orders").upsert([order(5, total=number)])
        eventually(lambda: follows(db, "plain"))
        assert_current(db, "plain", PLAIN)
    eventually(lambda: trouble(db, "odd") is not None)
    found = trouble(db, "odd")
    assert found is not None
    assert (found.code, found.final) == ("KeyError", False)
    assert found.traceback is not None
    assert "in surprising" in found.traceback
    assert shown(db, "odd")["status"] == "ready"
    assert "d_w_id" in shown(db, "odd")["message"]
    assert {row[0]: row[2] for row in db.sql("FLUSH").rows()}["odd"] == "waiting"
    with pytest.raises(ebla.EblaError, match=r"view odd: unexpected KeyError.*tried again by itself"):
        db.sql("FLUSH odd")
    db.sql(f"CREATE MATERIALIZED VIEW late AS {PLAIN}")
    assert_current(db, "late", PLAIN)
    surprised.clear()
    eventually(lambda: follows(db, "odd"))
    assert_current(db, "odd", PLAIN)


def test_a_view_that_failed_on_a_row_comes_back_when_a_write_mends_it(db: ebla.Database) -> None:
    query = "SELECT id, 100 DIV customer AS r FROM orders"
    db.sql(f"CREATE MATERIALIZED VIEW ratio AS {query}")
    db.table("orders").upsert([order(7, customer=0)])
    eventually(lambda: shown(db, "ratio")["status"] == "failed" and trouble(db, "ratio") is not None)
    found = trouble(db, "ratio")
    assert found is not None
    assert (found.final, found.code, found.retry_at) == (True, "DIVIDE_BY_ZERO", None)
    assert found.culprit == ("orders", "id = 7")
    assert found.attempts == 1
    db.table("orders").upsert([order(8, total=80)])  # tried once more, in vain
    eventually(lambda: (again := trouble(db, "ratio")) is not None and again.attempts == 2)
    assert shown(db, "ratio")["status"] == "failed"
    version = db.version
    db.table("orders").upsert([order(7)])
    eventually(lambda: follows(db, "ratio"))
    assert_current(db, "ratio", query)
    assert db.version - version <= 3, "one try for each write"


def test_a_view_that_failed_on_a_dictionary_s_row_comes_back_when_that_is_mended(db: ebla.Database) -> None:
    query = "SELECT o.id, 100 DIV r.rate AS r FROM orders o JOIN rates r ON o.customer = r.id"
    db.sql("CREATE TABLE rates (id BIGINT, rate BIGINT, PRIMARY KEY (id))")
    db.table("rates").upsert([{"id": i, "rate": 1 + i} for i in range(1, 5)])
    db.sql(
        f"CREATE MATERIALIZED VIEW rated AS {query};"
        "CREATE HANDLER shop PROCESS rated, INPUT orders AS STREAM, INPUT rates AS BATCH WITH (dictionary_period_s = 0)"
    )
    db.table("rates").upsert([{"id": 2, "rate": 0}])
    eventually(lambda: shown(db, "rated")["status"] == "failed")
    db.table("rates").upsert([{"id": 2, "rate": 7}])
    eventually(lambda: follows(db, "rated"))
    assert_current(db, "rated", query)


# ---- builds ---------------------------------------------------------------------------------------------


def test_a_build_whose_stage_was_lost_keeps_what_it_has(
    db: ebla.Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    done, go_on = threading.Event(), threading.Event()

    def once(passed: int) -> None:
        if passed == 0:
            done.set()
            assert go_on.wait(250)

    steps.at("build.chunk_committed", once)
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW slow WITH (chunk_rows = 4) AS {SLOW}")
    assert done.wait(150)
    before = covered(db, "slow")
    with Saboteur(spark, ["stage"], hold=True):
        go_on.set()
        eventually(lambda: (found := trouble(db, "slow")) is not None and found.attempts >= 2)
        at = db.progress("slow").row()
        assert at["phase"] == "waiting"
        assert str(at["detail"]).startswith("Spark lost a job, again ")
        assert shown(db, "slow")["status"] == "building"
        assert shown(db, "slow")["message"].startswith("waiting: Spark lost a job")
        assert covered(db, "slow") >= before > 0
    db.sql("WAIT FOR slow")
    assert_current(db, "slow", SLOW)
    assert trouble(db, "slow") is None


def covered(db: ebla.Database, name: str) -> int:
    with db.context.catalog.reading() as connection:
        return len(build_tasks.segments(connection, reads.relation(connection, name).id))


@pytest.mark.parametrize("fault", ["job", "worker"])
def test_an_index_whose_job_was_lost_keeps_what_it_has(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    steps = Steps(monkeypatch)
    filled, go_on = threading.Event(), threading.Event()

    def once(passed: int) -> None:
        if passed == 0:
            filled.set()
            assert go_on.wait(250)

    steps.at("index.tablet_filled", once)
    settings = {"tablets": 2, "barrier_grace_s": 0.1, "index_tablets_per_job": 1}
    with connect(tmp_path / "w", spark, **settings) as db:
        db.sql("CREATE TABLE t (id BIGINT, a STRING, n BIGINT, PRIMARY KEY (id))")
        db.table("t").upsert([{"id": i, "a": f"a{i % 3}", "n": i} for i in range(12)])
        db.sql(f"CREATE ASYNC INDEX i ON t (n, ({LONG.format(n='n')}))")
        assert filled.wait(150)
        with Saboteur(spark, [fault], hold=fault == "job"):
            go_on.set()
            eventually(lambda: trouble(db, "i") is not None)
            assert state(db, "i") is Permission.BACKFILLING
            assert str(db.progress("i").row()["detail"]).startswith("Spark lost a job, again ")
        db.sql("WAIT FOR i")
        assert steps.passed["index.tablet_filled"] == 2, "the first tablet was not filled again"
        assert_exact(db, "i")
        assert trouble(db, "i") is None


def test_create_waits_through_lost_jobs_and_then_says_that_the_build_goes_on(
    db: ebla.Database, spark: SparkSession
) -> None:
    with Saboteur(spark, ["job"], hold=True):
        with pytest.raises(ebla.SparkJobError, match="tried again by itself: SHOW PROGRESS slow"):
            db.sql(f"CREATE MATERIALIZED VIEW slow AS {SLOW}")
        assert shown(db, "slow")["status"] == "building"
    db.sql("WAIT FOR slow")
    assert_current(db, "slow", SLOW)


def test_a_build_that_failed_on_a_row_goes_on_when_a_write_mends_it(db: ebla.Database) -> None:
    query = "SELECT id, 100 DIV customer AS r FROM orders"
    db.table("orders").upsert([order(7, customer=0)])
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW ratio AS {query}")
    eventually(lambda: shown(db, "ratio")["status"] == "failed" and trouble(db, "ratio") is not None)
    found = trouble(db, "ratio")
    assert found is not None
    assert (found.work, found.final, found.culprit) == (Activity.BUILD, True, ("orders", "id = 7"))
    db.table("orders").upsert([order(7)])
    eventually(lambda: follows(db, "ratio"))
    assert_current(db, "ratio", query)


# ---- any moment -----------------------------------------------------------------------------------------


def insist(statement: Callable[[], object]) -> None:
    """The writer repeats what Spark lost the job of."""
    while True:
        try:
            statement()
            return
        except ebla.EblaError as error:
            if not error.retryable:
                raise


def test_faults_of_spark_at_any_moment_of_builds_and_epochs(spark: SparkSession, tmp_path: Path) -> None:
    """First whatever happens, then Spark heals, and all is what recomputing gives."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    queries = {
        "slow": SLOW,
        "sums": "SELECT customer, count(*) AS n, sum(total) AS s FROM orders GROUP BY customer",
        "pairs": "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id",
        "shares": "SELECT id, count(*) OVER () AS n FROM orders",
    }
    rated = "SELECT o.id, o.total * r.rate AS cost FROM orders o JOIN rates r ON o.customer = r.id"
    settings = {"tablets": 2, "epoch_period_s": 0.0, "barrier_grace_s": 0.1, "batch_rows_max": 3}
    with connect(tmp_path / "w", spark, **settings) as db:
        db.sql(
            "CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id));"
            "CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id));"
            "CREATE TABLE rates (id BIGINT, rate BIGINT, PRIMARY KEY (id))"
        )
        db.table("rates").upsert([{"id": i, "rate": i} for i in range(1, 4)])
        db.table("customers").upsert([{"id": i, "name": f"c{i}"} for i in range(3)])
        db.table("orders").upsert([order(0), order(1), order(2)])
        db.sql(
            f"CREATE MATERIALIZED VIEW rated WITH (chunk_rows = 2) AS {rated};"
            "CREATE HANDLER shop PROCESS rated, INPUT orders AS STREAM, INPUT rates AS BATCH "
            "WITH (dictionary_period_s = 0)"
        )
        with Saboteur(spark, ["job", "stage", "worker"], seed=seed, chance=0.05) as saboteur:
            for name, query in queries.items():
                db.sql(f"CREATE ASYNC MATERIALIZED VIEW {name} AS {query}")
            db.sql("CREATE ASYNC INDEX i ON orders (total, (customer % 2))")
            for number in range(3):
                some = [order(3 + number), order(number, total=100 + number)]
                insist(lambda some=some: db.table("orders").upsert(some))  # type: ignore[misc]
                insist(lambda n=number: db.table("orders").delete([{"id": 1 + n}]))  # type: ignore[misc]
                db.table("customers").upsert([{"id": number, "name": f"new {number}"}])
                insist(lambda n=number: db.table("rates").upsert([{"id": 1 + n, "rate": 10 + n}]))  # type: ignore[misc]
            eventually(lambda: sum(saboteur.lost.values()) >= 5)
        db.sql(f"WAIT FOR i, {', '.join(queries)}")
        queries["rated"] = rated
        db.sql("FLUSH")
        eventually(lambda: follows(db, "rated"))  # also its dictionary
        for name, query in queries.items():
            assert bag(db, f"SELECT * FROM {name}") == bag(db, query), (seed, name)
            assert shown(db, name)["status"] == "ready", (seed, name)
            assert trouble(db, name) is None, (seed, name)
        assert_exact(db, "i")


# ---- starting Spark -------------------------------------------------------------------------------------


def test_starting_spark_wakes_epochs_and_builds(db: ebla.Database, spark: SparkSession, tmp_path: Path) -> None:
    where = tmp_path / "other"
    with connect(where, spark, tablets=2, auto_refresh=False) as idle:
        idle.sql("CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id))")
        idle.table("orders").upsert([order(i) for i in range(4)])
        idle.sql(f"CREATE MATERIALIZED VIEW stale AS {PLAIN}")
        idle.table("orders").upsert([order(9)])
        idle.sql(f"CREATE ASYNC MATERIALIZED VIEW begun AS {PLAIN}")
    with connect(where, epoch_period_s=0.0) as fresh:
        assert not fresh.context.has_spark
        assert shown(fresh, "stale")["behind"] > 0
        assert fresh.spark is not None  # and nothing is written, nor asked for
        eventually(lambda: follows(fresh, "stale") and follows(fresh, "begun"))
        assert_current(fresh, "stale", PLAIN)
        assert_current(fresh, "begun", PLAIN)


# ---- Ctrl-C ---------------------------------------------------------------------------------------------


def test_ctrl_c_cancels_the_jobs_of_its_statement_and_no_others(
    db: ebla.Database, spark: SparkSession, tmp_path: Path
) -> None:
    """The statement's job has no end, and the other one ends when it is told to: both run when the key is pressed."""
    assert threading.current_thread() is threading.main_thread()
    tracker, gate = spark.sparkContext.statusTracker(), tmp_path / "gate"
    found: list[Any] = []

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while not gate.exists():
            time.sleep(0.01)
        yield from batches

    def press() -> None:
        eventually(lambda: len(tracker.getActiveJobsIds()) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    waiting = spark.range(1).mapInArrow(wait, "id BIGINT")
    threads = [threading.Thread(target=lambda: found.append(waiting.toArrow())), threading.Thread(target=press)]
    try:
        threads[0].start()
        eventually(lambda: len(tracker.getActiveJobsIds()) == 1)
        threads[1].start()
        with pytest.raises(KeyboardInterrupt):
            db.sql(ENDLESS).rows()
    finally:
        gate.touch()
        for thread in threads:
            thread.join()
    assert [table.num_rows for table in found] == [1], "a job that is none of the statement's was cancelled"
    eventually(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())
    assert db.sql("SELECT count(*) FROM orders").one() == (ROWS,)


@pytest.mark.parametrize("what", ["view", "index"])
def test_ctrl_c_in_create_leaves_nothing_of_it(db: ebla.Database, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    steps = Steps(monkeypatch)
    point = "build.chunk_written" if what == "view" else "index.files_written"
    steps.at(point, lambda passed: os.kill(os.getpid(), signal.SIGINT) if passed == 0 else None)
    create = f"CREATE MATERIALIZED VIEW made AS {PLAIN}" if what == "view" else "CREATE INDEX made ON orders (total)"
    with pytest.raises(KeyboardInterrupt):
        db.sql(create)
    with pytest.raises(ebla.UnknownNameError):
        db.progress("made")
    db.sql(create)
    assert db.progress("made").progress.percent == 100.0


def test_ctrl_c_in_wait_for_says_that_the_build_goes_on(db: ebla.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW made WITH (rows_per_minute = 0) AS {PLAIN}")
    waiting = threading.Event()
    db.context.progress = lambda what, part: waiting.set()

    def press() -> None:
        assert waiting.wait(150)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as interrupted:
        db.sql("WAIT FOR made")
    thread.join()
    assert "CANCEL BUILD ends it" in interrupted.value.__notes__[0]
    db.sql("ALTER MATERIALIZED VIEW made SET (rows_per_minute = NULL); WAIT FOR made")


# ---- Python workers -------------------------------------------------------------------------------------


def test_what_a_python_worker_raises_is_said_in_its_class(spark: SparkSession) -> None:
    def wrong(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            pa.array([2**40]).cast(pa.int32())
            yield batch

    def full(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise OSError(28, "No space left on device")

    def ours(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from ebla.errors import StorageError

        raise StorageError("runs/7: expected a file, found none")

    def other(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise RuntimeError("out of luck")

    expected: list[tuple[Any, type[ebla.EblaError], str]] = [
        (wrong, ebla.TypeMismatchError, r"^i: .*1099511627776"),
        (full, ebla.StorageFullError, "^i: expected room for the write, found the disk full"),
        (ours, ebla.StorageError, "^runs/7: expected a file"),
        (other, ebla.SparkJobError, "^i: a Python worker of Spark failed: RuntimeError: out of luck"),
    ]
    for function, kind, says in expected:
        with pytest.raises(kind, match=says) as found, swrite.translated("i"):
            spark.range(3).mapInArrow(function, "id long").collect()
        assert type(found.value) is kind
