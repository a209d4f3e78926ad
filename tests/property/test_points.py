"""`UPDATE`, `DELETE` and `MERGE` of rows that a condition fixes do what Spark does over all rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.api.statements import change_batches, points
from ebla.errors import EblaError
from ebla.tables import level0
from ebla.tables.batch import ArrowBatch
from ebla.tables.level0 import in_memory
from support.edges import raw

pytestmark = pytest.mark.spark

STATEMENTS = 14
COLUMNS = """id BIGINT NOT NULL, line INT NOT NULL, tiny TINYINT, n INT, big BIGINT, price DECIMAL(12,2),
    wide DECIMAL(38,6), f DOUBLE, name STRING NOT NULL DEFAULT 'none', day DATE, at TIMESTAMP, flag BOOLEAN,
    tags ARRAY<STRING>"""
VALUES: dict[str, list[str]] = {
    "tiny": ["1", "tiny + 1", "n", "300", "NULL", "DEFAULT", "127 + tiny"],
    "n": ["n + 1", "n * 2", "7", "big", "'12'", "'x'", "tiny + n", "CASE WHEN flag THEN 1 ELSE n END", "-n", ":p"],
    "big": ["n", "big + 1", "9223372036854775807", "big * 4", "coalesce(big, 5)", "n + :p", "length(name)"],
    "price": ["price * 2", "price + 1", "price * 1.1", "1.5", "1.234", "n", "price - 0.01", ":q", "NULL"],
    "wide": ["price", "wide + price", "wide * 2", "1e3", "12345678901234567890.5"],
    "f": ["1.5", "2", "f", "f + 1", "price", "n", "1e300"],
    "name": ["'x'", "name || '!'", "NULL", "DEFAULT", "upper(name)", "5", "'it''s'", ":s", "concat(name, day)"],
    "day": ["DATE '2024-02-29'", "'2024-01-01'", "day", "date_add(day, 1)", "'2024-13-01'", "NULL"],
    "at": ["TIMESTAMP '2024-01-01 12:00:00'", "at", "day", "'2024-01-01 12:00:00'"],
    "flag": ["TRUE", "n > 3", "NOT flag", "flag AND n IS NULL", "name = 'b'", "n"],
    "line": ["line + 10", "line"],
    "tags": ["array('a')", "NULL", "tags"],
}
FIXED = [
    "id = 2 AND line = 1",
    "id = :i AND line IN (1, 2)",
    "id IN (1, 2, 3)",
    "(line = 2) AND id = 3",
    "t.id = 1",
    "name = 'b'",
    "name IN ('a', 'c')",
    "id = 99",
    "id = '2' AND line = 1",
]
REST = [
    "",
    "",
    "",
    " AND n > 1",
    " AND price < 5.5",
    " AND flag",
    " AND (n = 1 OR big IS NULL)",
    " AND length(name) = 1",
]


def rows(chance: random.Random) -> list[dict[str, Any]]:
    def some(*values: Any) -> Any:
        return chance.choice([None, *values])

    return [
        {
            "id": id_,
            "line": line,
            "tiny": some(1, 127, -128),
            "n": some(0, 1, 5, 2**31 - 12),
            "big": some(-1, 7, 2**62),
            "price": some(Decimal("0.01"), Decimal("5.50"), Decimal("9999999999.99")),
            "wide": some(Decimal("0.000001"), Decimal("123.5")),
            "f": some(0.0, -0.0, 1.5, float("nan")),
            "name": chance.choice("abc"),
            "day": some(date(1970, 1, 1), date(9999, 12, 31)),
            "at": some(datetime(2024, 3, 31, 2, 30, tzinfo=UTC)),
            "flag": some(True, False),
            "tags": some(["x"], []),
        }
        for id_ in (1, 2, 3)
        for line in (1, 2)
    ]


SOURCES = [
    "(SELECT 2 AS id, 1 AS line, 7 AS v, 'b' AS w)",
    "(SELECT :i AS id, 2 AS line, :q AS v, :s AS w)",
    "(SELECT 9 AS id, 1 AS line, NULL AS v, '2024-01-01' AS w)",
    "(VALUES (1, 1, 1.5, 'x'), (9, 2, 3.25, NULL)) AS s(id, line, v, w)",
    "(VALUES (1, 1, 1, 'x'), (1, 1, 2, 'y')) AS s(id, line, v, w)",
    "(SELECT '2' AS id, 1 AS line, 300 AS v, 'it''s' AS w)",
]
SET = [
    "n = s.v",
    "price = t.price + s.v",
    "name = s.w",
    "day = s.w",
    "tiny = s.v",
    "big = n + s.v",
    "f = s.v",
    "id = s.id",
]
MATCHED = ["", "", " AND t.n > 1", " AND s.v > 2", " AND flag", " AND v = 1"]


def merge(chance: random.Random) -> str:
    source = chance.choice(SOURCES)
    text = f"MERGE INTO t USING {source}{'' if ' AS s(' in source else ' s'} ON t.id = s.id AND s.line = t.line"
    if chance.random() < 0.3:
        text += f" WHEN MATCHED{chance.choice(MATCHED)} THEN DELETE"
    sets = ", ".join(chance.sample(SET, chance.choice([1, 2])))
    text += f" WHEN MATCHED{chance.choice(MATCHED)} THEN UPDATE SET {sets}"
    values = chance.choice(
        ["(id, line, n) VALUES (s.id, s.line, s.v)", "(id, line, name) VALUES (s.id, s.line, upper(s.w))"]
    )
    return text + chance.choice(["", f" WHEN NOT MATCHED THEN INSERT {values}"])


def statement(chance: random.Random) -> str:
    if chance.random() < 0.3:
        return merge(chance)
    condition = chance.choice(FIXED) + chance.choice(REST)
    if chance.random() < 0.15:
        return f"DELETE FROM t WHERE {condition}"
    names = chance.sample(sorted(VALUES), chance.choice([1, 1, 2]))
    return f"UPDATE t SET {', '.join(f'{n} = {chance.choice(VALUES[n])}' for n in names)} WHERE {condition}"


@pytest.fixture
def db(tmp_path: Any, spark: SparkSession) -> Iterator[ebla.Database]:
    with ebla.connect(
        f"{tmp_path}/w", spark=spark, auto_compact=False, auto_refresh=False, tablets=2, level0_rows_max=20
    ) as database:
        database.sql(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (id, line), CONSTRAINT few CHECK (n < 2147483637))")
        database.sql("CREATE INDEX by_name ON t (name)")
        database.sql("WAIT FOR by_name")
        yield database


def outcome(db: ebla.Database, text: str, given: dict[str, Any]) -> tuple[str, Any]:
    try:
        db.sql(text, **given)
    except EblaError as error:
        return type(error).__name__, str(error)
    found = db.query("t", limit=100).to_arrow()
    return "rows", [raw(column) for column in found.columns]


def test_looked_up_rows_become_what_spark_makes_of_all(db: ebla.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ways of each statement: over all rows, by Spark on the looked-up rows, and by the driver where it can."""
    chance = random.Random(20)
    given = {"i": 2, "p": -3, "q": 2.5, "s": "new"}
    seen: Counter[str] = Counter()
    find = points.point_rows

    def on_spark(*args: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(points, "changed_rows", lambda *_: None)
            inner.setattr(points, "merged_rows", lambda *_: None)
            return find(*args)

    def anyhow(*args: Any) -> Any:
        found = find(*args)
        seen["by the driver" if isinstance(found, ArrowBatch) else "by Spark"] += 1
        return found

    def fresh() -> None:
        db.table("t").delete([{"id": n, "line": line} for n in (1, 2, 3, 9) for line in (1, 2, 11, 12)])
        db.table("t").upsert(stored)

    # Of level 0 a part is in memory, and a part in files.
    monkeypatch.setattr(level0, "in_memory", lambda runs, rows_max: in_memory(runs, 20))
    for number in range(STATEMENTS):
        stored, text = rows(chance), statement(chance)
        if number == 6:
            db.compact("t")
        outcomes = []
        for way in (lambda *_: None, on_spark, anyhow):
            fresh()
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(change_batches, "point_rows", way)
                outcomes.append(outcome(db, text, given))
        assert outcomes[1] == outcomes[0], text
        assert outcomes[2] == outcomes[0], text
        seen[outcomes[0][0]] += 1
    assert min(seen["by the driver"], seen["by Spark"], seen["rows"]) > STATEMENTS // 6, seen
