"""`format("ebla")`: snapshots, changes, streams and writes through Spark's Python data source.

Spark runs every step of a Python source in a process of its own, which takes its time. So a few tests go through
Spark, and the others take the same steps in this process, with pickling between them as Spark has it.
"""

from __future__ import annotations

import datetime as dt
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from sqlalchemy import select

import ebla
from ebla.catalog import schema as s
from ebla.errors import (
    CatalogError,
    ConflictError,
    CorruptRunError,
    DuplicateKeyError,
    EblaError,
    SnapshotError,
    TransactionClosedError,
    TypeMismatchError,
    UnknownNameError,
    UsageError,
)
from ebla.model.lifecycle.index import Permission
from ebla.source import commit as source_commit
from ebla.source import duplicate_keys
from ebla.source import read as source_read
from ebla.source import write as source_write
from ebla.source.data_source import EblaDataSource
from ebla.source.partition_writer import PartitionWriter
from ebla.storage.files import MARKER
from ebla.tables import truncation
from ebla.tables.commit import Commit
from ebla.values import types
from support.indexes import assert_exact, begin_index, step_until
from support.warehouse import names_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]


# ---- the same steps as Spark's --------------------------------------------------------------------------


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(str(tmp_path / "warehouse"), spark, auto_compact=False, tablets=4) as database:
        yield database


def copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def source(db: ebla.Database, table: str, **options: object) -> EblaDataSource:
    texts = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in options.items()}
    return EblaDataSource(CaseInsensitiveDict({"url": db.context.catalog.where, "table": table, **texts}))


def pulled(db: ebla.Database, table: str, **options: object) -> pa.Table:
    """What a batch read gives, step by step in this process."""
    made = source(db, table, **options)
    schema = made.schema()
    reader = copied(copied(made).reader(schema))
    batches = [b for part in reader.partitions() for b in reader.read(copied(part))]
    return pa.Table.from_batches(batches, schema=reader.layout.schema)


def rows_of(reader: Any, *offsets: Any) -> list[Row]:
    return [row for part in reader.partitions(*offsets) for b in reader.read(copied(part)) for row in b.to_pylist()]


def bag(rows: Any) -> Counter[str]:
    """Rows as a bag, whatever their order; of an Arrow table, a DataFrame or a list of dicts."""
    if not isinstance(rows, list):
        rows = (rows if isinstance(rows, pa.Table) else rows.toArrow()).to_pylist()
    return Counter(repr(sorted(row.items())) for row in rows)


def loaded(spark: SparkSession, db: ebla.Database, table: str, **options: object) -> DataFrame:
    reader = spark.read.format("ebla").option("url", db.context.catalog.where).option("table", table)
    for name, value in options.items():
        reader = reader.option(name, value)  # type: ignore[arg-type]
    return reader.load()


@pytest.fixture(params=["one part", "a part per tablet"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "one part":
        monkeypatch.setattr(source_read, "PART_BYTES", 0)


def orders(db: ebla.Database, *, name: str = "orders") -> ebla.Table:
    db.sql(f"CREATE TABLE {name} (id BIGINT, name STRING, total INT, PRIMARY KEY (id))")
    return db.table(name)


def order(number: int, mark: str = "a") -> Row:
    return {"id": number, "name": f"{mark}{number}", "total": number * 10}


# ---- snapshots ------------------------------------------------------------------------------------------


def test_spark_finds_the_source_and_reads_what_scan_reads(spark: SparkSession, db: ebla.Database):
    table = orders(db)
    table.upsert([order(n) for n in range(100)])
    db.compact("orders")
    table.upsert([order(n, "b") for n in range(90, 120)])
    table.delete([{"id": 3}, {"id": 95}])
    read = loaded(spark, db, "orders")
    assert read.schema == table.scan().schema
    assert bag(read) == bag(table.scan())
    assert read.filter("id = 91").count() == 1
    assert read.count() == table.scan().count()  # a filter of one query is none of another's
    table.upsert([order(1000)])
    assert read.filter("id = 1000").count() == 0  # a loaded DataFrame stays at its version


def test_every_state_of_the_runs_reads_as_scan_does(db: ebla.Database, parts: None):
    table = orders(db)
    states = [db.version]
    assert pulled(db, "orders").num_rows == 0
    for step in (
        lambda: table.upsert([order(n) for n in range(50)]),
        lambda: table.upsert([order(n, "b") for n in range(40, 60)]),
        lambda: table.delete([{"id": n} for n in (0, 45, 59, 1000)]),
        lambda: db.compact("orders"),
        lambda: table.upsert([order(0, "c"), order(45, "c"), order(7, "c")]),
        lambda: table.delete([{"id": 45}, {"id": 8}]),
        lambda: truncation.truncate(db.context.catalog, db.context.node, db.context.holder, "orders"),
        lambda: table.upsert([order(1, "d"), order(2, "d")]),
    ):
        step()
        states.append(db.version)
        assert bag(pulled(db, "orders")) == bag(table.scan())
    for version in states:
        assert bag(pulled(db, "orders", version=version)) == bag(table.scan(version))


EVERY_TYPE = {
    "flag": ("boolean", True),
    "tiny": ("tinyint", -7),
    "small": ("smallint", 300),
    "whole": ("int", 2**31 - 1),
    "large": ("bigint", -(2**63)),
    "single": ("float", 1.5),
    "real": ("double", float("nan")),
    "price": ("decimal(38,10)", Decimal("12345678901234567890.0123456789")),
    "text": ("string", "Ebla تل مرديخ"),
    "bytes": ("binary", b"\x00\xff"),
    "day": ("date", dt.date(1, 1, 1)),
    "moment": ("timestamp", dt.datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=dt.UTC)),
    "clock": ("timestamp_ntz", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    "list": ("array<string>", ["a", None, "b"]),
    "map": ("map<string,array<decimal(10,2)>>", {"k": [Decimal("1.20"), None]}),
    "record": ("struct<a:int,b:struct<c:timestamp,d:array<map<string,int>>>>",
               {"a": 1, "b": {"c": dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "d": [{"x": 1}, None]}}),
}  # fmt: skip


def create_every_type(db: ebla.Database) -> ebla.Table:
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _) in EVERY_TYPE.items())
    db.sql(f"CREATE TABLE every_type (id INT, {columns}, PRIMARY KEY (id))")
    return db.table("every_type")


