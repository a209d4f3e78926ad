"""The reader against Spark: the same rows in the same order and types; and views, with their freshness."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest

import ebla
from ebla.predicates import select
from ebla.sql.refs import find
from support.warehouse import connect, eventually

pytestmark = pytest.mark.spark

STATEMENTS = [
    "SELECT * FROM t ORDER BY id LIMIT 10000",
    "SELECT * FROM t ORDER BY f DESC, id LIMIT 50",
    "SELECT id, f FROM t ORDER BY f, id LIMIT 50",
    "SELECT id, s FROM t ORDER BY s, id DESC LIMIT 100",
    "SELECT id, s FROM t ORDER BY s DESC NULLS LAST, id LIMIT 100",
    "SELECT * FROM t WHERE s = 'a' ORDER BY id LIMIT 100",
    "SELECT * FROM t WHERE s LIKE 'a%' ORDER BY id LIMIT 100",
    "SELECT id FROM t WHERE s >= 'b' ORDER BY s, id LIMIT 100",
    "SELECT id FROM t WHERE n > 0 AND n <= 3 ORDER BY n DESC, id LIMIT 30",
    "SELECT id FROM t WHERE n IN (3, 1) ORDER BY n, id LIMIT 100",
    "SELECT id FROM t WHERE n IS NULL ORDER BY id LIMIT 100",
    "SELECT id FROM t WHERE f > 0.5 ORDER BY id LIMIT 100",
    "SELECT id FROM t WHERE f <= 2 ORDER BY id LIMIT 100",
    "SELECT id FROM t WHERE d BETWEEN 1 AND 2.5 ORDER BY d, id LIMIT 100",
    "SELECT id FROM t WHERE day = '2024-02-29' ORDER BY id LIMIT 100",
    "SELECT id FROM t WHERE day > DATE '2000-01-01' ORDER BY day DESC, id LIMIT 100",
    "SELECT id FROM t WHERE b = true ORDER BY id LIMIT 100",
    "SELECT id AS i, tags, m FROM t AS u WHERE u.id = 7",
]


@pytest.fixture
def db(tmp_path, spark):
    with connect(tmp_path / "w", spark, auto_refresh=False) as database:
        yield database


def fill(db: ebla.Database) -> None:
    db.sql(
        "CREATE TABLE t (id INT, s STRING, n SMALLINT, f DOUBLE, d DECIMAL(8,2), day DATE, at TIMESTAMP, b BOOLEAN, "
        "tags ARRAY<STRING>, m MAP<STRING, INT>, PRIMARY KEY (id))"
    )

    def row(i: int) -> dict[str, Any]:
        return {
            "id": i,
            "s": [None, "", "a", "ab", "B", "é", "😀", "b\uffff"][i % 8],
            "n": [None, -1, 0, 1, 3][i % 5],
            "f": [None, math.nan, -0.0, 0.0, 2.5, -math.inf, math.inf][i % 7],
            "d": [None, Decimal("1.00"), Decimal("2.50"), Decimal("-3.25")][i % 4],
            "day": [None, dt.date(2024, 2, 29), dt.date(1969, 1, 1)][i % 3],
            "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=i) if i % 3 else None,
            "b": [True, False, None][i % 3],
            "tags": [str(i), None] if i % 2 else None,
            "m": {"k": i} if i % 4 else None,
        }

    db.table("t").upsert([row(i) for i in range(120)])
    db.compact("t")
    db.table("t").upsert([row(i) | {"s": "a"} for i in range(0, 120, 9)])
    db.table("t").delete([{"id": i} for i in range(5, 120, 11)])


def values(result: ebla.Result) -> list[tuple[Any, ...]]:
    return [tuple("NaN" if v != v else v for v in row) for row in result.rows()]


def test_first_rows_are_those_of_spark(db, monkeypatch):
    fill(db)
    for text in STATEMENTS:
        assert select.recognize(find(text), {}) is not None, text
        first = db.sql(text)
        with monkeypatch.context() as patch:
            patch.setattr(select, "recognize", lambda query, parameters: None)
            other = db.sql(text)
            assert first.columns == other.columns, text
            assert values(first) == values(other), text
            assert first.to_arrow().schema.types == other.to_arrow().schema.types, text


def test_a_view_tells_its_freshness_and_is_waited_for(db):
    fill(db)
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS c FROM t GROUP BY n")
    found = db.query("v", order_by="n", limit=3)
    assert (found.applied_version is not None, found.age_s) == (True, 0.0)
    assert [row[0] for row in found.rows()] == [None, -1, 0]
    written = db.table("t").upsert([{"id": 1000, "n": 9}])
    stale = db.query("v", where={"n": 9})
    assert (len(stale), stale.applied_version) == (0, found.applied_version)
    assert stale.age_s is not None
    assert stale.age_s > 0
    with pytest.raises(ebla.SnapshotError, match=f"version {written.version} applied within 0.05 s, found version"):
        db.query("v", at_least=int(written.version), wait_s=0.05)
    db.sql("FLUSH v")
    assert db.query("v", where={"n": 9}, at_least=int(written.version), wait_s=0).rows() == [(9, 1)]
    assert db.query("v", at_least=db.version, wait_s=0).age_s == 0.0


def test_at_least_waits_for_the_background(tmp_path, spark):
    with connect(tmp_path / "w", spark, epoch_period_s=0.01) as db:
        db.sql("CREATE TABLE t (id INT, n INT, PRIMARY KEY (id))")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, n + 1 AS n FROM t")
        written = db.table("t").upsert([{"id": 1, "n": 1}])
        found = db.query("v", at_least=int(written.version or 0), wait_s=150)
        assert found.rows() == [(1, 2)]
        eventually(lambda: db.query("v").age_s == 0.0)


def test_at_least_says_which_handler_is_switched_off(db):
    fill(db)
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, n FROM t; CREATE MATERIALIZED VIEW w AS SELECT id FROM v")
    db.sql("CREATE HANDLER slow PROCESS v INPUT t AS STREAM WITH (should_run = false)")
    db.sql("CREATE HANDLER late PROCESS w INPUT v AS STREAM")
    written = int(db.table("t").upsert([{"id": 1000, "n": 9}]).version)
    off = r"found version \d+, for its handler slow is switched off \(ALTER HANDLER slow SET \(should_run = true\)\)"
    for view in ("v", "w"):
        with pytest.raises(ebla.SnapshotError, match=off):
            db.query(view, at_least=written, wait_s=0)
    db.sql("ALTER HANDLER late SET (should_run = false)")
    with pytest.raises(ebla.SnapshotError, match="for its handlers late, slow are switched off"):
        db.query("w", at_least=written, wait_s=0)
    db.sql("FLUSH v, w")
    assert db.query("w", where={"id": 1000}, at_least=written, wait_s=0).rows() == [(1000,)]


def test_a_view_that_is_not_built_says_so(db):
    fill(db)
    db.sql("CREATE ASYNC MATERIALIZED VIEW w AS SELECT id FROM t")
    with pytest.raises(ebla.SnapshotError, match="expected it built, found it building"):
        db.query("w")
    with pytest.raises(ebla.SnapshotError, match="found it building"):
        db.query("w", at_least=1, wait_s=0)
