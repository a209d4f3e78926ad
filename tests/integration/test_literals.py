"""Literals in statements that write: each goes into its column exactly, or is an error at its place."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ebla
from ebla.errors import DuplicateKeyError, TypeMismatchError
from support.warehouse import connect, refused, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "id INT, d DATE, at TIMESTAMP, naive TIMESTAMP_NTZ, raw BINARY, price DECIMAL(5,2), f DOUBLE, n BIGINT, "
    "b BOOLEAN, s STRING"
)
STRINGS = "'2024-01-15', '2024-01-15 10:00:00.5', '2024-01-15T10:00', 'abc', '1.50', '1e3', '7', 'yes', 'x'"
NOON = dt.datetime(2024, 1, 15, 10)
STORED = (
    dt.date(2024, 1, 15),
    NOON.replace(microsecond=500_000, tzinfo=dt.UTC),
    NOON,
    b"abc",
    Decimal("1.50"),
    1000.0,
    7,
    True,
    "x",
)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[ebla.Database]:
    """A database that was given no Spark and must not start one."""
    with ebla.connect(str(tmp_path / "warehouse"), tablets=2) as db:
        db.sql(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (id))")
        yield db
        assert not db.context.has_spark


@pytest.fixture(scope="module")
def db(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ebla.Database]:
    with connect(tmp_path_factory.mktemp("literals") / "warehouse", spark) as db:
        db.sql(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (id))")
        yield db


def test_plain_literals_are_inserted_without_spark(alone: ebla.Database):
    written = alone.sql(f"INSERT INTO t VALUES (1, {STRINGS}), (-2, {STRINGS})").one()
    assert written[0] == 2
    alone.sql("INSERT INTO t (id, price) VALUES (3, :price), (4, -.5), (5, NULL)", price="9.99")
    alone.sql("UPSERT INTO t (ID, S) VALUES (5, 'new'), (6, CAST(NULL AS STRING))")
    alone.sql("UPSERT INTO t VALUES (7, DATE '2024-01-15', TIMESTAMP '2024-01-15 10:00:00.5Z', "
              "TIMESTAMP_NTZ '2024-01-15 10:00:00', X'616263', 1.5, 1e3, 7L, TRUE, 'x')")  # fmt: skip
    found = {row[0]: row[1:] for row in alone.query("t").rows()}
    assert found[1] == found[-2] == found[7] == STORED
    assert [found[i][4] for i in (3, 4, 5)] == [Decimal("9.99"), Decimal("-0.50"), None]
    assert (found[5][8], found[6][8]) == ("new", None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("(1, '2024-01-15'), (2, '2024')", "t.d, row 2 (line 2, column 24): expected date, found '2024' (not of"),
        (
            "(1, '2024-01-15 13:45:00')",
            "t.d, row 1 (line 2, column 5): expected date, found '2024-01-15 13:45:00' (not a",
        ),
        ("(1, 5)", "t.d, row 1 (line 2, column 5): expected date, found 5"),
        ("(NULL, NULL)", "t.id, row 1 (line 2, column 2): expected int NOT NULL, found NULL"),
        ("(1e10, NULL)", "t.id, row 1 (line 2, column 2): expected int, found 1e10"),
    ],
)
def test_a_literal_that_says_another_value_is_an_error_at_its_place(alone: ebla.Database, values: str, message: str):
    with refused(alone, TypeMismatchError, message):
        alone.sql(f"INSERT INTO t (id, d) VALUES\n{values}")


def test_keys_that_are_there_or_come_twice(alone: ebla.Database):
    alone.sql("INSERT INTO t (id) VALUES (1)")
    with refused(alone, DuplicateKeyError, "expected a new key, found id = 1"):
        alone.sql("INSERT INTO t (id) VALUES ('1')")
    with refused(alone, DuplicateKeyError, "id = 2 more than once"):
        alone.sql("UPSERT INTO t (id) VALUES (2), (2.0)")


def test_strings_become_values_beside_expressions_in_update_and_in_merge(db: ebla.Database):
    db.sql("TRUNCATE TABLE t")
    db.sql(
        f"INSERT INTO t VALUES (1 + 0, {STRINGS}), (2, current_date(), NULL, NULL, NULL, 1 + 1, NULL, NULL, NULL, '')"
    )
    db.sql("INSERT INTO t (id) VALUES (3)")
    names = ["d", "at", "naive", "raw", "price", "f", "n", "b", "s"]
    values = STRINGS.split(", ")
    db.sql("UPDATE t SET " + ", ".join(f"{n} = {v}" for n, v in zip(names, values, strict=True)) + " WHERE id = 3")
    db.sql(f"MERGE INTO t USING (SELECT 2 AS id UNION ALL SELECT 4) s ON t.id = s.id "
           f"WHEN MATCHED THEN UPDATE SET d = '2024-01-15', price = '1.50', naive = '+12345-01-01 00:00' "
           f"WHEN NOT MATCHED THEN INSERT VALUES (s.id, {STRINGS})")  # fmt: skip
    found = {row[0]: row[1:] for row in rows(db, "SELECT * EXCEPT (naive), CAST(naive AS STRING) FROM t")}
    expected = (*STORED[:2], *STORED[3:], "2024-01-15 10:00:00")
    assert found[1] == found[3] == found[4] == expected
    assert (found[2][0], found[2][3], found[2][-1]) == (STORED[0], STORED[4], "+12345-01-01 00:00:00")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE t SET s = 'x',\n d = '2024'",
         "t.d: expected date, found '2024' (not of the form yyyy-mm-dd) (line 2, column 6)"),
        ("UPDATE t SET at = TIMESTAMP '2024-01-15 10:00:00.1234567'", "t.at: expected timestamp, found TIMEST"),
        ("UPDATE t SET s = '\\ud800'", "t.s: expected string, found '\\ud800' (half of a surrogate pair"),
        ("INSERT INTO t (id, d) VALUES (1 + 1, '2024')", "t.d, row 1 (line 1, column 38): expected date, found '2024'"),
        ("MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET d = 'x'",
         "t.d: expected date, found 'x' (not of the form yyyy-mm-dd) (line 1, column 87)"),
    ],
)  # fmt: skip
def test_an_assigned_literal_that_says_another_value(db: ebla.Database, statement: str, message: str):
    with refused(db, TypeMismatchError, message):
        db.sql(statement)


EXACT = 9007199254740993
"""No DOUBLE is this number."""


@pytest.mark.parametrize(
    "values",
    [
        f"({EXACT}, 1), (CAST(1 AS DOUBLE) + 1, 2)",
        f"({EXACT}, 1 + 0), (2.0F, 2)",
        f"({EXACT} + 0, 1), (CAST(1 AS DOUBLE) + 1, 2)",
        f"STRUCT({EXACT}, 1), STRUCT(CAST(1 AS DOUBLE) + 1, 2)",
        f"({EXACT} AS n, 1 AS id), (CAST(1 AS DOUBLE) + 1 AS n, 2 AS id)",
        "(:exact, 1), (:two + CAST(0 AS DOUBLE), 2)",
    ],
)
def test_a_value_is_the_same_beside_a_computed_one_of_another_type(db: ebla.Database, values: str):
    db.sql("TRUNCATE TABLE t")
    db.sql(f"INSERT INTO t (n, id) VALUES {values}", exact=EXACT, two=2)
    assert sorted(db.sql("SELECT n, id FROM t").rows()) == [(2, 2), (EXACT, 1)]


def test_every_column_keeps_its_values_beside_computed_ones(spark: SparkSession, tmp_path: Path):
    digits = "0.12345678901234567890123456789012345678"
    with connect(tmp_path / "warehouse", spark) as db:
        db.sql("CREATE TABLE k (n DECIMAL(38,0), f DECIMAL(38,38), x FLOAT, s STRING DEFAULT 'it\\'s', "
               "m MAP<STRING, BIGINT>, v STRUCT<a: BIGINT>)")  # fmt: skip
        db.sql(f"INSERT INTO k VALUES ({'9' * 38}, {digits}, 0.1, DEFAULT, NULL, NULL), "
               f"(sqrt(4), CAST(0 AS DOUBLE) + 0.5D, 1 + 1, concat('a', 'b'), map('a', {EXACT}), "
               f"named_struct('a', {EXACT})), "
               "('7', CAST(0.25 AS FLOAT), 0.5D + 0, 'x', map('b', sqrt(4)), named_struct('A', 1.0D + 1))")  # fmt: skip
        found = {row[0]: row[1:] for row in rows(db, "SELECT n, f, x, s, m['a'], m['b'], v.a FROM k")}
    half = Decimal("0.5")
    assert found == {
        Decimal("9" * 38): (Decimal(digits), pytest.approx(0.1), "it's", None, None, None),
        Decimal(2): (half, 2.0, "ab", EXACT, None, EXACT),
        Decimal(7): (half * half, 0.5, "x", None, 2, 2),
    }


def test_a_default_is_the_same_whatever_a_session_takes_a_backslash_for(spark: SparkSession, tmp_path: Path):
    session = spark.newSession()
    session.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    with connect(tmp_path / "warehouse") as db:
        db.sql("CREATE TABLE k (id INT, s STRING DEFAULT 'it\\'s\\\\n', PRIMARY KEY (id))")
    with connect(tmp_path / "warehouse", session) as db:
        db.sql("INSERT INTO k (id) SELECT 1")
        db.sql("INSERT INTO k VALUES (2, DEFAULT), (1 + 2, DEFAULT)")
        assert sorted(db.query("k").rows()) == [(1, "it's\\n"), (2, "it's\\n"), (3, "it's\\n")]


def test_rows_of_one_expression_without_parentheses(db: ebla.Database):
    db.sql("CREATE TABLE one (n BIGINT)")
    db.sql(f"INSERT INTO one VALUES {EXACT}, (CAST(1 AS DOUBLE)) + 1")
    assert sorted(db.sql("SELECT n FROM one").rows()) == [(2,), (EXACT,)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (f"({EXACT}, 1), (CAST(1 AS DOUBLE) + 1.5, 2)", "t.n: expected bigint, found 2.5"),
        ("(1 + 1, 1), (1.5, 2)", "t.n, row 2 (line 1, column 43): expected bigint, found 1.5 (not a whole number)"),
        ("(1 + 1, 1), (2, 3000000000)", "t.id, row 2 (line 1, column 46): expected int, found 3000000000"),
        ("(1 + 1, 1), (2, NULL)", "t.id, row 2 (line 1, column 46): expected int NOT NULL, found NULL"),
        ("(1 + 1, 1), (current_date(), 2)", "t.n: expected bigint, found date"),
    ],
)
def test_a_value_that_is_none_of_its_column_beside_a_computed_one(db: ebla.Database, values: str, message: str):
    with refused(db, TypeMismatchError, message):
        db.sql(f"INSERT INTO t (n, id) VALUES {values}")


def test_a_decimal_becomes_the_nearest_float_in_one_step(db: ebla.Database):
    """Their nearest doubles are the middle between two floats."""
    numbers = {"1.000000059604644775390625001": 1.00000011920928955078125, "16777217.00000001": 16777218.0,
               "16777216.99999999": 16777216.0}  # fmt: skip
    db.sql("CREATE TABLE narrow (id INT, x FLOAT, PRIMARY KEY (id))")
    for digits, expected in numbers.items():
        computed = f"CAST('{digits}' AS DECIMAL(38,28)) + 0"
        db.sql(f"UPSERT INTO narrow SELECT 1, {computed}")
        db.sql(f"UPSERT INTO narrow VALUES (2, {digits}), (1 + 2, {digits}), (4, {computed}), (5, '{digits}')")
        db.sql(f"MERGE INTO narrow USING (SELECT 4 AS id) s ON narrow.id = s.id "
               f"WHEN MATCHED THEN UPDATE SET x = {computed}")  # fmt: skip
        assert [row[0] for row in db.sql("SELECT x FROM narrow").rows()] == [expected] * 5


def test_literals_are_what_spark_makes_of_them(spark: SparkSession, tmp_path: Path):
    """In a session of another zone: the driver's rows equal those of the same literals as columns of a query."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    literals = {
        "at": ["TIMESTAMP '2024-01-15 10:00:00'", "DATE '2024-07-15'", "TIMESTAMP '1883-11-18 12:03:57'",
               "TIMESTAMP '2024-11-03 01:30:00'", "TIMESTAMP_NTZ '2024-01-15 10:00:00'", "TIMESTAMP '2024-01'",
               "TIMESTAMP '+12345-07-01 10:00:00'", "TIMESTAMP '0001-01-01'"],
        "naive": ["TIMESTAMP_NTZ '2024-01-15'", "DATE '2024-01-15'", "TIMESTAMP '2024-01-15 10:00:00'"],
        "d": ["DATE '2024-1-5'", "DATE '-0044-03-15'", "DATE '2024'"],
        "price": ["1", "1.50", "15e-1", "1.5F", "2L", "3S", "-.5", "1.5BD", "0.1F"],
        "f": ["1", "0.1", "1e-300", "0.1F", "-1.7976931348623157e308", "123456789012345678901234567890"],
        "n": ["-9223372036854775808", "7.0", "7e0", "-128Y", "CAST('7' AS INT)", "7::TINYINT"],
        "raw": ["X'00ff'", "CAST('é' AS BINARY)"],
        "s": ["'a\\n\\u00e9\\101%'", "r'\\n'", "\"it's\"", "'a' 'b'"],
    }  # fmt: skip
    with connect(tmp_path / "warehouse", session) as db:
        db.sql(f"CREATE TABLE ours ({COLUMNS}); CREATE TABLE theirs ({COLUMNS})")
        pairs = [(column, text) for column, texts in literals.items() for text in texts]
        for number, (column, text) in enumerate(pairs):
            db.sql(f"INSERT INTO ours (id, {column}) VALUES ({number}, {text})")
        queries = [f"SELECT {number}, {', '.join(text if name == column else 'NULL' for name in literals)}"
                   for number, (column, text) in enumerate(pairs)]  # fmt: skip
        for query in queries:
            db.sql(f"INSERT INTO theirs (id, {', '.join(literals)}) {query}")
        shown = "SELECT id, CAST(d AS STRING), unix_micros(at), CAST(naive AS STRING), raw, price, f, n, s FROM"
        assert rows(db, f"{shown} ours") == rows(db, f"{shown} theirs")


