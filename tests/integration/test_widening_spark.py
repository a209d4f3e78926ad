"""`types.widens` says yes only where Spark reads old files rightly with the new type, and no where it does not.

Files are those of Spark and of pyarrow, with and without dictionaries, because their layouts differ: pyarrow
stores decimals as bytes, Spark as integers up to 18 digits. One file holds a column for each pair of types.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql.types import StructType

from ebla.values import types

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def ends(precision: int, scale: int) -> list[Any]:
    nines = "9" * precision
    return [*(Decimal(f"{sign}{nines}E-{scale}") for sign in ("", "-")), Decimal(f"15E-{scale}"), Decimal(0)]


OLD: dict[str, list[Any]] = {
    "tinyint": [-128, -1, 0, 1, 127],
    "smallint": [-(2**15), -1, 0, 1, 2**15 - 1],
    "int": [-(2**31), -1, 0, 1, 2**31 - 1],
    "bigint": [-(2**63), -1, 0, 1, 2**63 - 1],
    "float": [1.5, -3.25, 0.1, 3.4028234663852886e38, float("inf"), float("nan")],
    "decimal(3,1)": ends(3, 1),
    "decimal(7,2)": ends(7, 2),
    "decimal(9,2)": ends(9, 2),
    "decimal(12,2)": ends(12, 2),
    "decimal(18,4)": ends(18, 4),
    "decimal(19,4)": ends(19, 4),
    "decimal(30,5)": ends(30, 5),
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2020, 2, 29), dt.date(9999, 12, 31)],
}
NEW = ["smallint", "int", "bigint", "double", "timestamp_ntz", "decimal(4,1)", "decimal(5,2)", "decimal(9,2)"]
NEW += ["decimal(10,0)", "decimal(11,1)", "decimal(10,3)", "decimal(12,2)", "decimal(14,2)", "decimal(18,6)"]
NEW += ["decimal(20,0)", "decimal(21,1)", "decimal(21,4)", "decimal(31,5)", "decimal(38,6)", "decimal(38,13)"]
WIDER = [(old, new) for old in OLD for new in NEW if old != new and types.widens(old, new)]
LAYOUTS = ["pyarrow", "pyarrow without dictionary", "spark", "spark without dictionary"]

# Literals beside, between and far beyond the old values. Those around 2^32 and 2^64, unscaled, wrap around to
# small numbers where they are squeezed into the old type.
NUMBERS = ["0", "1", "-1", "1.5", "-1.5", "0.15", "257", "65537", "4294967297", "-4294967297", "42949672.97"]
NUMBERS += ["-42949672.97", "429496729.7", "42949.67297", "99999999.99", "1844674407370955.1617"]
NUMBERS += ["184467440737095516.17", "18446744073709551617", "-18446744073709551617"]


def write(spark: SparkSession, directory: Path, layout: str, table: pa.Table) -> str:
    writer, _, without = layout.partition(" ")
    path = str(directory / f"{layout}.parquet")
    pq.write_table(table, path, use_dictionary=not without)
    if writer == "pyarrow":
        return path
    schema = StructType()
    for field in table.schema:
        schema = schema.add(field.name, types.to_spark(types.from_arrow(field.type)))
    options = {"parquet.enable.dictionary": str(not without).lower()}
    spark.read.schema(schema).parquet(path).coalesce(1).write.options(**options).parquet(f"{path}.spark")
    return f"{path}.spark"


def read(spark: SparkSession, path: str, new: dict[str, str]) -> DataFrame:
    schema = StructType()
    for name, sql_type in new.items():
        schema = schema.add(name, types.to_spark(sql_type))
    return spark.read.schema(schema).parquet(path)


def widened(value: Any, new: str) -> Any:
    if new == "double":
        return float(value)
    if new == "timestamp_ntz":
        return dt.datetime(value.year, value.month, value.day)
    return Decimal(value) if new.startswith("decimal") else value


@pytest.mark.parametrize("layout", LAYOUTS)
def test_old_files_are_read_with_the_wider_type(spark, tmp_path, layout):
    rows = max(map(len, OLD.values())) + 1
    columns = {f"c{n}": [*OLD[old], *[None] * (rows - len(OLD[old]))] for n, (old, _) in enumerate(WIDER)}
    arrays = {f"c{n}": pa.array(columns[f"c{n}"], types.to_arrow(old)) for n, (old, _) in enumerate(WIDER)}
    path = write(spark, tmp_path, layout, pa.table(arrays))
    found = read(spark, path, {f"c{n}": new for n, (_, new) in enumerate(WIDER)}).toArrow()
    for n, (old, new) in enumerate(WIDER):
        stored = arrays[f"c{n}"].to_pylist()  # 0.1 as float is another number
        expected = [None if value is None else widened(value, new) for value in stored]
        assert list(map(str, found.column(n).to_pylist())) == list(map(str, fixed(expected, new))), (old, new)


def fixed(values: list[Any], sql_type: str) -> list[Any]:
    """The values with as many digits after the point as the type has."""
    result: list[Any] = pa.array(values, types.to_arrow(sql_type)).to_pylist()
    return result


def true_condition(name: str, value: Decimal, text: str, new: str) -> str | None:
    """A comparison with the literal that holds for the value, or None if the type cannot hold the literal."""
    number = Decimal(text)
    if new.startswith("decimal"):
        precision, scale = map(int, new[8:-1].split(","))
        if abs(number) >= 10 ** (precision - scale) or len(text.partition(".")[2]) > scale:
            return None
    elif new != "double" and (
        number != int(number) or abs(number) >= {"smallint": 2**15, "int": 2**31}.get(new, 2**63)
    ):
        return None
    written = f"CAST('{text}' AS {new})"
    if value == number:
        return f"{name} = {written} AND {name} <= {written} AND {name} >= {written}"
    sign = "<" if value < number else ">"
    return f"{name} {sign} {written} AND {name} {sign}= {written} AND {name} <> {written} AND NOT {name} <=> {written}"


@pytest.mark.parametrize("layout", ["pyarrow", "spark"])
@pytest.mark.parametrize("negative", [False, True])
def test_filters_on_the_wider_type_lose_no_row(spark, tmp_path, layout, negative):
    """A row that satisfies every condition is found by their conjunction, each of which Spark may push down."""
    pairs = [(old, new) for old, new in WIDER if old != "date"]
    values = {old: Decimal("1.5" if old.startswith(("decimal", "float")) else "1") for old, _ in pairs}
    if negative:
        values = {old: -value for old, value in values.items()}
    python = {old: float(v) if old == "float" else v if "decimal" in old else int(v) for old, v in values.items()}
    arrays = {f"c{n}": pa.array([python[old]], types.to_arrow(old)) for n, (old, _) in enumerate(pairs)}
    frame = read(
        spark, write(spark, tmp_path, layout, pa.table(arrays)), {f"c{n}": new for n, (_, new) in enumerate(pairs)}
    )
    for text in NUMBERS:
        found = [true_condition(f"c{n}", values[old], text, new) for n, (old, new) in enumerate(pairs)]
        conditions = [condition for condition in found if condition is not None]
        assert conditions
        if frame.where(" AND ".join(conditions)).count() != 1:
            pytest.fail(f"lost by {[c for c in conditions if frame.where(c).count() != 1]}")


@pytest.mark.parametrize("layout", ["pyarrow", "spark"])
def test_filters_on_a_day_read_as_a_moment_lose_no_row(spark, tmp_path, layout):
    path = write(spark, tmp_path, layout, pa.table({"x": [dt.date(2020, 2, 29)]}))
    frame = read(spark, path, {"x": "timestamp_ntz"})
    for condition in ("= TIMESTAMP_NTZ'2020-02-29'", "< TIMESTAMP_NTZ'2020-02-29 00:00:01'", "> DATE'2020-02-28'"):
        assert frame.where(f"x {condition}").count() == 1


@pytest.mark.parametrize("layout", ["pyarrow", "spark"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tinyint", "decimal(5,2)"),
        ("smallint", "decimal(5,0)"),
        ("int", "decimal(10,1)"),
        ("bigint", "decimal(19,0)"),
        ("bigint", "double"),
        ("date", "timestamp"),
    ],
)
def test_refused_by_spark(spark, tmp_path, layout, old, new):
    """If one of the lossless ones begins to work in a later Spark, `widens` may say yes to it."""
    assert not types.widens(old, new)
    path = write(spark, tmp_path, layout, pa.table({"x": pa.array(OLD[old][1:3], types.to_arrow(old))}))
    with pytest.raises(Py4JJavaError, match="PARQUET_COLUMN_DATA_TYPE_MISMATCH"):
        read(spark, path, {"x": new}).collect()


@pytest.mark.parametrize(("old", "new"), [("int", "tinyint"), ("int", "date"), ("decimal(9,2)", "int")])
def test_read_wrongly_by_spark_without_a_word(spark, tmp_path, old, new):
    """Nothing but `widens` stands between a user and these."""
    assert not types.widens(old, new)
    path = write(spark, tmp_path, "spark", pa.table({"x": pa.array(OLD[old], types.to_arrow(old))}))
    found = read(spark, path, {"x": new}).selectExpr("string(x) AS x").collect()
    assert [row.x for row in found] != list(map(str, OLD[old]))


@pytest.mark.parametrize(
    ("old", "new", "literal"),
    [
        ("decimal(9,2)", "decimal(10,2)", "42949672.97"),
        ("decimal(18,4)", "decimal(38,4)", "1844674407370955.1617"),
    ],
)
def test_a_pushed_filter_loses_rows_of_a_decimal_of_the_same_scale(spark, tmp_path, old, new, literal):
    """Why `widens` refuses a wider decimal of the same scale. If this fails, Spark was mended: allow it."""
    assert not types.widens(old, new)
    path = write(spark, tmp_path, "spark", pa.table({"x": pa.array([Decimal("1.5")], types.to_arrow(old))}))
    assert read(spark, path, {"x": new}).where(f"x < {literal}").count() == 0
    spark.conf.set("spark.sql.parquet.filterPushdown.decimal", "false")
    try:
        assert read(spark, path, {"x": new}).where(f"x < {literal}").count() == 1
    finally:
        spark.conf.unset("spark.sql.parquet.filterPushdown.decimal")


def test_spark_parses_canonical_types(spark):
    spelled = ["struct<`a b`:int,`c``d`:array<map<string,decimal(38,18)>>,date:date,Ä:timestamp_ntz,`1a`:binary>"]
    spelled += [*OLD, "boolean", "string", "timestamp", "struct<`not`:int,comment:struct<`map<`:tinyint>>"]
    for sql_type in map(types.canonical, spelled):
        found = spark.sql(f"SELECT CAST(NULL AS {sql_type}) AS x").schema["x"].dataType
        assert types.from_spark(found) == sql_type
        assert found == types.to_spark(sql_type)