def test_every_type_is_read_and_written_through_spark(spark: SparkSession, db: ebla.Database):
    table = create_every_type(db)
    table.upsert([{"id": 1, **{name: value for name, (_, value) in EVERY_TYPE.items()}}, {"id": 2}])
    db.compact("every_type")
    table.upsert([{"id": 3, **{name: value for name, (_, value) in EVERY_TYPE.items()}}])
    read = loaded(spark, db, "every_type")
    assert read.schema == table.scan().schema
    for name, (kind, _) in EVERY_TYPE.items():
        assert read.schema[name].dataType == types.to_spark(kind)
    assert bag(read) == bag(table.scan())
    db.sql(
        f"CREATE TABLE copy (id INT, {', '.join(f'`{n}` {k}' for n, (k, _) in EVERY_TYPE.items())}, PRIMARY KEY (id))"
    )
    save(read, db, "copy")
    assert bag(db.table("copy").scan()) == bag(table.scan())
    assert bag(pulled(db, "copy")) == bag(table.scan())


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("boolean", [False, True]),
        ("double", [0.0, -1.5, float("nan"), float("inf")]),
        ("decimal(38,3)", [Decimal("1.5"), Decimal("-2.125")]),
        ("string", ["", "a", "ä", "z" * 300]),
        ("binary", [b"", b"\x00", b"\xff"]),
        ("date", [dt.date(1960, 1, 1), dt.date(2024, 1, 1)]),
        ("timestamp", [dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]),
    ],
)
def test_keys_of_every_type_are_found_again(db: ebla.Database, kind: str, keys: list[Any]):
    db.sql(f"CREATE TABLE k (k {kind}, part INT, v INT, PRIMARY KEY (k, part))")
    table = db.table("k")
    table.upsert([{"k": key, "part": part, "v": 1} for key in keys for part in (1, 2)])
    db.compact("k")
    since = db.version
    table.upsert([{"k": key, "part": 1, "v": 2} for key in keys])
    table.delete([{"k": keys[0], "part": 2}])
    assert bag(pulled(db, "k")) == bag(table.scan())
    assert bag(pulled(db, "k", since=since, old=True)) == bag(table.changes(since, old=True))


def test_a_table_without_a_key_keeps_its_duplicates(db: ebla.Database, parts: None):
    db.sql("CREATE TABLE log (who STRING, what INT)")
    table = db.table("log")
    table.upsert([{"who": "a", "what": 1}] * 3 + [{"who": "b", "what": None}] * 2)
    since = db.version
    db.compact("log")
    table.upsert([{"who": "a", "what": 1}])
    db.sql("DELETE FROM log WHERE who = 'b'")
    assert bag(pulled(db, "log")) == bag([{"who": "a", "what": 1}] * 4) == bag(table.scan())
    assert bag(pulled(db, "log", since=since)) == bag(table.changes(since))


def test_columns_that_came_went_and_changed(db: ebla.Database, parts: None):
    db.sql("CREATE TABLE t (id INT, a INT, b STRING, c FLOAT, PRIMARY KEY (id))")
    table = db.table("t")
    table.upsert([{"id": n, "a": n, "b": f"b{n}", "c": n / 2} for n in range(20)])
    db.compact("t")
    first = db.version
    db.sql("ALTER TABLE t ADD COLUMN d DATE")
    db.sql("ALTER TABLE t RENAME COLUMN a TO renamed")
    db.sql("ALTER TABLE t DROP COLUMN b")
    db.sql("ALTER TABLE t ALTER COLUMN renamed TYPE BIGINT")
    db.sql("ALTER TABLE t ALTER COLUMN c TYPE DOUBLE")
    db.sql("ALTER TABLE t ADD COLUMN b INT")  # another column of an old name
    assert bag(pulled(db, "t")) == bag(table.scan())
    table.upsert([{"id": n, "renamed": 2**40, "c": 0.1, "d": dt.date(2024, 1, n), "b": n} for n in (1, 2)])
    table.delete([{"id": 3}])
    assert bag(pulled(db, "t")) == bag(table.scan())
    assert bag(pulled(db, "t", version=first)) == bag(table.scan(first))
    assert set(pulled(db, "t", version=first).column_names) == {"id", "a", "b", "c"}
    assert bag(pulled(db, "t", since=first, old=True)) == bag(table.changes(first, old=True))


def test_a_given_schema_reads_only_its_columns(spark: SparkSession, db: ebla.Database):
    table = orders(db)
    table.upsert([order(n) for n in range(20)])
    db.compact("orders")
    table.upsert([order(1, "b")])
    reader = spark.read.format("ebla").option("url", db.context.catalog.where).option("table", "orders")
    assert bag(reader.schema("total int").load()) == bag(table.scan().select("total"))
    assert bag(reader.schema("name string, ID bigint").load()) == bag(table.scan().selectExpr("name", "id as ID"))
    with pytest.raises(PySparkException, match=r"orders\.total: expected int in the schema to read, found bigint"):
        reader.schema("total bigint").load().collect()
    with pytest.raises(PySparkException, match="orders: expected columns id, name, total; found unknown column x"):
        reader.schema("x int").load().collect()