# ---- comparisons ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(db: ebla.Database) -> ebla.Database:
    db.sql("CREATE TABLE c (id INT, d DATE, at TIMESTAMP, naive TIMESTAMP_NTZ, raw BINARY, price DECIMAL(38,20), "
           "f FLOAT, b BOOLEAN, PRIMARY KEY (id))")  # fmt: skip
    db.sql("INSERT INTO c VALUES "
           "(1, '2024-01-15', '2024-01-15 10:00', '2024-01-15 10:00', 'abc', '1.5', '0.1', 'yes'), "
           "(2, '2024-01-01', '2024-01-01', '2024-01-01', '', '1.50000000000000000001', '7', 'no')")  # fmt: skip
    return db


SAID = ["d = '2024-01-15'", "d IN ('2024-01-15', '1999-1-1')", "d BETWEEN '2024-01-02' AND '2024-02-01'",
        "d > '2024-01-01'", "at = '2024-01-15 10:00'", "at = '2024-01-15 11:00:00+01:00'", "naive >= '2024-01-15'",
        "raw = 'abc'", "price = '1.5'", "price < '1.50000000000000000001'", "f = '0.1'", "id = '1'", "id < '2'",
        "b = 'yes'"]  # fmt: skip


@pytest.mark.parametrize("condition", SAID)
def test_a_compared_string_is_the_value_that_it_says(compared: ebla.Database, condition: str):
    """By the path of first rows, by Spark, and in a statement that writes."""
    assert compared.sql(f"SELECT id FROM c WHERE {condition} LIMIT 5").rows() == [(1,)]
    assert compared.sql(f"SELECT max(id) FROM c WHERE {condition}").rows() == [(1,)]
    assert compared.sql(f"UPDATE c SET b = TRUE WHERE {condition}").one()[0] == 1


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("d = '2024'", "expected date to compare with, found '2024' (not of the form yyyy-mm-dd) (line 2, column 11)"),
        ("d = '2024-01-15 13:00'", "(not a whole day) (line 2, column 11)"),
        ("d IN ('2024-01-15', '2024')", "found '2024' (not of"),
        ("naive = '2024-01-15 10:00:00+05:00'", "has a time zone"),
        ("id = '1.5'", "expected int to compare with, found '1.5' (not a whole number)"),
        ("id IN (SELECT x FROM VALUES (1) AS v(x) WHERE x = 'one')", "found 'one' (not a number)"),
        ("price = 'x'", "expected decimal(38,20) to compare with, found 'x' (not a number)"),
    ],
)
def test_a_compared_string_that_says_another_value_is_an_error(compared: ebla.Database, condition: str, message: str):
    with refused(compared, TypeMismatchError, message):
        compared.sql(f"SELECT max(id) FROM c\nWHERE {condition}").rows()
    with refused(compared, TypeMismatchError, message.partition(" (line")[0]):
        compared.sql(f"SELECT id FROM c WHERE {condition} LIMIT 5").rows()
    with refused(compared, TypeMismatchError, message.partition(" (line")[0]):
        compared.sql(f"DELETE FROM c WHERE {condition}")


