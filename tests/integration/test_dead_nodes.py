"""With three copies a dead node stops neither reads nor writes, and gets what it missed when it is back."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ebla.base.caches import CacheName
from ebla.errors import StorageError, UsageError
from ebla.storage import copies
from ebla.storage import runs as rf
from ebla.storage.copying import CopyResult
from ebla.storage.files import MARKER, Root
from ebla.tables import sweep
from ebla.topology import run_copies
from ebla.topology.run_copies import repair
from support.warehouse import connect, eventually, live_runs, named, names_of, rows, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

NODES = ("node1", "node2", "node3")


def opened(folder: Path, spark: SparkSession | None = None, **settings: Any) -> ebla.Database:
    """Every tablet on three nodes; none is repaired by itself."""
    nodes = {name: str(folder / name) for name in NODES[1:]}
    given = {"repair_period_s": 0, "replication": 3, "storage_root": str(folder / "node1"), **settings}
    return connect(folder / "warehouse", spark, nodes=nodes, **given)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    with opened(tmp_path) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        write(db, 0, 40)
        yield db


def write(db: ebla.Database, first: int, end: int) -> None:
    db.table("t").upsert([{"id": i, "n": i} for i in range(first, end)])


def kill(folder: Path, *names: str) -> Callable[[], None]:
    """Put files in the place of storage roots; what brings them back."""
    for name in names:
        (folder / name).rename(folder / f"{name}.away")
        (folder / name).write_text("the disk is gone")

    def back() -> None:
        for name in names:
            (folder / name).unlink()
            (folder / f"{name}.away").rename(folder / name)

    return back


def ids(db: ebla.Database) -> list[int]:
    return sorted(row[0] for row in db.query("t", limit=1000).rows())


def forget(db: ebla.Database) -> None:
    """Have the next read open files."""
    for name in CacheName:
        db.context.storage.caches.cache(name).clear()


def lacking(db: ebla.Database) -> dict[str, int]:
    found: dict[str, int] = {}
    for node, runs in db.sql("SELECT node, runs FROM system.under_replicated").rows():
        found[node] = found.get(node, 0) + runs
    return found


@pytest.mark.parametrize("dead", NODES)
def test_a_dead_node_stops_neither_reads_nor_writes(db, tmp_path, dead):
    back = kill(tmp_path, dead)
    write(db, 40, 60)
    db.table("t").delete([{"id": 3}])
    expected = [i for i in range(60) if i != 3]
    forget(db)
    assert ids(db) == expected
    copied = {frozenset(names_of(db, run.nodes)) for run in live_runs(db, "t")}
    assert copied == {frozenset(NODES), frozenset(NODES) - {dead}}
    assert lacking(db) == {dead: 2}
    back()
    assert repair(db.context).made == 2
    assert lacking(db) == {}
    assert repair(db.context).made == 0
    assert stored(db) == named(db)
    back = kill(tmp_path, *(n for n in NODES if n != dead))  # what was dead has all of it
    forget(db)
    assert ids(db) == expected
    back()


def test_two_dead_nodes_stop_writes_and_not_reads(db, tmp_path):
    back = kill(tmp_path, "node2", "node3")
    forget(db)
    assert ids(db) == list(range(40))
    with pytest.raises(StorageError, match=r"at least 2 of 3 nodes, found 1: node .*node[23].*; node .*node[23]"):
        write(db, 40, 41)
    assert ids(db) == list(range(40))
    db.sql("CREATE TABLE careless (id BIGINT PRIMARY KEY) WITH (min_copies = 1)")
    assert "min_copies = 1" in db.sql("SHOW CREATE TABLE careless").one()[0]
    db.table("careless").upsert([{"id": 1}])
    back()
    assert repair(db.context).made == 2
    write(db, 40, 41)
    assert ids(db) == list(range(41))


def test_a_process_starts_without_a_node(db, tmp_path):
    """Its root is not made anew: an empty directory is not the node's disk."""
    db.close()
    (tmp_path / "node2").rename(tmp_path / "away")
    with opened(tmp_path) as again:
        write(again, 40, 50)
        assert ids(again) == list(range(50))
        assert not (tmp_path / "node2").exists()
        assert lacking(again) == {"node2": 1}
        (tmp_path / "away").rename(tmp_path / "node2")
        assert repair(again.context).made == 1


def test_what_a_node_missed_is_copied_in_the_background(tmp_path):
    with opened(tmp_path, repair_period_s=0.1) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id)); CREATE INDEX by_n ON t (n)")
        back = kill(tmp_path, "node3")
        write(db, 0, 10)
        listed = {name: (least, count) for name, _, _, _, least, count, _, _ in db.sql("SHOW REPLICATION").rows()}
        assert listed == {"t": (2, 1), "by_n": (2, 1)}
        assert db.sql("SHOW REPLICATION LIKE 't'").one()[-1] == "node3"
        back()
        eventually(lambda: lacking(db) == {})
        assert stored(db) == named(db)


