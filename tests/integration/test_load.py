"""LOAD: what files become rows, and which are refused, by file and column."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ebla.errors import DuplicateKeyError, LoadError, SqlError, UnknownNameError
from support.warehouse import connect, live_runs, refused, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, name STRING, n INT, price DECIMAL(5,2), at TIMESTAMP, raw BINARY, tags ARRAY<INT>"


@pytest.fixture(scope="module")
def db(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ebla.Database]:
    with connect(tmp_path_factory.mktemp("load") / "warehouse", spark) as db:
        db.sql(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (id))")
        db.table("t").upsert([{"id": 0, "name": "old"}])
        yield db


@pytest.fixture
def empty(db: ebla.Database) -> Iterator[ebla.Database]:
    db.sql("TRUNCATE TABLE t")
    yield db
    db.sql("TRUNCATE TABLE t")


def put(folder: Path, name: str, content: str | bytes | pa.Table) -> Path:
    file = folder / name
    if isinstance(content, pa.Table):
        pq.write_table(content, file)
    else:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


# ---- what is loaded -------------------------------------------------------------------------------------


def test_csv_with_a_header_in_any_order_and_quotes(empty, tmp_path):
    put(tmp_path, "a.csv", 'NAME,id,price\n"a ""b"", c",1,1.50\n,2,\n"",3,"-0.01"\n" ",4,""\n')
    written = empty.sql(f"LOAD INTO t FROM '{tmp_path}/a.csv'").one()
    assert written[0] == 4
    assert rows(empty, "SELECT id, name, price FROM t") == [
        (1, 'a "b", c', Decimal("1.50")),
        (2, None, None),
        (3, "", Decimal("-0.01")),
        (4, " ", None),
    ]


def test_csv_without_a_header_with_a_separator_and_a_mark_of_utf8(empty, tmp_path):
    empty.sql("CREATE TABLE IF NOT EXISTS pairs (id INT PRIMARY KEY, name STRING)")
    put(tmp_path, "a.csv", "1;x\n2;y\n")
    empty.sql(f"LOAD INTO pairs FROM '{tmp_path}/a.csv' WITH (header = false, delimiter = ';')")
    empty.table("pairs").load(str(put(tmp_path, "b.tsv", "\ufeffid\tname\n3\tz\n")))
    assert rows(empty, "pairs") == [(1, "x"), (2, "y"), (3, "z")]


def test_the_path_is_a_parameter_a_pattern_of_directories_and_an_address(empty, tmp_path):
    for day in (1, 2):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        put(folder, "rows.csv", f"id,name\n{day},d{day}\n")
    (tmp_path / "_unfinished").mkdir()
    put(tmp_path / "_unfinished", "rows.csv", "id,name\n9,no\n")
    empty.sql("LOAD INTO t FROM :path", path=f"file://{tmp_path}/*")
    assert rows(empty, "SELECT id, name FROM t") == [(1, "d1"), (2, "d2")]
    empty.sql("LOAD INTO t FROM :path", path=tmp_path / "_unfinished" / "rows.csv")
    assert rows(empty, "SELECT id FROM t") == [(1,), (2,), (9,)]
    with refused(empty, UnknownNameError, "parameter :path: expected a value, found none"):
        empty.sql("LOAD INTO t FROM :path")
    with refused(empty, SqlError, "expected a path, which is a string, found 7"):
        empty.sql("LOAD INTO t FROM :path", path=7)


def test_json_lines_with_missing_fields(empty, tmp_path):
    lines = [{"id": 1, "tags": [1, None]}, {"id": 2, "price": 1.5, "at": "2020-01-02T03:04:05.123456Z"}]
    file = put(tmp_path, "a.jsonl", "\n".join(json.dumps(line) for line in lines))
    assert empty.table("t").load(str(file)).rows == 2
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, 123456, tzinfo=dt.UTC)
    assert rows(empty, "SELECT id, tags, price, at FROM t") == [
        (1, [1, None], None, None),
        (2, None, Decimal("1.50"), moment),
    ]


def test_parquet_of_pandas_with_nanoseconds_and_other_widths(empty, tmp_path):
    moment = pd.Timestamp("1969-12-31 23:59:59.999999")
    frame = pd.DataFrame({"id": pd.Series([1], dtype="uint16"), "n": [7], "at": [moment]})
    frame.to_parquet(tmp_path / "a.parquet")
    assert pq.read_schema(tmp_path / "a.parquet").field("at").type == pa.timestamp("ns")
    assert empty.table("t").load(str(tmp_path / "a.parquet")).rows == 1
    assert rows(empty, "SELECT id, n, at FROM t") == [(1, 7, moment.to_pydatetime().replace(tzinfo=dt.UTC))]


def test_a_directory_of_files_with_different_columns_and_a_name_like_a_pattern(empty, tmp_path):
    folder = tmp_path / "in[1] {a,b}"
    (folder / "deep").mkdir(parents=True)
    put(folder, "a*.parquet", pa.table({"id": [1], "n": pa.array([1], pa.int8())}))
    put(folder, "deep/b?.parquet", pa.table({"name": ["x"], "id": pa.array([2], pa.int32())}))
    put(folder, "_SUCCESS", b"")
    assert empty.table("t").load(str(folder)).rows == 2
    put(folder, "c[2].csv", "id,n\n3,4\n")
    empty.table("t").load(str(folder / "c[2].csv"))
    put(folder, "d{2}.json", '{"id": 4, "n": 5}')
    empty.table("t").load(str(folder / "d{2}.json"))
    assert rows(empty, "SELECT id, name, n FROM t") == [
        (1, None, 1),
        (2, "x", None),
        (3, None, 4),
        (4, None, 5),
    ]


def test_a_load_replaces_rows_of_the_same_key(empty, tmp_path):
    empty.table("t").upsert([{"id": 1, "name": "old"}, {"id": 2, "name": "stays"}])
    put(tmp_path, "a.csv", "id,n\n1,5\n")
    empty.sql(f"LOAD INTO t FROM '{tmp_path}/*.csv'")
    assert rows(empty, "SELECT id, name, n FROM t") == [(1, None, 5), (2, "stays", None)]


def test_a_large_file_goes_by_spark_into_empty_tablets_as_level_1(db, spark, tmp_path):
    put(tmp_path, "a.parquet", pa.table({"id": list(range(1000)), "n": pa.array(range(1000), pa.int32())}))
    with connect(db.context.catalog.where, spark, batch_rows_max=100) as bulk:
        bulk.sql("CREATE TABLE large (id BIGINT PRIMARY KEY, n INT)")
        assert bulk.table("large").load(str(tmp_path / "a.parquet")).rows == 1000
        assert sorted((r.level, r.tablet) for r in live_runs(bulk, "large")) == [(1, t) for t in range(4)]
        assert bulk.sql("SELECT count(*), sum(id), sum(n) FROM large").one() == (1000, 499500, 499500)
        # The same again lies over it.
        bulk.table("large").load(str(tmp_path / "a.parquet"))
        assert {r.level for r in live_runs(bulk, "large")} == {0, 1}
        assert bulk.sql("SELECT count(*), sum(id), sum(n) FROM large").one() == (1000, 499500, 499500)


# ---- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        # unreadable
        ("a.parquet", b"hello, I am no Parquet file", ("expected a Parquet file",)),
        ("a.csv", b"id,name\n1,\xff\xfe\n", (", line 2: expected UTF-8, found byte 0xff",)),
        ("a.csv", "", ("expected a header line, found an empty file",)),
        ("a.json", '{"id": 1,\n', (", line 1: expected a name in quotes, found the end",)),
        ("a.json", "no json at all", ("found no json at all",)),
        # columns
        ("a.csv", "id,nope\n1,2\n", ("column 'nope'", "t's columns id, name, n", "WITH (header = false)")),
        ("a.csv", "id,n,N\n1,2,3\n", ("column 'N': expected each column once",)),
        ("a.csv", "name,n\nx,2\n", ("column id: expected a value for every row, found no such column",)),
        ("a.csv", "id,n\n1,2,3\n", (", line 2: expected 2 columns (id, n), found 1,2,3",)),
        ("a.csv", "id,n\n1\n", (", line 2: expected 2 columns (id, n), found 1",)),
        ("a.csv", "id,tags\n1,2\n", ("column tags: expected a type that CSV can hold, found array<int>",)),
        ("a.json", '{"id": 1, "nope": 2}', ("column nope", "t's columns id, name, n")),
        ("a.parquet", pa.table({"id": [1], "nope": [2]}), ("column nope", "t's columns id, name, n")),
        ("a.parquet", pa.table({"name": ["x"]}), ("column id: expected a value for every row",)),
        ("a.parquet", pa.table([[1], [2], [3]], ["id", "n", "N"]), ("column N: expected each column once",)),
        # values
        ("a.csv", "id,n\n1,2\n2,abc\n", ("column n: expected int, found abc",)),
        ("a.csv", "id,n\n1,3000000000\n", ("column n: expected int, found 3000000000",)),
        ("a.csv", "id,price\n1,1.239\n", ("column price: expected decimal(5,2), found 1.239",)),
        ("a.csv", "id,price\n1,1000\n", ("column price: expected decimal(5,2), found 1000",)),
        ("a.csv", "id,at\n1,yesterday\n", ("column at: expected timestamp, found yesterday",)),
        ("a.csv", "id,raw\n1,@@@\n", ("column raw: expected binary, found @@@",)),
        ("a.csv", "id,n\n1,2\n,2\n", (", line 3: column id: expected bigint NOT NULL, found NULL",)),
        ("a.json", '{"id": 1, "n": "x"}', (', line 1: column n: expected int, found "x" (a text)',)),
        ("a.json", '{"id": 1, "n": 3000000000}', ("column n: expected int, found 3000000000 (out of range)",)),
        ("a.json", '{"id": 1, "price": 1.239}', ("column price: expected decimal(5,2), found 1.239",)),
        ("a.json", '{"id": 1}\n\n{"n": 1}', (", line 3: column id: expected bigint NOT NULL, found NULL",)),
        ("a.parquet", pa.table({"id": [1], "n": ["x"]}), ("column n: expected int, found string",)),
        ("a.parquet", pa.table({"id": [1], "n": [2**40]}), ("column n: expected int, found 1099511627776",)),
        ("a.parquet", pa.table({"id": pa.array([None], pa.int64())}), ("column id: expected a value, found NULL",)),
        (
            "a.parquet",
            pa.table({"id": [1], "at": pa.array([1_001], pa.timestamp("ns"))}),
            ("column at: expected microseconds, found nanoseconds 1001",),
        ),
        (
            "a.parquet",
            pa.table({"id": [1], "tags": pa.array([[1, 2**40]])}),
            ("column tags element: expected int, found 1099511627776",),
        ),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_its_column(db, tmp_path, name, content, parts):
    folder = tmp_path / "some files"
    folder.mkdir()
    file = put(folder, name, content)
    with refused(db, LoadError, str(file), *parts):
        db.table("t").load(str(file))


def test_only_the_wrong_file_of_several_is_named(db, tmp_path):
    put(tmp_path, "a.csv", "id,n\n1,2\n")
    put(tmp_path, "b.csv", "id,n\n2,x\n")
    with refused(db, LoadError, "b.csv, line 2: column n: expected int, found x (not a number)"):
        db.table("t").load(str(tmp_path / "*.csv"))


def test_a_file_with_damaged_pages(db, spark, tmp_path):
    file = put(tmp_path, "a.parquet", pa.table({"id": list(range(1000)), "name": [str(i) for i in range(1000)]}))
    content = bytearray(file.read_bytes())
    content[30:2000] = b"\xff" * 1970
    file.write_bytes(content)
    with refused(db, LoadError, "a.parquet"):
        db.table("t").load(str(file))
    with connect(db.context.catalog.where, spark, batch_rows_max=10) as bulk, refused(bulk, LoadError, "a.parquet"):
        bulk.table("t").load(str(file))


def test_files_that_are_not_there_or_of_unknown_or_mixed_kinds(db, tmp_path):
    with refused(db, LoadError, f"{tmp_path}/nope.csv: expected at least one file, found none"):
        db.table("t").load(f"{tmp_path}/nope.csv")
    file = put(tmp_path, "a.dat", "id\n1\n")
    with refused(db, LoadError, f"{file}: expected a name that ends in .parquet", "give FORMAT"):
        db.table("t").load(str(file))
    put(tmp_path, "a.csv", "id\n1\n")
    file.rename(tmp_path / "b.json")
    with refused(db, LoadError, "expected files of one format, found ['csv', 'json']"):
        db.table("t").load(str(tmp_path))
    with refused(db, LoadError, "FORMAT: expected parquet, csv or json, found xml"):
        db.table("t").load(str(tmp_path), format="xml")


def test_options_that_would_be_ignored(db, tmp_path):
    file = put(tmp_path, "a.csv", "id\n1\n")
    with refused(db, UnknownNameError, "WITH: expected one of", "delimiter", "for csv files, found delimeter"):
        db.sql(f"LOAD INTO t FROM '{file}' WITH (delimeter = ';')")
    with refused(db, UnknownNameError, "WITH: expected no option for parquet files, found header"):
        db.sql(f"LOAD INTO t FROM '{file}' FORMAT parquet WITH (header = true)")


def test_a_key_twice_in_the_files(db, spark, tmp_path):
    put(tmp_path, "a.csv", "id,n\n5,1\n6,1\n")
    put(tmp_path, "b.csv", "id,n\n7,1\n5,2\n")
    with refused(db, DuplicateKeyError, "t: expected each key once", "id = 5"):
        db.table("t").load(str(tmp_path))
    for name in ("a", "b"):
        put(tmp_path, f"{name}.parquet", pa.table({"id": [5, 6 if name == "a" else 7]}))
    bulk = connect(db.context.catalog.where, spark, batch_rows_max=1)
    with bulk, refused(bulk, DuplicateKeyError, "t: expected each key once", "id = 5"):
        bulk.table("t").load(str(tmp_path / "*.parquet"))