def test_strings_that_are_cast_or_compared_with_strings_are_sparks(compared: ebla.Database):
    assert compared.sql("SELECT count(*) FROM c WHERE d > CAST('2024' AS DATE)").one() == (1,)
    assert compared.sql("SELECT count(*) FROM c WHERE CAST(d AS STRING) > '2024'").one() == (2,)
    assert compared.sql("SELECT price = '1.5' AS same FROM c WHERE id = 1").rows() == [(True,)]


def test_strings_are_compared_in_the_zone_of_the_session(spark: SparkSession, tmp_path: Path):
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    with connect(tmp_path / "warehouse", session) as db:
        db.sql("CREATE TABLE c (id INT, at TIMESTAMP, PRIMARY KEY (id))")
        db.sql("INSERT INTO c VALUES (1, '2024-01-15 10:00'), (2, TIMESTAMP '2024-01-15 10:00Z')")
        for query in (
            "SELECT id FROM c WHERE at = '2024-01-15 10:00' LIMIT 5",
            "SELECT max(id) FROM c WHERE at = '2024-01-15 10:00'",
        ):
            assert db.sql(query).rows() == [(1,)]
        assert db.query("c", where={"at": dt.datetime(2024, 1, 15, 9, tzinfo=dt.UTC)}, columns=["id"]).rows() == [(1,)]
