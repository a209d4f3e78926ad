"""Stored or refused, never changed: the doors that need Spark agree with the table that all doors share."""

from __future__ import annotations

import csv
import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import ebla
from ebla.errors import EblaError, LoadError, TypeMismatchError
from ebla.source import options
from ebla.source.partition_writer import PartitionWriter
from ebla.source.write import begin_write
from ebla.spark import write as swrite
from ebla.tables import loads
from ebla.values import texts, types
from ebla.values.grammar import Unfit, parse
from support.door_values import ATOMS, notable
from support.warehouse import connect, refused, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {f"c{i}": kind for i, kind in enumerate(ATOMS)}
DECLARED = ", ".join(["id BIGINT", *(f"{n} {kind}" for n, kind in COLUMNS.items()), "m MAP<STRING, INT>"])
IN_QUOTES = ("string", "date", "timestamp", "timestamp_ntz", "binary")


@pytest.fixture(scope="module")
def db(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ebla.Database]:
    with connect(tmp_path_factory.mktemp("doors") / "warehouse", spark) as db:
        db.sql(f"CREATE TABLE t ({DECLARED}, PRIMARY KEY (id))")
        yield db


def said(kind: str, text: str) -> Any:
    """What the grammar says, as Arrow's scalar; `Unfit` as a value where it refuses."""
    try:
        return texts.as_array([texts.value(text, parse(kind))], parse(kind))[0]
    except Unfit as why:
        return why


def fair(text: str) -> bool:
    """Whether a line of CSV can hold the text: no control characters."""
    return text != "" and not any(ord(c) < 32 for c in text)


TEXTS = [(name, kind, text) for name, kind in COLUMNS.items() for text in notable(kind) if fair(text)]
STORED = [(name, text, found) for name, kind, text in TEXTS if not isinstance(found := said(kind, text), Unfit)]
REFUSED = [(name, kind, text) for name, kind, text in TEXTS if isinstance(said(kind, text), Unfit)]


def stored_values(db: ebla.Database) -> dict[int, dict[str, Any]]:
    table = db.sql("SELECT * FROM t").to_arrow()
    made: dict[int, dict[str, Any]] = {}
    for i, number in enumerate(table["id"].to_pylist()):
        made[number] = {n: table[n][i] for n in COLUMNS if table[n][i].is_valid}
    return made


def same(found: pa.Scalar, wanted: pa.Scalar) -> bool:
    if pa.types.is_floating(found.type):
        return repr(found.as_py()) == repr(wanted.as_py())
    return str(pa.array([found], found.type)) == str(pa.array([wanted], wanted.type))


@pytest.mark.parametrize("small", [True, False], ids=["by the driver", "by Spark's tasks"])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_all_texts_that_say_a_value_are_loaded_as_that_value(
    db: ebla.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, small: bool
):
    db.sql("TRUNCATE TABLE t")
    if not small:
        monkeypatch.setattr(loads, "SMALL_BYTES", 0)
        monkeypatch.setattr("ebla.tables.json_files.RANGE_BYTES", 2000)
    file = tmp_path / f"all.{kind}"
    chosen = [one for one in STORED if kind == "csv" or COLUMNS[one[0]] in IN_QUOTES]
    with file.open("w", newline="", encoding="utf-8") as out:
        if kind == "csv":
            writer = csv.DictWriter(
                out, ["id", *COLUMNS], quoting=csv.QUOTE_NOTNULL if hasattr(csv, "QUOTE_NOTNULL") else 0
            )
            writer.writeheader()
            writer.writerows({"id": i, name: text} for i, (name, text, _) in enumerate(chosen))
        else:
            out.writelines(json.dumps({"id": i, name: text}) + "\n" for i, (name, text, _) in enumerate(chosen))
    assert db.table("t").load(str(file)).rows == len(chosen)
    found = stored_values(db)
    for i, (name, text, wanted) in enumerate(chosen):
        assert found[i].keys() == {name}, text
        assert same(found[i][name], wanted), f"{COLUMNS[name]}: {text!r}: expected {wanted}, found {found[i][name]}"


