"""Indexes in use: on views, in queries and SELECTs, beside ALTER TABLE; and requests that are refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import ebla
from ebla.cli import script
from ebla.errors import (
    DuplicateNameError,
    SqlError,
    TypeMismatchError,
    UnknownNameError,
    UsageError,
    ViewStoppedError,
)
from ebla.model.lifecycle.index import Permission
from ebla.storage.files import Root
from ebla.tables import batch as b
from ebla.tables import commit, compare, writes
from support.folding import fold
from support.indexes import assert_exact, begin_index, damage, entries, step_until
from support.warehouse import connect, live_runs, refused, tuned


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "w", spark, auto_refresh=False, barrier_grace_s=0.2) as database:
        database.sql(
            "CREATE TABLE t (id BIGINT, name STRING, total BIGINT, tags ARRAY<STRING>, facts MAP<STRING, INT>, "
            "PRIMARY KEY (id))"
        )
        database.table("t").upsert(
            [{"id": i, "name": f"Name {i % 10}", "total": i * 7 % 20, "tags": [str(i)]} for i in range(600)]
        )
        fold(database, "t", row_group_rows=100)
        yield database


def plan(db: ebla.Database, text: str) -> str:
    found: str = db.sql(f"EXPLAIN {text}").rows()[0][0]
    return found


# ---- queries --------------------------------------------------------------------------------------------


def both(db: ebla.Database, text: str, path: str | None) -> list[tuple[Any, ...]]:
    """The answer through a path, which is the one that Spark gives."""
    assert path is None or f"path: {path} (" in plan(db, text), plan(db, text)
    found = db.sql(text).rows()
    spark_says = db.sql(text.replace(" LIMIT", " LIMIT 0 +")).rows()  # of another shape, so Spark's
    assert found == spark_says
    return found


def test_selects_go_through_the_best_index(db: ebla.Database):
    db.sql("CREATE INDEX by_name ON t (name, total DESC)")
    db.sql("CREATE INDEX by_total ON t (total) INCLUDE (name)")
    db.table("t").upsert([{"id": 100, "name": "Name 3", "total": 99}])
    db.table("t").delete([{"id": 13}])
    assert both(db, "SELECT id, total FROM t WHERE name = 'Name 3' ORDER BY total DESC, id LIMIT 3", "by_name")[0] == (
        100,
        99,
    )
    both(db, "SELECT id FROM t WHERE name IN ('Name 1', 'Name 3') ORDER BY name, total DESC, id LIMIT 20", "by_name")
    both(db, "SELECT name, id FROM t WHERE name LIKE 'Name 3%' ORDER BY name DESC, total, id DESC LIMIT 9", "by_name")
    both(db, "SELECT id, name FROM t WHERE total BETWEEN 3 AND 5 ORDER BY total, id LIMIT 9", "by_total")
    both(db, "SELECT * FROM t WHERE total > 15 ORDER BY total, id LIMIT 4", "by_total")  # rows are fetched by key
    db.table("t").upsert([{"id": 200 + i, "name": None, "total": i} for i in range(40)])
    assert len(both(db, "SELECT id FROM t WHERE name IS NULL ORDER BY total DESC, id LIMIT 9", None)) == 9


def test_pages_by_keyset(db: ebla.Database):
    db.sql("CREATE INDEX by_total ON t (total DESC, name)")
    after, seen = None, []
    while True:
        page = db.query("t", order_by=["-total", "name"], limit=70, after=after, columns=["id", "total", "name"])
        seen += page.rows()
        after = page.next
        if after is None:
            break
    assert len(seen) == 600
    assert seen == sorted(seen, key=lambda r: (-r[1], r[2], r[0]))


def test_a_partial_index_answers_only_what_its_condition_implies(db: ebla.Database):
    db.sql("CREATE INDEX high ON t (name) INCLUDE (total) WHERE total >= 10")
    both(db, "SELECT id FROM t WHERE name = 'Name 3' AND total >= 10 ORDER BY name, id LIMIT 5", "high")
    both(db, "SELECT id FROM t WHERE name = 'Name 3' AND total = 12 ORDER BY name, id LIMIT 5", "high")
    assert "path: t (" in plan(db, "SELECT id FROM t WHERE name = 'Name 3' LIMIT 5")
    assert "path: t (" in plan(db, "SELECT id FROM t WHERE name = 'Name 3' AND total >= 9 LIMIT 5")


def test_a_partial_index_with_any_condition_answers_a_query_that_says_the_same(db: ebla.Database):
    db.sql("CREATE INDEX odd ON t (name, total) WHERE total % 2 = 1 AND (tags IS NOT NULL OR total > 5) AND id >= 50")
    db.table("t").upsert([{"id": 700 + i, "name": "Name 3", "total": i, "tags": None} for i in range(10)])
    db.table("t").delete([{"id": 53}])
    said = "total%2 = 1 AND id >= 60 AND (tags is not null or total > 5)"
    both(db, f"SELECT id FROM t WHERE name = 'Name 3' AND {said} ORDER BY name, total, id LIMIT 30", "odd")
    both(db, f"SELECT * FROM t WHERE {said} AND name LIKE 'Name 2%' ORDER BY name, total, id LIMIT 7", "odd")
    found = plan(db, f"SELECT id FROM t WHERE name = 'Name 3' AND {said} ORDER BY total LIMIT 3")
    assert "true of all its rows: tags IS NOT NULL OR total > 5 AND total % 2 = 1" in found
    assert "not usable: t: tags IS NOT NULL OR total > 5 is no condition of it, and only Spark understands it" in found
    # Fewer words would be more rows; more words are Spark's.
    fewer = plan(db, "SELECT id FROM t WHERE name = 'Name 3' AND id >= 60 LIMIT 3")
    assert "path: t (" in fewer
    assert "not usable: odd: it has only rows with tags IS NOT NULL OR total > 5, which the query does not say" in fewer
    more = plan(db, f"SELECT id FROM t WHERE {said} AND total % 3 = 1 LIMIT 3")
    assert "path:" not in more
    assert "total % 3 = 1 is no comparison of a column with a literal, and no index's condition" in more
    assert db.query("t", where={"name": "Name 3", "id": ebla.between(60, None)}, limit=5).to_arrow().num_rows == 5
    assert_exact(db, "odd")


def test_an_expression_index_answers_an_equal_expression(db: ebla.Database):
    db.sql("CREATE INDEX by_lower ON t (lower(name), total)")
    db.table("t").upsert([{"id": 100, "name": "NAME 3", "total": 99}])
    both(db, "SELECT id, name FROM t WHERE lower(name) = 'name 3' ORDER BY total DESC, id DESC LIMIT 3", "by_lower")
    both(db, "SELECT id FROM t WHERE LOWER( name ) LIKE 'name 2%' ORDER BY lower(name), total, id LIMIT 3", "by_lower")
    both(db, "SELECT * FROM t WHERE lower(name) IN ('name 1', 'name 2') ORDER BY total, id LIMIT 30", "by_lower")
    # Another expression, and one that another session understands otherwise, are Spark's.
    assert "path:" not in plan(db, "SELECT id FROM t WHERE upper(name) = 'NAME 3' LIMIT 3")
    db.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert "path:" not in plan(db, "SELECT id FROM t WHERE lower(name) = 'name 3' LIMIT 3")
    finally:
        db.spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_an_index_that_is_being_filled_answers_nothing(db: ebla.Database):
    begin_index(db, "CREATE INDEX i ON t (name)")
    step_until(db, "i", Permission.BACKFILLING)
    db.table("t").upsert([{"id": 100, "name": "Name 3", "total": 1}])
    found = plan(db, "SELECT id FROM t WHERE name = 'Name 3' LIMIT 3")
    assert "path: t (" in found
    assert "not usable: i: it cannot be read while it is backfilling" in found
    step_until(db, "i", Permission.READ_WRITE_AND_DELETE)
    assert (100,) in db.query("t", where={"name": "Name 3"}, columns=["id"]).rows()
    assert "path: i (" in plan(db, "SELECT id FROM t WHERE name = 'Name 3' LIMIT 3")


@pytest.mark.parametrize("large", [False, True], ids=["by the driver", "by Spark"])
def test_expressions_mean_what_they_meant_to_their_session(db: ebla.Database, large: bool):
    db.sql("CREATE TABLE e (id BIGINT, at TIMESTAMP, PRIMARY KEY (id))")
    one = tuned(db, batch_rows_max=2) if large else db

    def write(*numbers: int) -> None:
        moment = dt.datetime(2024, 1, 1, 20, 30, tzinfo=dt.UTC)
        one.table("e").upsert([{"id": i, "at": moment + dt.timedelta(hours=i)} for i in numbers])

    write(*range(10))
    db.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        one.sql("CREATE INDEX by_hour ON e (hour(at))")
    finally:
        db.spark.conf.set("spark.sql.session.timeZone", "UTC")
    write(*range(5, 20))
    assert {key[1]: key[0] for key in entries(db, "by_hour")} == {i: (20 + i + 9) % 24 for i in range(20)}
    assert db.sql("CHECK INDEX by_hour").rows()[0][2:5] == (0, 0, 0)
    # To this session the same words mean something else.
    assert db.sql("SELECT count(*) FROM e WHERE hour(at) = 20").rows() == [(1,)]
    assert "path:" not in plan(db, "SELECT id FROM e WHERE hour(at) = 20 LIMIT 3")


# ---- views ----------------------------------------------------------------------------------------------


def test_an_index_of_a_view_is_kept_by_its_epochs(db: ebla.Database):
    db.sql("CREATE TABLE d (name STRING, region STRING, PRIMARY KEY (name))")
    db.sql("INSERT INTO d VALUES ('Name 1', 'north'), ('Name 2', 'south')")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT t.id, t.total, t.name, d.region FROM t LEFT JOIN d ON t.name = d.name")
    db.sql("CREATE INDEX by_region ON v (region, total DESC)")
    db.sql("CREATE INDEX by_word ON v (upper(region)) WHERE total > 3")
    changes = [
        "INSERT INTO t (id, name, total) VALUES (2000, 'Name 2', 500)",
        "UPDATE d SET region = 'west' WHERE name = 'Name 1'",
        "DELETE FROM t WHERE id < 5",
        "DELETE FROM d WHERE name = 'Name 2'",
        "INSERT INTO d VALUES ('Name 3', 'east')",
    ]
    for change in changes:
        db.sql(change)
        db.sql("FLUSH")
        assert_exact(db, "by_region", "by_word")
    large = tuned(db, batch_rows_max=2)
    large.sql("UPDATE t SET total = total + 1 WHERE id < 40")
    large.sql("FLUSH")
    assert_exact(db, "by_region", "by_word")
    assert "path: by_region (" in plan(db, "SELECT id FROM v WHERE region = 'west' ORDER BY total DESC LIMIT 3")
    db.sql("TRUNCATE t")
    db.sql("FLUSH")
    assert_exact(db, "by_region", "by_word")
    assert not entries(db, "by_region")


def test_a_view_that_is_computed_anew_keeps_its_indexes(db: ebla.Database):
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, total, ntile(9) OVER (ORDER BY total, id) AS place FROM t")
    db.sql("CREATE INDEX by_place ON v (place)")
    db.sql("DELETE FROM t WHERE id % 3 = 0")
    db.sql("FLUSH")
    assert_exact(db, "by_place")


def test_a_unique_index_stops_a_view_that_breaks_it(db: ebla.Database):
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, name, total FROM t WHERE id < 5")
    db.sql("CREATE UNIQUE INDEX once ON v (name)")
    db.sql("UPDATE t SET name = 'Name 1' WHERE id = 2")
    with pytest.raises(ViewStoppedError, match=r"view v: stopped: unique index once of v: .* name = 'Name 1'"):
        db.sql("FLUSH v")
    assert_exact(db, "once")
    db.sql("UPDATE t SET name = 'Name 2' WHERE id = 2")
    db.sql("FLUSH v")
    assert_exact(db, "once")


# ---- ALTER TABLE ----------------------------------------------------------------------------------------


def test_columns_that_indexes_need_stay(db: ebla.Database):
    db.sql("CREATE INDEX i ON t (lower(name)) INCLUDE (tags) WHERE total > 3")
    for text in (
        "ALTER TABLE t RENAME COLUMN name TO label",
        "ALTER TABLE t DROP COLUMN tags",
        "ALTER TABLE t DROP COLUMN total",
    ):
        with refused(db, UsageError, "expected that no index needs it, found i", "DROP INDEX first"):
            db.sql(text)
    db.sql("ALTER TABLE t ADD COLUMN note STRING")
    db.table("t").upsert([{"id": 3, "name": "changed", "total": 9, "note": "x"}])
    db.sql("ALTER TABLE t RENAME TO u")
    assert_exact(db, "i")
    db.sql("ALTER TABLE u DROP COLUMN tags CASCADE")
    assert db.sql("SHOW INDEXES").rows() == []
    db.table("u").upsert([{"id": 3, "name": "again"}])


def test_a_load_into_an_indexed_table(db: ebla.Database, tmp_path: Path):
    """By Spark's tablets; into empty tablets, both come as level 1."""
    db.sql("CREATE TABLE u (id BIGINT, name STRING, total BIGINT, PRIMARY KEY (id))")
    db.sql("CREATE INDEX i ON u (name DESC) INCLUDE (total) WHERE total > 3")
    rows = pa.table({"id": list(range(50)), "name": [f"n{i % 7}" for i in range(50)], "total": list(range(50))})
    pq.write_table(rows, tmp_path / "rows.parquet")
    large = tuned(db, batch_rows_max=2)
    large.sql(f"LOAD INTO u FROM '{tmp_path}/rows.parquet'")
    assert {run.level for run in live_runs(db, "i")} == {1}
    assert_exact(db, "i")
    large.sql(f"LOAD INTO u FROM '{tmp_path}/rows.parquet'")
    assert_exact(db, "i")