def test_a_damaged_run_is_named(db: ebla.Database):
    table = orders(db)
    table.upsert([order(n) for n in range(20)])
    made = source(db, "orders")
    reader = made.reader(made.schema())
    path = next(Path(db.context.catalog.where).glob("data/*/*.parquet"))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(
        CorruptRunError, match=rf"orders: run r\d+/{path.name} missing or damaged.*affected tablets 0-3"
    ):
        [list(reader.read(part)) for part in reader.partitions()]


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"table": "nothing"}, UnknownNameError, "table nothing: expected a table of this name, found none"),
        ({"version": 10**6}, SnapshotError, r"orders: expected a version up to \d+, found 1000000"),
        ({"version": 1}, SnapshotError, r"orders: expected version \d+ or later \(when it was created\), found 1"),
        ({"version": "soon"}, UsageError, "option version: expected a whole number from 0 on, found 'soon'"),
        ({"since": 10**6}, UsageError, "expected since <= until"),
        ({"since": 0, "until": 10**6}, SnapshotError, r"expected a version up to \d+, found 1000000"),
        ({"since": 0, "version": 3}, UsageError, "expected only one of version and since"),
        ({"until": 3}, UsageError, "option until: expected since with it"),
        ({"old": True}, UsageError, "option old: expected a read of changes"),
        ({"since": 0, "old": "maybe"}, UsageError, "option old: expected true or false, found 'maybe'"),
        ({"tabel": "orders"}, UnknownNameError, "option tabel: expected one of url, table, version"),
        ({"nodes": "node2"}, UsageError, "option nodes: expected a JSON object of node to storage root, found 'node2'"),
        ({"fsync": "perhaps"}, UsageError, "setting fsync"),
        ({"url": ""}, UsageError, r'option url: expected a value, found none; add .option\("url"'),
        ({"url": "./nowhere"}, CatalogError, "expected an Ebla warehouse, found none"),
        ({"startingVersion": 1}, UsageError, "expected since .* found an option of streams"),
    ],
)
def test_wrong_options_say_what_is_expected(
    db: ebla.Database, options: dict[str, Any], error: type[EblaError], says: str
):
    orders(db)
    with pytest.raises(error, match=says):
        pulled(db, **{"table": "orders", **options})


def test_an_error_of_ebla_reaches_the_user_of_spark(spark: SparkSession, db: ebla.Database):
    with pytest.raises(PySparkException, match="UnknownNameError: table nothing: expected a table of this name"):
        loaded(spark, db, "nothing")


def test_reading_below_the_horizon_is_refused_and_a_loaded_version_is_kept(db: ebla.Database):
    table = orders(db)
    table.upsert([order(1)])
    old = db.version
    table.upsert([order(1, "b")])
    db.compact("orders")
    made = source(db, "orders", version=db.version)
    schema = made.schema()
    kept = db.version
    table.upsert([order(1, "c")])
    db.compact("orders")
    db.vacuum(retain_s=0)
    with pytest.raises(SnapshotError, match=rf"expected a snapshot at version {kept} or later, found {old}"):
        pulled(db, "orders", version=old)
    with pytest.raises(SnapshotError, match=rf"expected a change at version {kept} or later, found {old}"):
        pulled(db, "orders", since=old)
    assert rows_of(made.reader(schema)) == [order(1, "b")]


# ---- changes --------------------------------------------------------------------------------------------


def net(before: dict[int, Row], after: dict[int, Row], *, old: bool) -> Counter[str]:
    """Net changes between two states, without the columns of the commits."""
    rows: list[Row] = []
    for key in before.keys() | after.keys():
        if key not in before:
            rows.append({**after[key], "_change_type": "insert"})
        elif key not in after:
            rows.append({**before[key], "_change_type": "delete"})
        else:
            rows.append({**after[key], "_change_type": "update_postimage"})
            if old:
                rows.append({**before[key], "_change_type": "update_preimage"})
    return bag(rows)


class History:
    """A table that changes at random, and what it held at every version."""

    def __init__(self, db: ebla.Database, seed: int, name: str = "orders") -> None:
        self.db = db
        self.name = name
        self.table = orders(db, name=name)
        self.random = random.Random(seed)
        self.rows: dict[int, Row] = {}
        self.states: dict[int, dict[int, Row]] = {db.version: {}}
        self.touched: dict[int, set[int]] = {}

    def step(self) -> None:
        keys = self.random.sample(range(40), self.random.randint(1, 12))
        match self.random.choice(["upsert"] * 4 + ["delete"] * 3 + ["compact", "truncate"]):
            case "upsert":
                rows = [order(k, self.random.choice("abc")) for k in keys]
                self.table.upsert(rows)
                self.rows = {**self.rows, **{r["id"]: r for r in rows}}
            case "delete":
                self.table.delete([{"id": k} for k in keys])
                self.rows = {k: r for k, r in self.rows.items() if k not in keys}
            case "compact":
                self.db.compact(self.name)
                keys = []
            case _:
                truncation.truncate(self.db.context.catalog, self.db.context.node, self.db.context.holder, self.name)
                keys = list(self.rows)
                self.rows = {}
        for version in range(max(self.states) + 1, self.db.version + 1):
            self.states[version] = self.rows
            self.touched[version] = set(keys)

    def net(self, since: int, until: int, *, old: bool) -> Counter[str]:
        """Of the keys that a commit touched, also those that are again what they were."""
        keys = set().union(*[self.touched.get(v, set()) for v in range(since + 1, until + 1)])
        before, after = ({k: r for k, r in self.states[v].items() if k in keys} for v in (since, until))
        return net(before, after, old=old)


def without_commits(table: pa.Table) -> pa.Table:
    return table.drop_columns(["_commit_version", "_commit_timestamp"])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_net_changes_of_random_histories(db: ebla.Database, parts: None, seed: int):
    history = History(db, seed)
    for _ in range(14):
        history.step()
    versions = sorted(history.states)
    for since in versions:
        for until in versions[versions.index(since) :: 3]:
            old = bool((since + until) % 2)
            found = pulled(db, "orders", since=since, until=until, old=old)
            assert bag(without_commits(found)) == history.net(since, until, old=old), (seed, since, until)


