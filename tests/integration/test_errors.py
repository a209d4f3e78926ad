"""Every mistake that a user can make with a table: what the error says, and that nothing changed."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

import ebla
from ebla.catalog.store import FILE
from ebla.errors import (
    DuplicateKeyError,
    DuplicateNameError,
    SnapshotError,
    SqlError,
    TypeMismatchError,
    UnknownNameError,
    UsageError,
)
from support.warehouse import connect, refused, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, n INT, name STRING, price DECIMAL(5,2), f FLOAT, day DATE, tags ARRAY<INT>"
ROWS = [{"id": 1, "n": 10, "name": "Ada"}, {"id": 2, "n": 20, "name": "Bob"}]


@pytest.fixture(scope="module")
def db(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ebla.Database]:
    with connect(tmp_path_factory.mktemp("errors") / "warehouse", spark) as db:
        db.sql(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (id)); CREATE TABLE bag (n INT NOT NULL, name STRING)")
        db.table("t").upsert(ROWS)
        yield db


@pytest.fixture(autouse=True)
def _unharmed(db: ebla.Database) -> Iterator[None]:
    """After every error the table has its rows and takes new ones."""
    yield
    assert [r[:3] for r in rows(db, "t")] == [(1, 10, "Ada"), (2, 20, "Bob")]


# ---- names ----------------------------------------------------------------------------------------------


def test_an_unknown_table_is_named_with_those_there_are(db):
    for statement in (
        "SELECT * FROM nope",
        "SELECT * FROM t JOIN `no pe` USING (id)",
        "INSERT INTO nope VALUES (1)",
        "UPDATE nope SET n = 1",
        "DELETE FROM nope",
        "MERGE INTO nope USING t ON nope.id = t.id WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE nope",
        "DROP TABLE nope",
        "ALTER TABLE nope ADD COLUMN x INT",
        "ALTER TABLE nope RENAME TO other",
        "COMMENT ON TABLE nope IS 'x'",
        "DESCRIBE nope",
        "COMPACT nope",
        "VACUUM nope",
        "LOAD INTO nope FROM 'x.csv'",
    ):
        name = "no pe" if "no pe" in statement else "nope"
        with refused(db, UnknownNameError, f"table {name}: expected a table of this name, found none", "bag, t"):
            db.sql(statement)
    with refused(db, UnknownNameError, "table nope", "bag, t"):
        db.table("nope")


def test_an_unknown_source_of_a_merge_is_no_table_either(db):
    with refused(db, UnknownNameError, "table nope: expected a table of this name"):
        db.sql("MERGE INTO t USING nope ON nope.id = t.id WHEN MATCHED THEN DELETE")


def test_an_unknown_system_table(db):
    with refused(db, UnknownNameError, "system.nope: expected one of", "runs"):
        db.sql("SELECT * FROM system.nope")
    with refused(db, UnknownNameError, "system.nope: expected one of"):
        db.sql("DESCRIBE system.nope")


def test_a_table_that_was_dropped_meanwhile(db):
    db.sql("CREATE TABLE short (id INT PRIMARY KEY)")
    handle = db.table("short")
    db.sql("DROP TABLE short")
    with refused(db, UnknownNameError, "table short"):
        handle.upsert([{"id": 1}])
    with refused(db, UnknownNameError, "table short"):
        handle.scan()
    with refused(db, UnknownNameError, "table short"):
        handle.changes(0)


@pytest.mark.parametrize("name", ["t", "T"])
def test_a_taken_table_name(db, name):
    with refused(db, DuplicateNameError, f"table {name}: expected a free name, found a table"):
        db.sql(f"CREATE TABLE {name} (id INT)")
    with refused(db, DuplicateNameError, f"table {name}: expected a free name"):
        db.sql(f"ALTER TABLE bag RENAME TO {name}")


def test_names_that_ebla_keeps_for_itself(db):
    for column in ("_token", "_deleted", "_ROW_TXN", "_commit_version", "_ebla_x"):
        with refused(db, UsageError, f"x.{column}: expected another name"):
            db.sql(f"CREATE TABLE x ({column} INT)")
        with refused(db, UsageError, f"t.{column}: expected another name"):
            db.sql(f"ALTER TABLE t ADD COLUMN {column} INT")
    with refused(db, UsageError, "table 'sys$x': expected a name"):
        db.sql("CREATE TABLE `sys$x` (a INT)")


def test_an_unknown_column_in_every_way_to_write(db, spark):
    table = db.table("t")
    row = {"id": 3, "nope": 1}
    frame = spark.createDataFrame([(3, 1)], "id long, nope int")
    for given in ([row], pa.table({"id": [3], "nope": [1]}), pd.DataFrame([row]), frame):
        with refused(db, UnknownNameError, "t", "nope", "id, n, name"):
            table.upsert(given)
    with refused(db, UnknownNameError, "t", "nope", "id, n, name"):
        db.sql("INSERT INTO t (id, nope) VALUES (3, 1)")
    with refused(db, UnknownNameError, "t", "nope"):
        db.sql("UPDATE t SET nope = 1")
    with refused(db, SqlError, "nope", "line 1, column 17"):
        db.sql("SELECT id, name,nope FROM t")
    with refused(db, SqlError, "nope"):
        db.sql("DELETE FROM t WHERE nope = 1")
    for change in ("DROP COLUMN nope", "RENAME COLUMN nope TO x", "ALTER COLUMN nope TYPE BIGINT"):
        with refused(db, UnknownNameError, "t: expected one of columns id, n, name", "found nope"):
            db.sql(f"ALTER TABLE t {change}")
    with refused(db, UnknownNameError, "found nope"):
        db.sql("COMMENT ON COLUMN t.nope IS 'x'")


def test_a_hidden_row_id_is_nobody_elses_to_give(db, spark):
    bag = db.table("bag")
    frame = spark.createDataFrame([(1, 7, 7)], "n int, _row_txn long, _row_seq long")
    for given in (frame, [{"n": 1, "_row_txn": 7, "_row_seq": 7}]):
        with refused(db, UnknownNameError, "bag", "_row_txn"):
            bag.upsert(given)
    with refused(db, UnknownNameError, "_row_txn"):
        db.sql("INSERT INTO bag (n, _row_txn) VALUES (1, 7)")
    with refused(db, SqlError, "_row_txn"):
        db.sql("SELECT _row_txn FROM bag")


def test_a_duplicate_column(db, spark):
    with refused(db, DuplicateNameError, "twice"):
        db.sql("CREATE TABLE x (a INT, A INT)")
    with refused(db, DuplicateNameError, "twice"):
        db.sql("CREATE TABLE x (a INT, PRIMARY KEY (a, A))")
    with refused(db, DuplicateNameError, "t: expected a new column, found NAME there already"):
        db.sql("ALTER TABLE t ADD COLUMN NAME STRING")
    with refused(db, DuplicateNameError, "t: expected a new column name, found Name there already"):
        db.sql("ALTER TABLE t RENAME COLUMN n TO Name")
    with refused(db, DuplicateNameError, "twice"):
        db.table("t").upsert([{"id": 3, "ID": 4}])
    with refused(db, DuplicateNameError, "t: expected each column once, found ID twice"):
        db.table("t").upsert(spark.range(1).selectExpr("id", "id AS ID"))
    with refused(db, DuplicateNameError, "twice"):
        db.sql("INSERT INTO t (id, ID) VALUES (3, 4)")
    with refused(db, DuplicateNameError, "twice"):
        db.sql("UPDATE t SET n = 1, N = 2")


def test_a_key_of_unknown_columns_or_of_a_type_without_order(db):
    with refused(db, UnknownNameError, "x", "nope"):
        db.sql("CREATE TABLE x (a INT, PRIMARY KEY (nope))")
    with refused(db, TypeMismatchError, "x.a: expected a type that can be ordered for a key, found array<int>"):
        db.sql("CREATE TABLE x (a ARRAY<INT>, PRIMARY KEY (a))")


# ---- types and NULL -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ("(3, 3000000000, 'x')", ("t.n, row 1 (line 1, column 40): expected int, found 3000000000 (out of range)",)),
        ("(3, -2147483649, 'x')", ("t.n, row 1 (line 1, column 40): expected int, found -2147483649",)),
        ("(3, 1.5, 'x')", ("t.n, row 1", "expected int, found 1.5 (not a whole number)")),
        ("(3, 1e10, 'x')", ("t.n, row 1", "expected int, found 1e10")),
        ("(3, '7.5', 'x')", ("t.n, row 1", "expected int, found '7.5' (not a whole number)")),
        ("(3, TRUE, 'x')", ("t.n, row 1", "expected int, found TRUE")),
        ("(3, 7, 8)", ("t.name, row 1 (line 1, column 43): expected string, found 8",)),
        ("(9223372036854775808, 7, 'x')", ("t.id, row 1", "expected bigint, found 9223372036854775808 (out of range)")),
        ("(3, abs(3000000000), 'x')", ("t.n: expected int, found 3000000000",)),
        ("(3, abs(1), 8)", ("t.name, row 1", "expected string, found 8")),
    ],
)
def test_a_literal_that_its_column_cannot_hold(db, values, parts):
    with refused(db, TypeMismatchError, *parts):
        db.sql(f"INSERT INTO t (id, n, name) VALUES {values}")


@pytest.mark.parametrize(
    ("assignment", "parts"),
    [
        ("n = n + 3000000000", ("t.n: expected int, found 30000000",)),
        ("price = 12345.67", ("t.price: expected decimal(5,2), found 12345.67",)),
        ("price = 1.239", ("t.price: expected decimal(5,2), found 1.239",)),
        ("tags = array(1, 3000000000)", ("t.tags", "expected int, found 3000000000")),
        ("tags = array(1.5)", ("t.tags", "expected int, found 1.5")),
        ("day = '2020'", ("t.day: expected date, found '2020' (not of the form yyyy-mm-dd) (line 1, column 20)",)),
        ("day = lower('2020-01-01')", ("t.day: expected date, found string",)),
        ("f = 1e300", ("t.f: expected float, found 1.0E300",)),
        ("id = NULL", ("t.id: expected a value, found NULL",)),
    ],
)
def test_an_update_to_what_its_column_cannot_hold(db, assignment, parts):
    with refused(db, TypeMismatchError, *parts):
        db.sql(f"UPDATE t SET {assignment} WHERE id = 1")


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ({"n": 3_000_000_000}, ("t.n, row 2: expected int, found 3000000000",)),
        ({"n": 1.5}, ("t.n, row 2: expected int, found 1.5",)),
        ({"n": "7"}, ("t.n, row 2: expected int",)),
        ({"name": 7}, ("t.name, row 2: expected string, found 7",)),
        ({"price": Decimal("12345.67")}, ("t.price, row 2: expected decimal(5,2), found Decimal('12345.67')",)),
        ({"price": Decimal("1.239")}, ("t.price, row 2: expected decimal(5,2)",)),
        ({"day": "2020-01-01"}, ("t.day, row 2: expected date",)),
        ({"tags": [1, 2**40]}, ("t.tags, row 2: expected array<int>",)),
        ({"id": 2**63}, ("t.id, row 2: expected bigint",)),
        ({"id": None}, ("t.id, row 2: expected bigint NOT NULL, found NULL",)),
    ],
)
def test_a_python_value_that_its_column_cannot_hold(db, row, parts):
    with refused(db, TypeMismatchError, *parts):
        db.table("t").upsert([{"id": 3}, {"id": 4, **row}])


@pytest.mark.parametrize(
    ("column", "array", "parts"),
    [
        ("n", pa.array([1, 2**40]), ("t.n, row 2: expected int, found 1099511627776",)),
        ("n", pa.array(["a", "b"]), ("t.n: expected int, found string",)),
        ("price", pa.array([Decimal("1.00"), Decimal("1000.00")]), ("t.price, row 2: expected decimal(5,2)",)),
        ("day", pa.array([dt.datetime(2020, 1, 1, 1)] * 2), ("t.day, row 1: expected date",)),
    ],
)
def test_an_arrow_column_that_its_column_cannot_hold(db, column, array, parts):
    with refused(db, TypeMismatchError, *parts):
        db.table("t").upsert(pa.table({"id": [3, 4], column: array}))


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("3000000000L AS n", ("t.n: expected int, found 3000000000",)),
        ("'7' AS n", ("t.n: expected int, found string",)),
        ("CAST(1000 AS DECIMAL(10,2)) AS price", ("t.price: expected decimal(5,2), found 1000.00",)),
        ("array(1L, 3000000000L) AS tags", ("t.tags element: expected int, found 3000000000",)),
        ("map(1, 2) AS tags", ("t.tags: expected array<int>, found map<int,int>",)),
        ("CAST(NULL AS INT) AS n", ("expected key column id, found no such column",)),
    ],
)
def test_a_spark_column_that_its_column_cannot_hold(db, spark, expression, parts):
    key = "" if "key column" in parts[0] else "id, "
    with refused(db, TypeMismatchError, *parts):
        db.table("t").upsert(spark.range(3, 5).selectExpr(*f"{key}{expression}".split(", ", 1)))


def test_null_in_a_key_or_a_not_null_column(db, spark):
    with refused(db, TypeMismatchError, "t.id, row 1 (line 1, column 31): expected bigint NOT NULL, found NULL"):
        db.sql("INSERT INTO t (id, n) VALUES (NULL, 1)")
    with refused(db, TypeMismatchError, "t.id: expected a value, found NULL"):
        db.sql("INSERT INTO t (id, n) VALUES (CAST(NULL AS BIGINT) + 1, 1)")
    with refused(db, TypeMismatchError, "t.id: expected a value, found NULL"):
        db.table("t").upsert(spark.createDataFrame([(None, 1)], "id long, n int"))
    with refused(db, TypeMismatchError, "t.id, row 1: expected bigint NOT NULL, found NULL"):
        db.table("t").upsert(pa.table({"id": pa.array([None], pa.int64())}))
    with refused(db, TypeMismatchError, "t.id, row 1: expected bigint NOT NULL, found no such column"):
        db.table("t").upsert([{"n": 1}])
    with refused(db, TypeMismatchError, "t.id", "found NULL"):
        db.table("t").delete([{"id": None}])
    with refused(db, TypeMismatchError, "bag.n"):
        db.sql("INSERT INTO bag (name) VALUES ('x')")
    with refused(db, TypeMismatchError, "bag.n"):
        db.table("bag").upsert([{"name": "x"}])


def test_what_is_no_rows_at_all(db):
    table = db.table("t")
    no_rows: tuple[Any, ...] = (1, "rows", {"id": 3}, pd.Series([1]))
    for given in no_rows:
        with refused(db, TypeMismatchError, "t: expected a Spark DataFrame, an Arrow table, a pandas frame or a list"):
            table.upsert(given)
        with refused(db, TypeMismatchError, "t: expected a Spark DataFrame"):
            table.delete(given)
    for given in [1], [(1, 2)], ["id"]:
        with refused(db, TypeMismatchError, "t: expected a dictionary for each row"):
            table.upsert(given)
        with refused(db, TypeMismatchError, "t: expected a dictionary for each row"):
            table.delete(given)


def test_a_delete_needs_the_whole_key_and_a_table_that_has_one(db, spark):
    with refused(db, TypeMismatchError, "t: expected key column id, found columns n"):
        db.table("t").delete([{"n": 1}])
    with refused(db, TypeMismatchError, "t: expected key column id, found columns n"):
        db.table("t").delete(spark.createDataFrame([(1,)], "n int"))
    with refused(db, TypeMismatchError, "bag: expected a table with a primary key", "DELETE … WHERE"):
        db.table("bag").delete([{"n": 1}])


# ---- keys -----------------------------------------------------------------------------------------------


def test_a_key_twice_where_rows_have_no_order(db, spark):
    twice = spark.createDataFrame([(7, 1), (8, 1), (7, 2)], "id long, n int")
    with refused(db, DuplicateKeyError, "t: expected each key once in a batch without an order, found id = 7"):
        db.table("t").upsert(twice)
    with refused(db, DuplicateKeyError, "id = 7"):
        db.sql("INSERT INTO t (id, n) VALUES (7, 1), (7, 2)")
    with refused(db, DuplicateKeyError, "id = 7"):
        db.sql("UPSERT INTO t (id, n) VALUES (7, 1), (7, 2)")
    with refused(db, DuplicateKeyError, "id = 7"):
        db.sql("UPDATE t SET id = 7")


def test_an_insert_of_a_key_that_is_there(db):
    with refused(db, DuplicateKeyError, "t: expected a new key, found id = 2 in the table", "UPSERT INTO"):
        db.sql("INSERT INTO t (id, n) VALUES (7, 1), (2, 1)")
    with refused(db, DuplicateKeyError, "found id = 2 in the table"):
        db.sql("UPDATE t SET id = 2 WHERE id = 1")
    with refused(db, DuplicateKeyError, "found id = 2 in the table"):
        db.sql("MERGE INTO t USING (SELECT 2 AS k) s ON FALSE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.k)")


def test_a_merge_that_matches_a_row_twice(db):
    with refused(db, SqlError, "more than one source row matches the same row"):
        db.sql(
            "MERGE INTO t USING (SELECT explode(array(1, 2)) AS n) s ON t.id = 1 WHEN MATCHED THEN UPDATE SET n = s.n"
        )


# ---- SQL ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("SELEC 1", 1, 1),
        ("SELECT id\nFROM t\nWHERE (id = 1", 3, 7),
        ("CREATE TABLE x (a INT", 1, 22),
        ("INSERT INTO t\n  WALUES (1)", 2, 3),
        ("SELECT * FROM t; SELEC 2", 1, 18),
        ("UPDATE t\nSET n 5", 2, 7),
        ("SELECT id,\n  name +, n\nFROM t", 2, 9),
        ("SELECT id,\n  nope\nFROM t", 2, 3),
        ("SELECT id,\n  no_such_function(id)\nFROM t", 2, 3),
    ],
)
def test_bad_sql_is_placed_in_the_users_text(db, text, line, column):
    before = db.version
    with pytest.raises(SqlError, match=rf"\(line {line}, column {column}\)") as caught:
        db.sql(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert "ebla_" not in str(caught.value)
    assert db.version == before


def test_no_statement_runs_when_a_later_one_cannot_be_read(db):
    with refused(db, SqlError):
        db.sql("INSERT INTO t (id) VALUES (9); NONSENSE")


def test_an_empty_text(db):
    with refused(db, SqlError, "expected a statement, found none"):
        db.sql(" ; -- nothing\n")


def test_a_query_that_fails_while_it_runs(db):
    with refused(db, TypeMismatchError, "DIVIDE_BY_ZERO"):
        db.sql("SELECT n / (n - n) FROM t").rows()
    with refused(db, TypeMismatchError, "CAST_INVALID_INPUT", "Ada"):
        db.sql("SELECT CAST(name AS INT) FROM t").rows()
    with refused(db, SqlError, "too bad"):
        db.sql("SELECT raise_error('too bad') FROM t").rows()


def test_a_query_whose_type_is_nested_too_deep(db):
    """Arrow's messages do not hold it, and Spark's scheduler may not survive it."""
    deep = "ARRAY<" * 300 + "INT" + ">" * 300
    with refused(db, TypeMismatchError, "nested at most 31 deep"):
        db.sql(f"SELECT from_json('[]', '{deep}') AS x").rows()


def test_a_parameter_is_a_value_and_never_text(db):
    evil = "x'); DROP TABLE t; --"
    assert db.sql("SELECT :v AS v", v=evil).rows() == [(evil,)]
    assert rows(db, "SELECT id FROM t WHERE name = :v", v="' OR '1'='1") == []
    db.sql("INSERT INTO bag VALUES (1, :v)", v=evil)
    db.sql("UPDATE bag SET name = concat(:v, name) WHERE name = :w", v="'", w=evil)
    assert rows(db, "bag") == [(1, "'" + evil)]
    db.sql("DELETE FROM bag WHERE name = :v", v="'" + evil)
    assert rows(db, "bag") == []
    assert "t" in db.tables()


def test_a_parameter_without_a_value(db):
    with refused(db, SqlError, "UNBOUND_SQL_PARAMETER"):
        db.sql("SELECT :v")
    with refused(db, UnknownNameError, "parameter :v: expected a value, found none"):
        db.sql("SELECT * FROM t VERSION AS OF :v")


# ---- versions -------------------------------------------------------------------------------------------


def test_versions_that_cannot_be_read(db):
    newest, created = db.version, 2
    table = db.table("t")
    for version in (newest + 1, 10**15):
        with refused(db, SnapshotError, f"t: expected a version up to {newest}, found {version}"):
            db.sql(f"SELECT * FROM t VERSION AS OF {version}")
        with refused(db, SnapshotError, f"t: expected a version up to {newest}, found {version}"):
            table.scan(version=version)
        with refused(db, SnapshotError, f"expected a version up to {newest}"):
            table.changes(newest, version)
    with refused(db, SnapshotError, f"t: expected version {created} or later (when it was created), found 1"):
        db.sql("SELECT * FROM t VERSION AS OF 1")
    with refused(db, SnapshotError, "when it was created"):
        table.scan(version=0)
    with refused(db, SnapshotError, "when it was created"):
        table.scan(version=-5)
    with refused(db, SnapshotError, "expected a time since the first commit", "1999"):
        db.sql("SELECT * FROM t TIMESTAMP AS OF '1999-01-01'")
    with refused(db, UsageError, f"t: expected since <= until, found since {newest} and until 3"):
        table.changes(newest, 3)
    with refused(db, SqlError, "VERSION AS OF: expected a whole number, found 'x'"):
        db.sql("SELECT * FROM t VERSION AS OF :v", v="x")


def test_tablets_that_are_not_there(db):
    with refused(db, UsageError, "t: expected tablets 0 to 3, found 4"):
        db.table("t").scan(tablets=[0, 4])


# ---- options and settings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "parts"),
    [
        ("tablets = 3", UsageError, ("tablets: expected a power of two from 1 to 65536, found 3",)),
        ("tablets = 0", UsageError, ("tablets: expected a power of two", "found 0")),
        ("tablets = 'x'", UsageError, ("tablets: expected a power of two", "found x")),
        ("replication = 2", UsageError, ("replication: expected at most the number of nodes (1), found 2",)),
        ("replication = 0", UsageError, ("replication: expected a whole number from 1, found 0",)),
        ("shards = 2", UnknownNameError, ("WITH: expected tablets, replication or min_copies, found shards",)),
    ],
)
def test_bad_options_of_a_table(db, options, kind, parts):
    with refused(db, kind, *parts):
        db.sql(f"CREATE TABLE x (a INT) WITH ({options})")


def test_unknown_settings_and_wrong_values(tmp_path: Path):
    where = tmp_path / "warehouse"
    with pytest.raises(UnknownNameError, match=r"setting tablet: expected one of .*tablets"):
        connect(where, tablet=4)
    with pytest.raises(UsageError, match=r"setting level0_rows_max: .*greater than or equal to 0, found -1"):
        connect(where, level0_rows_max=-1)
    with pytest.raises(UsageError, match=r"setting retention_s: .*found 'long'"):
        connect(where, retention_s="long")
    assert not where.exists()


def test_a_spark_connect_session_is_refused(tmp_path: Path):
    class SparkSession:
        """What a Spark Connect session looks like from here: it has no JVM. (gRPC is not installed for tests.)"""

    session: Any = SparkSession()
    with pytest.raises(UsageError, match="expected a classic SparkSession, found a Spark Connect one"):
        connect(tmp_path / "warehouse", session)
    assert not (tmp_path / "warehouse").exists()


# ---- catalogs and nodes ---------------------------------------------------------------------------------


def test_a_catalog_that_is_missing(tmp_path: Path):
    with pytest.raises(ebla.CatalogError, match="expected an Ebla warehouse, found none"):
        connect(tmp_path / "nothing", create=False)
    assert not (tmp_path / "nothing").exists()


def test_a_directory_of_somebody_else(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("important")
    with pytest.raises(ebla.CatalogError, match="found other files; choose another directory"):
        connect(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_that_is_no_catalog(tmp_path: Path):
    (tmp_path / FILE).write_bytes(b"this is not a database, but long enough to look like one" * 10)
    with pytest.raises(ebla.CatalogError, match="expected an Ebla catalog, found: file is not a database"):
        connect(tmp_path)


def test_a_database_of_another_program(tmp_path: Path):
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute("CREATE TABLE photos (id INTEGER PRIMARY KEY)")
    other.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(ebla.CatalogError, match=r"expected an Ebla catalog, found a database with tables \['photos'\]"):
        connect(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [FILE]


def test_a_catalog_of_a_newer_release(tmp_path: Path):
    connect(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as newer:
        newer.execute("INSERT INTO migrations VALUES (99, 'from the future', 0)")
    newer.close()
    with pytest.raises(
        ebla.CatalogError, match="found 99; it was written by a newer release of Ebla: upgrade this one"
    ):
        connect(tmp_path)


def test_two_processes_with_different_roots_for_one_node(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    with connect(tmp_path / "warehouse", storage_root=str(first)) as db:
        with refused(db, ebla.NodeConflictError, f"node node1: expected storage root {first}, found {second}"):
            connect(tmp_path / "warehouse", storage_root=str(second))
        connect(tmp_path / "warehouse", node="node2", storage_root=str(second)).close()
        connect(tmp_path / "warehouse", storage_root=str(first)).close()
    with pytest.raises(ebla.NodeConflictError, match=f"node node2: expected storage root {second}, found {first}"):
        connect(tmp_path / "warehouse", nodes={"node2": str(first)})