# ---- refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "parts"),
    [
        ("CREATE INDEX i ON t (nam)", UnknownNameError, ["expected one of t's columns id, name", "found nam"]),
        ("CREATE INDEX i ON t (lower(nam))", UnknownNameError, ["index i", "nam", "t has columns id, name"]),
        ("CREATE INDEX i ON t (name) INCLUDE (nam)", UnknownNameError, ["found nam"]),
        ("CREATE INDEX i ON t (name) WHERE nam = 1", UnknownNameError, ["nam"]),
        ("CREATE INDEX i ON nowhere (name)", UnknownNameError, ["nowhere"]),
        ("CREATE INDEX t ON t (name)", DuplicateNameError, ["index t: expected a free name, found a table"]),
        ("CREATE INDEX i ON t (name, total, name)", DuplicateNameError, ["each column once, found name twice"]),
        ("CREATE INDEX i ON t (rand())", UsageError, ["expected a deterministic expression, found rand"]),
        ("CREATE INDEX i ON t (total + unix_timestamp())", UsageError, ["deterministic"]),
        ("CREATE INDEX i ON t (name) WHERE current_date() > '2024-01-01'", UsageError, ["deterministic"]),
        ("CREATE INDEX i ON t (tags)", TypeMismatchError, ["a type that can be ordered, found tags array<string>"]),
        ("CREATE INDEX i ON t (split(name, ' '))", TypeMismatchError, ["a type that can be ordered"]),
        ("CREATE INDEX i ON t (max(total))", UsageError, ["expected expressions of one row"]),
        ("CREATE INDEX i ON t (name) WHERE total + 1", TypeMismatchError, ["expected a condition", "bigint"]),
        ("CREATE INDEX i ON t (name) WITH (build = 'never')", UsageError, ["expected 'now' or 'deferred'"]),
        (
            "CREATE INDEX i ON t (name) WITH (speed = 1)",
            UnknownNameError,
            ["chunk_rows or concurrency, found speed"],
        ),
        ("DROP INDEX nowhere", UnknownNameError, ["index nowhere", "there are no indexes yet"]),
        ("DROP INDEX t", UsageError, ["t: expected an index, found a table"]),
        ("CHECK INDEX nowhere", UnknownNameError, ["index nowhere"]),
        ("REPAIR INDEX t", UsageError, ["expected an index, found a table"]),
        ("BUILD INDEXES ON nowhere", UnknownNameError, ["nowhere"]),
    ],
)
def test_wrong_requests_change_nothing(db: ebla.Database, text: str, kind: type[ebla.EblaError], parts: list[str]):
    with refused(db, kind, *parts):
        db.sql(text)


