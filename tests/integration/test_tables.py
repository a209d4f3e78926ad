"""One table's whole life, over both kinds of catalog and under unusual names; and what else a user may rely on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ebla
from ebla.errors import DuplicateKeyError, SnapshotError, TypeMismatchError
from ebla.spark import scan
from ebla.tables import compaction
from ebla.values import token as tokens
from support.warehouse import connect, later, live_runs, named, refused, rows, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, name STRING, PRIMARY KEY (id))")
        yield db


# ---- one life -------------------------------------------------------------------------------------------


def test_a_life_over_either_catalog(spark, catalog_url, warehouse):
    """Created, filled in every way, read now and then, altered, compacted, vacuumed, moved and dropped."""
    with connect(catalog_url, spark, storage_root=str(warehouse)) as db:
        db.sql("CREATE TABLE orders (id BIGINT, customer STRING, total DECIMAL(12,2), PRIMARY KEY (id))")
        table = db.table("orders")
        table.upsert([{"id": i, "customer": f"c{i % 3}", "total": i} for i in range(10)])
        table.upsert(spark.range(10, 12).selectExpr("id", "'c9' AS customer", "id * 1.5 AS total"))
        db.sql("INSERT INTO orders VALUES (100, 'c1', 0.01)")
        first = db.version
        db.sql("UPDATE orders SET total = total * 2 WHERE customer = 'c1'; DELETE FROM orders WHERE id = 0")
        db.sql(
            "MERGE INTO orders o USING (SELECT id + 1 AS id FROM orders WHERE id >= 11) s ON o.id = s.id "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, customer) VALUES (s.id, 'new')"
        )
        text = "SELECT customer, count(*), sum(total) FROM orders GROUP BY customer"
        expected = [
            ("c0", 3, Decimal("18.00")),
            ("c1", 4, Decimal("24.02")),
            ("c2", 3, Decimal("15.00")),
            ("c9", 2, Decimal("31.50")),
            ("new", 2, None),
        ]
        assert rows(db, text) == expected
        db.compact("orders")
        assert rows(db, text) == expected
        assert rows(db, f"SELECT count(*), sum(total) FROM orders VERSION AS OF {first}") == [(13, Decimal("76.51"))]
        with refused(db, DuplicateKeyError, "found id = 5 in the table"):
            db.sql("INSERT INTO orders (id) VALUES (5)")
        kinds = [r["_change_type"] for r in table.changes(first).collect()]
        assert sorted(kinds) == ["delete", "insert", "insert", *["update_postimage"] * 4]
        db.sql("ALTER TABLE orders ADD COLUMN note STRING; UPDATE orders SET note = 'x' WHERE id = 1")
        assert rows(db, "SELECT id, note FROM orders WHERE note IS NOT NULL") == [(1, "x")]
        db.pins.release_all()
        db.compact("orders")
        db.vacuum(retain_s=0)
        assert stored(db) == named(db)
        with refused(db, SnapshotError, "older rows were vacuumed"):
            db.sql(f"SELECT * FROM orders VERSION AS OF {first}")
        assert [r[:3] for r in rows(db, text)] == expected
    with (
        connect(catalog_url, spark)
        if "://" not in catalog_url
        else connect(catalog_url, spark, storage_root=str(warehouse)) as again
    ):
        assert rows(again, text) == expected
        again.sql("DROP TABLE orders")
        again.vacuum(retain_s=0)
        assert not stored(again)


def test_writers_of_one_key_over_either_catalog(spark, catalog_url, warehouse):
    with connect(catalog_url, spark, storage_root=str(warehouse)) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        db.table("t").upsert([{"id": 1, "n": 0}])
        failed: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(3):
                    db.sql("UPDATE t SET n = n + 1 WHERE id = 1")
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert rows(db, "t") == [(1, 9)]


@pytest.mark.parametrize("settings", [{}, {"batch_rows_max": 0, "level0_rows_max": 0}], ids=["small", "by Spark"])
def test_unusual_names_of_folders_tables_and_columns(spark, tmp_path, settings):
    """A folder like a pattern or a partition is a folder, and a column may have the name of anything."""
    names = ["_rank", "_at", "count_all", "a.b", "c`d", "sp ace", "ü", "SELECT", "0", "_image", "w", "rows"]
    key = ["_at", "count_all", "a.b", "c`d", "0"]
    quoted = {n: "`" + n.replace("`", "``") + "`" for n in names}
    where = tmp_path / "we ird[1] ü{a,b} #%20*?" / "count_all=5" / "a,b"
    with connect(where, spark, tablets=2, **settings) as db:
        columns = ", ".join(f"{q} INT" for q in quoted.values())
        db.sql(f"CREATE TABLE `my table!` ({columns}, PRIMARY KEY ({', '.join(quoted[n] for n in key)}))")
        table = db.table("my table!")
        table.upsert([dict.fromkeys(names, i) for i in range(4)] + [dict.fromkeys(names, 2)])
        db.compact("my table!")
        db.sql("INSERT INTO `my table!` VALUES " + f"({', '.join(['9'] * len(names))})")
        with refused(db, DuplicateKeyError, "_at = 3, count_all = 3, a.b = 3"):
            db.sql("INSERT INTO `my table!` VALUES " + f"({', '.join(['3'] * len(names))})")
        db.sql(
            f"UPDATE `my table!` SET {quoted['sp ace']} = {quoted['_rank']} + 1, {quoted['a.b']} = 7 WHERE `_at` = 1"
        )
        table.delete([dict.fromkeys(key, 0)])
        found = [dict(zip(names, r, strict=True)) for r in rows(db, "SELECT * FROM `my table!`")]
        expected = [dict.fromkeys(names, i) for i in (1, 2, 3, 9)]
        expected[0] |= {"sp ace": 2, "a.b": 7}
        assert found == expected
        assert table.changes(0).count() == 4
        assert table.scan(tablets=[0]).count() + table.scan(tablets=[1]).count() == 4


@pytest.mark.parametrize("keys_max", [1_000_000, 0], ids=["broadcast", "shuffled"])
def test_the_newest_of_several_large_commits_counts(spark, tmp_path, monkeypatch, keys_max):
    """Of rows that several commits in files have written, before and behind a fold of some tablets."""
    monkeypatch.setattr(scan, "BROADCAST_ROWS_MAX", keys_max)
    monkeypatch.setattr(compaction, "PIECE_ROWS", 1)
    with connect(tmp_path / "warehouse", spark, batch_rows_max=0, level0_rows_max=0) as db:
        db.sql("CREATE TABLE t (s STRING, id BIGINT, n INT, PRIMARY KEY (s, id))")
        table, expected = db.table("t"), dict[tuple[str, int], int]()

        def write(n: int, some: range, gone: range) -> None:
            table.upsert([{"s": f"s{i % 3}", "id": i, "n": n} for i in some])
            expected.update({(f"s{i % 3}", i): n for i in some})
            table.delete([{"s": f"s{i % 3}", "id": i} for i in gone])
            for i in gone:
                expected.pop((f"s{i % 3}", i), None)

        def shown() -> dict[tuple[str, int], int]:
            return {(s, i): n for s, i, n in rows(db, "t")}

        write(0, range(60), range(50, 70))
        db.compact("t")
        for n, (some, gone) in enumerate([(range(40), range(5)), (range(3, 30), range(20, 25)), (range(55), range(0))]):
            write(n + 1, some, gone)
            assert shown() == expected
        plan = db.sql("SELECT * FROM t").to_spark()._jdf.queryExecution().optimizedPlan().toString()
        assert ("Window" in plan) == (keys_max == 0)
        assert compaction.compact(db.context, "t", gives_way=lambda: True).tablets == 1
        assert shown() == expected
        write(9, range(10, 58, 2), range(10, 20))
        assert shown() == expected
        db.compact("t")
        assert shown() == expected


def test_a_warehouse_can_be_moved(spark, tmp_path):
    with connect(tmp_path / "here", spark) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        db.table("t").upsert([{"id": 1}])
    (tmp_path / "here").rename(tmp_path / "there")
    with connect(tmp_path / "there", spark) as db:
        assert rows(db, "t") == [(1,)]
        db.compact("t")
        assert rows(db, "t") == [(1,)]


def test_a_directory_whose_name_begins_like_a_database(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with connect("postgres_files", spark) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        monkeypatch.chdir("/")  # a relative path is one from where it was given
        db.table("t").upsert([{"id": 1}])
        assert rows(db, "t") == [(1,)]
    assert (tmp_path / "postgres_files" / "catalog.db").exists()


# ---- writes ---------------------------------------------------------------------------------------------


def test_what_a_write_says(db, spark):
    written = db.table("t").upsert([{"id": 1, "n": 1}, {"id": 2}, {"id": 1, "n": 5}])
    assert (written.rows, written.version) == (2, db.version)
    assert rows(db, "SELECT id, n FROM t WHERE n IS NOT NULL") == [(1, 5)]  # the last of several rows of a key
    nothing: Any
    for nothing in ([], spark.range(0), spark.range(0).limit(5)):
        before = db.version
        written = db.table("t").upsert(nothing)
        assert (written.rows, written.version) == (0, None)
        assert db.version == before
    assert db.sql("DELETE FROM t WHERE id = 99").one() == (0, None)
    assert db.sql("UPDATE t SET n = 1 WHERE id = 99").one() == (0, None)
    assert db.sql("UPDATE t SET n = 1").one() == (2, db.version)
    assert db.table("t").version == db.version


def test_columns_match_by_name_without_case_and_missing_ones_are_null(db, spark):
    db.table("t").upsert([{"ID": 1, "NAME": "x"}])
    db.table("t").upsert(spark.createDataFrame([("y", 2)], "Name string, Id long"))
    assert rows(db, "t") == [(1, None, "x"), (2, None, "y")]
    db.table("t").delete([{"iD": 1, "n": "ignored"}])
    db.table("t").delete(spark.createDataFrame([(2, "ignored")], "ID long, n string"))
    assert rows(db, "t") == []


def test_a_struct_is_matched_by_the_names_of_its_fields(db, spark):
    db.sql("CREATE TABLE s (id INT PRIMARY KEY, p STRUCT<a: INT, b: STRING>, m MAP<STRING, STRUCT<x: INT, y: INT>>)")
    swapped = "named_struct('B', '1', 'A', 2L)"
    db.sql(f"INSERT INTO s VALUES (1, {swapped}, map('k', named_struct('y', 1, 'x', 2)))")
    db.table("s").upsert(spark.sql(f"SELECT 2 AS id, {swapped} AS p"))
    assert rows(db, "SELECT id, p.a, p.b, m['k'].x FROM s") == [(1, 2, "1", 2), (2, 2, "1", None)]
    with refused(db, TypeMismatchError, "s.p", "a field is unknown or given twice"):
        db.sql("INSERT INTO s (id, p) VALUES (3, named_struct('a', 1, 'c', '2'))")
    with refused(db, TypeMismatchError, "s.p.a: expected int, found 3000000000"):
        db.sql("INSERT INTO s (id, p) VALUES (3, named_struct('a', 3000000000, 'b', '2'))")
    with refused(db, TypeMismatchError, "s.m value.x: expected int, found 1.5"):
        db.sql("INSERT INTO s (id, m) VALUES (3, map('k', named_struct('x', 1.5, 'y', 1)))")


def test_keys_are_moved_swapped_and_never_rounded(db):
    big = 2**53 + 1  # no double holds it
    db.table("t").upsert([{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": big, "n": 3}])
    db.sql("UPDATE t SET id = CASE id WHEN 1 THEN 2 ELSE 1 END WHERE id IN (1, 2)")
    assert rows(db, "SELECT id, n FROM t") == [(1, 2), (2, 1), (big, 3)]
    db.sql(f"UPDATE t SET id = IF(id = {big}, 7e0, id + 0e0) WHERE id = {big}")
    assert rows(db, "SELECT id, n FROM t") == [(1, 2), (2, 1), (7, 3)]
    db.sql(f"UPDATE t SET id = {big} WHERE id = 7")
    db.sql(
        "MERGE INTO t USING (SELECT 1 AS k, 1e0 AS v) s ON t.id >= s.k "
        "WHEN MATCHED AND t.id = 1 THEN UPDATE SET n = s.v WHEN MATCHED THEN UPDATE SET n = t.n + 1"
    )
    assert rows(db, "SELECT id, n FROM t") == [(1, 1), (2, 2), (big, 4)]


def test_a_spark_frame_over_the_table_itself_is_written_back(db):
    """The frame is lazy, and read at the version at which it was made."""
    table = db.table("t")
    table.upsert([{"id": i, "n": i} for i in range(4)])
    doubled = table.scan().selectExpr("id", "n * 2 AS n", "name")
    table.upsert([{"id": 1, "n": 100}])
    table.upsert(doubled)
    assert rows(db, "SELECT id, n FROM t") == [(0, 0), (1, 2), (2, 4), (3, 6)]


@pytest.mark.parametrize("level0_rows_max", [200_000, 0], ids=["driver", "spark"])
def test_some_tablets_hold_their_rows_and_no_others(spark, tmp_path, level0_rows_max):
    """Level 1, level 0 over all tablets, and level 0 that is folded in some of them only."""
    with connect(tmp_path / "warehouse", spark, tablets=4, level0_rows_max=level0_rows_max) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        db.table("t").upsert([{"id": i, "n": 0} for i in range(20)])
        db.compact("t")
        db.table("t").upsert([{"id": i, "n": 1} for i in range(0, 24, 2)])
        db.table("t").delete([{"id": i} for i in range(0, 20, 5)])
        expected: list[list[tuple[int, int]]] = [[] for _ in range(4)]
        for key in range(24):
            if (key % 5 or key >= 20) and (key < 20 or key % 2 == 0):
                tablet = tokens.tablet_of(tokens.token_of([key], ["bigint"]), 4)
                expected[tablet].append((key, 1 - key % 2))
        for tablets in ([0], [1, 3], [2], [0, 1, 2, 3], []):
            found = sorted(map(tuple, db.table("t").scan(tablets=tablets).collect()))
            assert found == sorted(row for t in tablets for row in expected[t]), tablets


# ---- results --------------------------------------------------------------------------------------------


def test_every_result_can_be_read_in_every_way(db):
    db.table("t").upsert([{"id": 1, "n": 1, "name": "a"}])
    for text in ("SELECT * FROM t", "SHOW TABLES", "DESCRIBE t", "INSERT INTO t (id) VALUES (7)", "COMPACT", "VACUUM",
                 "SELECT id AS x, n AS x FROM t", "SELECT map('a', 1) AS m, struct(1, 'b') AS s"):  # fmt: skip
        result = db.sql(text)
        table = result.to_arrow()
        assert result.columns == table.column_names
        assert len(result) == table.num_rows == len(result.rows()) == len(list(result))
        assert result.to_spark().count() == table.num_rows
        assert "Result" in repr(result)
    assert db.sql("DROP TABLE t").rows() == []


def test_one_wants_exactly_one_row(db):
    assert db.sql("SELECT 1 AS a, 'x' AS b").one() == (1, "x")
    with pytest.raises(ebla.UsageError, match="expected exactly one row, found 0"):
        db.sql("SELECT * FROM t").one()


def test_a_result_is_of_the_moment_it_was_asked_for(db):
    db.table("t").upsert([{"id": 1, "n": 1}])
    before = db.sql("SELECT n FROM t")
    db.table("t").upsert([{"id": 1, "n": 2}])
    assert before.rows() == [(1,)]
    assert before.rows() == [(1,)]
    assert db.sql("SELECT n FROM t").rows() == [(2,)]


# ---- closing --------------------------------------------------------------------------------------------


def test_closing_releases_pins_and_a_dead_process_holds_none_for_long(spark, tmp_path):
    db = connect(tmp_path / "warehouse", spark)
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    db.table("t").upsert([{"id": 1}])
    lazy: Any = db.table("t").scan()
    assert lazy.count() == 1
    db.close()
    with connect(tmp_path / "warehouse", spark) as other:
        other.compact("t")
        assert other.vacuum(retain_s=0).files == 1
        dead = connect(tmp_path / "warehouse", spark)
        dead.table("t").scan()  # and never closed
        other.table("t").upsert([{"id": 1}])
        other.compact("t")
        assert other.vacuum(retain_s=0).files == 0
        later(other)
        assert other.vacuum(retain_s=0).files == 2
        assert len(live_runs(other, "t")) == 1
        dead.close()
