"""Every function and operator that DuckDB computes in Spark's place, over values at the ends of every type."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ebla.algebra.direct_query import direct
from ebla.spark.query import over
from ebla.spark.session import local_frame, view_session
from ebla.sql.query import Query
from ebla.sql.refs import find
from ebla.values import types
from support.edges import column, edges, raw

pytestmark = pytest.mark.spark

SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "America/Los_Angeles",
    "spark.sql.caseSensitive": "false",
}
WHOLE = {"y": "tinyint", "h": "smallint", "i": "int", "l": "bigint"}
DECIMALS = {
    "p": "decimal(10,2)",
    "q": "decimal(18,4)",
    "v": "decimal(38,0)",
    "w": "decimal(38,10)",
    "x": "decimal(38,38)",
}
ORDERED = {**WHOLE, **DECIMALS, "s": "string", "o": "boolean", "d": "date", "t": "timestamp", "n": "timestamp_ntz"}
COLUMNS = {**ORDERED, "f": "float", "g": "double"}
SIGNS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
TRIES = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}


def rows() -> pa.Table:
    """Every pair of values of each type, in columns such as `a_i` and `b_i`; of texts some. `k` numbers the rows."""
    size = max(len(edges(kind)) for kind in COLUMNS.values() if kind != "string")
    pairs = list(itertools.product(range(size), range(size)))
    made = {"k": pa.array(range(len(pairs)), pa.int64())}
    for name, kind in COLUMNS.items():
        found = edges(kind)
        spread = 1 if len(found) > size else 0
        made[f"a_{name}"] = column(kind, [found[(i + spread * j) % len(found)] for i, j in pairs])
        made[f"b_{name}"] = column(kind, [found[(j + spread * 7 * i) % len(found)] for i, j in pairs])
    return pa.table(made)


KINDS = {"k": "bigint", **{f"{side}_{n}": kind for n, kind in COLUMNS.items() for side in "ab"}}


Asked = tuple[str, str]
"""What DuckDB may be asked, and how Spark is asked for it so that no row fails."""


def groups() -> Iterator[list[Asked]]:
    """Expressions that are computed on the driver together, or not at all."""
    for n in COLUMNS:
        yield _alike([*_of_any(n), *(_of_ordered(n) if n in ORDERED else ())])
    yield _alike(["a_o AND b_o", "a_o OR b_o", "NOT a_o", "a_s || b_s", "a_s || '' || b_s"])
    yield _alike([*(f"{part}(a_d)" for part in ("year", "month", "day")), "year(coalesce(a_d, b_d)) = month(b_d)"])
    numbers = {**WHOLE, **DECIMALS}
    for a, b in itertools.product(numbers, repeat=2):
        yield _alike([f"a_{a} {sign} b_{b}" for sign in ("=", "<", "<=>")])
        for sign, call in TRIES.items():
            yield [(f"a_{a} {sign} b_{b}", f"{call}(a_{a}, b_{b})")]
    yield _alike([f"a_{a} IN (b_{b}, 0)" for a, b in itertools.permutations(WHOLE, 2)])
    for n in numbers:
        yield _alike([f"a_{n} {sign} {literal}" for literal in NUMBERS for sign in ("=", "<")])
        for sign, call in TRIES.items():
            yield [(f"a_{n} {sign} 3", f"{call}(a_{n}, 3)"), (f"0.05 {sign} a_{n}", f"{call}(0.05, a_{n})")]
    yield _alike([f"a_s {sign} {literal}" for literal in TEXTS for sign in ("=", "<", "||")])
    yield _alike([f"a_d {sign} DATE '{literal}'" for literal in DATES for sign in ("=", "<")])


def _alike(texts: Iterable[str]) -> list[Asked]:
    return [(text, text) for text in texts]


def _of_any(n: str) -> Iterator[str]:
    yield f"a_{n}"
    yield f"a_{n} IS NULL"
    yield f"coalesce(a_{n}, b_{n})"
    yield f"CASE WHEN a_o THEN a_{n} WHEN b_o THEN b_{n} END"
    yield f"if(a_i < b_i, a_{n}, b_{n})"


def _of_ordered(n: str) -> Iterator[str]:
    for sign in SIGNS:
        yield f"a_{n} {sign} b_{n}"
    yield f"a_{n} BETWEEN b_{n} AND a_{n}"
    yield f"a_{n} IS DISTINCT FROM b_{n}"
    yield f"a_{n} IN (b_{n}, a_{n})"
    yield f"CASE WHEN a_{n} < b_{n} THEN b_{n} ELSE a_{n} END"


NUMBERS = ("0", "-1", "127", "-32768", "2147483647", "2147483648", "9223372036854775807", "1.")
TEXTS = ("''", "' '", "'a'", "'a '", "'ä'", "'Zz'", '"a"', "'10'")
DATES = ("0001-01-01", "1582-10-10", "1970-01-01", "9999-12-31")


def struct(kinds: dict[str, str]) -> T.StructType:
    return T.StructType([T.StructField(name, types.to_spark(kind)) for name, kind in kinds.items()])


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return view_session(spark, SETTINGS, small=True)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return rows()


@pytest.fixture(scope="module")
def frame(session: SparkSession, table: pa.Table) -> DataFrame:
    return local_frame(session, table, struct(KINDS)).cache()


def tried(
    cursor: duckdb.DuckDBPyConnection, asked: Sequence[Asked], kinds: Sequence[str]
) -> list[tuple[list[object], list[bool]]] | None:
    """DuckDB's values, and which of them it refuses to compute (then Spark does); `None`: all of them."""
    made = direct(_query([text for text, _ in asked]), {"e": KINDS}, kinds, SETTINGS)
    if made is None:
        return None
    *items, rest = re.split(r' AS "c\d+"(?:, | FROM )', made.sql.removeprefix("SELECT "))
    assert rest == '"leaf_0" AS "e"', made.sql
    shown = ", ".join(f"TRY({item}), TRY(({item}) IS NULL) IS NULL" for item in items)
    found = cursor.sql(f"SELECT {shown} FROM leaf_0 AS e ORDER BY e.k").to_arrow_table()
    return [
        (raw(found.column(2 * at).cast(types.to_arrow(kind))), found.column(2 * at + 1).to_pylist())
        for at, kind in enumerate(kinds)
    ]