@pytest.mark.parametrize("small", [True, False], ids=["by the driver", "by Spark's tasks"])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"id": 100}\n{"id": 101}{"id": 102}\n',
         ', line 2: expected nothing behind the first object, found {"id": 102}'),
        ("a.json", '{"id": 1}\n\n{"id": 101} and more\n',
         ", line 3: expected nothing behind the first object, found and more"),
        ("a.json", '{"id": 1, "c6": 1e400}', ", line 1: column c6: expected double, found 1e400 (out of range)"),
        ("a.json", '{"id": 1, "c10": "\\ud800"}',
         ', line 1: column c10: expected string, found "\\ud800" (half of a'),
        ("a.json", '{"id": 1, "id": 2}', ', line 1: expected each name of an object once, found "id" twice'),
        ("a.json", '{"id": 1, "m": {"a": 1, "a": 2}}',
         ', line 1: expected each name of an object once, found "a" twice'),
        ("a.json", b'{"id": 1}\n{"id": 2, "c10": "\xff"}', ", line 2: expected UTF-8, found byte 0xff"),
        ("a.json", "[1]\n", ", line 1: expected an object, found [1]"),
        ("a.csv", "id,c12\n1,2024-01-05\n2,2024-01-05 13:45:00\n",
         ", line 3: column c12: expected date, found 2024-01-05 13:45:00 (not a whole day)"),
        ("a.csv", "id,c12\n1,2024\n", ", line 2: column c12: expected date, found 2024 (not of the form yyyy-mm-dd)"),
        ("a.csv", "id,c13\n1,2024-01-05 13:45:00.1234567\n",
         ", line 2: column c13: expected timestamp, found 2024-01-05 13:45:00.1234567 (more than microseconds)"),
        ("a.csv", "id,c14\n1,2024-01-05 13:45:00+05:00\n",
         ", line 2: column c14: expected timestamp_ntz, found 2024-01-05 13:45:00+05:00 (has a time zone"),
        ("a.csv", "id,c8\n1,1.4\n", ", line 2: column c8: expected decimal(38,0), found 1.4 (not a whole number)"),
        ("a.csv", b"id,c10\n1,x\n2,\xff\n", ", line 3: expected UTF-8, found byte 0xff"),
    ],
)  # fmt: skip
def test_what_was_cut_is_refused_with_file_line_column_and_value(
    db: ebla.Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    content: Any,
    message: str,
    small: bool,
):
    if not small:
        monkeypatch.setattr(loads, "SMALL_BYTES", 0)
        monkeypatch.setattr("ebla.tables.json_files.RANGE_BYTES", 16)
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with refused(db, LoadError, f"{file}{message}"):
        db.table("t").load(str(file))