@pytest.mark.parametrize("old", [False, True])
def test_changes_are_those_of_the_table(spark: SparkSession, db: ebla.Database, old: bool):
    history = History(db, 4)
    for _ in range(10):
        history.step()
    since, until = sorted(history.states)[2], db.version - 1
    expected = history.table.changes(since, until, old=old)
    read = loaded(spark, db, "orders", since=since, until=until, old=old)
    assert read.schema.simpleString() == expected.schema.simpleString()
    assert bag(read) == bag(expected)
    assert bag(pulled(db, "orders", since=since, until=until, old=old)) == bag(expected)
    assert bag(pulled(db, "orders", since=0)) == bag(history.table.changes(0))


def test_changes_read_only_the_row_groups_that_they_touch(db: ebla.Database, monkeypatch: pytest.MonkeyPatch):
    table = orders(db)
    # Several row groups in one run, as a bulk write leaves them.
    monkeypatch.setattr("ebla.source.partition_writer.FILE_ROWS_MIN", 1)
    written(db, "orders", [pa.table({"id": range(300_000), "total": pa.array(range(300_000), pa.int32())})])
    since = db.version
    table.upsert([order(7, "b")])
    table.delete([{"id": 299_999}])
    made = source(db, "orders", since=since, old=True)
    reader = made.reader(made.schema())
    (part,) = reader.partitions()
    read: list[int] = []
    real = pa.parquet.ParquetFile.iter_batches

    def counting(file: Any, rows: int, groups: Any, columns: Any) -> Any:
        read.extend(groups)
        return real(file, rows, groups, columns)

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", counting)
    found = pa.Table.from_batches(list(reader.read(part)), schema=reader.layout.schema)  # type: ignore[attr-defined]
    kinds = sorted((r["_change_type"], r["id"], r["name"]) for r in found.to_pylist())
    assert kinds == [
        ("delete", 299_999, None), ("update_postimage", 7, "b7"), ("update_preimage", 7, None),
    ]  # fmt: skip
    assert len(read) == 2 + 2  # two row groups of level 1, and the two level 0 runs


# ---- writes ---------------------------------------------------------------------------------------------


def save(frame: DataFrame, db: ebla.Database, table: str, mode: str = "append", **options: object) -> None:
    writer = frame.write.format("ebla").option("url", db.context.catalog.where).option("table", table).mode(mode)
    for name, value in options.items():
        writer = writer.option(name, value)  # type: ignore[arg-type]
    writer.save()


def begun(
    db: ebla.Database, table: str, schema: pa.Schema, *, overwrite: bool = False, **options: object
) -> source_write.EblaWriter:
    fields = ", ".join(f"`{f.name}` {types.from_arrow(f.type)}" for f in schema)
    spark_schema = types.to_spark(f"struct<{fields.replace('` ', '`:')}>")
    writer = source(db, table, **options).writer(spark_schema, overwrite)  # type: ignore[arg-type]
    assert isinstance(writer, source_write.EblaWriter)
    return copied(writer)  # type: ignore[no-any-return]


def attempt(writer: source_write.EblaWriter, rows: pa.Table, *, attempt: int, partition: int = 0) -> Any:
    task = PartitionWriter(copied(writer), attempt=attempt, partition=partition)
    return copied(task.run(iter(rows.to_batches(max_chunksize=100))))


def written(
    db: ebla.Database, table: str, tasks: list[pa.Table], *, overwrite: bool = False, **options: object
) -> None:
    """A write, step by step in this process: one task for each Arrow table."""
    writer = begun(db, table, tasks[0].schema, overwrite=overwrite, **options)
    writer.commit([attempt(writer, rows, attempt=n, partition=n) for n, rows in enumerate(tasks)])


def files(db: ebla.Database) -> set[str]:
    """Everything below the root but its marker."""
    root = Path(db.context.catalog.where) / "data"
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.name != MARKER}


def manifest(db: ebla.Database) -> set[str]:
    with db.context.catalog.reading() as connection:
        return set(connection.execute(select(s.runs.c.path)).scalars())


def levels(db: ebla.Database) -> Counter[int]:
    with db.context.catalog.reading() as connection:
        return Counter(connection.execute(select(s.runs.c.level).where(s.runs.c.end_version > db.version)).scalars())


def open_transactions(db: ebla.Database) -> list[int]:
    with db.context.catalog.reading() as connection:
        query = select(s.transactions.c.transaction_id).where(s.transactions.c.state == "open")
        return list(connection.execute(query).scalars())


def test_append_upserts_in_one_commit_and_overwrite_replaces_in_one(spark: SparkSession, db: ebla.Database):
    table = orders(db)
    table.upsert([order(n) for n in range(10)])
    before = db.version
    rows = spark.range(5, 25, numPartitions=3).selectExpr(
        "id AS ID", "concat('s', id) AS name", "cast(id AS INT) total"
    )
    save(rows, db, "orders")
    assert db.version == before + 1
    assert bag(table.scan()) == bag([order(n) for n in range(5)]) + bag(rows.withColumnRenamed("ID", "id"))
    assert bag(loaded(spark, db, "orders", since=before)) == bag(table.changes(before))

    save(spark.range(8, 11).select("id"), db, "orders", "overwrite")
    assert db.version == before + 2
    assert bag(table.scan()) == bag([{"id": n, "name": None, "total": None} for n in (8, 9, 10)])
    assert bag(table.scan(before + 1)) == bag([order(n) for n in range(5)]) + bag(rows.withColumnRenamed("ID", "id"))
    assert open_transactions(db) == []
    assert files(db) == manifest(db)


def test_changes_of_an_overwrite(db: ebla.Database, parts: None):
    table = orders(db)
    table.upsert([order(n) for n in range(10)])
    since = db.version
    written(db, "orders", [pa.Table.from_pylist([order(n, "b") for n in range(5, 15)])], overwrite=True)
    kinds = Counter(r["_change_type"] for r in pulled(db, "orders", since=since).to_pylist())
    assert kinds == {"delete": 5, "update_postimage": 5, "insert": 5}
    assert bag(pulled(db, "orders", since=since, old=True)) == bag(table.changes(since, old=True))
    written(db, "orders", [pa.table({"id": pa.array([], pa.int64())})], overwrite=True)
    assert table.scan().count() == pulled(db, "orders").num_rows == 0


