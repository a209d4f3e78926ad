"""Tablets are split by their sizes and by requests, in the background of a process; most of it without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ebla
from ebla.catalog import reads
from ebla.model.tablets import tablet_around
from ebla.tables.cutting import crossing, cut_runs
from ebla.topology import service
from support.catalogs import dump
from support.indexes import assert_exact
from support.warehouse import connect, eventually, live_runs, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = 20_000


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ebla.Database]:
    monkeypatch.setattr(service, "SIZES_S", 0.05)
    monkeypatch.setattr(service, "LOOK_S", 0.05)
    nodes = {"node2": str(tmp_path / "two")}
    with connect(tmp_path / "w", tablets=2, nodes=nodes, tablet_bytes_target=TARGET) as database:
        database.sql("CREATE TABLE t (id BIGINT, a STRING, f DOUBLE, PRIMARY KEY (id)) WITH (replication = 2)")
        yield database


def looked(db: ebla.Database, times: int = 5) -> None:
    """Wait until the process has looked at the topology some more times."""
    before = db.background.membership.coordination.rounds
    eventually(lambda: db.background.membership.coordination.rounds >= before + times)


def tablets(db: ebla.Database, name: str = "t") -> int:
    with db.context.catalog.reading() as connection:
        return reads.relation(connection, name).tablets


def write(db: ebla.Database, count: int, *, first: int = 0) -> None:
    rows = [
        {"id": i, "a": f"{i * 7919 % 10007:>20}", "f": i / 3 if i % 9 else float("nan")} for i in range(first, count)
    ]
    db.table("t").upsert(rows)


def test_tablets_are_split_when_they_have_grown_and_not_before(db: ebla.Database) -> None:
    looked(db)
    assert tablets(db) == 2
    write(db, 4_000)
    size = sum(run.bytes for run in live_runs(db, "t"))
    assert size > 2 * TARGET
    eventually(lambda: size / tablets(db) <= TARGET)
    looked(db)
    assert size / tablets(db) > TARGET / 2
    assert len(db.query("t", limit=10_000).rows()) == 4_000


@pytest.mark.spark
def test_views_and_indexes_are_resized_by_themselves(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up and down, by their own sizes and with their base; what they show stays exact."""
    monkeypatch.setattr(service, "SIZES_S", 0.05)
    monkeypatch.setattr(service, "LOOK_S", 0.05)
    query = "SELECT a, id, n + 1 AS m FROM t"
    nodes = {"node2": str(tmp_path / "two")}
    with connect(tmp_path / "w", spark, tablets=2, nodes=nodes, tablet_bytes_target=TARGET) as db:
        db.sql("CREATE TABLE t (id BIGINT, a STRING, n BIGINT, PRIMARY KEY (id)); CREATE INDEX i ON t (n)")
        db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
        db.table("t").upsert([{"id": i, "a": f"{i * 7919 % 10007:>20}", "n": i % 700} for i in range(4_000)])
        db.sql("FLUSH v")
        eventually(lambda: tablets(db) > 2 and tablets(db, "v") > 2)
        assert tablets(db, "i") == tablets(db)
        assert sorted(rows(db, "v")) == sorted(rows(db, query))
        assert_exact(db, "i")
        db.sql("DELETE FROM t WHERE id >= 40; FLUSH v; COMPACT t; COMPACT i; COMPACT v")
        eventually(lambda: tablets(db) == tablets(db, "i") == tablets(db, "v") == 2)  # as they were created with
        assert sorted(rows(db, "v")) == sorted(rows(db, query))
        assert_exact(db, "i")
        assert len(rows(db, "v")) == 40


def test_nothing_is_written_where_nothing_is_to_be_done(db: ebla.Database) -> None:
    write(db, 10)
    looked(db)
    before = dump(db.context.catalog)
    looked(db)
    assert dump(db.context.catalog) == before


def test_level_0_runs_are_cut_into_runs_of_one_tablet_each(db: ebla.Database) -> None:
    """On both nodes, in the order of commits, with their tombstones."""
    write(db, 100)
    write(db, 120, first=50)
    db.table("t").delete([{"id": i} for i in range(0, 30, 7)])
    before = db.query("t", limit=1000).rows()
    spanning = [run for run in live_runs(db, "t") if tablet_around(run.tokens, 8) is None]
    assert cut_runs(db.context, "t", 8, lambda snapshot: crossing(snapshot.level0, 8)) == len(spanning) == 3
    after = live_runs(db, "t")
    assert all(tablet_around(run.tokens, 8) is not None and len(run.nodes) == 2 for run in after)
    assert {run.begin_version for run in after} == {run.begin_version for run in spanning}
    assert sum(run.tombstones for run in after) == sum(run.tombstones for run in spanning) == 5
    assert str(db.query("t", limit=1000).rows()) == str(before)  # NaN is not itself


def test_what_cannot_be_asked_for_is_refused_and_changes_nothing(db: ebla.Database) -> None:
    looked(db)
    before = dump(db.context.catalog)
    for statement, message in {
        "ALTER TABLE t SET (tablets = 3)": "t: expected a power of two from 1 to 1048576 tablets, found 3",
        "ALTER TABLE t SET (tablets = 'x')": "ALTER TABLE t: expected a number of tablets, found 'x'",
        "ALTER TABLE t SET (tables = 4)": "ALTER TABLE t: expected the option tablets or replication, found tables",
        "ALTER TABLE t SET (replication = 1, tables = 4)": "the option tablets or replication, found tables",
        "ALTER TABLE t SET (replication = 1, tablets = 4)": "expected tablets or replication, found both; each is a ",
        "ALTER TABLE nowhere SET (tablets = 4)": "table nowhere: expected a table of this name, found none",
    }.items():
        with pytest.raises(ebla.EblaError, match=message):
            db.sql(statement)
    assert dump(db.context.catalog) == before
