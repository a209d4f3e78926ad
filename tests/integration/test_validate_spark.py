"""The validator with a real Spark: what it refuses, at its place in the user's text, and nothing that it accepts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.sql.refs import find
from ebla.validate import Code, QueryAnalysis, script_issues
from ebla.validate.spark import SparkAnalyser
from support.valid_queries import KNOWN, TABLES, VALID
from support.warehouse import connect, refused

pytestmark = pytest.mark.spark

FOR_READING = ("unheard_of(", ":least")
"""What only a session with that function or parameter takes."""


@pytest.fixture(scope="module")
def analyser(spark: SparkSession) -> SparkAnalyser:
    return SparkAnalyser(lambda: spark)


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark, auto_refresh=False) as db:
        db.sql("CREATE TABLE orders (id BIGINT, customer BIGINT, total DECIMAL(12,2), PRIMARY KEY (id))")
        yield db


@pytest.mark.parametrize("query", [q for q in VALID if not any(part in q for part in FOR_READING)])
def test_spark_accepts_the_valid_queries(analyser: SparkAnalyser, query: str) -> None:
    parsed = find(query)
    inputs = {r.name.lower(): list(TABLES[r.name.lower()][0].items()) for r in parsed.refs}
    found = analyser.analyse(parsed, inputs)
    assert isinstance(found, QueryAnalysis), found


def test_what_spark_refuses_is_shown_at_its_place_in_the_script(analyser: SparkAnalyser) -> None:
    script = (
        "CREATE TABLE t (id BIGINT, s STRING, PRIMARY KEY (id));\n"
        "CREATE MATERIALIZED VIEW a AS SELECT id, upper(s) AS s FROM t;\n"
        "-- the next one is wrong\n"
        "CREATE MATERIALIZED VIEW b AS\n  SELECT id FROM a\n  WHERE id = 1 AND s.field > 2;\n"
        "CREATE MATERIALIZED VIEW c AS SELECT id, no_such_function(s) AS x FROM a;\n"
        "CREATE MATERIALIZED VIEW d AS SELECT id,, s FROM a"
    )
    found = script_issues(script, KNOWN, analyser)
    assert [(i.code, i.line, i.column) for i in found] == [
        (Code.SPARK, 6, 20),
        (Code.SPARK, 7, 42),
        (Code.SPARK, 8, 41),
    ]
    assert "no_such_function" in found[1].message
    assert not any("ebla_" in i.message for i in found)


def test_types_of_views_in_a_script_are_those_of_spark(analyser: SparkAnalyser) -> None:
    script = (
        "CREATE MATERIALIZED VIEW a AS SELECT id, total * 2 AS twice, day FROM orders;\n"
        "CREATE MATERIALIZED VIEW b PRIMARY KEY (twice) AS SELECT id, twice FROM a;\n"
        "CREATE MATERIALIZED VIEW c AS SELECT id, NULL AS n FROM a"
    )
    found = script_issues(script, KNOWN, analyser)
    assert [(i.code, i.line, i.column) for i in found] == [
        (Code.KEY_NOT_IMPLIED, 2, 41),
        (Code.UNSUPPORTED_TYPE, 3, 50),
    ]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT user, n FROM (SELECT inline(array(struct(1 AS n))))",
        "SELECT * FROM range(3) WHERE now() IS NOT NULL",
        "SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM customers WHERE name = session_user)",
        "FROM orders |> EXTEND current_timestamp AS t",
        "SELECT java_method('java.util.UUID', 'randomUUID') AS u, id FROM orders",
    ],
)
def test_spark_finds_what_changes_by_itself(analyser: SparkAnalyser, query: str) -> None:
    found = script_issues(f"CREATE MATERIALIZED VIEW v AS {query}", KNOWN, analyser)
    assert [i.code for i in found] == [Code.NOT_DETERMINISTIC]
    parsed = find(query)
    inputs = {r.name.lower(): list(TABLES[r.name.lower()][0].items()) for r in parsed.refs}
    said = analyser.analyse(parsed, inputs)
    assert isinstance(said, QueryAnalysis)
    assert not said.deterministic


def test_create_reports_all_mistakes_and_changes_nothing(db: ebla.Database) -> None:
    with refused(db, ebla.UnknownNameError, "totl", "did you mean total?", "line 3, column 12", "rand", "^") as caught:
        db.sql("SHOW TABLES;\nCREATE MATERIALIZED VIEW v AS\n  SELECT o.totl, x.id,\n    rand() AS r\n  FROM orders o")
    assert isinstance(caught.value, ebla.UsageError)
    issues = caught.value.issues
    assert [(i.code, i.line, i.column) for i in issues] == [
        (Code.UNKNOWN_COLUMN, 3, 12),
        (Code.UNKNOWN_ALIAS, 3, 18),
        (Code.NOT_DETERMINISTIC, 4, 5),
    ]


def test_errors_keep_their_classes(db: ebla.Database) -> None:
    make = "CREATE MATERIALIZED VIEW v AS"
    with refused(db, ebla.UnknownNameError, "table nope: expected a table of this name"):
        db.sql(f"{make} SELECT id FROM nope")
    with refused(db, ebla.DuplicateNameError, "found a table of that name"):
        db.sql("CREATE MATERIALIZED VIEW orders AS SELECT id FROM orders")
    with refused(db, ebla.SqlError, "no_such"):
        db.sql(f"{make} SELECT no_such(id) AS x FROM orders")
    with refused(db, ebla.UsageError, "does not begin with sys$"):
        db.sql("CREATE MATERIALIZED VIEW `sys$v` AS SELECT id FROM orders")
    with refused(db, ebla.UnknownNameError, "found totl"):
        db.sql(f"EXPLAIN {make} SELECT totl FROM orders")