@pytest.mark.parametrize(("name", "kind", "text"), REFUSED[:: max(1, len(REFUSED) // 6)])
def test_a_text_that_the_grammar_refuses_is_not_loaded(
    db: ebla.Database, tmp_path: Path, name: str, kind: str, text: str
):
    file = tmp_path / "a.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out, quoting=csv.QUOTE_ALL).writerows([["id", name], ["1", text]])
    with refused(db, LoadError, f"{file}, line 2: column {name}: expected {kind}, found {text}"):
        db.table("t").load(str(file))


def test_options_of_texts_are_read(db: ebla.Database, tmp_path: Path):
    db.sql("TRUNCATE TABLE t")
    (tmp_path / "a.csv").write_text("id,c12,c13,c6\n1,05.01.2024,2024/01/05 10,none\n")
    db.sql(f"LOAD INTO t FROM '{tmp_path}/a.csv' WITH (dateFormat = 'dd.MM.yyyy', timestampFormat = 'yyyy/MM/dd HH', "
           "nanValue = 'none')")  # fmt: skip
    (tmp_path / "b.json").write_text("{id: 2, 'c12': '05.01.2024', c3: 007} // six\n")
    db.sql(f"LOAD INTO t FROM '{tmp_path}/b.json' WITH (dateFormat = 'dd.MM.yyyy', allowUnquotedFieldNames = true, "
           "allowComments = true, allowNumericLeadingZeros = true)")  # fmt: skip
    (tmp_path / "c.json").write_text('[{"id": 3},\n {"id": 4, "c10": "x"}]')
    db.sql(f"LOAD INTO t FROM '{tmp_path}/c.json' WITH (multiLine = true)")
    moment = dt.datetime(2024, 1, 5, 10, tzinfo=dt.UTC)
    assert rows(db, "SELECT id, c12, c13, isnan(c6), c3, c10 FROM t") == [
        (1, moment.date(), moment, True, None, None),
        (2, moment.date(), None, False, 7, None),
        (3, None, None, False, None, None),
        (4, None, None, False, None, "x"),
    ]


def test_json_lines_are_loaded_without_spark(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"ID": 1, "s": "x"}\n')
    with ebla.connect(str(tmp_path / "warehouse")) as alone:
        alone.sql("CREATE TABLE t (id INT, s STRING, PRIMARY KEY (id))")
        assert alone.sql(f"LOAD INTO t FROM '{tmp_path}/a.json'").one()[0] == 1
        assert alone.query("t").rows() == [(1, "x")]
        assert not alone.context.has_spark


# ---- maps -----------------------------------------------------------------------------------------------


def test_a_map_that_names_a_key_twice_is_refused_by_parquet_spark_and_the_source(
    db: ebla.Database, spark: SparkSession, tmp_path: Path
):
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))
    pq.write_table(pa.table({"id": [1], "m": twice}), tmp_path / "a.parquet")
    frame = spark.read.parquet(str(tmp_path / "a.parquet"))
    doors: list[tuple[type[EblaError], Callable[[], object]]] = [
        (LoadError, lambda: db.table("t").load(str(tmp_path / "a.parquet"))),
        (TypeMismatchError, lambda: db.table("t").upsert(frame)),
        (TypeMismatchError, lambda: db.table("t").upsert(pa.table({"id": [1], "m": twice}))),
    ]
    for kind, door in doors:
        with refused(db, kind, "twice"):
            door()
    where = str(db.context.catalog.where)
    with pytest.raises(Exception, match="names key a twice"):
        frame.write.format("ebla").option("url", where).option("table", "t").mode("append").save()
    nested = pa.table({"id": [1], "x": pa.array([[{"m": [("a", 1), ("a", 2)]}]], types.to_arrow(NESTED))})
    pq.write_table(nested, tmp_path / "b.parquet")
    db.sql(f"CREATE TABLE nested (id BIGINT, x {NESTED}, PRIMARY KEY (id))")
    with refused(db, LoadError, "b.parquet: column x: expected", "found a map that names a key twice"):
        db.table("nested").load(str(tmp_path / "b.parquet"))


NESTED = "array<struct<m:map<string,int>>>"


def test_bytes_that_are_no_text_are_refused_in_strings(db: ebla.Database, spark: SparkSession, tmp_path: Path):
    offsets, raw = pa.py_buffer(b"\0\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"ok\xff")
    table = pa.table({"id": [1, 2], "c10": pa.StringArray.from_buffers(2, offsets, raw)})
    pq.write_table(table, tmp_path / "a.parquet")
    with refused(db, LoadError, "a.parquet: column c10: expected string in UTF-8, found bytes FF"):
        db.table("t").load(str(tmp_path / "a.parquet"))
    with refused(db, TypeMismatchError, "t.c10: expected string in UTF-8, found bytes FF"):
        db.table("t").upsert(spark.read.parquet(str(tmp_path / "a.parquet")))
    with refused(db, TypeMismatchError, "t.c10: expected string in UTF-8, found bytes FF"):
        db.sql("INSERT INTO t (id, c10) SELECT 1, CAST(X'FF' AS STRING)")
    with refused(db, TypeMismatchError, "t.c10, row 2: expected string", "not UTF-8"):
        db.table("t").upsert(table)


# ---- columns of one type into columns of another --------------------------------------------------------


UTC = dt.UTC
SOURCES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 0, 127],
    "bigint": [0, 7, -129, 2**31, 2**53 + 1, 2**40, 16777217, -(2**63), 2**63 - 1],
    "float": [0.0, -0.0, 7.0, 0.1, 1e-45, 3e38, float("nan"), float("-inf"), 2.0**63, 2.0**31, 2.0**7],
    "double": [
        0.0,
        -0.0,
        7.0,
        0.1,
        1e-46,
        1e39,
        1e300,
        float("nan"),
        float("inf"),
        2.0**53,
        2.0**63,
        -(2.0**63),
        1.005,
    ],
    "decimal(9,2)": [Decimal("0.00"), Decimal("7.00"), Decimal("1.25"), Decimal("-9999999.99"), Decimal("1677721.70")],
    "decimal(38,0)": [Decimal(7), Decimal(10**37), Decimal(2**70), Decimal("-" + "9" * 38)],
    "string": ["7", "2024-01-05", "true"],
    "binary": [b"7"],
    "date": [dt.date(2024, 1, 5), dt.date(1, 1, 1)],
    "timestamp": [dt.datetime(2024, 1, 5, tzinfo=UTC), dt.datetime(2024, 1, 5, 13, 45, 0, 1, tzinfo=UTC)],
    "timestamp_ntz": [dt.datetime(2024, 1, 5), dt.datetime(2024, 1, 5, 13, 45, 0, 1)],
}