def test_expressions_on_the_driver_are_sparks(session: SparkSession, frame: DataFrame, table: pa.Table) -> None:
    every = list(groups())
    asked = [one for group in every for one in group]
    kinds = [f.dataType.simpleString() for f in over(session, _query([t for t, _ in asked]), {0: frame}).schema]
    expected = over(session, _query(["k", *(t for _, t in asked)]), {0: frame}).toArrow().sort_by("o0")
    compared, differing, place = 0, list[str](), 0
    # Without the optimizer that computes a common part once, outside of TRY.
    with duckdb.connect(config={"threads": 1}) as cursor:
        cursor.sql("SET disabled_optimizers = 'common_subexpressions'")
        cursor.register("leaf_0", table)
        for group in every:
            found = tried(cursor, group, kinds[place : place + len(group)])
            for (text, _), (values, refused) in zip(group, found or (), strict=found is not None):
                compared += 1
                kind = types.to_arrow(kinds[place])
                right = raw(expected.column(place + 1).cast(kind))
                wrong = [at for at, v in enumerate(values) if not refused[at] and v != right[at]]
                differing += [f"{text}: Spark {right[at]!r}, DuckDB {values[at]!r}, row {at}" for at in wrong[:2]]
                place += 1
            place += 0 if found is not None else len(group)
    assert not differing, "\n".join(differing)
    assert compared > 0.7 * len(asked), (compared, len(asked))


def _query(texts: Sequence[str]) -> Query:
    return find(f"SELECT {', '.join(f'{text} AS o{at}' for at, text in enumerate(texts))} FROM e")


def alike() -> Iterator[list[str]]:
    """Queries that group, join and aggregate values of one type, by lists of queries whose results have one shape."""
    yield [
        f"SELECT min(k), max(k), count(*), count(b_{n}), count(DISTINCT b_{n}) FROM e GROUP BY a_{n}" for n in ORDERED
    ]
    yield [
        text
        for n in ORDERED
        for text in (
            f"SELECT x.k, y.k AS j FROM e x JOIN e y ON x.a_{n} = y.b_{n} WHERE x.k < 300 AND y.k < 30",
            f"SELECT x.k, y.k AS j FROM (SELECT k, a_{n} FROM e WHERE k < 300) x "
            f"FULL JOIN (SELECT k, b_{n} FROM e WHERE k < 30) y ON x.a_{n} = y.b_{n}",
        )
    ]
    yield [
        "SELECT " + ", ".join(f"{call}(a_{n}) AS {call}_{n}" for n in ORDERED for call in ("min", "max")) + " FROM e"
    ]
    for n in ("s", "d", "t", "w"):
        yield [f"SELECT DISTINCT a_{n}, b_{n} FROM e"]
    yield [
        "SELECT k, "
        + ", ".join(f"sum(a_{n}) AS s_{n}" for n in {**WHOLE, **DECIMALS} if n != "x")
        + " FROM e GROUP BY k"
    ]
    yield ["SELECT year(a_d) AS y, month(a_d) AS m, count(*) AS c FROM e WHERE k < 60 GROUP BY year(a_d), month(a_d)"]


def test_groups_joins_and_aggregates_on_the_driver_are_sparks(
    session: SparkSession, frame: DataFrame, table: pa.Table
) -> None:
    with duckdb.connect(config={"threads": 1}) as cursor:
        for number in range(2):
            cursor.register(f"leaf_{number}", table)
        for texts in alike():
            queries = [find(text) for text in texts]
            frames = [over(session, query, dict.fromkeys(range(len(query.refs)), frame)) for query in queries]
            kinds = [f.dataType.simpleString() for f in frames[0].schema]
            arrow = pa.schema([("q", pa.int32()), *((f"o{at}", types.to_arrow(kind)) for at, kind in enumerate(kinds))])
            together = [one.toDF(*arrow.names[1:]).selectExpr(f"{at} AS q", "*") for at, one in enumerate(frames)]
            expected = functools.reduce(lambda a, b: a.unionAll(b), together).toArrow().cast(arrow)
            for number, query in enumerate(queries):
                found = _computed(cursor, query, kinds)
                assert found is not None, query.text
                right = expected.filter(pc.equal(expected["q"], number)).drop_columns(["q"])
                assert bag(found.rename_columns(right.schema.names).cast(right.schema)) == bag(right), query.text


def _computed(cursor: duckdb.DuckDBPyConnection, query: Query, kinds: Sequence[str]) -> pa.Table | None:
    made = direct(query, {"e": KINDS}, kinds, SETTINGS)
    return None if made is None else cursor.sql(made.sql).to_arrow_table()


def bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*[raw(one) for one in table.columns], strict=True))