def test_an_index_is_no_table(db: ebla.Database):
    db.sql("CREATE INDEX i ON t (name)")
    assert "i" not in {r[0] for r in db.sql("SHOW TABLES").rows()}
    assert db.tables() == ["t"]
    assert db.sql("SELECT name, relation, state FROM system.indexes").rows() == [("i", "t", "read_write_and_delete")]
    for text in ("SELECT * FROM i", "SELECT * FROM i LIMIT 1", "CREATE INDEX j ON i (name)",
                 "CREATE MATERIALIZED VIEW v AS SELECT name FROM i"):  # fmt: skip
        with pytest.raises(UsageError, match=r"found an index|found the index i"):
            db.sql(text)
    for text in ("INSERT INTO i VALUES (1)", "DROP TABLE i", "TRUNCATE i"):
        with pytest.raises(UsageError, match="expected a table, found an index"):
            db.sql(text)
    with pytest.raises(DuplicateNameError, match="index i: expected a free name, found an index"):
        db.sql("CREATE INDEX i ON t (total)")


def test_a_frame_written_by_spark_s_own_writer_keeps_indexes(db: ebla.Database):
    db.sql("CREATE INDEX i ON t (name DESC, total) WHERE total >= 1")
    frame = db.spark.createDataFrame([(1, "x", 7), (601, "y", 0), (602, "z", 3)], "id long, name string, total long")
    writer = frame.write.format("ebla").options(url=db.context.catalog.where, table="t")
    before = db.version
    writer.mode("append").save()
    assert db.version == before + 1
    assert_exact(db, "i")
    assert both(db, "SELECT id FROM t WHERE total >= 1 ORDER BY name DESC LIMIT 2", "i") == [(602,), (1,)]
    db.sql("CREATE INDEX lowered ON t (lower(name))")
    with pytest.raises(Exception, match="found lowered, which has an expression or a condition that only Spark"):
        writer.mode("append").save()
    assert_exact(db, "i", "lowered")


