"""Every type, its extremes and NULLs, through every way in and every way out; and what the files say of them."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ebla.errors import DuplicateKeyError
from ebla.spark import scan
from ebla.values import types
from support.warehouse import connect, file_of, live_runs, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

pytestmark = pytest.mark.spark

NAN, INFINITY = math.nan, math.inf
UTC = dt.UTC
ATOMS: dict[str, tuple[Any, Any]] = {
    "boolean": (False, True),
    "tinyint": (-(2**7), 2**7 - 1),
    "smallint": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
    "float": (-3.4028234663852886e38, 1.401298464324817e-45),
    "double": (-1.7976931348623157e308, 5e-324),
    "decimal(9,2)": (Decimal("-9999999.99"), Decimal("0.01")),
    "decimal(38,0)": (Decimal("-" + "9" * 38), Decimal("9" * 38)),
    "decimal(38,38)": (Decimal("-0." + "9" * 38), Decimal("0." + "0" * 37 + "1")),
    "string": ("", "naïve 🙂 \x00 'quoted' \"twice\", a\tb"),
    "binary": (b"", bytes(range(256))),
    "date": (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "timestamp": (
        dt.datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ),
    "timestamp_ntz": (dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
}
MORE: dict[str, tuple[Any, ...]] = {
    "float": (NAN, INFINITY, -INFINITY, -0.0),
    "double": (NAN, INFINITY, -INFINITY, -0.0),
    "date": (dt.date(1582, 10, 10), dt.date(1969, 12, 31)),
    "timestamp": (
        dt.datetime(1582, 10, 10, 1, 2, 3, 4, tzinfo=UTC),
        dt.datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ),
    "timestamp_ntz": (dt.datetime(1582, 10, 10, 1, 2, 3, 4), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
}
NESTED: dict[str, tuple[Any, ...]] = {
    "array<int>": ([], [1, None, -(2**31)]),
    "array<array<string>>": ([[], None, ["a", None, ""]],),
    "map<string,double>": ({}, {"": -0.0, "x": None}),
    "map<string,array<decimal(38,0)>>": ({"x": [Decimal("9" * 38), None]},),
    "struct<a:int,b:struct<c:string,d:array<date>>>": (
        {"a": None, "b": None},
        {"a": 1, "b": {"c": None, "d": [dt.date(1969, 12, 31), None]}},
    ),
    "array<struct<at:timestamp,naive:timestamp_ntz,raw:binary>>": (
        [{"at": dt.datetime(1969, 12, 31, tzinfo=UTC), "naive": dt.datetime(1900, 1, 1), "raw": b"\x00"}, None],
    ),
}


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    type: str
    nullable: bool = True


COLUMNS = [
    Column(name="id", type="int", nullable=False),
    *(Column(name=f"a{i}", type=kind) for i, kind in enumerate(ATOMS)),
    *(Column(name=f"n{i}", type=kind) for i, kind in enumerate(NESTED)),
]
DECLARED = ", ".join(f"{c.name} {c.type}" for c in COLUMNS) + ", PRIMARY KEY (id)"


def _rows() -> list[dict[str, Any]]:
    """A row of NULLs, then rows with the next value of every column."""
    values = {c.name: (*ATOMS.get(c.type, ()), *MORE.get(c.type, ()), *NESTED.get(c.type, ())) for c in COLUMNS[1:]}
    most = max(map(len, values.values()))
    made: list[dict[str, Any]] = [{"id": 0, **dict.fromkeys(values)}]
    made += [{"id": i + 1, **{n: v[i % len(v)] for n, v in values.items()}} for i in range(most)]
    return made


ROWS = _rows()
EXPECTED = types.from_rows(ROWS, COLUMNS, relation="t")
ATOMIC = [c.name for c in COLUMNS if c.type not in NESTED]


def exactly(table: pa.Table, names: list[str] | None = None) -> list[str]:
    """Rows as text, in which NaN equals NaN and -0.0 differs from 0.0."""
    wanted = EXPECTED.schema if names is None else pa.schema([EXPECTED.schema.field(n) for n in names])
    nullable = pa.schema([f.with_nullable(True) for f in wanted])
    return sorted(map(repr, table.select(nullable.names).cast(nullable).to_pylist()))


# ---- ways in --------------------------------------------------------------------------------------------


def as_list(db: ebla.Database, spark: SparkSession, folder: Path) -> None:
    db.table("t").upsert(ROWS)


def as_arrow(db: ebla.Database, spark: SparkSession, folder: Path) -> None:
    db.table("t").upsert(EXPECTED)


def as_pandas(db: ebla.Database, spark: SparkSession, folder: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({c.name: pd.Series([r[c.name] for r in ROWS], dtype=object) for c in COLUMNS})
    db.table("t").upsert(frame)


def as_spark(db: ebla.Database, spark: SparkSession, folder: Path) -> None:
    db.table("t").upsert(spark.createDataFrame(EXPECTED))


def as_insert(db: ebla.Database, spark: SparkSession, folder: Path) -> None:
    spark.createDataFrame(EXPECTED).createOrReplaceTempView("given_rows")
    db.sql("INSERT INTO t SELECT * FROM given_rows")
    spark.catalog.dropTempView("given_rows")


def as_parquet(db: ebla.Database, spark: SparkSession, folder: Path) -> None:
    pq.write_table(EXPECTED, folder / "rows.parquet")
    db.table("t").load(str(folder / "rows.parquet"))


def as_json(db: ebla.Database, spark: SparkSession, folder: Path) -> None:
    def plain(value: Any) -> Any:
        match value:
            case bytes():
                return base64.b64encode(value).decode()
            case dt.date():
                return value.isoformat()
            case float() if not math.isfinite(value):
                return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
            case dict():
                return {k: plain(v) for k, v in value.items()}
            case list():
                return [plain(v) for v in value]
            case Decimal():
                return f"<{value}>"
        return value

    lines = [json.dumps(plain(row)) for row in ROWS]
    text = "\n".join(lines).replace('"<', "").replace('>"', "")  # decimals as bare numbers
    (folder / "rows.json").write_text(text)
    db.table("t").load(str(folder / "rows.json"))


WAYS: list[Callable[..., None]] = [as_list, as_arrow, as_pandas, as_spark, as_insert, as_parquet, as_json]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(params=["level 0", "bulk"])
def db(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    settings = {} if request.param == "level 0" else {"batch_rows_max": 0, "level0_rows_max": 0}
    with connect(tmp_path / "warehouse", spark, tablets=2, **settings) as db:
        db.sql(f"CREATE TABLE t ({DECLARED})")
        yield db


@pytest.mark.parametrize("way_in", WAYS, ids=lambda way: way.__name__)
def test_every_value_comes_back_as_it_was(db, spark, folder, way_in):
    way_in(db, spark, folder)
    expected = exactly(EXPECTED)
    if way_in is as_pandas:  # where NaN is NULL
        expected = [row.replace("'a5': nan", "'a5': None").replace("'a6': nan", "'a6': None") for row in expected]
    result = db.sql("SELECT * FROM t")
    assert exactly(result.to_arrow()) == expected
    by_name = [dict(zip(result.columns, row, strict=True)) for row in result.rows()]
    assert exactly(types.from_rows(by_name, COLUMNS, relation="t")) == expected


def test_every_value_survives_compaction_and_a_merge_with_level_0(db, spark, folder):
    as_arrow(db, spark, folder)
    db.compact("t")
    assert {run.level for run in live_runs(db, "t")} == {1}
    assert exactly(db.table("t").scan().toArrow()) == exactly(EXPECTED)
    db.table("t").upsert(EXPECTED.slice(1, 2))
    assert exactly(db.table("t").scan().toArrow()) == exactly(EXPECTED)


def test_a_first_load_is_read_as_a_file(db, spark, folder, monkeypatch):
    monkeypatch.setattr(scan, "LOCAL_ROWS_MAX", 0)
    as_arrow(db, spark, folder)
    frame = db.table("t").scan()
    assert "LocalRelation" not in frame._jdf.queryExecution().optimizedPlan().toString()
    assert exactly(frame.toArrow()) == exactly(EXPECTED)
    db.sql("ALTER TABLE t ADD COLUMN more STRING")
    assert db.sql("SELECT count(*), count(more) FROM t").one() == (len(ROWS), 0)
    db.sql("DELETE FROM t WHERE id = 1")
    assert db.sql("SELECT count(*), min(id) FROM t").one() == (len(ROWS) - 1, 0)


def test_csv_holds_every_atomic_type(spark, tmp_path):
    names = [n for n in ATOMIC if n != "a10"]  # a NUL or a tab in a text is no matter of types
    lines = [",".join(names)]
    for row in ROWS:
        values = [row[n] for n in names]
        shown = [base64.b64encode(v).decode() if isinstance(v, bytes) else v for v in values]
        lines.append(",".join("" if v is None else '""' if v == "" else str(v) for v in shown))
    text = "\n".join(lines).replace("-inf", "-Infinity").replace("inf,", "Infinity,").replace("nan", "NaN")
    (tmp_path / "rows.csv").write_text(text)
    with connect(tmp_path / "warehouse", spark) as db:
        db.sql(f"CREATE TABLE t ({DECLARED})")
        db.table("t").load(str(tmp_path / "rows.csv"))
        found = db.sql("SELECT * FROM t").to_arrow()
        # An empty binary is an empty field, and an empty field is NULL.
        expected = [r.replace("'a11': b''", "'a11': None") for r in exactly(EXPECTED, names)]
        assert exactly(found, names) == sorted(expected)


def test_a_session_with_other_settings_reads_and_writes_the_same(spark, tmp_path):
    odd = spark.newSession()
    for name, value in {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.enableVectorizedReader": "false",
        "spark.sql.parquet.mergeSchema": "true",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    }.items():
        odd.conf.set(name, value)
    with connect(tmp_path / "warehouse", odd, tablets=2, batch_rows_max=4) as db:
        db.sql(f"CREATE TABLE t ({DECLARED})")
        as_arrow(db, odd, tmp_path)  # by Spark, as there are more rows than 4
        assert exactly(db.sql("SELECT * FROM t").to_arrow()) == exactly(EXPECTED)
        db.table("t").upsert(EXPECTED.slice(0, 2))
        db.compact("t")
        assert exactly(db.sql("SELECT * FROM t").to_arrow()) == exactly(EXPECTED)
        assert exactly(db.sql("SELECT * FROM t VERSION AS OF :v", v=db.version - 1).to_arrow()) == exactly(EXPECTED)
        file_of(db, live_runs(db, "t")[0]).unlink()
        with pytest.raises(Exception, match="run missing or damaged"):
            db.sql("SELECT * FROM t").rows()


# ---- keys -----------------------------------------------------------------------------------------------


def test_a_key_of_every_type_is_one_key_on_every_path(spark, tmp_path):
    """Each row differs from the first in one column of the key, and Spark and Arrow find it in the same tablet."""
    names = {kind: f"k{i}" for i, kind in enumerate(ATOMS)}
    columns = [Column(name=n, type=kind, nullable=False) for kind, n in names.items()]
    first = {n: ATOMS[kind][1] for kind, n in names.items()}
    keys = [first, *({**first, n: value} for kind, n in names.items() for value in (ATOMS[kind][0],))]
    keys += [{**first, names["float"]: v} for v in (NAN, INFINITY, 0.0)]
    keys += [{**first, names["double"]: v} for v in (NAN, -INFINITY, 0.0)]
    given = types.from_rows(keys, columns, relation="t").append_column("n", pa.array([0] * len(keys), pa.int32()))
    declared = ", ".join(f"{c.name} {c.type}" for c in columns)
    with connect(tmp_path / "warehouse", spark, tablets=8) as db:
        db.sql(f"CREATE TABLE t ({declared}, n INT, PRIMARY KEY ({', '.join(names.values())}))")
        db.table("t").upsert(given)
        assert db.sql("SELECT count(*), sum(n) FROM t").one() == (len(keys), 0)
        with connect(tmp_path / "warehouse", spark, batch_rows_max=0, level0_rows_max=0) as bulk:
            bulk.table("t").upsert(_with_n(given, 1))
            assert bulk.sql("SELECT count(*), sum(n) FROM t").one() == (len(keys), len(keys))
        assert db.sql("SELECT count(*), sum(n) FROM t").one() == (len(keys), len(keys))
        db.compact("t")
        runs = live_runs(db, "t")
        assert {r.level for r in runs} == {1}
        assert sum(r.rows for r in runs) == len(keys)
        db.table("t").upsert(_with_n(given, 2))
        assert db.sql("SELECT count(*), sum(n) FROM t").one() == (len(keys), 2 * len(keys))
        zeros = [{**first, names["float"]: -0.0}, {**first, names["double"]: -0.0}]
        assert db.table("t").delete(zeros).rows == 2
        assert db.sql("SELECT count(*) FROM t").one() == (len(keys) - 2,)
        spark.createDataFrame(given.slice(1, len(keys) - 3)).createOrReplaceTempView("given_keys")
        with pytest.raises(DuplicateKeyError, match="expected a new key"):
            db.sql("INSERT INTO t SELECT * FROM given_keys")
        spark.catalog.dropTempView("given_keys")
        db.table("t").delete(spark.createDataFrame(given))
        assert rows(db, "t") == []


def _with_n(table: pa.Table, value: int) -> pa.Table:
    return table.set_column(table.num_columns - 1, "n", pa.array([value] * table.num_rows, pa.int32()))


# ---- files ----------------------------------------------------------------------------------------------


def test_files_have_statistics_sorted_keys_and_no_int96(spark, tmp_path):
    with connect(tmp_path / "warehouse", spark, tablets=2, batch_rows_max=0, row_group_bytes=2048) as db:
        db.sql("CREATE TABLE t (name STRING, id BIGINT, at TIMESTAMP, naive TIMESTAMP_NTZ, PRIMARY KEY (name, id))")
        instant = dt.datetime(2020, 1, 1, tzinfo=UTC)
        db.table("t").upsert(
            [{"name": f"n{i % 7}", "id": i, "at": instant, "naive": dt.datetime(2020, 1, 1)} for i in range(2000)]
        )
        bulk = live_runs(db, "t")
        db.table("t").upsert([{"name": "n0", "id": -1, "at": instant, "naive": dt.datetime(2020, 1, 1)}])
        with connect(tmp_path / "warehouse", spark) as small:
            small.table("t").upsert([{"name": "n0", "id": -2, "at": instant, "naive": dt.datetime(2020, 1, 1)}])
        level0 = [r for r in live_runs(db, "t") if r.level == 0]
        db.compact("t")
        compacted = live_runs(db, "t")
        assert {r.level for r in bulk} == {r.level for r in compacted} == {1}
        assert sum(r.rows for r in compacted) == 2002
        for run in (*bulk, *level0, *compacted):
            _check_file(file_of(db, run), several_groups=run.level == 1)


def _check_file(file: Path, *, several_groups: bool) -> None:
    parquet = pq.ParquetFile(file)
    assert parquet.metadata.num_row_groups > (1 if several_groups else 0)
    for name in ("at", "naive"):
        at = parquet.schema_arrow.get_field_index(name)
        assert parquet.schema.column(at).physical_type == "INT64"
        assert "microseconds" in str(parquet.schema.column(at).logical_type)
    keys = parquet.read(columns=["name", "id"])
    order = list(zip(keys["name"].to_pylist(), keys["id"].to_pylist(), strict=True))
    assert order == sorted(set(order))
    for group in range(parquet.metadata.num_row_groups):
        found = parquet.metadata.row_group(group)
        for at in range(found.num_columns):
            statistics = found.column(at).statistics
            assert statistics is not None, f"{file.name}: {found.column(at).path_in_schema} has no statistics"
            assert statistics.has_min_max
