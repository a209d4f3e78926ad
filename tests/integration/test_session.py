"""The Spark session: a given one is used and left as it was; without one, Ebla starts and stops its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, event

from ebla.spark.session import java_class, local_frame
from support import jvm
from support.warehouse import connect, eventually, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    import ebla

pytestmark = pytest.mark.spark


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        yield db


def test_an_empty_table_is_read_without_python_workers(db: ebla.Database):
    """Spark knows that there is nothing, and leaves out what is joined with it."""
    db.sql("CREATE TABLE u (id BIGINT, name STRING, PRIMARY KEY (id))")
    db.table("u").upsert([{"id": 1, "name": "a"}])
    for query, shown in {
        "SELECT * FROM t": "LocalTableScan <empty>",
        "SELECT u.name, t.n FROM u LEFT JOIN t ON u.id = t.id": "LocalTableScan",
        "SELECT u.name, t.n FROM u JOIN t ON u.id = t.id": "LocalTableScan <empty>",
    }.items():
        frame = db.sql(query).to_spark()
        plan = str(frame._jdf.queryExecution().executedPlan().toString())
        assert plan.startswith(shown), plan
        assert frame.count() == ("LEFT" in query)


def test_classes_of_the_jvm_are_searched_for_once(db: ebla.Database, spark: SparkSession):
    """PySpark's short names are found on its view of the JVM, which does not ask the JVM again."""
    db.sql("SELECT 1").rows()
    assert {"functions", "PythonUtils", "PythonSQLUtils"} <= set(vars(spark._jvm))
    assert java_class(spark, "java.util.ArrayList") is java_class(spark, "java.util.ArrayList")


def test_mentions_of_a_table_are_looked_up_once(db: ebla.Database):
    db.sql("SELECT count(*) FROM t").rows()  # what is remembered from then on is not asked again
    with counted(db.context.catalog.engine) as once:
        db.sql("SELECT count(*) FROM t a, t b").rows()
    with counted(db.context.catalog.engine) as many:
        db.sql("SELECT count(*) FROM t a, t b, t c, t d").rows()
    assert once
    assert many == once


@contextlib.contextmanager
def counted(engine: Engine) -> Iterator[Counter[str]]:
    """The statements of this thread that look up relations in the block, and how often each was sent."""
    found: Counter[str] = Counter()
    me = threading.get_ident()

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        if threading.get_ident() == me and "FROM relations" in statement:
            found[statement] += 1

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


def state(session: SparkSession) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    return {
        "conf": dict(session.conf.getAll),
        "tables": sorted((t.name, t.tableType, t.isTemporary) for t in session.catalog.listTables()),
        "catalog": session.catalog.currentCatalog(),
        "database": session.catalog.currentDatabase(),
        "databases": sorted(d.name for d in session.catalog.listDatabases()),
        "functions": session.sql("SHOW USER FUNCTIONS").collect(),
        "active": active is not None and active._jsparkSession.equals(session._jsparkSession),
        "default": SparkSession.builder.getOrCreate()._jsparkSession.equals(session._jsparkSession),
        "context": sorted(session.sparkContext.getConf().getAll()),
    }


def everything(db: ebla.Database, frame: DataFrame, folder: Path) -> None:
    """One of each kind of request, also those that fail and those that go by Spark's tablets."""
    table = db.table("t")
    table.upsert([{"id": i, "n": i} for i in range(10)])
    table.upsert(frame)
    table.delete(frame.limit(1))
    db.sql("INSERT INTO t VALUES (100, 1); UPDATE t SET n = n + 1; DELETE FROM t WHERE id = 3")
    db.sql("MERGE INTO t USING t AS s ON t.id = s.id + 1 WHEN MATCHED THEN UPDATE SET n = s.n")
    (folder / "a.csv").write_text("id,n\n7,7\n")
    table.load(str(folder / "a.csv"))
    rows(db, "SELECT * FROM t a JOIN t VERSION AS OF 3 b ON a.id = b.id")
    db.sql("SELECT * FROM system.runs").rows()
    db.sql("EXPLAIN SELECT * FROM t").rows()
    db.sql("SELECT count(*) FROM t").to_spark().collect()
    table.scan().count()
    table.changes(2, old=True).count()
    for wrong in ("SELECT nope FROM t", "SELECT * FROM nope", "INSERT INTO t VALUES (100, 1)"):
        with pytest.raises(Exception, match=r"nope|found id = 100"):
            db.sql(wrong)
    db.sql("COMPACT t; VACUUM RETAIN 0 SECONDS; TRUNCATE TABLE t")