@pytest.mark.parametrize(
    "text",
    [
        "(name) WHERE row_number() OVER (ORDER BY id) = 1", "(row_number() OVER (ORDER BY id))", "(max(name))",
        "(explode(tags))", "((SELECT max(id) FROM t))", "(name) WHERE EXISTS (SELECT 1 FROM t)",
        "(name) WHERE total IN (SELECT id FROM t)", "(name) WHERE sum(total) > 1",
    ],
)  # fmt: skip
def test_an_index_is_of_one_row(db: ebla.Database, text: str):
    before = db.version
    with pytest.raises(
        UsageError, match="index j: expected expressions of one row, found an aggregate, a window, a gen"
    ):
        db.sql(f"CREATE INDEX j ON t {text}")
    assert db.version == before


def test_an_expression_that_fails_on_a_row(db: ebla.Database):
    db.sql("CREATE INDEX ok ON t (total)")
    with pytest.raises((SqlError, TypeMismatchError), match="CAST_INVALID_INPUT"):
        db.sql("CREATE INDEX i ON t (CAST(name AS INT))")
    assert [r[0] for r in db.sql("SHOW INDEXES").rows()] == ["ok"]
    db.sql("UPDATE t SET name = CAST(id AS STRING)")
    db.sql("CREATE INDEX i ON t (CAST(name AS INT))")
    with pytest.raises(TypeMismatchError, match="CAST_INVALID_INPUT"):
        db.table("t").upsert([{"id": 1, "name": "no number"}])
    assert_exact(db, "i", "ok")