def test_an_append_of_nothing_commits_nothing(spark: SparkSession, db: ebla.Database):
    orders(db)
    before = db.version
    save(spark.range(0).select("id"), db, "orders")
    assert db.version == before
    assert open_transactions(db) == []


def test_many_rows_go_through_local_disk_into_sorted_tablets(db: ebla.Database):
    db.sql("CREATE TABLE big (a STRING, b INT, v DOUBLE, PRIMARY KEY (a, b))")
    table = db.table("big")
    rows = [{"a": f"k{n % 997}", "b": n, "v": n / 3} for n in range(12_000)]
    random.Random(5).shuffle(rows)
    halves = [pa.Table.from_pylist(rows[:6000]), pa.Table.from_pylist(rows[6000:])]
    halves = [h.set_column(1, "b", h["b"].cast(pa.int32())) for h in halves]
    written(db, "big", halves, batch_rows_max=1000)
    assert levels(db) == {1: 8}  # two tasks, four tablets, all of them empty before
    assert bag(pulled(db, "big")) == bag(rows) == bag(table.scan())
    for path in manifest(db):
        run = pa.parquet.read_table(Path(db.context.catalog.where) / "data" / path)
        assert run.column_names == ["a", "b", "v"]
        keys = list(zip(run["a"].to_pylist(), run["b"].to_pylist(), strict=True))
        assert keys == sorted(keys)
    written(db, "big", halves, batch_rows_max=1000)
    assert levels(db) == {1: 8, 0: 8}
    assert bag(pulled(db, "big")) == bag(rows) == bag(table.scan())
    written(db, "big", halves, batch_rows_max=1000, overwrite=True)
    assert levels(db) == {1: 8}
    db.compact("big")
    assert bag(pulled(db, "big")) == bag(rows) == bag(table.scan())


def test_many_rows_in_more_tablets_than_are_worth_a_file(db: ebla.Database):
    table = orders(db)
    rows = pa.Table.from_pylist([order(n) for n in range(3000)]).cast(
        pa.schema([("id", pa.int64()), ("name", pa.string()), ("total", pa.int32())])
    )
    written(db, "orders", [rows], batch_rows_max=1000)
    assert levels(db) == {0: 3}
    assert bag(pulled(db, "orders")) == bag(rows) == bag(table.scan())


def test_a_write_to_a_table_without_a_key_keeps_every_row(db: ebla.Database):
    db.sql("CREATE TABLE log (who STRING)")
    rows = pa.table({"who": ["a"] * 2500})
    written(db, "log", [rows, rows, rows], batch_rows_max=1000)
    written(db, "log", [rows])
    assert pulled(db, "log").num_rows == db.table("log").scan().count() == 10_000


# ---- indexes --------------------------------------------------------------------------------------------


def indexed(db: ebla.Database, *indexes: str) -> ebla.Table:
    table = orders(db)
    table.upsert([order(n) for n in range(20)])
    db.compact("orders")
    table.upsert([order(n, "b") for n in range(3)])
    for text in indexes:
        db.sql(f"CREATE {text}")
    return table


def some(*numbers: int, mark: str = "s", total: int | None = None) -> pa.Table:
    rows = [{**order(n, mark), "total": n * 10 if total is None else total} for n in numbers]
    return pa.Table.from_pylist(rows).cast(
        pa.schema([("id", pa.int64()), ("name", pa.string()), ("total", pa.int32())])
    )


def test_indexes_are_kept_in_the_commit_of_the_rows(db: ebla.Database):
    indexed(db, "INDEX i ON orders (name DESC) INCLUDE (total)", "UNIQUE INDEX u ON orders (name)",
            "INDEX p ON orders (total, name) WHERE total >= 100")  # fmt: skip
    before = db.version
    written(db, "orders", [some(1, 5, 30), some(2, 31)], batch_rows_max=2)
    assert db.version == before + 1
    assert_exact(db, "i", "u", "p")
    written(db, "orders", [some(7, 8, mark="t")], overwrite=True)
    assert_exact(db, "i", "u", "p")
    assert db.query("orders", order_by="-name", columns=["id"]).rows() == [(8,), (7,)]
    assert files(db) == manifest(db)


def test_rows_in_several_pieces_and_without_a_key(db: ebla.Database):
    indexed(db, "INDEX i ON orders (total)")
    written(db, "orders", [some(*range(5, 30)), some(*range(40, 47))], batch_rows_max=4)
    assert_exact(db, "i")
    db.sql("CREATE TABLE log (who STRING); CREATE INDEX w ON log (who)")
    for _ in range(2):
        written(db, "log", [pa.table({"who": ["a", "b", "a"]})], batch_rows_max=2)
    assert_exact(db, "w")
    assert db.query("log", where={"who": "a"}).to_arrow().num_rows == 4


@pytest.mark.parametrize(
    "rows", [some(1, 2, mark="twice", total=0).set_column(1, "name", pa.array(["x", "x"])), some(9, mark="b")],
    ids=["in the frame", "in the table"],
)  # fmt: skip
def test_a_unique_index_refuses_a_value_that_is_there(db: ebla.Database, rows: pa.Table):
    table = indexed(db, "UNIQUE INDEX u ON orders (name)")
    table.upsert([{"id": 50, "name": "b9"}])
    before = bag(table.scan())
    with pytest.raises(DuplicateKeyError, match="unique index u of orders: expected every value once, found name ="):
        written(db, "orders", [rows])
    assert bag(table.scan()) == before
    assert_exact(db, "u")
    assert open_transactions(db) == []
    assert files(db) == manifest(db)