def test_min_copies_is_a_number_up_to_the_replication(db):
    for wrong in (0, 4, "'two'"):
        with pytest.raises(UsageError, match="min_copies: expected a whole number from 1 to the replication 3"):
            db.sql(f"CREATE TABLE u (id BIGINT PRIMARY KEY) WITH (min_copies = {wrong})")


def test_a_sweep_spares_a_copy_that_no_commit_names_yet(db, tmp_path, monkeypatch):
    back = kill(tmp_path, "node3")
    write(db, 40, 50)
    back()
    swept: list[int] = []
    monkeypatch.setattr(run_copies, "hit", lambda name: swept.append(db.vacuum().files))
    assert repair(db.context).made == 1
    assert swept == [0]
    assert stored(db) == named(db)


def test_a_copier_that_dies_leaves_a_registered_copy_as_it_is(db, tmp_path, monkeypatch):
    """Two processes find the same copy missing; the second begins when the first has committed it."""
    back = kill(tmp_path, "node3")
    write(db, 40, 50)
    back()
    [(relation, late)] = run_copies.missing_copies(db.context)
    assert repair(db.context).made == 1
    before = stored(db)

    def dies(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(copies, "_put", dies)
    with pytest.raises(KeyboardInterrupt):
        run_copies.copy(db.context, relation, late, CopyResult())
    assert stored(db) == before == named(db)
    kill(tmp_path, "node1", "node2")
    forget(db)
    assert ids(db) == list(range(50))


def test_a_full_disk_is_left_as_it_was_and_stops_no_other_node(db, tmp_path, monkeypatch):
    db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY) WITH (min_copies = 1)")
    back = kill(tmp_path, "node2", "node3")
    for n in range(3):
        db.table("u").upsert([{"id": n}])
    back()
    tried: list[str] = []
    real = copies.begin_copy

    def some(source: Root, target: Root, path: str, size: int, beside: str) -> None:
        if target.location.endswith("node3"):
            tried.append(path)
            with monkeypatch.context() as full:
                full.setattr(copies, "_put", no_room)
                real(source, target, path, size, beside)
        real(source, target, path, size, beside)

    monkeypatch.setattr(copies, "begin_copy", some)
    monkeypatch.setattr(rf, "in_threads", lambda function, items: [function(item) for item in items])
    done = repair(db.context)
    assert (done.made, len(done.full), len(tried)) == (3, 1, 1)
    assert lacking(db) == {"node3": 3}
    assert stored(db) == named(db)
    [(request,)] = db.sql("ALTER CLUSTER REBUILD NODE 'node3'").rows()
    with pytest.raises(UsageError, match="node node3: expected it to have all of its copies, found it without 3 "):
        db.sql(f"WAIT FOR REQUEST {request}")


def no_room(source: Root, target: Root, path: str, beside: str) -> None:
    """The disk takes a part of a file."""
    Path(target.full(beside)).write_bytes(b"a part")
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_relation_that_cannot_be_repaired_stops_no_other(db, tmp_path, monkeypatch):
    db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY)")
    back = kill(tmp_path, "node3")
    write(db, 40, 50)
    db.table("u").upsert([{"id": 1}])
    back()
    real = run_copies.begin

    def refused(host: Any, relation: Any, *given: Any) -> Any:
        if relation.name == "t":
            raise StorageError("t: the catalog said no")
        return real(host, relation, *given)

    monkeypatch.setattr(run_copies, "begin", refused)
    done = repair(db.context)
    assert (done.made, [str(reason) for reason in done.failed.values()]) == (1, ["t: the catalog said no"])


def test_files_that_vacuum_takes_during_a_rebuild_are_not_lost(db, tmp_path, monkeypatch):
    db.sql("CREATE TABLE kept (id BIGINT PRIMARY KEY)")
    db.table("kept").upsert([{"id": 1}])
    for file in (tmp_path / "node3").rglob("*.parquet"):
        file.unlink()
    real = copies.begin_copy

    def after_vacuum(source: Root, target: Root, path: str, size: int, beside: str) -> None:
        if "t" in db.tables():
            db.sql("DROP TABLE t")
            db.vacuum(retain_s=0)
        real(source, target, path, size, beside)

    monkeypatch.setattr(copies, "begin_copy", after_vacuum)
    [(request,)] = db.sql("ALTER CLUSTER REBUILD NODE 'node3'").rows()
    assert db.sql(f"WAIT FOR REQUEST {request}").rows() == [(request, "node node3 has all of its copies")]
    db.vacuum()
    assert stored(db) == named(db)


