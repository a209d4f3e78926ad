"""Copies under several roots: every run under every replica's, reads from any sound one, and what is lost without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ebla.errors import CorruptRunError
from ebla.model.relation import Run
from support.warehouse import connect, damage, file_of, host, live_runs, named, names_of, refused, rows, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

pytestmark = pytest.mark.spark

EXPECTED = [(i, i * 10) for i in range(40)]


@pytest.fixture
def lone(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    """One node, eight tablets; level 1 and a level 0 run over it, and another table."""
    with connect(tmp_path / "warehouse", spark, tablets=8) as db:
        fill(db)
        yield db


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    """Every tablet on two of three nodes."""
    nodes = {f"node{i}": str(tmp_path / f"node{i}") for i in (2, 3)}
    with connect(tmp_path / "warehouse", spark, tablets=8, replication=2, nodes=nodes) as db:
        fill(db)
        yield db


def fill(db: ebla.Database) -> None:
    db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id)); CREATE TABLE other (id BIGINT PRIMARY KEY)")
    db.table("other").upsert([{"id": 1}])
    db.table("t").upsert([{"id": i, "n": -1} for i in range(41)])
    db.compact("t")
    db.table("t").upsert([{"id": i, "n": i * 10} for i in range(40)])
    db.compact("t")
    db.table("t").delete([{"id": 40}])


def level1(db: ebla.Database) -> list[Run]:
    return [run for run in live_runs(db, "t") if run.level == 1]


def level0(db: ebla.Database) -> list[Run]:
    return [run for run in live_runs(db, "t") if run.level == 0]


def sound_rest(db: ebla.Database, lost: Run) -> list[tuple[int, int]]:
    rest = [t for t in range(8) if t != lost.tablet]
    return sorted(map(tuple, db.table("t").scan(tablets=rest).collect()))


# ---- one copy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["missing", "cut", "damaged"])
def test_a_lost_run_is_named_with_its_tablet_and_the_rest_is_readable(lone, harm):
    lost = level1(lone)[3]
    file = file_of(lone, lost)
    gone = {(r[0], r[1]) for r in lone.table("t").scan(tablets=[lost.tablet]).collect()}
    match harm:
        case "missing":
            file.unlink()
            found = "found nothing"
        case "cut":
            file.write_bytes(file.read_bytes()[:100])
            found = "found 100 bytes"
        case _:
            damage(file)
            found = "found damaged ones"
    rest = "0-2, 4-7"
    with refused(
        lone, CorruptRunError, f"t: run missing or damaged: {file}", found, "affected tablets 3;",
        f"tablets {rest} are readable with scan(tablets=…)", "restore the file from a backup",
    ):  # fmt: skip
        lone.sql("SELECT sum(n), count(id) FROM t").rows()
    assert sound_rest(lone, lost) == [r for r in EXPECTED if r not in gone]
    assert rows(lone, "other") == [(1,)]
    lone.table("t").upsert([{"id": 1000, "n": 1}])  # a blind write needs nothing of it


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_lost_level_0_run_takes_every_tablet_it_spans(lone, spark, harm):
    file = file_of(lone, level0(lone)[0])
    content = file.read_bytes()
    if harm == "missing":
        file.unlink()
    else:
        damage(file)
    with connect(lone.context.catalog.where, spark) as fresh:  # that has nothing of it in memory
        with refused(fresh, CorruptRunError, str(file)):
            fresh.sql("SELECT * FROM t").rows()
        with refused(fresh, CorruptRunError, str(file)):
            fresh.sql("INSERT INTO t VALUES (1000, 1)")
        with refused(fresh, CorruptRunError, str(file)):
            fresh.sql("UPDATE t SET n = 1")
        with refused(fresh, CorruptRunError, str(file)):
            fresh.compact("t")
        file.write_bytes(content)
        assert rows(fresh, "t") == EXPECTED


def test_one_changed_bit_is_found_out_in_every_way_to_read(lone, spark):
    """The page can still be read; only its checksum tells."""
    for run in live_runs(lone, "t"):
        damage(file_of(lone, run))
    for settings in ({}, {"level0_rows_max": 0}):
        with connect(lone.context.catalog.where, spark, **settings) as fresh:
            for statement in ("SELECT * FROM t", "DELETE FROM t WHERE n = 10", "COMPACT t"):
                with refused(fresh, CorruptRunError, "found"):
                    fresh.sql(statement).rows()


# ---- two copies -----------------------------------------------------------------------------------------


def test_every_run_has_a_copy_under_each_of_its_nodes(pair):
    runs = live_runs(pair, "t")
    assert all(len(run.nodes) == 2 for run in runs)
    assert names_of(pair, {node for run in runs for node in run.nodes}) == {"node1", "node2", "node3"}
    for run in runs:
        first, second = (file_of(pair, run, node).read_bytes() for node in run.nodes)
        assert first == second
        assert len(first) == run.bytes
    assert len(level0(pair)) == len({run.nodes for run in level0(pair)})  # one file for each set of nodes
    pair.vacuum(retain_s=0)
    assert stored(pair) == named(pair)
    assert rows(pair, "t") == EXPECTED


def test_a_bulk_write_is_copied_too(pair, spark):
    with connect(pair.context.catalog.where, spark, batch_rows_max=0) as bulk:
        bulk.table("t").upsert([{"id": i, "n": 0} for i in range(100, 140)])
        runs = [run for run in live_runs(bulk, "t") if run.level == 0 and run.tablet >= 0]
        assert runs
        for run in runs:
            first, second = (file_of(pair, run, node).read_bytes() for node in run.nodes)
            assert first == second
    pair.vacuum(retain_s=0)
    assert stored(pair) == named(pair)


@pytest.mark.parametrize("harm", ["missing", "damaged"])
@pytest.mark.parametrize("node", ["node1", "node2"])
def test_the_other_copy_is_read_instead(pair, spark, harm, node):
    assert rows(pair, "t") == EXPECTED  # plans and rows that are kept must not point to lost files
    harmed = host(pair, node)
    for run in live_runs(pair, "t"):
        if harmed in run.nodes:
            file = file_of(pair, run, harmed)
            file.unlink() if harm == "missing" else damage(file)
    assert rows(pair, "t") == EXPECTED
    with connect(pair.context.catalog.where, spark) as fresh:
        assert rows(fresh, "SELECT * FROM t WHERE n >= 0") == EXPECTED
    with connect(pair.context.catalog.where, spark, level0_rows_max=0) as fresh:
        assert rows(fresh, "SELECT * FROM t") == EXPECTED
    with connect(pair.context.catalog.where, spark) as fresh:
        with pytest.raises(Exception, match="found id = 5 in the table"):
            fresh.sql("INSERT INTO t VALUES (5, 5)")
        fresh.sql("UPDATE t SET n = n + 1 WHERE id = 5")
    with connect(pair.context.catalog.where, spark) as fresh:
        fresh.compact("t")
    assert rows(pair, "t") == [(i, n + (i == 5)) for i, n in EXPECTED]


def test_losing_both_copies_is_an_error_that_names_the_tablets(pair):
    lost = level1(pair)[2]
    for node in lost.nodes:
        file_of(pair, lost, node).unlink()
    with refused(pair, CorruptRunError, str(file_of(pair, lost)), "affected tablets 2;"):
        pair.sql("SELECT * FROM t").rows()
    assert {r for r in EXPECTED if r not in sound_rest(pair, lost)}


def test_a_restored_file_is_trusted_again(lone):
    file = file_of(lone, level1(lone)[0])
    content = file.read_bytes()
    damage(file)
    with pytest.raises(CorruptRunError):
        lone.sql("SELECT * FROM t").rows()
    file.write_bytes(content)
    assert rows(lone, "t") == EXPECTED
