"""A query that is planned once and run over other rows each time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ebla.spark import faults
from ebla.spark.prepared_query import PreparedQuery, Rows
from ebla.spark.session import view_session, view_settings

pytestmark = pytest.mark.spark

LINES = T.StructType([T.StructField("id", T.LongType()), T.StructField("q", T.IntegerType())])
NAMES = T.StructType([T.StructField("id", T.LongType()), T.StructField("name", T.StringType())])
LEGACY = "spark.sql.legacy.timeParserPolicy"


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return view_session(spark, view_settings(spark), small=True)


def rows(session: SparkSession, schema: T.StructType, *values: tuple[Any, ...]) -> Rows:
    columns = zip(*values, strict=True) if values else [[] for _ in schema.fields]
    kinds = [pa.int64(), pa.int32() if schema is LINES else pa.string()]
    table = pa.table([pa.array(list(c), k) for c, k in zip(columns, kinds, strict=True)], names=schema.fieldNames())
    return Rows(session, table, schema)


def joined(frames: Sequence[DataFrame]) -> DataFrame:
    lines, names = frames
    return lines.join(names, "id", "left").selectExpr("id", "100 DIV q AS part", "name")


def found(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_each_run_has_its_own_rows(session: SparkSession):
    prepared = PreparedQuery(session, [LINES, NAMES], joined)
    ada, bob = rows(session, NAMES, (1, "Ada")), rows(session, NAMES, (2, "Bob"), (1, "Bea"))
    lines = rows(session, LINES, (1, 5), (2, 10), (2, None))
    assert found(prepared.run([rows(session, LINES, (1, 5)), ada])) == [(1, 20, "Ada")]
    assert prepared.run([lines, bob])["name"].to_pylist().count("Bob") == 2
    assert found(prepared.run([rows(session, LINES, (1, 5)), rows(session, NAMES)])) == [(1, 20, None)]
    nothing = prepared.run([rows(session, LINES), bob])
    assert (nothing.num_rows, nothing.schema.types) == (0, [pa.int64(), pa.int64(), pa.string()])
    assert found(prepared.run([rows(session, LINES, (1, 5)), ada])) == [(1, 20, "Ada")]


def test_results_come_as_a_whole_and_not_byte_by_byte(session: SparkSession, monkeypatch: pytest.MonkeyPatch):
    """Several batches of Arrow, and none."""

    def refused(encoded: str) -> bytes:
        pytest.fail("Py4J decodes bytes one by one")

    prepared = PreparedQuery(session, [LINES], lambda frames: frames[0].selectExpr("id", "q + 1 AS more"))
    monkeypatch.setattr("py4j.protocol.decode_bytearray", refused)
    folder = Path(session.sparkContext._temp_dir)
    before = set(folder.iterdir())
    for count in (25_000, 0, 1):
        values = [(n, None if n % 7 == 0 else n) for n in range(count)]
        table = prepared.run([rows(session, LINES, *values)])
        assert found_pairs(table) == [(n, None if q is None else q + 1) for n, q in values]
        assert (table.column("id").num_chunks > 1) is (count > 10_000)
    assert set(folder.iterdir()) == before


def found_pairs(table: pa.Table) -> list[tuple[int, int | None]]:
    pairs = zip(table["id"].to_pylist(), table["more"].to_pylist(), strict=True)
    return sorted(pairs, key=lambda pair: pair[0])


def test_a_run_that_fails_says_what_spark_says_and_the_next_one_works(session: SparkSession):
    prepared = PreparedQuery(session, [LINES, NAMES], joined)
    ada = rows(session, NAMES, (1, "Ada"))
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO") as raised:
        prepared.run([rows(session, LINES, (1, 0)), ada])
    fault = faults.fault_of(raised.value)
    assert (fault.final, fault.code) == (True, "DIVIDE_BY_ZERO")
    assert found(prepared.run([rows(session, LINES, (1, 50)), ada])) == [(1, 2, "Ada")]


def test_tasks_have_the_settings_of_the_session_and_the_thread_keeps_its_own(session: SparkSession):
    """`YYYY` is a pattern of the old formatter alone, which a task chooses when it meets the first row."""

    def formatted(frames: Sequence[DataFrame]) -> DataFrame:
        return frames[0].selectExpr("id", "date_format(timestamp_seconds(id), 'YYYY') AS year")

    context = session.sparkContext
    context.setLocalProperty("ebla.test", "kept")
    try:
        session.conf.set(LEGACY, "LEGACY")
        prepared = PreparedQuery(session, [LINES], formatted)
        assert found(prepared.run([rows(session, LINES, (0, 1))])) == [(0, "1970")]
        assert (context.getLocalProperty(LEGACY), context.getLocalProperty("ebla.test")) == (None, "kept")
    finally:
        context._jsc.setLocalProperty("ebla.test", None)


def test_rows_without_columns_are_counted(session: SparkSession):
    prepared = PreparedQuery(session, [T.StructType()], lambda frames: frames[0].selectExpr("count(*) AS n"))
    for n in (3, 0, 5):
        given = Rows(session, pa.table({"a": pa.array(range(n), pa.int64())}).select([]), T.StructType())
        assert prepared.run([given])["n"].to_pylist() == [n]


def test_subqueries_are_planned_every_time(session: SparkSession):
    def lowest(frames: Sequence[DataFrame]) -> DataFrame:
        frames[0].createOrReplaceTempView("prepared_lines")
        return session.sql("SELECT id FROM prepared_lines WHERE q = (SELECT min(q) FROM prepared_lines)")

    prepared = PreparedQuery(session, [LINES], lowest)
    assert found(prepared.run([rows(session, LINES, (1, 5), (2, 4))])) == [(2,)]
    assert found(prepared.run([rows(session, LINES, (1, 5), (2, 6))])) == [(1,)]
