"""`CREATE TABLE … AS` and `CREATE OR REPLACE TABLE`: with all rows in one commit, or not at all."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ebla.base.failpoint import EXIT_CODE
from ebla.catalog import transactions as tx
from ebla.errors import (
    DuplicateKeyError,
    DuplicateNameError,
    SnapshotError,
    SqlError,
    TypeMismatchError,
    UnknownNameError,
    UsageError,
)
from support.processes import Sharing
from support.warehouse import connect, open_transactions, refused, rows, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

pytestmark = pytest.mark.spark


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark, tablets=2, batch_rows_max=100) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, at TIMESTAMP_NTZ, PRIMARY KEY (id))")
        db.table("t").upsert([{"id": i, "n": i % 3, "at": dt.datetime(2026, 1, 1)} for i in range(10)])
        yield db


def described(db: ebla.Database, table: str) -> list[tuple[str, str, int | None]]:
    return [(name, kind, key) for name, kind, _, key, *_ in db.sql(f"DESCRIBE {table}").rows()]


def test_a_table_of_a_query_has_its_columns_and_rows_in_one_commit(db):
    before = db.version
    result = db.sql(
        "CREATE TABLE sums (PRIMARY KEY (N)) COMMENT 'by n' WITH (tablets = 4) AS "
        "WITH x AS (SELECT * FROM t WHERE id >= :least) "
        "SELECT n, sum(id) AS total, array(max(at)) AS last FROM x GROUP BY n",
        least=1,
    )
    assert result.rows() == [(3, before + 1)]
    assert db.version == before + 1
    assert described(db, "sums") == [("n", "int", 1), ("total", "bigint", None), ("last", "array<timestamp_ntz>", None)]
    assert rows(db, "SELECT n, total FROM sums") == [(0, 18), (1, 12), (2, 15)]
    assert db.sql("SHOW TABLES LIKE 'sums'").rows() == [("sums", "table", "n", 4, 1, "by n")]
    db.table("sums").upsert([{"n": 0, "total": 1}])
    assert rows(db, "SELECT total FROM sums WHERE n = 0") == [(1,)]


def test_a_table_without_a_key_and_one_without_rows(db):
    db.sql("CREATE TABLE twice AS SELECT n FROM t UNION ALL SELECT n FROM t")
    assert len(rows(db, "twice")) == 20
    assert db.sql("CREATE TABLE none AS SELECT * FROM t WHERE false").rows()[0][0] == 0
    assert described(db, "none") == [("id", "bigint", None), ("n", "int", None), ("at", "timestamp_ntz", None)]
    assert rows(db, "none") == []


def test_many_rows_go_by_spark(db):
    db.sql("CREATE TABLE many PRIMARY KEY (id) AS SELECT id, id % 7 AS n FROM range(1000)")
    assert db.sql("SELECT count(*), sum(id) FROM many").rows() == [(1000, 499500)]
    with refused(db, DuplicateKeyError, "more: "):
        db.sql("CREATE TABLE more PRIMARY KEY (n) AS SELECT id, id % 7 AS n FROM range(1000)")


def test_if_not_exists_computes_nothing(db):
    before = db.version
    assert db.sql("CREATE TABLE IF NOT EXISTS T AS SELECT raise_error('no') AS x").rows() == [(0, None)]
    assert db.version == before


@pytest.mark.parametrize(
    ("statement", "kind", "message"),
    [
        ("CREATE TABLE t AS SELECT 1 AS a", DuplicateNameError, "table t: expected a free name"),
        ("CREATE TABLE x PRIMARY KEY (n) AS SELECT n FROM t", DuplicateKeyError, "x: "),
        (
            "CREATE TABLE x PRIMARY KEY (b) AS SELECT n FROM t",
            UnknownNameError,
            "expected key columns among n, found b",
        ),
        ("CREATE TABLE x PRIMARY KEY (n) AS SELECT CAST(NULL AS INT) AS n", TypeMismatchError, "x.n: expected a value"),
        ("CREATE TABLE x AS SELECT n, id AS N FROM t", DuplicateNameError, "expected each column once"),
        ("CREATE TABLE x AS SELECT NULL AS n", TypeMismatchError, "x.n: type 'void'"),
        ("CREATE TABLE x AS SELECT n AS _deleted FROM t", UsageError, "found one that Ebla uses itself"),
        ("CREATE TABLE x AS SELECT nope FROM t", SqlError, "nope"),
        ("CREATE TABLE x AS SELECT * FROM nope", UnknownNameError, "table nope"),
        ("CREATE TABLE x AS SELECT 1 DIV (n - n) AS y FROM t", TypeMismatchError, "DIVIDE_BY_ZERO"),
        ("CREATE TABLE x (a INT) AS SELECT 1 AS a", SqlError, "either columns with their types or AS and a query"),
        ("CREATE TABLE x", SqlError, "either columns with their types or AS and a query, found none"),
        ("CREATE OR REPLACE TABLE IF NOT EXISTS t (a INT)", SqlError, "contradict"),
        ("CREATE TABLE x WITH (tablets = 3) AS SELECT 1 AS a", UsageError, "expected a power of two"),
    ],
)
def test_what_cannot_be_a_table_leaves_nothing(db, statement, kind, message):
    with refused(db, kind, message):
        db.sql(statement)


def test_a_table_is_replaced_in_one_commit_and_may_be_read_for_it(db):
    before, old = db.version, db.sql("SELECT * FROM t")
    db.sql("CREATE OR REPLACE TABLE t (PRIMARY KEY (n)) AS SELECT n, count(*) AS rows FROM t GROUP BY n")
    assert db.version == before + 1
    assert rows(db, "t") == [(0, 4), (1, 3), (2, 3)]
    assert len(old.rows()) == 10, "who read the old one goes on reading it"
    with refused(db, SnapshotError, "when it was created"):
        db.sql(f"SELECT * FROM t VERSION AS OF {before}")
    db.sql("CREATE OR REPLACE TABLE t (name STRING)")
    assert (described(db, "t"), rows(db, "t")) == ([("name", "string", None)], [])
    db.sql("CREATE OR REPLACE TABLE fresh AS SELECT 1 AS one")
    assert rows(db, "fresh") == [(1,)]
    del old
    db.sql("VACUUM RETAIN 0 SECONDS")
    assert rows(db, "t") == []


def test_a_table_that_something_needs_is_not_replaced(db):
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    for statement in ("CREATE OR REPLACE TABLE t (a INT)", "CREATE OR REPLACE TABLE t AS SELECT * FROM t"):
        with pytest.raises(UsageError, match="t: expected that no view needs it, found v"):
            db.sql(statement)
        with pytest.raises(UsageError, match="found a view; CREATE OR REPLACE MATERIALIZED VIEW v"):
            db.sql(statement.replace("TABLE t", "TABLE v"))
    db.sql("DROP MATERIALIZED VIEW v")
    db.sql("CREATE INDEX by_n ON t (n)")
    with pytest.raises(UsageError, match="t: expected that no index is on it, found by_n"):
        db.sql("CREATE OR REPLACE TABLE t AS SELECT * FROM t")


def test_a_process_that_dies_before_the_commit_leaves_the_old_table(db, spark_processes: Sharing):
    before, files, old = db.version, stored(db), rows(db, "t")
    for statement in ("CREATE OR REPLACE TABLE t AS SELECT id FROM t", "CREATE TABLE x AS SELECT id FROM t"):
        status = spark_processes.run(
            "support.build_tasks:run", db.context.catalog.where, statement, {}, failpoints="write.files_written=exit"
        )
        assert status == EXIT_CODE
    assert (db.version, rows(db, "t")) == (before, old)
    assert db.tables() == ["t"]
    assert len(open_transactions(db)) == 2, "until their leases run out"
    assert stored(db) > files
    for transaction in open_transactions(db):
        tx.abort(db.context.catalog, transaction)
    db.sql("VACUUM")
    assert stored(db) == files