class _Column:
    name, nullable = "x", True

    def __init__(self, kind: str) -> None:
        self.type = kind


def by_arrow(source: str, value: Any, target: str) -> Any:
    array = pa.array([value], types.to_arrow(source))
    try:
        return types.fit(pa.table({"x": array}), [_Column(target)], relation="t").column(0)[0]
    except TypeMismatchError:
        return None


@pytest.mark.parametrize("source", SOURCES)
def test_arrow_and_spark_store_the_same_of_a_column_of_another_type(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, source: str
):
    """One job: what Spark would refuse is NULL here."""
    monkeypatch.setattr(swrite, "refusal", lambda message, target, where=None: F.lit(None).cast(target))
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    table = pa.table({"x": pa.array(SOURCES[source], types.to_arrow(source))})
    frame = session.createDataFrame(table)
    columns = {}
    for number, target in enumerate(ATOMS):
        try:
            columns[target] = swrite.assigned(F.col("x"), types.to_spark(source), types.to_spark(target), "x")
        except TypeMismatchError:
            columns[target] = F.lit(None).cast(types.to_spark(target))
        columns[target] = columns[target].alias(f"c{number}")
    found = frame.select(*columns.values()).toArrow()
    for number, target in enumerate(ATOMS):
        for row, value in enumerate(SOURCES[source]):
            ours, theirs = by_arrow(source, value, target), found[f"c{number}"][row]
            if (source, target) == ("timestamp_ntz", "date") or (source, target) == ("timestamp", "timestamp_ntz"):
                continue  # by one of the two only, as the reference says
            if source in ("float", "double") and target.startswith("decimal") and abs(value) >= 2.0**63:
                assert not theirs.is_valid
                continue
            shown = f"{source} {value!r} into {target}: Arrow {ours}, Spark {theirs}"
            assert (ours is not None) == theirs.is_valid, shown
            if ours is not None:
                assert same(theirs.cast(ours.type), ours), shown


def in_table(source: str, target: str, value: Any, *, by_spark: bool) -> Any:
    """What the table of conversions says of a value of one type in a column of another; `None` if it refuses."""
    if by_spark and (source, target) == ("timestamp_ntz", "date"):
        return None  # Arrow's and pandas' alone
    if by_spark and source in ("float", "double") and target.startswith("decimal") and abs(value) >= 2.0**63:
        return None
    return by_arrow(source, value, target)