@pytest.mark.parametrize("settings", [{}, {"batch_rows_max": 0, "level0_rows_max": 0}], ids=["small", "bulk"])
def test_a_given_session_is_left_as_it_was(spark, tmp_path, settings):
    spark.range(3).createOrReplaceTempView("mine")
    before = state(spark)
    with connect(tmp_path / "warehouse", spark, **settings) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        everything(db, spark.range(20, 30).selectExpr("id", "INT(id) AS n"), tmp_path)
        assert state(spark) == before
    assert state(spark) == before
    assert spark.range(5).count() == 5  # it was not stopped
    spark.catalog.dropTempView("mine")


def test_a_users_view_can_be_joined_and_a_table_hides_it(db, spark):
    spark.createDataFrame([(1, "one")], "id long, word string").createOrReplaceTempView("words")
    spark.range(7).createOrReplaceTempView("t")
    try:
        db.table("t").upsert([{"id": 1, "n": 5}])
        assert rows(db, "SELECT t.n, word FROM t JOIN words USING (id)") == [(5, "one")]
        assert rows(db, "SELECT count(*) FROM t") == [(1,)]
        assert spark.table("t").count() == 7
    finally:
        spark.catalog.dropTempView("words")
        spark.catalog.dropTempView("t")


def test_one_query_sees_one_version_of_all_tables(db):
    """A writer commits to `t` and then to `u`, in a loop: at any version `t` is at most one ahead."""
    db.sql("CREATE TABLE u (id BIGINT, n INT, PRIMARY KEY (id))")
    stop, failed = threading.Event(), []

    def write() -> None:
        t, u = db.table("t"), db.table("u")
        number = 0
        try:
            while not stop.is_set():
                number += 1
                t.upsert([{"id": number % 50, "n": number}])
                u.upsert([{"id": number % 50, "n": number}])
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = []
        for _ in range(12):
            ahead, twice = db.sql(
                "SELECT (SELECT max(n) FROM t) - (SELECT max(n) FROM u), "
                "(SELECT count(*) FROM (SELECT * FROM t EXCEPT SELECT * FROM t))"
            ).one()
            assert twice == 0
            if ahead is not None:
                seen.append(ahead)
    finally:
        stop.set()
        writer.join()
    assert not failed
    assert seen
    assert set(seen) <= {0, 1}


def test_a_call_that_was_cut_short_leaves_its_answer_to_no_other(spark: SparkSession) -> None:
    """As pytest cuts one short where a test has no time left: by an error of its own, out of a signal."""

    class CutShortError(BaseException):
        pass

    def cut(number: int, frame: object) -> None:
        raise CutShortError

    java: Any = spark._jvm
    semaphore = java.java.util.concurrent.Semaphore(0)

    def press() -> None:
        eventually(semaphore.hasQueuedThreads)
        os.kill(os.getpid(), signal.SIGUSR1)

    before, thread = signal.signal(signal.SIGUSR1, cut), threading.Thread(target=press)
    try:
        thread.start()
        with pytest.raises(CutShortError):
            semaphore.acquire()
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    jvm.give_up_call()
    semaphore.release()
    assert [java.java.lang.Integer.parseInt(str(n)) for n in range(5)] == list(range(5))
    assert spark.range(3).count() == 3


# ---- without a session ----------------------------------------------------------------------------------