# ---- the command line -----------------------------------------------------------------------------------


def test_indexes_from_the_command_line(db: ebla.Database, capsys: pytest.CaptureFixture[str]):
    for as_json in (False, True):
        script.run(db, "CREATE INDEX i ON t (name DESC); SHOW INDEXES", {}, as_json=as_json)
        assert "name DESC" in capsys.readouterr().out
        script.run(db, "CHECK INDEX i", {}, as_json=as_json)
        assert "missing" in capsys.readouterr().out
        script.run(db, "DROP INDEX i; SHOW INDEXES", {}, as_json=as_json)
        assert "name DESC" not in capsys.readouterr().out


# ---- writers --------------------------------------------------------------------------------------------


def test_writers_of_one_row_do_not_wait_for_each_other(db: ebla.Database, monkeypatch: pytest.MonkeyPatch):
    """What an index gets depends on the new row alone; the row that commits last has the entry."""
    db.sql("CREATE INDEX by_total ON t (total); CREATE INDEX few ON t (name) WHERE total < 5")
    passed: list[str] = []

    def meanwhile(point: str) -> None:
        passed.append(point)
        if point == "write.indexes_written" and passed.count(point) == 1:
            db.table("t").upsert([{"id": 7, "name": "between", "total": 1}])

    for module in (writes, commit):
        monkeypatch.setattr(module, "hit", meanwhile)
    db.table("t").upsert([{"id": 7, "name": "last", "total": 50}])
    assert passed.count("write.begun") == 2  # neither was run again
    assert [row for row in entries(db, "by_total") if row[1] == 7] == [(50, 7)]
    assert all(row[0] != "between" for row in entries(db, "few"))
    assert_exact(db, "by_total", "few")


