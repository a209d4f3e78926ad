"""Which queries DuckDB computes in Spark's place, and which it must not."""

from __future__ import annotations

import pytest

from ebla.algebra.direct_query import DirectQuery, direct
from ebla.sql.refs import find

TABLES = {
    "t": {"id": "bigint", "i": "int", "n": "string", "d": "decimal(10,2)", "w": "decimal(38,2)", "g": "date"},
    "u": {"id": "bigint", "x": "double", "ts": "timestamp", "a": "array<int>"},
}
ANSI = {"spark.sql.ansi.enabled": "true", "spark.sql.caseSensitive": "false"}


def made(text: str, *outputs: str, settings: dict[str, str] = ANSI) -> DirectQuery | None:
    return direct(find(text), TABLES, outputs, settings)


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        ("SELECT id, n FROM t WHERE i > 3 AND n = 'x'", ("bigint", "string")),
        ("SELECT t.id, u.x FROM t LEFT JOIN u ON t.id = u.id", ("bigint", "double")),
        ("SELECT d + i AS s, d * 2 AS p FROM t", ("decimal(13,2)", "decimal(12,2)")),
        ("SELECT 1 - d AS r FROM t", ("decimal(11,2)",)),
        ("SELECT year(g) AS y, count(*) AS c, sum(d) AS s FROM t GROUP BY year(g)", ("int", "bigint", "decimal(20,2)")),
        ("SELECT sum(i) AS s, max(n) AS m FROM t", ("bigint", "string")),
        ("SELECT q.n FROM (SELECT n FROM t) q", ("string",)),
        ("SELECT DISTINCT n FROM t", ("string",)),
        ("SELECT id FROM t WHERE g >= DATE '2024-01-01'", ("bigint",)),
        ("SELECT t.id, ts FROM t JOIN u USING (id)", ("bigint", "timestamp")),
    ],
)
def test_plain_queries_are_computed_directly(text: str, outputs: tuple[str, ...]) -> None:
    assert made(text, *outputs) is not None


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        ("SELECT upper(n) AS n FROM t", ("string",)),
        ("SELECT i / 2 AS h FROM t", ("double",)),
        ("SELECT avg(d) AS a FROM t", ("decimal(14,6)",)),
        ("SELECT id FROM u WHERE x > 0.5", ("bigint",)),
        ("SELECT sum(x) AS s FROM u", ("double",)),
        ("SELECT x FROM u GROUP BY x", ("double",)),
        ("SELECT DISTINCT x FROM u", ("double",)),
        ("SELECT a FROM u", ("array<int>",)),
        ("SELECT w + w AS s FROM t", ("decimal(38,2)",)),
        ("SELECT id FROM t WHERE n = 3", ("bigint",)),
        ("SELECT id FROM t WHERE n > g", ("bigint",)),
        ("SELECT id FROM t WHERE g > '2024-01-01'", ("bigint",)),
        ("SELECT id FROM t WHERE n LIKE 'a%'", ("bigint",)),
        ("SELECT id, row_number() OVER (ORDER BY id) AS r FROM t", ("bigint", "int")),
        ("SELECT id FROM t UNION ALL SELECT id FROM u", ("bigint",)),
        ("SELECT id FROM t WHERE id IN (SELECT id FROM u)", ("bigint",)),
        ("SELECT id FROM t LEFT SEMI JOIN u ON t.id = u.id", ("bigint",)),
        ("SELECT id FROM t LIMIT 3", ("bigint",)),
        ("SELECT n, count(*) AS c FROM t GROUP BY ROLLUP (n)", ("string", "bigint")),
        ("WITH c AS (SELECT id FROM t) SELECT id FROM c", ("bigint",)),
        ("SELECT '\\n' AS x FROM t", ("string",)),
        ("SELECT CAST(n AS int) AS x FROM t", ("int",)),
        ("SELECT 1e3 AS x FROM t", ("double",)),
        ("SELECT id FROM t WHERE n COLLATE UTF8_LCASE = 'a'", ("bigint",)),
        ("SELECT id FROM t WHERE n = 'a' COLLATE UTF8_LCASE", ("bigint",)),
        ("SELECT id FROM t WHERE collate(n, 'UTF8_LCASE') = 'a'", ("bigint",)),
        ("SELECT t.id FROM t JOIN t s ON t.n COLLATE UNICODE_CI = s.n", ("bigint",)),
        ("SELECT max(n COLLATE UTF8_LCASE) AS m FROM t", ("string",)),
        ("SELECT n COLLATE UTF8_LCASE AS n FROM t", ("string",)),
    ],
)
def test_everything_else_is_sparks(text: str, outputs: tuple[str, ...]) -> None:
    assert made(text, *outputs) is None


def test_the_types_must_be_those_that_spark_gave() -> None:
    assert made("SELECT d * 2 AS p FROM t", "decimal(12,2)") is not None
    assert made("SELECT d * 2 AS p FROM t", "decimal(13,2)") is None


def test_without_ansi_nothing_is_added() -> None:
    relaxed = ANSI | {"spark.sql.ansi.enabled": "false"}
    assert made("SELECT i + 1 AS s FROM t", "int") is not None
    assert made("SELECT i + 1 AS s FROM t", "int", settings=relaxed) is None
    assert made("SELECT id FROM t WHERE i > 3", "bigint", settings=relaxed) is not None


def test_names_that_differ_by_case_are_sparks() -> None:
    assert made("SELECT id FROM t", "bigint", settings=ANSI | {"spark.sql.caseSensitive": "true"}) is None


def test_the_least_int_is_an_int() -> None:
    """Spark reads the minus with the number, so the sum of two may be too large for its type."""
    assert made("SELECT i + -2147483648 AS s FROM t", "int") is not None
    assert made("SELECT i + -2147483648 AS s FROM t", "bigint") is None
    assert made("SELECT i + -2147483649 AS s FROM t", "bigint") is not None