@pytest.mark.parametrize("key", [5, 6], ids=["another key", "the same key"])
@pytest.mark.parametrize("kind", ["INDEX", "UNIQUE INDEX"])
def test_a_write_that_comes_between_costs_no_entry(
    db: ebla.Database, monkeypatch: pytest.MonkeyPatch, kind: str, key: int
):
    """Entries are made again only where a unique index has to be asked again."""
    table = indexed(db, f"{kind} i ON orders (name)")
    made = []
    real = source_commit.follow

    def make(commit: Commit) -> None:
        real(commit)
        made.append(commit.seen)
        if len(made) == 1:
            table.upsert([order(key, "between")])

    monkeypatch.setattr(source_commit, "follow", make)
    written(db, "orders", [some(6)])
    assert len(made) == (2 if key == 6 and kind == "UNIQUE INDEX" else 1)
    assert_exact(db, "i")
    assert db.query("orders", where={"id": 6}, columns=["name"]).one() == ("s6",)
    assert files(db) == manifest(db)


def test_a_write_that_began_before_an_index_keeps_it(db: ebla.Database):
    indexed(db)
    writer = begun(db, "orders", some(1).schema)
    done = attempt(writer, some(1, 77), attempt=1)
    begin_index(db, "CREATE INDEX i ON orders (name)")
    writer.commit([done])
    step_until(db, "i", Permission.READ_WRITE_AND_DELETE)
    assert_exact(db, "i")


def test_an_index_that_needs_spark_is_refused_before_a_task_runs(db: ebla.Database):
    indexed(db, "INDEX lowered ON orders (lower(name))")
    with pytest.raises(UsageError, match=r"found lowered, which has an expression .* db\.table"):
        begun(db, "orders", some(1).schema)
    assert open_transactions(db) == []


def test_only_the_attempts_that_spark_names_are_seen(db: ebla.Database):
    table = orders(db)
    rows = pa.table({"id": [1, 2, 3]})
    writer = begun(db, "orders", rows.schema)
    failed = attempt(writer, rows, attempt=10)
    chosen = attempt(writer, rows, attempt=11)
    assert failed.level0[0].path != chosen.level0[0].path
    db.vacuum()  # a sweep leaves the files of open transactions
    assert files(db) == {failed.level0[0].path, chosen.level0[0].path}
    writer.commit([chosen])
    assert table.scan().count() == 3
    late = attempt(writer, rows, attempt=12)  # speculative, and too late
    assert late.level0[0].path in files(db)
    db.vacuum()
    assert files(db) == manifest(db) == {chosen.level0[0].path}
    assert table.scan().count() == 3


def test_every_replica_gets_a_copy(spark: SparkSession, tmp_path: Path):
    nodes = {"node2": str(tmp_path / "n2"), "node3": str(tmp_path / "n3")}
    with ebla.connect(str(tmp_path / "w"), spark, auto_compact=False, nodes=nodes, replication=2, tablets=4) as db:
        table = orders(db)
        rows = pa.Table.from_pylist([{"id": n} for n in range(100)])
        written(db, "orders", [rows])
        assert table.scan().count() == pulled(db, "orders").num_rows == 100
        with db.context.catalog.reading() as connection:
            copies = connection.execute(select(s.runs.c.host_id, s.runs.c.path, s.runs.c.bytes)).all()
        assert names_of(db, {c.host_id for c in copies}) == {"node1", "node2", "node3"}
        roots = db.context.roots()
        assert all(roots[c.host_id].size(c.path) == c.bytes for c in copies)
        for file in (tmp_path / "n2").rglob("*.parquet"):
            file.unlink()
        assert pulled(db, "orders").num_rows == 100


def test_a_key_that_stands_twice_is_refused(spark: SparkSession, db: ebla.Database, monkeypatch: pytest.MonkeyPatch):
    table = orders(db)
    table.upsert([order(1)])
    before, there = db.version, files(db)
    twice = spark.range(10, 20, numPartitions=2).selectExpr("id % 5 AS id")
    with pytest.raises(PySparkException, match=r"DuplicateKeyError: orders: expected each key once.*found id = "):
        save(twice, db, "orders")
    for rows in ([1, 1], [2]), ([1, 2], [2, 3]):
        with pytest.raises(DuplicateKeyError, match="found id = "):
            written(db, "orders", [pa.table({"id": part}) for part in rows])
    monkeypatch.setattr(duplicate_keys, "CHECK_ROWS", 1)  # so that keys are compared tablet by tablet
    with pytest.raises(DuplicateKeyError, match="found id = 777 "):
        written(db, "orders", [pa.table({"id": range(3000)}), pa.table({"id": [777]})], batch_rows_max=1000)
    assert db.version == before
    assert files(db) == there
    assert open_transactions(db) == []
    assert bag(table.scan()) == bag([order(1)])


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, db: ebla.Database):
    orders(db)
    before = db.version
    broken = spark.range(0, 1000, numPartitions=4).select(
        F.when(F.col("id") == 999, F.raise_error(F.lit("no more"))).otherwise(F.col("id")).cast("bigint").alias("id")
    )
    with pytest.raises(PySparkException, match="no more"):
        save(broken, db, "orders")
    with pytest.raises(
        PySparkException, match=r"TypeMismatchError: orders\.total, row .*: expected int, found 3000000000"
    ):
        save(spark.range(1).selectExpr("id", "3000000000 AS total"), db, "orders")
    with pytest.raises(
        PySparkException, match=r"TypeMismatchError: orders\.id, row 1: expected bigint NOT NULL, found NULL"
    ):
        save(spark.range(1).selectExpr("cast(NULL AS BIGINT) AS id"), db, "orders")
    assert db.version == before
    assert open_transactions(db) == []
    deadline = time.monotonic() + 60
    while files(db):  # tasks that were at work when another failed may have written after the abort
        assert time.monotonic() < deadline
        db.vacuum()


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        ({"id": pa.int64(), "x": pa.int32()}, UnknownNameError, "x"),
        ({"name": pa.string()}, TypeMismatchError, r"orders\.id: expected a value, found no such column"),
        ({"id": pa.int64(), "total": pa.string()}, TypeMismatchError, r"orders\.total: expected int, found string"),
    ],
)
def test_wrong_columns_are_refused_before_a_task_runs(
    db: ebla.Database, columns: dict[str, pa.DataType], error: type[EblaError], says: str
):
    orders(db)
    with pytest.raises(error, match=says):
        begun(db, "orders", pa.schema(columns))
    assert open_transactions(db) == []


