"""The cluster's scenarios by name, on real files: tablets move, nodes come and go and maps change under a build."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ebla
from ebla.errors import UsageError
from ebla.storage import copies
from ebla.storage.copying import CopyResult
from ebla.topology import migration, run_copies
from support.catalogs import dump
from support.disks import free_bytes, small_disk
from support.indexes import assert_exact
from support.steps import Steps
from support.warehouse import connect, eventually, later, named, rows, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEW = "SELECT t.id, t.n, g.name FROM t LEFT JOIN g ON t.a = g.a"
QUIET: dict[str, Any] = {"auto_refresh": False, "repair_period_s": 0, "leader_lease_s": 0.5, "barrier_grace_s": 0.5}


def open_nodes(folder: Path, spark: SparkSession | None, *nodes: str, **settings: Any) -> ebla.Database:
    """A process of some nodes; the first of them is its own."""
    roots = {name: str(folder / name) for name in nodes}
    own = {"node": nodes[0], "storage_root": roots.pop(nodes[0])}
    return connect(folder / "w", spark, nodes=roots, **{**QUIET, **own, **settings})


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    """Two tables on three nodes, two copies of each tablet."""
    with open_nodes(tmp_path, spark, "a", "b", "c") as database:
        database.sql("ALTER CLUSTER SET balancing = OFF")
        for columns in (
            "t (id BIGINT, a STRING, n BIGINT, PRIMARY KEY (id))",
            "g (a STRING, name STRING, PRIMARY KEY (a))",
        ):
            database.sql(f"CREATE TABLE {columns} WITH (tablets = 2, replication = 2)")
        database.table("g").upsert([{"a": f"a{i}", "name": f"g{i}"} for i in range(3)])
        write(database, *range(24))
        yield database


def write(db: ebla.Database, *numbers: int, **changed: Any) -> None:
    db.table("t").upsert([{"id": i, "a": f"a{i % 4}", "n": i, **changed} for i in numbers])


def ask(db: ebla.Database, statement: str) -> str:
    request = db.sql(statement).one()[0]
    return str(db.sql(f"WAIT FOR REQUEST {request}").one()[1])


def replicas(db: ebla.Database, table: str = "t") -> dict[int, set[str]]:
    found = db.sql(f"SHOW TABLETS OF {table}").to_arrow().to_pylist()
    return {row["tablet"]: set(row["replicas"].split(", ")) for row in found}


def alive(db: ebla.Database) -> set[str]:
    """The nodes whose processes are known to live."""
    return {row["name"] for row in db.sql("SHOW NODES").to_arrow().to_pylist() if row["alive"]}


def elsewhere(db: ebla.Database, tablet: int) -> tuple[str, str]:
    """A node that a tablet can leave, and one that it can come to."""
    held = replicas(db)[tablet]
    return min(held), min({"a", "b", "c"} - held)


def tasks(db: ebla.Database) -> set[str]:
    return {row[0] for row in db.sql("SELECT id FROM system.view_building_tasks").rows()}


def build(db: ebla.Database, steps: Steps, actions: Mapping[int, Callable[[], object]], *options: str) -> None:
    """Build a view and an index chunk by chunk; before some chunks something happens, before each rows change."""
    left, one_at_a_time = dict(actions), threading.Lock()

    def between(number: int) -> None:
        with one_at_a_time:  # where a leader was slow, another one builds, too
            write(db, number, 100 + number, n=1000 + number)
            db.table("t").delete([{"id": 23 - number % 4}])
            if due := [one for one in left if one <= number]:  # a chunk before may have found too few nodes to write to
                left.pop(min(due))()

    steps.at("build.before_chunk", between)
    kept = ", ".join(("chunk_rows = 3", *options))
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW v WITH ({kept}) AS {VIEW}; WAIT FOR v")
    assert not left, f"expected the build to have more chunks, found {steps.passed['build.before_chunk']}"
    steps.at("build.before_chunk", lambda number: None)
    db.sql("CREATE ASYNC INDEX i ON t (n DESC) INCLUDE (a); WAIT FOR i")


def assert_right(db: ebla.Database) -> None:
    """The view and the index are exact, and nothing is left over."""
    db.sql("FLUSH v")
    assert rows(db, "v") == rows(db, VIEW)
    assert_exact(db, "i")
    for table in (
        "view_building_tasks",
        "view_builds",
        "view_building_segments",
        "tablet_transitions",
        "under_replicated",
    ):
        assert db.sql(f"SELECT * FROM system.{table}").rows() == [], table
    later(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)


# ---- C1 -------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_c1_tablets_migrate_while_their_tasks_run(db: ebla.Database, steps: Steps):
    before: set[str] = set()
    moved: list[str] = []

    def move(tablet: int) -> None:
        before.update(tasks(db))
        source, target = elsewhere(db, tablet)
        moved.append(ask(db, f"MOVE TABLET {tablet} OF t FROM '{source}' TO '{target}'"))
        assert replicas(db)[tablet] >= {target}
        assert tasks(db) - before, "the tasks of the tablet have new ids"

    build(db, steps, {1: lambda: move(0), 3: lambda: move(1)})
    assert moved == ["tablet 0 has moved", "tablet 1 has moved"]
    assert_right(db)


@pytest.mark.spark
def test_c1_streaming_fails_and_the_tasks_go_on_under_new_ids(
    db: ebla.Database, steps: Steps, monkeypatch: pytest.MonkeyPatch
):
    real = copies.begin_copy

    def fail() -> None:
        before, held = tasks(db), replicas(db)
        source, target = elsewhere(db, 0)

        def torn(*given: Any) -> None:
            raise ebla.StorageError("the connection was torn")

        monkeypatch.setattr(copies, "begin_copy", torn)
        with pytest.raises(UsageError, match="it went back: the connection was torn"):
            ask(db, f"MOVE TABLET 0 OF t FROM '{source}' TO '{target}'")
        monkeypatch.setattr(copies, "begin_copy", real)
        assert replicas(db) == held
        assert tasks(db) - before
        assert len(tasks(db)) == len(before)

    build(db, steps, {1: fail})
    assert_right(db)


# ---- C3 -------------------------------------------------------------------------------------------------


def tasks_of(db: ebla.Database, tablet: int) -> dict[str, bool]:
    """The tasks of a tablet, and whether each is aborted."""
    found = f"SELECT id, aborted FROM system.view_building_tasks WHERE base_tablet_id = {tablet}"
    return {row[0]: row[1] for row in db.sql(found).rows()}


@pytest.mark.spark
def test_c3_of_two_moves_of_one_tablet_one_is_made_and_the_other_aborts_nothing(
    db: ebla.Database, steps: Steps, tmp_path: Path
):
    """Two processes ask at once to move another copy of the tablet to the one node that lacks it."""

    def both_move() -> None:
        of_other, held = tasks_of(db, 1), replicas(db)[0]
        (free,) = {"a", "b", "c"} - held
        with open_nodes(tmp_path, None, "a") as second, ThreadPoolExecutor(2) as pool:
            asked = [
                pool.submit(ask, of, f"MOVE TABLET 0 OF t FROM '{source}' TO '{free}'")
                for of, source in zip((db, second), sorted(held), strict=True)
            ]
            refused = [str(error) for one in asked if (error := one.exception()) is not None]
        assert len(refused) == 1, refused
        assert f"found {free}" in refused[0]
        assert len(replicas(db)[0] & held) == 1
        assert free in replicas(db)[0]
        assert tasks_of(db, 1) == of_other
        assert list(tasks_of(db, 0).values()) == [False]

    build(db, steps, {1: both_move})
    assert_right(db)


@pytest.mark.spark
def test_c3_two_tablets_leave_one_node_one_goes_back_and_the_tasks_of_the_other_stay_aborted(
    db: ebla.Database, steps: Steps, monkeypatch: pytest.MonkeyPatch
):
    """With one copy of each, so that the tasks of both are of the node that the tablets leave."""
    ask(db, "ALTER TABLE t SET (replication = 1)")
    (source,), (other,) = replicas(db)[0], replicas(db)[1]
    if other != source:
        ask(db, f"MOVE TABLET 1 OF t FROM '{other}' TO '{source}'")
    real, has_gone_back, torn = run_copies.stream, threading.Event(), threading.Event()

    def stream(host: Any, tablet: Any, *given: Any) -> Any:
        if tablet[1] == 0 and not torn.is_set():
            torn.set()
            raise OSError("the connection was torn")
        if tablet[1] == 1 and not has_gone_back.is_set():
            return CopyResult()
        return real(host, tablet, *given)

    def two_leave() -> None:
        before, targets = tasks_of(db, 0), sorted({"a", "b", "c"} - {source})
        monkeypatch.setattr(migration, "stream", stream)
        first, second = (
            db.sql(f"MOVE TABLET {tablet} OF t FROM '{source}' TO '{target}'").one()[0]
            for tablet, target in enumerate(targets)
        )
        with pytest.raises(UsageError, match="it went back: OSError: the connection was torn"):
            db.sql(f"WAIT FOR REQUEST {first}")
        assert replicas(db)[0] == {source}
        assert list(tasks_of(db, 0).values()) == [False]
        assert not set(tasks_of(db, 0)) & set(before)
        aborted = tasks_of(db, 1)
        assert list(aborted.values()) == [True]
        has_gone_back.set()
        assert db.sql(f"WAIT FOR REQUEST {second}").one()[1] == "tablet 1 has moved"
        assert not set(tasks_of(db, 1)) & set(aborted)
        assert not any(tasks_of(db, 1).values())
        monkeypatch.setattr(migration, "stream", real)

    build(db, steps, {1: two_leave})
    assert_right(db)


# ---- C4 -------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("tablets", [1, 4])
def test_c4_files_that_are_staged_are_processed_after_a_merge_and_a_split(
    db: ebla.Database, steps: Steps, tmp_path: Path, tablets: int
):
    file = tmp_path / "in.parquet"
    ids = range(500, 520)
    pq.write_table(pa.table({"id": ids, "a": ["a1"] * len(ids), "n": ids}), file)

    def load_and_resize() -> None:
        db.sql(f"LOAD ASYNC INTO t FROM '{file}'")
        staged = "SELECT count(*) FROM system.view_building_tasks WHERE type = 'process_staging'"
        assert db.sql(staged).one()[0] > 0
        assert ask(db, f"ALTER TABLE t SET (tablets = {tablets})") == f"t has {tablets} tablets"

    build(db, steps, {2: load_and_resize})
    eventually(lambda: not tasks(db))
    assert sorted(row[0] for row in db.query("t", limit=1000).rows() if row[0] >= 500) == list(ids)
    assert_right(db)


# ---- C5 -------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_c5_replication_up_and_down_during_a_build(db: ebla.Database, steps: Steps):
    def copies_of_each(wanted: int) -> None:
        for table in ("t", "g"):
            said = ask(db, f"ALTER TABLE {table} SET (replication = {wanted})")
            assert said == f"{table} has {wanted} copies of each tablet"
            assert {len(held) for held in replicas(db, table).values()} == {wanted}

    build(db, steps, {1: lambda: copies_of_each(3), 3: lambda: copies_of_each(1), 5: lambda: copies_of_each(2)})
    assert_right(db)


@pytest.mark.spark
def test_c5_nodes_come_and_go_during_a_build(db: ebla.Database, steps: Steps, tmp_path: Path):
    with ExitStack() as stack:

        def add() -> None:
            stack.enter_context(open_nodes(tmp_path, None, "d"))
            source, _ = elsewhere(db, 0)
            assert ask(db, f"MOVE TABLET 0 OF t FROM '{source}' TO 'd'") == "tablet 0 has moved"

        def rebuild() -> None:
            lost = list((tmp_path / "d").rglob("*.parquet"))
            assert lost
            for file in lost:
                file.unlink()
            assert ask(db, "ALTER CLUSTER REBUILD NODE 'd'") == "node d has all of its copies"

        def replace() -> None:
            kill("d")
            stack.enter_context(open_nodes(tmp_path, None, "e", replaces={"e": "d"}))
            assert "e" in replicas(db)[0]

        def decommission() -> None:
            assert ask(db, "ALTER CLUSTER DECOMMISSION NODE 'e'") == "node e left"

        def remove() -> None:
            kill("c")
            assert ask(db, "ALTER CLUSTER REMOVE NODE 'c'") == "node c was removed"

        def kill(node: str) -> None:
            (tmp_path / node).rename(tmp_path / f"{node}.away")
            eventually(lambda: node not in alive(db))

        actions = dict(enumerate((add, rebuild, replace, decommission, remove), start=1))
        build(db, steps, actions, "replication = 2", "min_copies = 1")
        assert replicas(db) == {0: {"a", "b"}, 1: {"a", "b"}}
        assert_right(db)


# ---- C7 -------------------------------------------------------------------------------------------------


def test_c7_a_disk_that_is_really_full_takes_a_migration_back(tmp_path: Path):
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(tmp_path / "b", 3))
        db = stack.enter_context(open_nodes(tmp_path, None, "a", "c"))
        other = stack.enter_context(connect(tmp_path / "w", node="b", storage_root=str(disk / "b"), **QUIET))
        eventually(lambda: all(alive(one) == {"a", "b", "c"} for one in (db, other)))
        db.sql("CREATE TABLE t (id BIGINT, raw BINARY, PRIMARY KEY (id)) WITH (tablets = 1, replication = 2)")
        if "b" in (held := replicas(db)[0]):
            ask(db, f"MOVE TABLET 0 OF t FROM 'b' TO '{min({'a', 'c'} - held)}'")
        for first in (0, 1000):
            db.table("t").upsert([{"id": first + i, "raw": os.urandom(1024)} for i in range(1000)])
        filler = disk / "filler"
        filler.write_bytes(os.urandom(free_bytes(disk) - 300_000))
        with pytest.raises(UsageError, match=r"it went back: .*found the disk full"):
            ask(db, "MOVE TABLET 0 OF t FROM 'a' TO 'b'")
        assert replicas(db)[0] == {"a", "c"}
        assert len(db.query("t", limit=10_000)) == 2000
        assert not list((disk / "b").rglob("*.parquet"))
        filler.unlink()
        assert ask(db, "MOVE TABLET 0 OF t FROM 'a' TO 'b'") == "tablet 0 has moved"
        assert len(other.query("t", limit=10_000)) == 2000
        db.vacuum(retain_s=0)
        assert stored(db) == named(db)


# ---- C9 -------------------------------------------------------------------------------------------------


def test_c9_leave_and_remove_are_refused_with_the_reason(tmp_path: Path):
    with open_nodes(tmp_path, None, "a", "b", "c") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (replication = 3)")
        db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY) WITH (tablets = 4)")
        for table in ("t", "u"):
            db.table(table).upsert([{"id": i} for i in range(40)])
        refusal = "t has replication 3, found 2 of 3 left"
        before = dump(db.context.catalog)
        with pytest.raises(UsageError, match=refusal):
            db.sql("ALTER CLUSTER DECOMMISSION NODE c")
        assert dump(db.context.catalog) == before
    with open_nodes(tmp_path, None, "a", "b") as db:
        before = dump(db.context.catalog)
        with pytest.raises(UsageError, match=refusal):
            db.sql("ALTER CLUSTER REMOVE NODE c")
        assert dump(db.context.catalog) == before
        ask(db, "ALTER TABLE t SET (replication = 2)")
        with pytest.raises(UsageError, match=r"node c: .*u"):  # which alone has tablets of it
            db.sql("ALTER CLUSTER REMOVE NODE c")
        assert sorted(row[0] for row in db.query("t", limit=100).rows()) == list(range(40))
