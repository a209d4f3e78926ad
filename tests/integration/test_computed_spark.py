"""Expressions that are followed as columns have the values that Spark gives them as they are written."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ebla.algebra.nodes import Computation, leaves
from ebla.algebra.shape import shape
from ebla.sql.parse import parse
from ebla.sql.query import Query

pytestmark = pytest.mark.spark

TABLES = {"t": {"x": "bigint", "y": "int", "s": "string", "day": "date", "at": "timestamp"}}
ROWS = """(1L, 2, 'Ab c', DATE'2024-02-29', TIMESTAMP'2024-02-29 13:45:59.5'),
    (-7L, 0, '  O\\'Brien ', DATE'1969-12-31', TIMESTAMP'1969-12-31 23:59:59'),
    (NULL, NULL, NULL, NULL, NULL), (12L, -3, '', DATE'1901-01-01', TIMESTAMP'2026-07-01 00:00:00')"""
EXPRESSIONS = [
    "s LIKE 'A%'", "s NOT LIKE 'A%'", "s LIKE 'A!%' ESCAPE '!'", "s ILIKE 'a%'", "s = 'O''Brien'", "s = 'O' 'Brien'",
    "concat(s, 'O''Brien')", "concat(s, 'z', s)", "s || '-' || s", "concat_ws('-', s, s)", "lower(s)", "upper(s)",
    "trim(s)", "ltrim(s)", "trim(BOTH 'A' FROM s)", "length(s)", "char_length(s)", "substring(s, 2)",
    "substr(s, -2, 1)", "substring(s FROM 2 FOR 2)", "left(s, 2)", "right(s, 2)", "x + y", "x - 1", "x * 2", "-x",
    "- -y", "x % 5", "mod(x, 5)", "x div 2", "pmod(x, 5)", "x IN (1, 2)", "x NOT IN (1, NULL)",
    "x BETWEEN 1 AND 5", "x NOT BETWEEN 1 AND 5", "x IS NULL", "x IS NOT NULL", "x <=> NULL", "NOT (x > 1)",
    "!(x > 1)", "x IS DISTINCT FROM y", "x > 1 AND y > 1 OR s = ''", "CASE WHEN x > 1 THEN 'a' ELSE s END",
    "CASE y WHEN 2 THEN 'two' WHEN 0 THEN s END", "if(x > 1, 'a', 'b')", "coalesce(s, 'none')", "nvl(x, 0L)",
    "ifnull(y, 0)", "nvl2(y, 'a', 'b')", "nullif(y, 0)", "CAST(x AS STRING)", "x::string", "CAST(y AS BIGINT)",
    "TRY_CAST(s AS INT)", "CAST(at AS DATE)", "date(at)", "to_date(at)", "to_date(at, 'yyyy')", "year(at)",
    "year(to_date(at))", "quarter(day)", "month(at)", "day(at)", "dayofmonth(day)", "dayofweek(day)", "dayofyear(at)",
    "weekofyear(day)", "weekday(day)", "hour(at)", "hour(to_date(at))", "minute(at)", "date_trunc('MONTH', at)",
    "date_trunc('mon', at)", "date_trunc('MM', at)", "date_trunc('M', at)", "date_trunc('D', at)",
    "date_trunc('dd', at)", "date_trunc('yy', at)", "date_trunc('H', at)", "date_trunc('week', at)",
    "date_trunc(s, at)", "date_trunc('day', day)",
    "trunc(day, 'MM')", "trunc(day, 'M')", "trunc(day, 'Y')", "trunc(day, 'week')", "trunc(day, s)",
    "extract(YEAR FROM at)", "date_part('month', at)", "x > 1.5", "s > 'A'", "day > '2000-01-01'",
]  # fmt: skip


def test_computed_columns_have_the_values_of_the_expressions(spark: SparkSession) -> None:
    found = {text: made for text in EXPRESSIONS if (made := _computed(text)) is not None}
    assert len(found) > 55
    listed = ", ".join(f"{text} AS a{i}, {made} AS b{i}" for i, (text, made) in enumerate(found.items()))
    rows = spark.sql(f"SELECT {listed} FROM VALUES {ROWS} AS t(x, y, s, day, at)").collect()
    assert len(rows) == 4
    for i, text in enumerate(found):
        assert [row[f"a{i}"] for row in rows] == [row[f"b{i}"] for row in rows], text


def _computed(text: str) -> str | None:
    query = parse(f"SELECT {text} AS k, count(DISTINCT x) AS n FROM t GROUP BY {text}")
    assert isinstance(query, Query)
    columns = [c for leaf in leaves(shape(query, TABLES).root) for c in leaf.columns.values()]
    return next((column.text for column in columns if isinstance(column, Computation)), None)