def test_a_sweep_spares_a_copy_that_a_repair_names_at_the_same_moment(db, tmp_path, monkeypatch):
    """A repair that died has left the file; the next one finds it whole while a sweep has already seen it unnamed."""
    back = kill(tmp_path, "node3")
    write(db, 40, 50)
    back()
    monkeypatch.setattr(run_copies, "hit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        repair(db.context)
    monkeypatch.setattr(run_copies, "hit", lambda name: None)
    left = stored(db) - named(db)
    assert len(left) == 1
    made: list[int] = []
    monkeypatch.setattr(
        sweep, "hit", lambda name: made.append(repair(db.context).made) if name == "sweep.read" else None
    )
    assert sweep.sweep(db.context.catalog, db.context.nodes) == (0, 0, 0)
    assert made == [1]
    assert stored(db) == named(db)


def interrupted(name: str) -> None:
    raise KeyboardInterrupt(name)


def test_what_a_repair_that_died_left_behind_is_swept(db, tmp_path, monkeypatch):
    back = kill(tmp_path, "node3")
    write(db, 40, 50)
    back()
    monkeypatch.setattr(run_copies, "hit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        repair(db.context)
    assert sweep.sweep(db.context.catalog, db.context.nodes)[0] == 1
    assert stored(db) == named(db)


@pytest.mark.parametrize("node", ["node1", "node3"])
def test_a_mount_point_without_its_disk_is_neither_marked_nor_written_to(db, tmp_path, node):
    db.close()
    (tmp_path / node).rename(tmp_path / "away")
    (tmp_path / node).mkdir()
    with opened(tmp_path) as again:
        write(again, 40, 50)
        assert list((tmp_path / node).iterdir()) == []
        assert lacking(again) == {node: 1}
        (tmp_path / node).rmdir()
        (tmp_path / "away").rename(tmp_path / node)
        assert repair(again.context).made == 1


@pytest.mark.parametrize("is_open", [True, False])
def test_a_disk_of_another_warehouse_is_neither_written_to_nor_swept(db, tmp_path, is_open):
    with connect(tmp_path / "other", storage_root=str(tmp_path / "theirs")) as other:
        other.sql("CREATE TABLE u (id BIGINT, PRIMARY KEY (id))")
        for number in range(4):
            other.table("u").upsert([{"id": number}])
    if not is_open:
        db.close()
    (tmp_path / "node3").rename(tmp_path / "away")
    (tmp_path / "theirs").rename(tmp_path / "node3")
    before = sorted((tmp_path / "node3").rglob("*"))
    again = db if is_open else opened(tmp_path)
    with again:
        write(again, 40, 50)
        again.vacuum()
        assert lacking(again) == {"node3": 1}
    assert sorted((tmp_path / "node3").rglob("*")) == before


def test_a_damaged_marker_makes_a_node_down(db, tmp_path):
    db.close()
    (tmp_path / "node1" / MARKER).write_text("")
    with opened(tmp_path) as again:
        write(again, 40, 50)
        assert lacking(again) == {"node1": 1}


def test_new_tables_are_placed_on_nodes_that_are_there(tmp_path):
    nodes = {"node2": str(tmp_path / "node2")}
    connect(tmp_path / "w", nodes=nodes).close()
    back = kill(tmp_path, "node2")
    with connect(tmp_path / "w", nodes=nodes) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        write(db, 0, 40)
        assert ids(db) == list(range(40))
        db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY) WITH (replication = 2, min_copies = 1)")
        back()
        assert db.sql("SELECT count(DISTINCT host_id) FROM system.tablets").one() == (2,)


@pytest.mark.spark
def test_spark_writes_what_a_dead_node_lacks(spark, tmp_path):
    """Rows that Spark cuts into tablets, a fold, and a data source, with the root of the process's own node lost."""
    with opened(tmp_path, spark, batch_rows_max=10) as db:
        db.sql("CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id))")
        db.table("t").upsert(spark.range(100).selectExpr("id", "id AS n"))
        back = kill(tmp_path, "node1")
        db.table("t").upsert(spark.range(100, 200).selectExpr("id", "id AS n"))
        db.compact("t")
        assert [row[0] for row in rows(db, "t")] == list(range(200))
        assert set(lacking(db)) == {"node1"}
        back()
        repair(db.context)
        assert lacking(db) == {}
        kill(tmp_path, "node2", "node3")
        assert db.sql("SELECT count(*), sum(n) FROM t").one() == (200, sum(range(200)))
