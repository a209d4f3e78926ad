"""Compaction folds level 0 away and changes no row; vacuum deletes what no reader needs, and only that."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ebla.errors import ConflictError
from ebla.tables import compaction, fold, vacuum
from ebla.tables.tiers import Due
from ebla.values import token as tokens
from ebla.views.epoch import cost
from support.saboteur import Hold
from support.warehouse import connect, eventually, file_of, live_runs, named, open_transactions, rows, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

pytestmark = pytest.mark.spark


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark, tablets=8) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        yield db


def tablet(key: int, tablets: int = 8) -> int:
    return tokens.tablet_of(tokens.token_of([key], ["bigint"]), tablets)


# ---- compaction -----------------------------------------------------------------------------------------


def test_level_0_becomes_one_sorted_run_per_tablet(db):
    table = db.table("t")
    table.upsert([{"id": i, "n": 0} for i in range(100)])
    table.upsert([{"id": i, "n": 1} for i in range(50, 120)])
    table.delete([{"id": i} for i in range(10)])
    before = rows(db, "t")
    done = db.compact("t")
    assert (done.tablets, done.folded_runs, done.version) == (8, 3, db.version)
    runs = live_runs(db, "t")
    assert sorted((r.level, r.tablet) for r in runs) == [(1, t) for t in range(8)]
    assert sum(r.rows for r in runs) == 110
    assert rows(db, "t") == before
    again = db.compact("t")
    assert (again.tablets, again.version) == (0, None)


def test_only_tablets_with_changes_are_rewritten(db):
    table = db.table("t")
    table.upsert([{"id": i, "n": 0} for i in range(100)])
    db.compact("t")
    before = {r.tablet: r.path for r in live_runs(db, "t")}
    key = 42
    table.upsert([{"id": key, "n": 1}])
    assert db.sql("COMPACT t").rows() == [("t", 1, 1, db.version)]
    after = {r.tablet: r.path for r in live_runs(db, "t")}
    assert {t for t in after if after[t] != before[t]} == {tablet(key)}
    assert rows(db, "SELECT n, count(*) FROM t GROUP BY n") == [(0, 99), (1, 1)]


def test_a_tablet_whose_rows_are_all_deleted_has_no_run(db):
    table = db.table("t")
    table.upsert([{"id": i, "n": 0} for i in range(40)])
    db.compact("t")
    lost = [i for i in range(40) if tablet(i) == 3]
    assert lost
    table.delete([{"id": i} for i in lost])
    db.compact("t")
    assert {r.tablet for r in live_runs(db, "t")} == set(range(8)) - {3}
    db.sql("DELETE FROM t")
    db.compact("t")
    assert live_runs(db, "t") == []
    assert rows(db, "t") == []


def test_writes_during_a_compaction_stay(db, monkeypatch):
    """They began after its snapshot, in tablets that it rewrites and in others."""
    table = db.table("t")
    table.upsert([{"id": i, "n": 0} for i in range(20)])
    real = fold.rewrite
    done: list[bool] = []

    def write_meanwhile(*arguments):
        real(*arguments)
        if not done:
            done.append(True)
            table.upsert([{"id": 1, "n": 7}, {"id": 100, "n": 7}])
            table.delete([{"id": 2}])

    monkeypatch.setattr(compaction, "rewrite", write_meanwhile)
    db.compact("t")
    assert {r.level for r in live_runs(db, "t")} == {0, 1}
    expected = [(i, 7 if i == 1 else 0) for i in range(20) if i != 2] + [(100, 7)]
    assert rows(db, "t") == expected
    db.compact("t")
    assert {r.level for r in live_runs(db, "t")} == {1}
    assert rows(db, "t") == expected


@pytest.mark.parametrize("other", ["compact", "truncate"])
def test_a_compaction_that_was_overtaken_starts_over(db, monkeypatch, other):
    table = db.table("t")
    table.upsert([{"id": i, "n": 0} for i in range(20)])
    real = fold.rewrite
    raced: list[bool] = []

    def overtake(*arguments):
        real(*arguments)
        if not raced:
            raced.append(True)
            if other == "compact":
                compaction.compact(db.context, "t")
            else:
                db.sql("TRUNCATE TABLE t")
                table.upsert([{"id": 5, "n": 5}])

    monkeypatch.setattr(compaction, "rewrite", overtake)
    db.compact("t")
    assert raced
    assert rows(db, "t") == ([(i, 0) for i in range(20)] if other == "compact" else [(5, 5)])
    assert {r.level for r in live_runs(db, "t")} == {1}
    assert not open_transactions(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)


def test_a_compaction_that_always_loses_gives_up_and_leaves_nothing(db, monkeypatch):
    table = db.table("t")
    table.upsert([{"id": 1, "n": 0}])
    real = fold.rewrite

    def always(context, work, snapshot, fold):
        real(context, work, snapshot, fold)
        db.sql("TRUNCATE TABLE t")
        table.upsert([{"id": 1, "n": 0}])

    monkeypatch.setattr(compaction, "rewrite", always)
    with pytest.raises(ConflictError, match="another compaction came first"):
        compaction.compact(db.context, "t", attempts=2)
    assert not open_transactions(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)
    assert rows(db, "t") == [(1, 0)]


def test_a_piece_is_abandoned_for_a_large_epoch_where_others_have_ended(spark, db, monkeypatch):
    """Other jobs hold every core, so the piece can end in no other way."""
    table = db.table("t")
    table.upsert([{"id": i, "n": 0} for i in range(100)])
    assert compaction.compact(db.context, "t", gives_way=lambda: True).ended
    table.upsert([{"id": i, "n": 1} for i in range(50)])
    before, tracker, pieces = live_runs(db, "t"), spark.sparkContext.statusTracker(), db.context.sessions.pieces
    assert pieces._credit_s > 0
    pieces._credit_s, pieces._row_s = 600.0, None  # on a busy machine the second piece may be far slower
    hold = Hold(spark)
    hold.begin()
    try:
        with ThreadPoolExecutor(1) as pool:
            piece = pool.submit(compaction.compact, db.context, "t", gives_way=lambda: True)
            eventually(lambda: bool({*tracker.getActiveJobsIds()} - hold.own()[0]))
            assert pieces.abandon()
            done = piece.result()
    finally:
        hold.end()
    assert (done.tablets, done.folded_runs, done.version, done.ended) == (0, 0, None, False)
    assert live_runs(db, "t") == before
    assert not open_transactions(db)
    pieces._credit_s = 0.0
    real, again = fold.rewrite, []

    def in_vain(*arguments):
        again.append(pieces.abandon())
        real(*arguments)

    monkeypatch.setattr(compaction, "rewrite", in_vain)
    done = compaction.compact(db.context, "t", gives_way=lambda: True)
    assert (again, done.tablets, done.ended) == ([False], 8, True)
    assert rows(db, "SELECT n, count(*) FROM t GROUP BY n") == [(0, 50), (1, 50)]
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)


def test_no_piece_is_abandoned_for_a_small_epoch(spark, tmp_path, monkeypatch):
    with connect(tmp_path / "warehouse", spark, auto_refresh=False) as db:
        monkeypatch.setattr(cost, "LARGE_ROWS", 50)
        called: list[None] = []
        monkeypatch.setattr(db.context.sessions.pieces, "abandon", lambda: called.append(None))
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        db.table("t").upsert([{"id": i, "n": 0} for i in range(200)])
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS k FROM t GROUP BY n")
        counts = []
        for changed in (50, 51):
            called.clear()
            db.table("t").upsert([{"id": i, "n": changed} for i in range(changed)])
            db.sql("FLUSH")
            counts.append(len(called))
        assert counts == [0, 1]


def test_many_writes_are_compacted_in_the_background(spark, tmp_path, monkeypatch):
    pools, real = [], fold.rewrite

    def noted(*arguments):
        pools.append(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
        real(*arguments)

    monkeypatch.setattr(compaction, "rewrite", noted)
    with connect(tmp_path / "warehouse", spark, auto_compact=True, compact_runs=4) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        for number in range(9):
            db.table("t").upsert([{"id": number % 3, "n": number}])
        assert db.background.compactor.wait_idle()
        assert db.background.compactor.due("t") is Due.NOTHING
        assert len([r for r in live_runs(db, "t") if r.level == 0]) < 4
        assert rows(db, "t") == [(0, 6), (1, 7), (2, 8)]
        assert set(pools) == {"compaction"}, "its jobs get the cores that others leave"
        db.compact("t")
        assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None
        db.sql("INSERT INTO t VALUES (7, 7); DROP TABLE t")  # a wake-up for what is gone does nothing
        assert db.background.compactor.wait_idle()


def test_small_writes_beside_a_large_level_1_are_merged_and_not_folded(spark, tmp_path):
    with connect(tmp_path / "warehouse", spark, auto_compact=True, auto_refresh=False, compact_runs=4) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        db.sql("INSERT INTO t SELECT id, CAST(id % 50 AS INT) FROM range(3000)")
        db.sql("CREATE INDEX by_n ON t (n); CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS c FROM t GROUP BY n")
        db.sql("WAIT FOR by_n; FLUSH; COMPACT t")
        assert db.background.compactor.wait_idle()
        expected = {number: number % 50 for number in range(3000)}
        before = {r.id for r in live_runs(db, "t") if r.level == 1}
        began = db.context.catalog.version()
        for number in range(30):
            expected |= {number: 7, 100 + number % 3: number, 5000 + number: 8}
            db.table("t").upsert([{"id": k, "n": expected[k]} for k in (number, 100 + number % 3, 5000 + number)])
            if number % 5 == 0:
                db.table("t").delete([{"id": 200 + number}])
                del expected[200 + number]
        assert db.background.compactor.wait_idle()
        for name in ("t", "by_n"):
            assert db.background.compactor.due(name) is Due.NOTHING
            assert len([r for r in live_runs(db, name) if r.level == 0]) <= 8
        assert {r.id for r in live_runs(db, "t") if r.level == 1} == before
        assert rows(db, "SELECT * FROM t") == sorted(expected.items())
        assert rows(db, f"SELECT count(*) FROM t VERSION AS OF {began}") == [(3000,)]
        found = db.query("t", where={"n": 7}, order_by=["n", "id"], limit=200)
        assert found.to_arrow()["id"].to_pylist() == sorted(k for k, n in expected.items() if n == 7)
        db.sql("FLUSH")  # from writes whose runs were merged away
        assert rows(db, "SELECT * FROM v") == sorted(Counter(expected.values()).items())
        assert db.sql("CHECK INDEX by_n").rows()[0][2:5] == (0, 0, 0)


def test_what_other_processes_left_is_compacted_when_spark_is_there(spark, tmp_path):
    where, limits = tmp_path / "warehouse", {"auto_compact": True, "compact_runs": 4}
    with connect(where, spark, auto_refresh=False) as other:
        other.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id)); CREATE TABLE few (id BIGINT PRIMARY KEY)")
        other.sql("CREATE INDEX by_n ON t (n)")
        other.table("few").upsert([{"id": 1}])

        def write() -> None:
            for number in range(5):
                other.table("t").upsert([{"id": number, "n": number}])

        write()
        with connect(where, spark, **limits) as db:
            assert db.background.compactor.wait_idle()
            assert db.background.compactor.due("t") is Due.NOTHING
            assert db.background.compactor.due("by_n") is Due.NOTHING
            assert [r.level for r in live_runs(db, "few")] == [0]
            write()
            assert db.background.compactor.due("t") is Due.FOLD
            db.context.sessions.on_start()
            assert db.background.compactor.wait_idle()
            assert db.background.compactor.due("t") is Due.NOTHING
            assert rows(db, "t") == [(n, n) for n in range(5)]


# ---- vacuum ---------------------------------------------------------------------------------------------


def test_vacuum_deletes_what_was_replaced_and_nothing_else(db):
    table = db.table("t")
    db.sql("CREATE TABLE other (id BIGINT PRIMARY KEY)")
    db.table("other").upsert([{"id": 1}])
    for number in range(3):
        table.upsert([{"id": i, "n": number} for i in range(30)])
        db.compact("t")
    sizes = {p: file_of(db, r).stat().st_size for r in live_runs(db, "t") for p in [r.path]}
    files = len(stored(db))
    done = db.sql("VACUUM t RETAIN 0 SECONDS").to_arrow().to_pylist()[0]
    assert done["files"] == files - len(sizes) - 1 == 3 + 2 * 8
    assert done["bytes"] > 0
    assert done["orphans"] == 0
    assert stored(db) == named(db)
    assert rows(db, "t") == [(i, 2) for i in range(30)]
    assert rows(db, "other") == [(1,)]
    assert db.vacuum(retain_s=0).files == 0


def test_vacuum_sweeps_orphans_but_no_work_that_goes_on(db, monkeypatch):
    """Files of an open transaction, and scratch folders of Spark, belong to the writer until the transaction ends."""
    table = db.table("t")
    table.upsert([{"id": 1, "n": 1}])
    real = fold.rewrite
    swept: list[bool] = []

    def vacuum_meanwhile(*arguments):
        real(*arguments)
        before = stored(db)
        context = db.context
        vacuum.vacuum(context.catalog, context.node, context.nodes, context.settings, retain_s=0)
        swept.append(stored(db) == before)

    monkeypatch.setattr(compaction, "rewrite", vacuum_meanwhile)
    db.compact("t")
    assert swept == [True]
    assert rows(db, "t") == [(1, 1)]
    root = db.context.roots()[db.context.node]
    folder = Path(root.full("r1"))
    (folder / "t99999-0.parquet").write_bytes(b"orphan")
    (folder / "t99999-scratch1").mkdir()
    (folder / "t99999-scratch1" / ".part.crc").write_bytes(b"x")
    (folder / "t99999-scratch1" / "part.parquet").write_bytes(b"rows")
    (folder / "notes.txt").write_text("a user's")
    done = db.vacuum(retain_s=0)
    assert done.orphans == 3
    assert done.files >= 3
    assert {p for _, p in stored(db) - named(db)} == {"r1/notes.txt"}


def test_vacuum_waits_for_no_reader_and_harms_none(db):
    """Queries run all the time while old files go: none fails, none sees half a table."""
    table = db.table("t")
    table.upsert([{"id": i, "n": 0} for i in range(16)])
    stop, failed, seen = threading.Event(), [], []

    def read() -> None:
        try:
            while not stop.is_set():
                count, least, most = db.sql("SELECT count(*), min(n), max(n) FROM t").one()
                assert (count, least) == (16, most)
                seen.append(most)
        except BaseException as error:
            failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 6):
        table.upsert([{"id": i, "n": number} for i in range(16)])
        db.compact("t")
        db.vacuum(retain_s=0)
    eventually(lambda: bool(failed) or bool(seen and seen[-1] == 5))
    stop.set()
    reader.join()
    assert not failed
    assert seen == sorted(seen)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)


def test_system_tables_tell_of_all_this(db):
    db.table("t").upsert([{"id": 1, "n": 1}])
    db.compact("t")
    history = rows(db, "SELECT version, kind, reason FROM system.history")
    assert [h[1:] for h in history[-3:]] == [
        ("exclusive", "create table t"),
        ("data", "upsert into t"),
        ("data", "compact t: 1 level 0 runs into 1 tablets"),
    ]
    assert rows(db, "SELECT level, row_count FROM system.runs WHERE end_version > 1000000") == [(1, 1)]
    assert rows(db, "SELECT DISTINCT state FROM system.transactions") == [("committed",)]
