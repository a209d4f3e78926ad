"""NaN, which the statistics of Parquet leave out: a reader that believes them does not find it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.model.relation import Run
from ebla.spark.scan import LOCAL_ROWS_MAX
from ebla.tables.lookup import in_both
from ebla.tables.value_lookup import rows_by
from support.folding import fold
from support.warehouse import connect


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "w", spark, auto_refresh=False, auto_compact=False, batch_rows_max=50_000) as database:
        for name in ("a", "b"):
            database.sql(f"CREATE TABLE {name} (id BIGINT, f DOUBLE, PRIMARY KEY (id)) WITH (tablets = 1)")
        database.table("a").upsert([{"id": i, "f": math.nan if i == 3 else float(i)} for i in range(6)])
        fold(database, "a", row_group_rows=2)
        yield database


def test_a_change_reaches_rows_that_are_joined_by_nan(db: ebla.Database) -> None:
    query = "SELECT a.id, b.id AS other FROM a JOIN b ON a.f = b.f"
    db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    db.table("b").upsert([{"id": 10, "f": math.nan}, {"id": 11, "f": 4.0}, {"id": 12, "f": 99.0}])
    db.sql("FLUSH")
    assert sorted(db.sql("SELECT * FROM v").rows()) == [(3, 10), (4, 11)] == sorted(db.sql(query).rows())


@pytest.mark.parametrize("wanted", [[math.nan], [math.nan, 1.0], [1.0, None]])
def test_rows_are_found_by_nan(db: ebla.Database, wanted: list[float | None]) -> None:
    with db.context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, reads.relation(connection, "a"))
    values = pa.table({"c0": pa.array(wanted, pa.float64())})
    expected = {3 if math.isnan(f) else int(f) for f in wanted if f is not None}
    assert set(rows_by(db.context, snapshot, ["f"], values, ["id"])["id"].to_pylist()) == expected


def test_spark_finds_nan_in_files_that_arrow_wrote(db: ebla.Database) -> None:
    """To Spark NaN is greater than any number, and equal to itself."""
    numbers = [float(n % 3) for n in range(LOCAL_ROWS_MAX + 10)]
    numbers[7] = math.nan
    nested = [{"f": number} for number in numbers]
    db.sql("CREATE TABLE c (id BIGINT, f DOUBLE, s STRUCT<f: DOUBLE>, PRIMARY KEY (id)) WITH (tablets = 1)")
    db.table("c").upsert(pa.table({"id": range(len(numbers)), "f": numbers, "s": nested}))
    for condition in ("f > 5", "f = double('NaN')", "s.f > 5", "id = 7"):
        assert db.sql(f"SELECT id FROM c WHERE {condition}").rows() == [(7,)], condition


def test_two_writes_share_nan_and_no_null(db: ebla.Database) -> None:
    def runs_of(*values: float | None) -> list[Run]:
        version = db.table("b").upsert([{"id": n, "f": value} for n, value in enumerate(values)]).version
        assert version is not None
        with db.context.catalog.reading() as connection:
            relation = reads.relation(connection, "b")
            return reads.writes_between(connection, relation, Version(version - 1), version)

    mine, theirs, others = runs_of(math.nan, 5.0, None), runs_of(7.0, math.nan), runs_of(None, 8.0)
    roots = db.context.roots()
    [found] = in_both(db.context.storage.lookups, "b", ["f"], mine, theirs, roots, nulls_equal=False) or [None]
    assert isinstance(found, float)
    assert math.isnan(found)
    assert in_both(db.context.storage.lookups, "b", ["f"], mine, others, roots, nulls_equal=False) is None
    assert in_both(db.context.storage.lookups, "b", ["f"], mine, others, roots, nulls_equal=True) == [None]
