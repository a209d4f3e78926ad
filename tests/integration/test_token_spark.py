"""Tokens computed in Python are those of Spark's own `xxhash64`."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ebla.values import token, types

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# A job takes a tenth of a second, whether it hashes one row or a thousand: an example is a batch of rows, or a part
# of one.
batches = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    type: str
    nullable: bool = True


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    return unscaled.map(lambda n: Decimal(f"{n}E-{scale}"))  # not by arithmetic, which rounds to 28 digits


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": integers(8),
    "smallint": integers(16),
    "int": integers(32),
    "bigint": integers(64),
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(1,0)": decimals(1, 0),
    "decimal(9,2)": decimals(9, 2),
    "decimal(18,0)": decimals(18, 0),
    "decimal(18,18)": decimals(18, 18),
    "decimal(19,0)": decimals(19, 0),
    "decimal(28,5)": decimals(28, 5),
    "decimal(38,0)": decimals(38, 0),
    "decimal(38,38)": decimals(38, 38),
    "string": st.one_of(st.text(st.characters(blacklist_categories=["Cs"])), st.text("abc", min_size=28, max_size=70)),
    "binary": st.one_of(st.binary(), st.binary(min_size=28, max_size=70)),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
}

NINES = 10**38 - 1
EDGES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, -1, 0, 1, 127],
    "smallint": [-(2**15), -1, 0, 2**15 - 1],
    "int": [-(2**31), -1, 0, 2**31 - 1],
    "bigint": [-(2**63), -(2**31), -1, 0, 1, 2**31, 2**32, 2**63 - 1],
    "float": [0.0, -0.0, 1.5, -1.5, 1e-45, 3.4028235e38, math.inf, -math.inf, math.nan],
    "double": [0.0, -0.0, 0.1, -0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan],
    "decimal(18,0)": [Decimal(n) for n in (0, 1, -1, 10**18 - 1, 1 - 10**18, 2**31, -(2**31))],
    "decimal(19,0)": [Decimal(n) for n in (0, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**19 - 1, 1 - 10**19)],
    "decimal(38,0)": [
        Decimal(sign * n)
        for sign in (1, -1)
        for n in [0, 1, 127, 128, 129, 255, 256, NINES, *(2**b + d for b in range(7, 121, 8) for d in (-1, 0, 1))]
    ],
    "string": [
        "",
        "a",
        "abc",
        "abcd",
        "a" * 7,
        "b" * 8,
        "c" * 31,
        "d" * 32,
        "e" * 33,
        "f" * 10_000,
        "äöü",
        "😀" * 9,
        "\0",
    ],
    "binary": [b"", b"\x00", b"\xff" * 31, b"\x80" * 32, bytes(range(256))],
    "date": [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    "timestamp": [
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    ],
    "timestamp_ntz": [dt.datetime(1, 1, 1), dt.datetime(1900, 1, 1, 12), dt.datetime(9999, 12, 31)],
}


@pytest.fixture(scope="module")
def spark_tokens(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory: Path = tmp_path_factory.mktemp("tokens")

    def compute(table: pa.Table, sql_types: Sequence[str]) -> list[int]:
        """One job: write the key columns as Parquet, have Spark read and hash them, in the order of the rows."""
        numbered = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
        path = str(directory / "keys.parquet")
        pq.write_table(numbered, path)
        schema = StructType()
        for name, sql_type in zip(table.column_names, sql_types, strict=True):
            schema = schema.add(name, types.to_spark(sql_type))
        frame = spark.read.schema(schema.add("row", types.to_spark("bigint"))).parquet(path)
        hashed = frame.select("row", F.xxhash64(*table.column_names).alias("token")).collect()
        return [row.token for row in sorted(hashed, key=lambda row: row.row)]

    return compute


def keys(rows: Sequence[Sequence[Any]], sql_types: Sequence[str]) -> pa.Table:
    columns = [Column(name=f"k{n}", type=sql_type) for n, sql_type in enumerate(sql_types)]
    dictionaries = [{column.name: value for column, value in zip(columns, row, strict=True)} for row in rows]
    return types.from_rows(dictionaries, columns, relation="keys")


def assert_same(spark_tokens: Any, rows: Sequence[Sequence[Any]], sql_types: Sequence[str]) -> None:
    table = keys(rows, sql_types)
    expected = spark_tokens(table, sql_types)
    found = token.tokens(table, table.column_names).tolist()
    wrong = [(row, want, have) for row, want, have in zip(rows, expected, found, strict=True) if want != have]
    assert not wrong, f"{sql_types}: row, Spark's token, ours: {wrong[:5]}"
    for row, want in zip(rows, expected, strict=True):
        assert token.token_of(row, sql_types) == want


@pytest.mark.parametrize("sql_type", EDGES)
def test_edges(spark_tokens, sql_type):
    assert_same(spark_tokens, [[value] for value in [*EDGES[sql_type], None]], [sql_type])


@pytest.mark.parametrize("sql_type", VALUES)
def test_every_key_type(spark_tokens, sql_type):
    """One job for all examples: a value is wrong by itself, and is named."""
    drawn: list[list[Any]] = []

    @batches
    @given(values=st.lists(st.one_of(VALUES[sql_type], st.none()), min_size=20, max_size=80))
    def draw(values: list[Any]) -> None:
        drawn.extend([value] for value in values)

    draw()
    assert_same(spark_tokens, drawn, [sql_type])


@settings(batches, max_examples=25)
@given(data=st.data())
def test_composite_keys(spark_tokens, data):
    sql_types = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=5))
    row = st.tuples(*[st.one_of(VALUES[sql_type], st.none()) for sql_type in sql_types])
    assert_same(spark_tokens, data.draw(st.lists(row, min_size=5, max_size=40)), sql_types)


def test_a_composite_key_of_all_types_at_once(spark_tokens):
    """Every column is NULL in some row, and follows every kind of column."""
    sql_types = sorted(EDGES)
    for order in (sql_types, sql_types[::-1]):
        rows = []
        for number in range(40):
            row: list[Any] = [EDGES[t][number % len(EDGES[t])] for t in order]
            row[number % len(order)] = None
            rows.append(row)
        assert_same(spark_tokens, [*rows, [None] * len(order)], order)


def test_a_nan_of_any_bits_is_one_key(spark_tokens):
    bits = np.array([0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8000000000000, 0xFFFFFFFFFFFFFFFF], np.uint64)
    doubles = pa.array(bits.view(np.float64))
    floats = pa.array(np.array([0x7FC00000, 0x7F800001, 0xFFC00000, 0xFFFFFFFF], np.uint32).view(np.float32))
    table = pa.table({"d": doubles, "f": floats})
    found = token.tokens(table, ["d", "f"]).tolist()
    assert found == spark_tokens(table, ["double", "float"])
    assert len(set(found)) == 1
    assert token.tokens(types.normalize_keys(table, ["d", "f"]), ["d", "f"]).tolist() == found


def test_tablets_are_the_same_expression_in_spark(spark, spark_tokens):
    """What a plan computes from a token: the upper bits, counted from the lowest token."""
    table = keys([[n] for n in range(500)], ["bigint"])
    tokens = token.tokens(table, ["k0"])
    frame = spark.createDataFrame([(int(t),) for t in tokens], "token bigint")
    for bits in (1, 4, 10, 20):
        lowest = F.shiftrightunsigned(F.col("token").bitwiseXOR(F.lit(-(2**63))), 64 - bits)
        rows = frame.select(lowest.alias("tablet")).collect()
        assert [row.tablet for row in rows] == token.tablets_of(tokens, 2**bits).tolist()
