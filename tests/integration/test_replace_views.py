"""`CREATE OR REPLACE MATERIALIZED VIEW`: built beside the old view, which is read until the two are exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ebla.base.failpoint import EXIT_CODE
from ebla.errors import EblaError, SqlError, UsageError
from support.processes import Sharing
from support.warehouse import connect, eventually, refused, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

pytestmark = pytest.mark.spark

NEW = "MATERIALIZED VIEW card AS SELECT id, n + 1 AS m FROM t"


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark, tablets=2) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        db.table("t").upsert([{"id": i, "n": i} for i in range(4)])
        db.sql("CREATE MATERIALIZED VIEW card AS SELECT id, n FROM t WHERE n > 1")
        yield db


def views(db: ebla.Database) -> list[str]:
    return [row[0] for row in db.sql("SHOW VIEWS").rows()]


def test_a_view_is_replaced_and_stays_in_its_handler(db):
    db.sql("CREATE HANDLER h PROCESS card, INPUT t AS STREAM")
    old = db.sql("SELECT * FROM card")
    db.sql(f"CREATE OR REPLACE {NEW}")
    assert rows(db, "card") == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert len(old.rows()) == 2
    assert views(db) == ["card"]
    assert db.sql("SHOW HANDLERS LIKE 'h'").rows()[0][1] == "card"
    db.table("t").upsert([{"id": 9, "n": 9}])
    db.sql("FLUSH card")
    assert rows(db, "SELECT m FROM card WHERE id = 9") == [(10,)]
    db.sql("CREATE OR REPLACE MATERIALIZED VIEW fresh AS SELECT count(*) AS c FROM t")
    assert rows(db, "fresh") == [(5,)]


def test_the_old_view_is_read_until_the_new_one_is_built(db):
    db.sql(f"CREATE OR REPLACE ASYNC MATERIALIZED VIEW card WITH (rows_per_minute = 0) {NEW[23:]}")
    assert rows(db, "card") == [(2, 2), (3, 3)]
    assert db.sql("SHOW PROGRESS card").rows()[0][0] == "sys$replacement$card"
    for statement in (
        "CREATE MATERIALIZED VIEW over AS SELECT * FROM card",
        "CREATE INDEX i ON card (n)",
        "ALTER MATERIALIZED VIEW card RENAME TO cards",
    ):
        with refused(db, UsageError, "view card: expected one that stays, found that it is being replaced"):
            db.sql(statement)
    db.sql(f"CREATE OR REPLACE ASYNC {NEW}")  # another one takes the place of the first
    db.sql("WAIT FOR card")
    assert rows(db, "card") == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert views(db) == ["card"]


def test_a_replacement_is_cancelled_or_dropped_with_the_view(db):
    slow = f"CREATE OR REPLACE ASYNC MATERIALIZED VIEW card WITH (rows_per_minute = 0) {NEW[23:]}"
    db.sql(slow)
    db.sql("CANCEL BUILD card")
    assert (views(db), rows(db, "card")) == (["card"], [(2, 2), (3, 3)])
    db.sql(slow)
    db.sql("DROP MATERIALIZED VIEW card")
    assert views(db) == []
    db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY)")
    db.sql("CREATE MATERIALIZED VIEW card AS SELECT id FROM u")
    db.sql(slow)
    db.sql("DROP TABLE u CASCADE")
    assert views(db) == []


def test_a_query_that_fails_leaves_the_old_view(db):
    with pytest.raises(EblaError, match="DIVIDE_BY_ZERO"):
        db.sql("CREATE OR REPLACE MATERIALIZED VIEW card AS SELECT id, n DIV (n - 1) AS m FROM t")
    assert (views(db), rows(db, "card")) == (["card"], [(2, 2), (3, 3)])


@pytest.mark.parametrize(
    ("statement", "kind", "message"),
    [
        ("CREATE OR REPLACE MATERIALIZED VIEW card AS SELECT * FROM card", UsageError, "other than the view itself"),
        ("CREATE OR REPLACE MATERIALIZED VIEW card AS SELECT nope FROM t", UsageError, "nope"),
        ("CREATE OR REPLACE MATERIALIZED VIEW t AS SELECT 1 AS x", UsageError, "found a table"),
        ("CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT 1 AS x", SqlError, "contradict"),
        ("CREATE OR REPLACE INDEX i ON t (n)", SqlError, "expected TABLE or MATERIALIZED VIEW"),
    ],
)
def test_what_cannot_replace_a_view(db, statement, kind, message):
    before = db.version
    with pytest.raises(kind, match=message):
        db.sql(statement)
    assert db.version == before


def test_a_view_that_something_needs_is_not_replaced(db):
    db.sql("CREATE INDEX by_n ON card (n)")
    with pytest.raises(UsageError, match="card: expected that no index is on it, found by_n"):
        db.sql(f"CREATE OR REPLACE {NEW}")
    db.sql("DROP INDEX by_n")
    db.sql("CREATE MATERIALIZED VIEW over AS SELECT * FROM card")
    with pytest.raises(UsageError, match="card: expected that no view needs it, found over"):
        db.sql(f"CREATE OR REPLACE {NEW}")


@pytest.mark.parametrize("point", ["build.created", "view.before_exchange"])
def test_a_process_that_dies_leaves_the_old_view_and_the_next_one_goes_on(
    db, spark: SparkSession, spark_processes: Sharing, point: str
):
    where = db.context.catalog.where
    db.close()
    status = spark_processes.run(
        "support.build_tasks:run", where, f"CREATE OR REPLACE {NEW}", {}, failpoints=f"{point}=exit"
    )
    assert status == EXIT_CODE
    with connect(where, spark) as again:
        assert rows(again, "SELECT count(*) FROM card") in ([(2,)], [(4,)]), "the old view, or the new one, whole"
        again.sql("WAIT FOR card")
        eventually(lambda: views(again) == ["card"])
        assert rows(again, "card") == [(0, 1), (1, 2), (2, 3), (3, 4)]