OWN = """
import sys
from pyspark import SparkContext
from pyspark.sql import SparkSession
import ebla

where = sys.argv[1]
options = dict(auto_compact=False, spark_memory="1g", spark_cores="1", tablets=2)
first = ebla.connect(where, **options)
first.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
first.table("t").upsert([{"id": 1, "n": 1}])
assert SparkContext._active_spark_context is None, "Arrow rows need no Spark"

second = ebla.connect(where, **options)
assert first.sql("SELECT * FROM t").rows() == [(1, 1)]
assert second.sql("SELECT * FROM t").rows() == [(1, 1)]
pools = first.spark.sparkContext._jsc.sc()
compaction, others = (pools.getPoolForName(name).get() for name in ("compaction", "default"))
assert (compaction.weight(), compaction.minShare()) == (1, 0)
assert (others.weight(), others.minShare()) == (16, 1_000_000), "what is not compaction gets the next free core"
first.close()
assert second.sql("SELECT n FROM t").rows() == [(1,)], "closing one database left the other's Spark alone"
second.close()
assert SparkContext._active_spark_context is None, "the last one stopped it"

mine = SparkSession.builder.master("local[1]").appName("mine").config("spark.ui.enabled", "false").getOrCreate()
mine.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
before = dict(mine.conf.getAll)
with ebla.connect(where, **options) as third:
    assert third.sql("SELECT n, current_timezone() FROM t").rows() == [(1, "UTC")]
    assert third.spark is not mine
assert mine.range(3).count() == 3, "the program's own Spark still runs"
assert dict(mine.conf.getAll) == before
assert SparkSession.getActiveSession() is mine
mine.stop()
print("done")
"""


@pytest.mark.process
def test_without_a_session_ebla_starts_and_stops_its_own(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", OWN, str(tmp_path / "warehouse")],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"]


KILLED = """
import os, signal, sys, threading, time
from pyspark import SparkContext
from pyspark.sql import SparkSession
import ebla

where = sys.argv[1]
quick = dict(auto_compact=False, tablets=2, epoch_period_s=0.0, driver_rows_max=0, fsync=False)
small = dict(spark_memory="1g", spark_cores="1")

def kill():
    process = SparkContext._gateway.proc
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

def eventually(holds):
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)

def refused(use):
    try:
        use()
    except ebla.SparkJobError as error:
        assert error.lost
        return str(error)
    raise AssertionError("expected an error")

db = ebla.connect(where, **quick, **small)
db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
db.sql("CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS c FROM t GROUP BY n")
tracker = db.spark.sparkContext.statusTracker()

def kill_at_work():
    while not tracker.getActiveJobsIds():
        time.sleep(0.01)
    kill()

killer = threading.Thread(target=kill_at_work)
killer.start()
said = refused(lambda: db.sql("SELECT sum(id) FROM range(0, 100000000000, 1, 1)").rows())
killer.join()
assert "was killed by SIGKILL, the next use of Spark starts another one; repeat the statement" in said, said
db.table("t").upsert([{"id": 1, "n": 7}, {"id": 2, "n": 7}])
eventually(lambda: db.query("v").rows() == [(7, 2)])  # in the background, in another JVM
assert db.sql("SELECT n + 1 AS m FROM t GROUP BY n").rows() == [(8,)]
db.close()
assert SparkContext._active_spark_context is None

mine = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
with ebla.connect(where, mine, **quick) as db:
    assert db.sql("SELECT max(n) AS m FROM t GROUP BY n").rows() == [(7,)]
    kill()
    db.table("t").upsert([{"id": 3, "n": 7}])
    for statement in ("SELECT max(n) AS m FROM t GROUP BY n", "FLUSH v"):
        said = refused(lambda: db.sql(statement).rows())
        assert "was killed by SIGKILL; start a new Spark session and connect with it" in said, said
    [view] = db.sql("SHOW VIEWS").to_arrow().to_pylist()
    assert view["message"].startswith("waiting: Spark lost a job"), view
    assert db.query("t").rows() == [(1, 7), (2, 7), (3, 7)]
print("done")
"""


@pytest.mark.process
def test_a_jvm_that_is_killed_is_named_and_started_again_where_ebla_started_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "warehouse")],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"]


@pytest.mark.parametrize("sizes", [(0, 2), (2, 0, 3), (0, 0, 1), (1, 0, 0, 2, 0), (0, 0), (3,)])
def test_a_frame_has_all_rows_of_an_arrow_table(db: ebla.Database, spark: SparkSession, sizes: tuple[int, ...]) -> None:
    """Spark alone would stop at the first empty chunk."""
    parts = [pa.table({"id": pa.array(range(size), pa.int64())}) for size in sizes]
    table = pa.concat_tables(parts)
    assert sorted(row.id for row in local_frame(spark, table).collect()) == sorted(table["id"].to_pylist())
    db.table("t").upsert(
        pa.concat_tables([part.append_column("n", pa.nulls(part.num_rows, pa.int32())) for part in parts])
    )
    assert db.sql("SELECT count(*) FROM t").one()[0] == len(set(table["id"].to_pylist()))