def file_of(folder: Path, name: str, columns: dict[str, list[Any]], source: str) -> Path:
    """A Parquet file whose columns, but for the key, are all of one type."""
    count = len(next(iter(columns.values())))
    made = {"id": pa.array(range(count), pa.int64())}
    made |= {name: pa.array(values, types.to_arrow(source)) for name, values in columns.items()}
    pq.write_table(pa.table(made), folder / f"{name}.parquet")
    return folder / f"{name}.parquet"


@pytest.mark.parametrize("source", SOURCES)
def test_parquet_stores_or_refuses_columns_of_another_type_as_the_table_says(
    db: ebla.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
):
    values = SOURCES[source]
    wanted = {n: [in_table(source, kind, v, by_spark=True) for v in values] for n, kind in COLUMNS.items()}
    taken = [n for n, found in wanted.items() if any(one is not None for one in found)]
    db.sql("TRUNCATE TABLE t")
    for name in COLUMNS.keys() - taken:
        with pytest.raises(LoadError):
            db.table("t").load(str(file_of(tmp_path, name, {name: values}, source)))
    assert db.sql("SELECT count(*) FROM t").one() == (0,)
    # One job: what is refused by its value is NULL here.
    monkeypatch.setattr(swrite, "refusal", lambda message, target, where=None: F.lit(None).cast(target))
    db.table("t").load(str(file_of(tmp_path, "all", dict.fromkeys(taken, values), source)))
    found = stored_values(db)
    for row, value in enumerate(values):
        assert found[row].keys() == {n for n in COLUMNS if wanted[n][row] is not None}, f"{source} {value!r}"
        for name, one in found[row].items():
            assert same(one, wanted[name][row]), f"{source} {value!r} into {COLUMNS[name]}: found {one}"


@pytest.mark.parametrize("source", SOURCES)
def test_the_source_stores_or_refuses_columns_of_another_type_as_the_table_says(
    db: ebla.Database, spark: SparkSession, tmp_path: Path, source: str
):
    """What is stored goes through one job of Spark; what is refused, through the task that such a job would run."""
    tried = [(n, v, in_table(source, kind, v, by_spark=False)) for n, kind in COLUMNS.items() for v in SOURCES[source]]
    db.sql("TRUNCATE TABLE t")
    where = str(db.context.catalog.where)
    for name, value, _ in [one for one in tried if one[2] is None]:
        with pytest.raises(TypeMismatchError):
            write_directly(where, pa.table({"id": [1], name: pa.array([value], types.to_arrow(source))}))
    kept = [one for one in tried if one[2] is not None]
    names = list(dict.fromkeys(name for name, *_ in kept))
    columns = {n: [value if name == n else None for name, value, _ in kept] for n in names}
    frame = spark.read.parquet(str(file_of(tmp_path, "all", columns, source)))
    frame.write.format("ebla").option("url", where).option("table", "t").mode("append").save()
    found = stored_values(db)
    assert len(found) == len(kept)
    for row, (name, value, wanted) in enumerate(kept):
        assert found[row].keys() == {name}, f"{source} {value!r}"
        assert same(found[row][name], wanted), f"{source} {value!r} into {COLUMNS[name]}: found {found[row][name]}"


def write_directly(where: str, rows: pa.Table) -> None:
    """A write of the source without a job of Spark."""
    schema = types.to_spark(f"struct<{', '.join(f'{f.name}:{types.from_arrow(f.type)}' for f in rows.schema)}>")
    assert isinstance(schema, StructType)
    writer = begin_write(options.parse({"url": where, "table": "t"}, writing=True), schema, overwrite=False)
    try:
        writer.commit([PartitionWriter(writer, attempt=1, partition=0).run(iter(rows.to_batches()))])
    finally:
        writer.abort([])
