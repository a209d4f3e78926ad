"""Every version that is still retained can be read as it was, by number and by time, until vacuum takes it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from ebla.catalog import schema as s
from ebla.errors import SnapshotError
from ebla.tables import vacuum
from support.warehouse import connect, later, live_runs, named, pins, refused, rows, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

pytestmark = pytest.mark.spark


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark, tablets=2) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        yield db


def committed_at(db: ebla.Database, version: int) -> dt.datetime:
    with db.context.catalog.reading() as connection:
        at = connection.execute(select(s.history.c.committed_at).where(s.history.c.version == version)).scalar_one()
    return dt.datetime.fromtimestamp(at / 1e6, dt.UTC)


def test_every_retained_version_by_number_and_by_time(db):
    table = db.table("t")
    expected: dict[int, list[tuple[int, int]]] = {db.version: []}

    def note(*found: tuple[int, int]) -> None:
        expected[db.version] = list(found)

    table.upsert([{"id": 1, "n": 1}, {"id": 2, "n": 1}])
    note((1, 1), (2, 1))
    db.sql("UPDATE t SET n = 2 WHERE id = 1")
    note((1, 2), (2, 1))
    db.compact("t")
    note((1, 2), (2, 1))
    table.delete([{"id": 2}])
    note((1, 2))
    db.sql("TRUNCATE TABLE t")
    note()
    table.upsert([{"id": 3, "n": 3}])
    note((3, 3))
    db.compact("t")
    note((3, 3))
    for version, found in expected.items():
        assert rows(db, f"SELECT * FROM t VERSION AS OF {version}") == found, f"version {version}"
        at = committed_at(db, version)
        assert rows(db, "SELECT * FROM t TIMESTAMP AS OF :at", at=at) == found, f"time {at}"
        assert sorted(map(tuple, table.scan(version=version).collect())) == found
    newest = committed_at(db, db.version) + dt.timedelta(days=1)
    assert rows(db, f"SELECT * FROM t TIMESTAMP AS OF '{newest.isoformat()}'") == [(3, 3)]


def test_versions_of_one_table_can_be_joined(db):
    table = db.table("t")
    table.upsert([{"id": 1, "n": 1}, {"id": 2, "n": 1}])
    old = db.version
    table.upsert([{"id": 2, "n": 5}])
    text = "SELECT now.id, old.n, now.n FROM t now JOIN t VERSION AS OF :old AS old USING (id)"
    assert rows(db, text, old=old) == [(1, 1, 1), (2, 1, 5)]
    db.sql("MERGE INTO t USING (SELECT * FROM t VERSION AS OF :old) o ON t.id = o.id "
           "WHEN MATCHED THEN UPDATE SET n = o.n", old=old)  # fmt: skip
    assert rows(db, "t") == [(1, 1), (2, 1)]


def test_below_the_horizon_is_an_error_and_above_it_the_rows_stay(db):
    table = db.table("t")
    table.upsert([{"id": 1, "n": 1}])
    old = db.version
    table.upsert([{"id": 1, "n": 2}])
    kept = db.version
    db.compact("t")
    done = db.vacuum("t", retain_s=0)
    assert done.horizon == db.version - 1
    assert done.files == 2
    for version in (old, kept):
        with refused(db, SnapshotError, f"t: expected a snapshot at version {done.horizon} or later, found {version}",
                     "older rows were vacuumed"):  # fmt: skip
            db.sql(f"SELECT * FROM t VERSION AS OF {version}")
        with refused(db, SnapshotError, "older rows were vacuumed"):
            table.scan(version=version)
        with refused(db, SnapshotError, f"expected a change at version {done.horizon} or later, found {version}"):
            table.changes(version)
    with refused(db, SnapshotError, "older rows were vacuumed"):
        db.sql("SELECT * FROM t TIMESTAMP AS OF :at", at=committed_at(db, old))
    with refused(db, SnapshotError, "older rows were vacuumed"):
        db.sql("INSERT INTO t SELECT id + 10, n FROM t VERSION AS OF :v", v=old)
    assert rows(db, f"SELECT * FROM t VERSION AS OF {done.horizon}") == [(1, 2)]
    assert stored(db) == named(db)


def test_vacuum_keeps_what_the_retention_period_covers(db):
    table = db.table("t")
    table.upsert([{"id": 1, "n": 1}])
    old = db.version
    db.compact("t")
    assert db.vacuum(retain_s=3600).files == 0
    assert rows(db, f"SELECT * FROM t VERSION AS OF {old}") == [(1, 1)]
    later(db, hours=2)
    assert db.vacuum(retain_s=3600).files == 1
    with refused(db, SnapshotError, "older rows were vacuumed"):
        db.sql(f"SELECT * FROM t VERSION AS OF {old}")


def test_a_result_that_was_not_read_yet_keeps_its_version(db):
    table = db.table("t")
    table.upsert([{"id": 1, "n": 1}])
    result = db.sql("SELECT * FROM t")
    table.upsert([{"id": 1, "n": 2}])
    db.compact("t")
    assert db.vacuum(retain_s=0).files == 0
    assert result.rows() == [(1, 1)]
    assert db.vacuum(retain_s=0).files == 2


def test_a_lazy_frame_is_pinned_until_its_lease_ends_or_the_database_closes(db, spark):
    table = db.table("t")
    table.upsert([{"id": 1, "n": 1}])
    scan, feed = table.scan(), table.changes(0)
    lazy = db.sql("SELECT * FROM t").to_spark()
    table.upsert([{"id": 1, "n": 2}])
    db.compact("t")
    assert db.vacuum(retain_s=0).files == 0
    assert [tuple(r) for r in scan.collect()] == [tuple(r) for r in lazy.collect()] == [(1, 1)]
    assert feed.count() == 1
    with connect(db.context.catalog.where, spark) as other:
        assert other.vacuum(retain_s=0).files == 0  # a pin holds for every process
        later(other)
        assert other.vacuum(retain_s=0).files == 2


def test_a_request_that_fails_leaves_no_pin(db):
    table = db.table("t")
    for wrong in (lambda: table.scan(version=0), lambda: table.changes(99), lambda: table.scan(tablets=[9])):
        with pytest.raises(Exception, match="expected"):
            wrong()
    for text in ("SELECT * FROM t VERSION AS OF 1", "SELECT nope FROM t", "SELECT 1 / (n - n) FROM t"):
        db.table("t").upsert([{"id": 1, "n": 1}])
        with pytest.raises(Exception, match=r"created|nope|DIVIDE"):
            db.sql(text).rows()
    db.sql("EXPLAIN SELECT * FROM t")
    assert pins(db) == []


def test_a_plain_query_survives_a_vacuum_at_any_moment(db, monkeypatch):
    """The newest version may be vacuumed between being chosen and being pinned: then a newer one is read."""
    table = db.table("t")
    table.upsert([{"id": 1, "n": 1}])
    hold = db.pins.hold
    interrupted: list[int] = []

    def late(version, reason):
        if not interrupted:
            interrupted.append(version)
            table.upsert([{"id": 1, "n": 2}])
            db.sql("TRUNCATE TABLE t")
            table.upsert([{"id": 2, "n": 2}])
            context = db.context
            vacuum.vacuum(context.catalog, context.node, context.nodes, context.settings, retain_s=0)
        return hold(version, reason)

    monkeypatch.setattr(db.pins, "hold", late)
    assert rows(db, "t") == [(2, 2)]
    assert len(interrupted) == 1
    assert len(live_runs(db, "t")) == 1
    assert pins(db) == []