def test_a_write_that_took_too_long_is_refused(db: ebla.Database):
    table = orders(db)
    rows = pa.table({"id": [1]})
    writer = begun(db, "orders", rows.schema, transaction_lease_s=0.001)
    message = attempt(writer, rows, attempt=1)
    with pytest.raises(TransactionClosedError, match="expected open, found expired"):
        writer.commit([message])
    assert table.scan().count() == 0


def test_an_abort_after_the_commit_keeps_the_rows(db: ebla.Database):
    table = orders(db)
    rows = pa.table({"id": [1]})
    writer = begun(db, "orders", rows.schema)
    message = attempt(writer, rows, attempt=1)
    writer.commit([message])
    copied(writer).abort([message])  # the answer to the commit was lost
    assert table.scan().count() == 1


def test_the_option_of_a_read_is_none_of_a_write(db: ebla.Database):
    orders(db)
    with pytest.raises(UnknownNameError, match="option since: expected one of url, table, "):
        begun(db, "orders", pa.schema({"id": pa.int64()}), since=1)


@pytest.mark.postgres
def test_a_catalog_in_postgresql(spark: SparkSession, postgres_url: str, tmp_path: Path):
    root = str(tmp_path / "root")
    with ebla.connect(postgres_url, spark, storage_root=root, auto_compact=False) as db:
        table = orders(db)
        save(spark.range(100).select("id"), db, "orders", storage_root=root, node="node1")
        assert loaded(spark, db, "orders", storage_root=root).count() == table.scan().count() == 100


# ---- streams --------------------------------------------------------------------------------------------


def stream(spark: SparkSession, db: ebla.Database, table: str = "orders", **options: object) -> DataFrame:
    reader = spark.readStream.format("ebla").option("url", db.context.catalog.where).option("table", table)
    for name, value in options.items():
        reader = reader.option(name, value)  # type: ignore[arg-type]
    return reader.load()


def replayed(changes: list[Row], rows: dict[int, Row] | None = None) -> dict[int, Row]:
    """The table that changes lead to; each must fit what was there."""
    state = dict(rows or {})
    for change in changes:
        row = {k: v for k, v in change.items() if not k.startswith("_")}
        match change["_change_type"]:
            case "insert":
                assert row["id"] not in state, f"inserted twice: {change}"
                state[row["id"]] = row
            case "update_postimage":
                assert row["id"] in state, f"updated, but not there: {change}"
                state[row["id"]] = row
            case "delete":
                assert state.pop(row["id"], None) == row, f"deleted, but not there: {change}"
    return state


class Sink:
    """Collects micro-batches; may fail in the middle of one."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.replays: list[int] = []
        self.fail_at: int | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = frame.toArrow().to_pylist()
        if batch in self.batches:
            self.replays.append(batch)
            assert bag(rows) == bag(self.batches[batch]), f"batch {batch} is not what it was"
        self.batches[batch] = rows
        if batch == self.fail_at:
            raise RuntimeError("the sink is full")

    def changes(self) -> list[Row]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]


def run_all(frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: Path) -> None:
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def test_a_stream_that_fails_goes_on_where_it_was(spark: SparkSession, db: ebla.Database, tmp_path: Path):
    history = History(db, 6)
    for _ in range(4):
        history.step()
    sink = Sink()
    checkpoint = tmp_path / "checkpoint"
    options: dict[str, Any] = {"readChangeFeed": True, "maxVersionsPerBatch": 2}
    run_all(stream(spark, db, **options), sink, checkpoint)
    assert {c["_change_type"] for c in sink.changes()} <= {"insert"}  # the snapshot
    for _ in range(8):
        history.step()
    sink.fail_at = max(sink.batches) + 2
    with pytest.raises(PySparkException, match="the sink is full"):
        run_all(stream(spark, db, **options), sink, checkpoint)
    sink.fail_at = None
    for _ in range(4):
        history.step()
    db.compact("orders")
    db.vacuum(retain_s=0)  # the stream's pin keeps what it has not read yet
    run_all(stream(spark, db, **options), sink, checkpoint)
    assert len(sink.replays) == 1
    assert replayed(sink.changes()) == history.rows
    seen = sink.changes()
    run_all(stream(spark, db, **options), sink, checkpoint)
    assert sink.changes() == seen


def test_a_stream_from_a_version(spark: SparkSession, db: ebla.Database, tmp_path: Path):
    table = orders(db)
    table.upsert([order(1), order(2)])
    before = db.version
    table.upsert([order(2, "b"), order(3)])
    table.delete([{"id": 1}])
    sink = Sink()
    run_all(stream(spark, db, startingVersion=before + 1, old=True), sink, tmp_path / "checkpoint")
    assert bag(sink.changes()) == bag(table.changes(before, old=True))


KILLED = """
    import sys
    from pyspark.sql import SparkSession

    url, sink, checkpoint = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    )
    changes = (
        spark.readStream.format("ebla").option("url", url).option("table", "orders")
        .option("readChangeFeed", "true").option("maxVersionsPerBatch", "1").load()
    )
    changes.writeStream.format("parquet").option("path", sink).option("checkpointLocation", checkpoint).start()
    spark.streams.awaitAnyTermination()
