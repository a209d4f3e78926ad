"""What Spark is asked to do, and how often: each job costs a tenth of a second before it reads a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ebla.tables import sink
from support.warehouse import connect, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    import ebla

pytestmark = pytest.mark.spark


class Jobs:
    """Counts the jobs that are started inside a block."""

    def __init__(self, spark: SparkSession) -> None:
        self._scheduler: Any = spark.sparkContext._jsc.sc().dagScheduler()
        self.count = 0

    def __enter__(self) -> Jobs:
        self._before = int(self._scheduler.numTotalJobs())
        return self

    def __exit__(self, *_: object) -> None:
        self.count = int(self._scheduler.numTotalJobs()) - self._before


@pytest.fixture(params=[1, 16], ids=["1 tablet", "16 tablets"])
def db(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark, tablets=request.param) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        db.table("t").upsert([{"id": i, "n": i} for i in range(200)])
        yield db


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def operators(frame: DataFrame) -> list[str]:
    """Names of the plan's operators that move or join rows, and its scans of files."""
    return re.findall(r"\b(FileScan|Exchange|\w*Join|Window)\b", plan(frame))


def test_counting_works(spark):
    with Jobs(spark) as jobs:
        spark.range(10).collect()
        spark.range(10).collect()
    assert jobs.count == 2


def test_rows_from_python_start_no_job(db, spark):
    import pyarrow as pa

    table = db.table("t")
    with Jobs(spark) as jobs:
        table.upsert([{"id": 1, "n": 5}])
        table.upsert(pa.table({"id": [2], "n": pa.array([5], pa.int32())}))
        table.delete([{"id": 3}])
        db.sql("TRUNCATE TABLE t; ALTER TABLE t ADD COLUMN x INT; VACUUM")
    assert jobs.count == 0


def test_a_small_frame_starts_one_job(db, spark):
    frame = spark.range(1000, 1100).selectExpr("id", "INT(id) AS n")
    with Jobs(spark) as jobs:
        db.table("t").upsert(frame)
    assert jobs.count == 1
    with Jobs(spark) as jobs:
        db.table("t").delete(frame)
    assert jobs.count == 1


def test_statements_start_one_job(db, spark):
    for text, most in {
        "INSERT INTO t VALUES (5000, 1), (5001, 2)": 1,
        "UPDATE t SET n = n + 1 WHERE id = 5": 1,
        "DELETE FROM t WHERE id = 6": 1,
        "UPDATE t SET id = id + 10000 WHERE id = 7": 1,
    }.items():
        with Jobs(spark) as jobs:
            db.sql(text)
        assert jobs.count <= most, text


def test_a_compacted_table_is_one_scan_and_one_job(db, spark):
    db.compact("t")
    scan = db.table("t").scan()
    assert operators(scan) == ["FileScan"]
    with Jobs(spark) as jobs:
        assert len(rows(db, "t")) == 200
    assert jobs.count == 1


def test_level_0_is_a_broadcast_and_no_shuffle(db, spark):
    db.compact("t")
    db.table("t").upsert([{"id": i, "n": -1} for i in range(50)])
    db.table("t").delete([{"id": 60}])
    scan = db.table("t").scan()
    assert sorted(set(operators(scan))) == ["BroadcastHashJoin", "FileScan"]
    assert plan(scan).count("FileScan") == 1
    assert "LeftAnti, BuildRight" in plan(scan)
    with Jobs(spark) as jobs:
        assert db.sql("SELECT count(*), sum(n) FROM t WHERE id < 100").one() == (99, sum(range(50, 100)) - 60 - 50)
    assert jobs.count <= 3  # the broadcast, the scan, and the aggregation's second stage


def test_filters_and_columns_reach_the_files(db, spark):
    db.compact("t")
    frame = db.table("t").scan().filter("id = 7").select("n")
    assert "PushedFilters: [IsNotNull(id), EqualTo(id,7)]" in plan(frame)
    assert "ReadSchema: struct<id:bigint,n:int>" in plan(frame)
    assert [tuple(r) for r in frame.collect()] == [(7,)]


def test_a_bulk_write_and_a_compaction_do_not_cost_by_the_tablet(db, spark):
    with connect(db.context.catalog.where, spark, batch_rows_max=10) as bulk:
        with Jobs(spark) as jobs:
            bulk.table("t").upsert(spark.range(1000).selectExpr("id", "INT(id) AS n"))
        assert jobs.count <= 3
        with Jobs(spark) as jobs:
            bulk.compact("t")
        assert jobs.count <= 3
    assert db.sql("SELECT count(*) FROM t").one() == (1000,)


def test_a_bulk_statement_of_one_kind_is_one_shuffle(db, spark, monkeypatch):
    """From the scan to the files. Few rows, which only the result tells, come to the driver as level 0."""
    monkeypatch.setattr(sink, "SMALL_BYTES", 0)
    with connect(db.context.catalog.where, spark, batch_rows_max=10) as bulk:
        for text, count, total in (
            ("UPDATE t SET n = n + 1000 WHERE id % 2 = 0", 200, 119_900),
            ("UPDATE t SET n = 7 WHERE n = 1000", 200, 118_907),
            ("UPSERT INTO t SELECT id + 1000, n FROM t WHERE id < 100", 300, 172_864),
            ("DELETE FROM t WHERE id >= 1000 OR id % 2 = 0", 100, 10_000),
        ):
            bulk.compact("t")  # what is merged with level 0 is broadcast by a job of its own
            with Jobs(spark) as jobs:
                bulk.sql(text)
            assert jobs.count <= 2, text  # adaptive execution counts the two sides of a shuffle
            assert bulk.sql("SELECT count(*), sum(n) FROM t").one() == (count, total), text


def test_a_query_that_is_asked_again_lists_no_files(db, spark):
    db.compact("t")
    first = db.table("t").scan()
    assert db.table("t").scan() is first
    db.table("t").upsert([{"id": 1, "n": 0}])
    assert db.table("t").scan() is not first
