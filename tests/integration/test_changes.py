"""`changes(since, until, old)`: the net effect of commits on every key, with versions and times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ebla.spark.changes import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from support.warehouse import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

pytestmark = pytest.mark.spark


@pytest.fixture(params=[200_000, 0], ids=["driver", "spark"])
def db(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark, tablets=2, level0_rows_max=request.param) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        yield db


def changes(db: ebla.Database, since: int, until: int | None = None, *, old: bool = False) -> list[tuple[Any, ...]]:
    frame = db.table("t").changes(since, until, old=old)
    visible = [c for c in frame.columns if not c.startswith("_")]
    assert frame.columns == [*visible, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP]
    assert dict(frame.dtypes)[COMMIT_VERSION] == "bigint"
    assert dict(frame.dtypes)[COMMIT_TIMESTAMP] == "timestamp"
    return sorted((tuple(r)[:-1] for r in frame.collect()), key=repr)


def test_net_changes_per_key(db):
    table = db.table("t")
    table.upsert([{"id": i, "n": 0} for i in range(4)])
    start = db.version
    table.upsert([{"id": 1, "n": 1}, {"id": 7, "n": 7}])
    first = db.version
    table.upsert([{"id": 1, "n": 2}, {"id": 8, "n": 8}])
    second = db.version
    table.delete([{"id": 2}, {"id": 8}, {"id": 99}])
    third = db.version
    assert changes(db, start) == [
        (1, 2, "update_postimage", second),
        (2, 0, "delete", third),
        (7, 7, "insert", first),
    ]
    assert changes(db, start, old=True) == [
        (1, 0, "update_preimage", second),
        (1, 2, "update_postimage", second),
        (2, 0, "delete", third),
        (7, 7, "insert", first),
    ]
    assert changes(db, first, second, old=True) == [
        (1, 1, "update_preimage", second),
        (1, 2, "update_postimage", second),
        (8, 8, "insert", second),
    ]
    assert changes(db, third) == changes(db, start, start) == []
    assert changes(db, 0, start) == [(i, 0, "insert", start) for i in range(4)]


def test_compaction_is_no_change_and_hides_none(db):
    table = db.table("t")
    table.upsert([{"id": 1, "n": 1}])
    start = db.version
    table.upsert([{"id": 1, "n": 2}, {"id": 2, "n": 2}])
    written = db.version
    expected = [(1, 2, "update_postimage", written), (2, 2, "insert", written)]
    assert changes(db, start) == expected
    db.compact("t")
    compacted = db.version
    assert changes(db, start) == expected
    assert changes(db, written) == changes(db, written, compacted) == []
    db.sql("UPDATE t SET n = 3 WHERE id = 2")
    assert changes(db, compacted) == [(2, 3, "update_postimage", db.version)]


def test_truncation_deletes_what_was_there_and_nothing_else(db):
    table = db.table("t")
    table.upsert([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    start = db.version
    table.upsert([{"id": 3, "n": 3}])
    db.sql("TRUNCATE TABLE t")
    emptied = db.version
    table.upsert([{"id": 2, "n": 9}, {"id": 4, "n": 4}])
    again = db.version
    assert changes(db, start, old=True) == [
        (1, 1, "delete", emptied),
        (2, 2, "update_preimage", again),
        (2, 9, "update_postimage", again),
        (4, 4, "insert", again),
    ]
    assert changes(db, start, emptied) == [(1, 1, "delete", emptied), (2, 2, "delete", emptied)]
    db.sql("TRUNCATE TABLE t; TRUNCATE TABLE t")
    assert changes(db, start) == [(1, 1, "delete", db.version), (2, 2, "delete", db.version)]


def test_a_bulk_load_into_an_empty_table_is_inserts(db, spark):
    with connect(db.context.catalog.where, spark, batch_rows_max=0) as bulk:
        bulk.table("t").upsert(spark.range(5).selectExpr("id", "INT(id) AS n"))
    assert changes(db, 0) == [(i, i, "insert", db.version) for i in range(5)]


def test_columns_are_those_of_today(db):
    table = db.table("t")
    table.upsert([{"id": 1, "n": 1}])
    start = db.version
    db.sql("ALTER TABLE t ADD COLUMN x STRING; ALTER TABLE t RENAME COLUMN n TO m")
    table.upsert([{"id": 1, "m": 2, "x": "new"}])
    assert changes(db, start, old=True) == [
        (1, 1, None, "update_preimage", db.version),
        (1, 2, "new", "update_postimage", db.version),
    ]


def test_times_are_those_of_the_commits(db):
    before = dt.datetime.now(dt.UTC)
    db.table("t").upsert([{"id": 1, "n": 1}])
    after = dt.datetime.now(dt.UTC)
    stamp = db.table("t").changes(0).toArrow()[COMMIT_TIMESTAMP][0].as_py()
    assert before <= stamp <= after


def test_a_row_that_moves_to_another_key_leaves_the_old_one(db):
    db.table("t").upsert([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    start = db.version
    db.sql("UPDATE t SET id = id + 1")
    assert changes(db, start, old=True) == [
        (1, 1, "delete", db.version),
        (2, 1, "update_postimage", db.version),
        (2, 2, "update_preimage", db.version),
        (3, 2, "insert", db.version),
    ]