"""


@pytest.mark.process
@pytest.mark.slow
def test_a_killed_stream_delivers_every_change_once(spark: SparkSession, db: ebla.Database, tmp_path: Path):
    history = History(db, 7)
    history.step()
    sink, checkpoint, log = tmp_path / "sink", tmp_path / "checkpoint", tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(KILLED), db.context.catalog.where, str(sink), str(checkpoint)],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 200
            while not (checkpoint / "commits" / "0").exists():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            for _ in range(6):
                history.step()
            while not (checkpoint / "offsets" / "2").exists():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.01)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for _ in range(3):
        history.step()
    query = (
        stream(spark, db, readChangeFeed=True, maxVersionsPerBatch=1)
        .writeStream.format("parquet")
        .option("path", str(sink))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    delivered = spark.read.parquet(str(sink)).orderBy("_commit_version").toArrow().to_pylist()
    assert replayed(delivered) == history.rows


def test_a_stream_needs_to_be_told_that_it_is_one(spark: SparkSession, db: ebla.Database, tmp_path: Path):
    orders(db)
    with pytest.raises(PySparkException, match="expected readChangeFeed or startingVersion, found neither"):
        run_all(stream(spark, db), Sink(), tmp_path / "checkpoint")


def follower(db: ebla.Database, **options: object) -> Any:
    made = source(db, "orders", **options)
    return copied(made).streamReader(made.schema())


def pins(db: ebla.Database) -> list[int]:
    with db.context.catalog.reading() as connection:
        return sorted(
            connection.execute(select(s.pins.c.version).where(s.pins.c.reason == "stream of orders")).scalars()
        )


def test_the_pin_of_a_stream_follows_what_is_done(db: ebla.Database):
    table = orders(db)
    table.upsert([order(1)])
    reader = follower(db, readChangeFeed=True)
    start = reader.initialOffset()
    assert pins(db) == []
    first = reader.latestOffset(start, ReadAllAvailable())
    assert pins(db) == [first["version"]] == [db.version]
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    orders(db, name="another").upsert([order(1)])
    assert reader.latestOffset(first, ReadAllAvailable()) == first  # a write to another table is no batch
    table.upsert([order(2)])
    second = reader.latestOffset(first, ReadAllAvailable())
    rows = bag(rows_of(reader, first, second))
    table.upsert([order(2, "b")])
    db.compact("orders")
    db.vacuum(retain_s=0)
    assert bag(rows_of(reader, first, second)) == rows
    reader.commit(first)
    assert pins(db) == [first["version"]]
    reader.commit(second)
    assert pins(db) == [second["version"]]
    reader.stop()
    assert pins(db) == [second["version"]]  # a query that stops may go on


def test_an_idle_stream_does_not_hold_back_vacuum_for_ever(db: ebla.Database):
    table = orders(db)
    table.upsert([order(1)])
    reader = follower(db, readChangeFeed=True, pin_lease_s=6)  # a pause of the machine does not end it
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    orders(db, name="another").upsert([order(1)])
    deadline = time.monotonic() + 120
    while (moved := reader.latestOffset(first, ReadAllAvailable())) == first:
        assert time.monotonic() < deadline
    assert moved["version"] == db.version
    assert reader.partitions(first, moved) == []
    with db.context.catalog.reading() as connection:
        expires_at = connection.execute(select(s.pins.c.expires_at)).scalars().all()
    assert all(at > db.context.catalog.clock() for at in expires_at)  # renewed meanwhile
    reader.stop()


def test_batches_take_as_many_versions_as_they_may(db: ebla.Database):
    table = orders(db)
    reader = follower(db, startingVersion=0, maxVersionsPerBatch=2)
    offset = reader.initialOffset()
    written_at = []
    for n in range(5):
        table.upsert([order(n)])
        written_at.append(db.version)
        orders(db, name=f"other{n}")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxFiles(2)
    ends = [offset := reader.latestOffset(offset, limit) for _ in range(4)]
    assert [e["version"] for e in ends] == [written_at[1], written_at[3], written_at[4], written_at[4]]
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["version"] == written_at[4]
    reader.prepareForTriggerAvailableNow()
    table.upsert([order(9)])
    assert reader.latestOffset(offset, ReadAllAvailable()) == offset
    reader.stop()


def test_a_stream_whose_history_is_gone_says_so(db: ebla.Database):
    table = orders(db)
    table.upsert([order(1)])
    old = db.version
    table.upsert([order(1, "b")])
    db.compact("orders")
    db.vacuum(retain_s=0)
    reader = follower(db, readChangeFeed=True)
    offset = {**reader.initialOffset(), "version": old}
    with pytest.raises(SnapshotError, match=rf"orders: expected a change at version \d+ or later, found {old}"):
        reader.partitions(offset, {**offset, "version": db.version})
    reader.stop()
    with pytest.raises(SnapshotError, match=r"orders: expected a change at version \d+ or later, found"):
        follower(db, startingVersion=1).initialOffset()


def test_a_stream_stops_when_its_table_becomes_another(db: ebla.Database):
    table = orders(db)
    table.upsert([order(1)])
    reader = follower(db, readChangeFeed=True)
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    db.sql("ALTER TABLE orders ADD COLUMN more INT")
    table.upsert([order(2)])
    with pytest.raises(ConflictError, match="altered under the stream: load it again"):
        reader.latestOffset(first, ReadAllAvailable())
    reader.stop()
    reader = follower(db, readChangeFeed=True)
    second = reader.latestOffset(first, ReadAllAvailable())
    (row,) = rows_of(reader, first, second)
    assert (row["id"], row["more"], row["_change_type"]) == (2, None, "insert")
    reader.stop()
    db.sql("DROP TABLE orders")
    with pytest.raises(SnapshotError, match="found it dropped"):
        reader.latestOffset(second, ReadAllAvailable())
    reader.stop()
    orders(db)
    reader = follower(db, readChangeFeed=True)
    with pytest.raises(SnapshotError, match="dropped and created again; start with a new checkpoint"):
        reader.latestOffset(second, ReadAllAvailable())
    reader.stop()
