"""`DEFAULT`: one value at every door, for rows that give none."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ebla.errors import SqlError, TypeMismatchError, UsageError
from support.warehouse import connect, refused, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

EVERY = {
    "b": ("BOOLEAN", "TRUE", True),
    "i": ("INT", "-7", -7),
    "f": ("FLOAT", "0.1", pytest.approx(0.1)),
    "d": ("DOUBLE", "1e3", 1000.0),
    "p": ("DECIMAL(12,2)", "'1.50'", Decimal("1.50")),
    "s": ("STRING", "'it''s'", "it's"),
    "x": ("BINARY", "X'00FF'", b"\x00\xff"),
    "day": ("DATE", "'2024-02-29'", dt.date(2024, 2, 29)),
    "at": ("TIMESTAMP", "TIMESTAMP '2024-01-01 00:00:00Z'", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    "ntz": ("TIMESTAMP_NTZ", "'2024-01-01 12:30:00'", dt.datetime(2024, 1, 1, 12, 30)),
    "tags": ("ARRAY<INT>", "NULL", None),
}
COLUMNS = ", ".join(f"{name} {kind} DEFAULT {text}" for name, (kind, text, _) in EVERY.items())
VALUES: dict[str, Any] = {name: value for name, (_, _, value) in EVERY.items()}
CREATE = f"CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 5 CHECK (n > 0), {COLUMNS})"


def told(db: ebla.Database, number: int) -> dict[str, Any]:
    [row] = db.query("t", where={"id": number}, columns=["n", *EVERY]).rows()
    return dict(zip(["n", *EVERY], row, strict=True))


def test_literals_are_taken_without_spark(tmp_path: Path):
    with connect(tmp_path / "warehouse") as db:
        db.sql(CREATE)
        db.sql("INSERT INTO t (id) VALUES (1)")
        db.sql("INSERT INTO t (id, n, s, day) VALUES (2, DEFAULT, DEFAULT, default), (3, 9, '', DATE '2020-01-01')")
        db.table("t").upsert([{"id": 4}, {"id": 5, "n": 6, "s": None}])
        db.table("t").upsert(pa.table({"id": [6], "i": [1]}))
        db.table("t").upsert(pd.DataFrame({"id": [7]}))
        assert not db.context.has_spark
        for number in (1, 2, 4, 7):
            assert told(db, number) == {"n": 5, **VALUES}
        assert told(db, 3) == {"n": 9, **VALUES, "s": "", "day": dt.date(2020, 1, 1)}
        assert told(db, 5) == {"n": 6, **VALUES, "s": None}
        assert told(db, 6) == {"n": 5, **VALUES, "i": 1}
        again = db.sql("SHOW CREATE TABLE t").rows()[0][0]
        described = {row[0]: row[5] for row in db.sql("DESCRIBE t").rows()}
        assert described["p"] == "'1.50'"
        db.sql("DROP TABLE t")
        db.sql(again)
        db.sql("INSERT INTO t (id) VALUES (1)")
        assert told(db, 1) == {"n": 5, **VALUES}


def test_an_older_catalog_gets_room_for_them(tmp_path: Path):
    with connect(tmp_path / "warehouse") as db:
        db.sql("CREATE TABLE t (id INT)")
        with db.context.catalog.writing() as connection:
            for column in ("default_text", "default_value"):
                connection.exec_driver_sql(f"ALTER TABLE columns DROP COLUMN {column}")
            connection.exec_driver_sql("DELETE FROM migrations WHERE number >= 8")
    with connect(tmp_path / "warehouse") as db:
        db.sql("ALTER TABLE t ALTER COLUMN id SET DEFAULT 3")
        assert db.sql("DESCRIBE t").rows() == [("id", "int", True, None, None, "3")]


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark, tablets=2, batch_rows_max=50) as db:
        db.sql(CREATE)
        yield db


@pytest.mark.spark
def test_statements_of_spark_take_them(db):
    db.sql("INSERT INTO t (id) SELECT 1")
    db.sql("INSERT INTO t (id, s, n) VALUES (1 + 1, DEFAULT, DEFAULT)")
    db.sql("UPSERT INTO t (id) SELECT CAST(id AS INT) FROM range(100, 200)")
    db.sql(
        "MERGE INTO t USING (SELECT 3 AS i) s ON t.id = s.i WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.i, DEFAULT)"
    )
    db.sql("INSERT INTO t (id, n, s, p) VALUES (4, 9, 'x', 9)")
    db.sql("UPDATE t SET s = DEFAULT, p = default, n = DEFAULT, tags = DEFAULT WHERE id = 4")
    db.sql("MERGE INTO t USING (SELECT 5 AS i) s ON t.id = s.i WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.i, 8)")
    db.sql("MERGE INTO t USING (SELECT 5 AS i) s ON t.id = s.i WHEN MATCHED THEN UPDATE SET n = DEFAULT")
    for number in (1, 2, 3, 4, 5, 150):
        assert told(db, number) == {"n": 5, **VALUES}


@pytest.mark.spark
def test_frames_and_files_take_them(db, spark, tmp_path):
    db.table("t").upsert(spark.createDataFrame([(1,)], "id INT"))
    (tmp_path / "a.csv").write_text("id\n2\n")
    (tmp_path / "b.json").write_text('{"id": 3}\n')
    pq.write_table(pa.table({"id": [4]}), tmp_path / "c.parquet")
    for name in ("a.csv", "b.json", "c.parquet"):
        db.sql("LOAD INTO t FROM :path", path=tmp_path / name)
    frame = spark.createDataFrame([(5,)], "id INT")
    frame.write.format("ebla").option("url", db.context.catalog.where).option("table", "t").mode("append").save()
    for number in range(1, 6):
        assert told(db, number) == {"n": 5, **VALUES}


@pytest.mark.spark
def test_they_are_set_dropped_widened_and_computed(db):
    db.sql("CREATE TABLE c (id INT PRIMARY KEY, n INT, day DATE DEFAULT '2024-01-01')")
    db.sql("ALTER TABLE c ALTER COLUMN n SET DEFAULT 6 * 7")
    db.sql("ALTER TABLE c ADD COLUMN s STRING DEFAULT upper('x')")
    db.sql("INSERT INTO c (id) VALUES (1)")
    db.sql("ALTER TABLE c ALTER COLUMN n TYPE DECIMAL(20,2)")
    db.sql("ALTER TABLE c ALTER COLUMN day TYPE TIMESTAMP_NTZ")
    db.sql("INSERT INTO c (id) VALUES (2)")
    db.sql("ALTER TABLE c ALTER COLUMN n DROP DEFAULT")
    db.sql("INSERT INTO c (id) VALUES (3)")
    midnight = dt.datetime(2024, 1, 1)
    assert rows(db, "c") == [
        (1, Decimal("42.00"), midnight, "X"),
        (2, Decimal("42.00"), midnight, "X"),
        (3, None, midnight, "X"),
    ]
    for statement in ("ADD COLUMN m INT DEFAULT 3", "ADD COLUMN IF NOT EXISTS m INT DEFAULT 3"):
        with refused(db, UsageError, "c.m: expected an added column without DEFAULT", "UPDATE c SET m = 3"):
            db.sql(f"ALTER TABLE c {statement}")
    db.sql("ALTER TABLE c ADD COLUMN m INT DEFAULT NULL")
    db.sql("ALTER TABLE c ALTER COLUMN m SET DEFAULT 3")
    db.sql("INSERT INTO c (id) VALUES (4)")
    assert rows(db, "SELECT m FROM c") == [(3,), (None,), (None,), (None,)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        ("n INT DEFAULT 'x'", TypeMismatchError, "c.n: DEFAULT: expected int, found 'x'"),
        ("n INT DEFAULT 3000000000", TypeMismatchError, "c.n: DEFAULT: expected int"),
        ("n INT DEFAULT 1 + 0.5", TypeMismatchError, "c.n: DEFAULT: expected int"),
        ("n DATE DEFAULT '2024-02-30'", TypeMismatchError, "c.n: DEFAULT: expected date"),
        ("n DATE DEFAULT current_date()", UsageError, "expected a constant, found current_date()"),
        ("n DOUBLE DEFAULT rand()", UsageError, "expected a constant, found rand()"),
        ("n INT DEFAULT id", UsageError, "expected a constant, found id"),
        ("n INT DEFAULT (SELECT max(id) FROM t)", UsageError, "expected a constant"),
        ("n ARRAY<INT> DEFAULT array(1)", UsageError, "expected NULL for a column of type array<int>"),
        ("n INT DEFAULT", SqlError, "expected a constant behind DEFAULT"),
        ("n INT NOT NULL DEFAULT NULL", TypeMismatchError, "expected a value for NOT NULL"),
    ],
)
def test_what_is_no_constant_of_the_type_is_refused(db, column, kind, message):
    with refused(db, kind, message):
        db.sql(f"CREATE TABLE c (id INT, {column})")