def test_a_write_with_an_index_opens_no_file_of_the_table(db: ebla.Database, monkeypatch: pytest.MonkeyPatch):
    db.sql("CREATE INDEX by_total ON t (total) INCLUDE (name); CREATE INDEX few ON t (name) WHERE total < 5")
    opened: list[str] = []
    as_it_is = Root.open_parquet

    def noted(root: Root, path: str) -> pq.ParquetFile:
        opened.append(path)
        return as_it_is(root, path)

    monkeypatch.setattr(Root, "open_parquet", noted)
    db.table("t").upsert([{"id": i, "name": f"new {i}", "total": i % 9} for i in (3, 77, 599, 5_000)])
    db.table("t").delete([{"id": 4}, {"id": 300}])
    assert opened == []
    assert_exact(db, "by_total", "few")


def test_an_entry_with_a_wrong_value_is_different_and_mended(db: ebla.Database):
    db.sql("CREATE INDEX by_total ON t (total)")
    damage(db, "by_total", [({"total": 999, "id": 5}, b.UPSERT), ({"total": 1, "id": 99_999}, b.UPSERT)])
    damage(db, "by_total", [({"total": None, "id": 8}, b.DELETE)])
    assert db.sql("CHECK INDEX by_total").rows()[0][2:5] == (1, 1, 1)
    assert db.sql("REPAIR INDEX by_total").rows()[0][2:5] == (1, 1, 1)
    assert_exact(db, "by_total")


def test_a_repair_does_not_undo_a_newer_write(db: ebla.Database, monkeypatch: pytest.MonkeyPatch):
    db.sql("CREATE INDEX by_total ON t (total)")
    damage(db, "by_total", [({"total": 999, "id": 5}, b.UPSERT)])
    count, counts = compare.counted, []

    def meanwhile(frame: DataFrame) -> Mapping[str, int]:
        counts.append(count(frame))
        if len(counts) == 1:
            db.table("t").upsert([{"id": 5, "name": "Name 5", "total": 17}])
        return counts[-1]

    monkeypatch.setattr(compare, "counted", meanwhile)
    db.sql("REPAIR INDEX by_total")
    assert len(counts) == 2  # it started over, and found nothing to mend
    assert_exact(db, "by_total")
