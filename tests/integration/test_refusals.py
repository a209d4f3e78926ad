"""What must be refused rather than stored as something else, or destroyed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ebla

pytestmark = pytest.mark.spark


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, tablets=2) as database:
        database.sql("CREATE TABLE j (id INT, name STRING, f FLOAT, s STRUCT<a: INT>, PRIMARY KEY (id))")
        database.sql("CREATE TABLE c (id INT, name STRING, f FLOAT, PRIMARY KEY (id))")
        yield database


def load(db: ebla.Database, table: str, file: Path, text: str, options: str = "") -> None:
    file.write_text(text)
    db.sql(f"LOAD INTO {table} FROM '{file}' {options}")


def refused(db: ebla.Database, table: str, file: Path, text: str, *parts: str, options: str = "") -> None:
    before = db.version
    with pytest.raises(ebla.LoadError) as caught:
        load(db, table, file, text, options)
    for part in parts:
        assert part in str(caught.value)
    assert db.version == before


def lines(*objects: dict[str, object]) -> str:
    return "\n".join(json.dumps(o) for o in objects)


# ---- roots ----------------------------------------------------------------------------------------------


def test_a_root_belongs_to_one_node_of_one_warehouse(spark: SparkSession, tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    with ebla.connect(str(tmp_path / "one"), spark=spark, storage_root=shared) as one:
        one.sql("CREATE TABLE t (id INT, PRIMARY KEY (id)); INSERT INTO t VALUES (1)")
        with pytest.raises(ebla.NodeConflictError, match="another warehouse"):
            ebla.connect(str(tmp_path / "two"), spark=spark, storage_root=shared)
        for root in (shared, f"{shared}/inside", str(tmp_path)):
            with pytest.raises(ebla.NodeConflictError, match="of its own"):
                ebla.connect(str(tmp_path / "one"), spark=spark, storage_root=shared, nodes={"node2": root})
        one.vacuum(retain_s=0)
        assert one.sql("SELECT id FROM t").rows() == [(1,)]


def test_a_moved_warehouse_is_the_same_warehouse(spark: SparkSession, tmp_path: Path) -> None:
    with ebla.connect(str(tmp_path / "here"), spark=spark) as db:
        db.sql("CREATE TABLE t (id INT, PRIMARY KEY (id)); INSERT INTO t VALUES (1)")
    (tmp_path / "here").rename(tmp_path / "there")
    with ebla.connect(str(tmp_path / "there"), spark=spark) as db:
        assert db.sql("SELECT id FROM t").rows() == [(1,)]


# ---- JSON -----------------------------------------------------------------------------------------------


def test_json_names_match_whatever_their_case(db: ebla.Database, tmp_path: Path) -> None:
    load(db, "j", tmp_path / "a.json", lines({"ID": 1, "NAME": "x", "s": {"A": 3}}))
    load(db, "j", tmp_path / "b.json", lines({"id": 2, "name": "y", "f": 0.1}))
    found = db.sql("SELECT id, name, s.a FROM j ORDER BY id").rows()
    assert found == [(1, "x", 3), (2, "y", None)]


def test_json_of_another_shape_is_refused_by_file_and_column(db: ebla.Database, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    refused(
        db,
        "j",
        file,
        lines({"id": 1, "s": {"a": 1, "zz": 2}}),
        f"{file}, line 1: column s",
        "field zz: expected one of a",
    )
    refused(db, "j", file, lines({"id": 1, "name": {"a": 1}}), str(file), "column name", "an object")
    refused(db, "j", file, lines({"id": 1, "name": 5}), str(file), "column name", "a number")
    refused(db, "j", file, lines({"id": True}), str(file), "column id")


# ---- numbers that do not fit ----------------------------------------------------------------------------


def test_a_float_that_is_too_large_is_refused_and_an_infinite_one_is_not(db: ebla.Database, tmp_path: Path) -> None:
    refused(db, "c", tmp_path / "a.csv", "id,f\n1,1e300\n", "column f", "1e300")
    refused(db, "j", tmp_path / "a.json", '{"id": 1, "f": 1e300}', "f")
    load(db, "c", tmp_path / "b.csv", "id,f\n1,-Infinity\n2,NaN\n3,0.1\n")
    found = dict(db.sql("SELECT id, f FROM c").rows())
    assert found[1] == -math.inf
    assert math.isnan(found[2])
    assert found[3] == pytest.approx(0.1)


# ---- CSV options ----------------------------------------------------------------------------------------


def test_csv_header_is_read_with_the_options_of_the_rows(db: ebla.Database, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes("# a comment\n'id';'name'\n1;'é'\n".encode("latin-1"))
    db.sql(f"LOAD INTO c FROM '{file}' WITH (delimiter = ';', quote = '''', comment = '#', encoding = 'ISO-8859-1')")
    assert db.sql("SELECT id, name FROM c").rows() == [(1, "é")]
    refused(db, "c", tmp_path / "b.csv", "id||name\n1||x\n", "one character", options="WITH (sep = '||')")
    refused(db, "c", tmp_path / "c.csv", "\n", "header")


# ---- numbers out of all bounds --------------------------------------------------------------------------


def test_versions_and_periods_out_of_bounds_are_usage_errors(db: ebla.Database) -> None:
    for ask in (
        lambda: db.sql("SELECT * FROM c VERSION AS OF 99999999999999999999"),
        lambda: db.sql("INSERT INTO c SELECT * FROM c VERSION AS OF 99999999999999999999"),
        lambda: db.table("c").scan(2**70),
        lambda: db.table("c").changes(2**70),
        lambda: db.sql("VACUUM RETAIN 99999999999999999999999 HOURS"),
        lambda: db.vacuum(retain_s=-5),
        lambda: db.sql("CREATE TABLE d (id INT) WITH (tablets = true)"),
        lambda: db.sql("SELECT * FROM system.runs VERSION AS OF 1"),
    ):
        with pytest.raises(ebla.UsageError):
            ask()


def test_rows_that_a_generator_makes_do_not_come_to_the_driver(db: ebla.Database, spark: SparkSession) -> None:
    from ebla.spark.session import estimated_bytes

    assert estimated_bytes(spark.sql("SELECT explode(sequence(1L, 1000000L)) AS id FROM range(1000)")) > 2**40
