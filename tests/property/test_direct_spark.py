"""What DuckDB computes in Spark's place is what Spark computes: rows, types, and refusals."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from ebla.algebra.direct_query import direct
from ebla.spark.query import over
from ebla.spark.session import local_frame, view_session
from ebla.sql.refs import find
from ebla.values import types
from support.edges import raw
from support.plain_queries import STORED, arrow, plain_queries, rows

pytestmark = pytest.mark.spark

SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.sql.caseSensitive": "false",
}
EXAMPLES = 120


def struct(table: str) -> T.StructType:
    return T.StructType([T.StructField(name, types.to_spark(kind)) for name, kind in STORED[table].items()])


def bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    """Bit by bit: minus zero is not zero."""
    return Counter(zip(*[raw(column) for column in table.columns], strict=True))


def test_duckdb_gives_sparks_answer(spark: SparkSession) -> None:
    session = view_session(spark, SETTINGS, small=True)
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(texts=st.lists(plain_queries(), min_size=1, max_size=1), mine=rows("t"), theirs=rows("u"))
    def one(texts: list[str], mine: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
        query = find(texts[0])
        note(query.text)
        tables = {n: arrow(n, r) for n, r in (("t", mine), ("u", theirs))}
        frames = {i: local_frame(session, tables[r.name], struct(r.name)) for i, r in enumerate(query.refs)}
        try:
            frame = over(session, query, frames)
            kinds = [f.dataType.simpleString() for f in frame.schema]
        except PySparkException:
            outcomes["not for Spark"] += 1
            return
        made = direct(query, STORED, kinds, SETTINGS)
        if made is None:
            outcomes["left to Spark"] += 1
            return
        with duckdb.connect() as cursor:
            for number, ref in enumerate(query.refs):
                cursor.register(f"leaf_{number}", tables[ref.name])
            try:
                found = cursor.sql(made.sql).to_arrow_table()
            except duckdb.Error:
                outcomes["refused when run"] += 1
                return
        shown = pa.schema([(f"o{i}", types.to_arrow(kind)) for i, kind in enumerate(kinds)])
        expected = frame.toDF(*shown.names).toArrow().cast(shown)
        assert bag(found.rename_columns(shown.names).cast(shown)) == bag(expected), (query.text, made.sql)
        outcomes["compared"] += 1

    one()
    assert outcomes["compared"] > EXAMPLES // 2, outcomes
