"""Nodes that come and go with their tablets, on real files: rows stay readable, and nodes that left hold nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import ebla
from ebla.base.failpoint import EXIT_CODE
from ebla.errors import UsageError
from support.processes import Processes
from support.warehouse import connect, eventually, named, stored

ROWS = [{"id": i, "n": i} for i in range(60)]
QUIET: dict[str, Any] = {"auto_compact": False, "fsync": False, "leader_lease_s": 0.3}


def opened(folder: Path, *nodes: str, **settings: Any) -> ebla.Database:
    """A process of some nodes; the first of them is its own."""
    roots = {name: str(folder / name) for name in nodes}
    own = {"node": nodes[0], "storage_root": roots.pop(nodes[0])}
    return connect(folder / "w", nodes=roots, **{**QUIET, **own, **settings})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table with rows on three nodes, two copies of each tablet."""
    with opened(tmp_path, "a", "b", "c") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT) WITH (tablets = 4, replication = 2)")
        db.sql("CREATE INDEX by_n ON t (n)")
        for first in range(0, 60, 20):
            db.table("t").upsert(ROWS[first : first + 20])
    return tmp_path


def tablets(db: ebla.Database) -> dict[str, tuple[str, int]]:
    return {row["name"]: (row["state"], row["tablets"]) for row in db.sql("SHOW NODES").to_arrow().to_pylist()}


def ask(db: ebla.Database, statement: str) -> str:
    [(request,)] = db.sql(f"ALTER CLUSTER {statement}").rows()
    return str(db.sql(f"WAIT FOR REQUEST {request}").one()[1])


def assert_whole(db: ebla.Database, *gone: Path) -> None:
    """Every row is there without the roots of nodes that are gone, and no transition is left over."""
    assert db.sql("SELECT count(*) FROM system.tablet_transitions").one() == (0,)
    for root in gone:
        shutil.rmtree(root)
    assert sorted(row[0] for row in db.query("t", limit=1000).rows()) == [row["id"] for row in ROWS]
    assert [row[0] for row in db.query("t", where={"n": 7}).rows()] == [7]


def test_a_node_is_drained_and_leaves(folder: Path):
    with opened(folder, "a", "b", "c") as db:
        assert ask(db, "DECOMMISSION NODE c") == "node c left"
        db.vacuum(retain_s=0)
        assert stored(db) == named(db)
        assert not list((folder / "c").rglob("*.parquet"))
        assert tablets(db) == {"a": ("normal", 4), "b": ("normal", 4), "c": ("left", 0)}
        assert_whole(db, folder / "c")
        with pytest.raises(UsageError, match="t has replication 2, found 1 of 2 left"):
            db.sql("ALTER CLUSTER DECOMMISSION NODE b")


def test_a_dead_node_is_removed(folder: Path):
    with opened(folder, "a", "b") as db:
        shutil.rmtree(folder / "c")
        assert ask(db, "REMOVE NODE c") == "node c was removed"
        assert tablets(db) == {"a": ("normal", 4), "b": ("normal", 4), "c": ("left", 0)}
        assert_whole(db)


def test_a_dead_node_is_replaced(folder: Path):
    shutil.rmtree(folder / "c")
    with opened(folder, "a", "b", "d", replaces={"d": "c"}) as db:
        found = tablets(db)
        assert (found["c"], found["d"]) == (("left", 0), ("normal", 2))
        [(kind, result)] = db.sql("SELECT kind, result FROM system.topology_requests").rows()
        assert (kind, result) == ("replace", "node d replaced c")
        assert_whole(db)


def test_a_table_that_is_written_to_meanwhile_loses_nothing(folder: Path):
    with opened(folder, "a", "b", "c") as db:
        [(request,)] = db.sql("ALTER CLUSTER DECOMMISSION NODE c").rows()
        for number in range(60, 80):
            db.table("t").upsert([{"id": number, "n": number}])
        db.sql(f"WAIT FOR REQUEST {request}")
        shutil.rmtree(folder / "c")
        assert sorted(row[0] for row in db.query("t", limit=1000).rows()) == list(range(80))


def test_a_node_that_joins_gets_its_part_and_balancing_can_be_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ebla.topology.service.SIZES_S", 0.1)
    with opened(folder, "a", "b", "c") as db:
        db.sql("ALTER CLUSTER SET balancing = OFF")
        with opened(folder, "a", "b", "c", "d") as more:
            assert tablets(more)["d"] == ("normal", 0)
            more.sql("ALTER CLUSTER SET balancing = ON")
            eventually(lambda: tablets(more)["d"][1] == 2)
            eventually(lambda: more.sql("SELECT count(*) FROM system.tablet_transitions").one() == (0,))
            assert sorted(count for _, count in tablets(more).values()) == [2, 2, 2, 2]
            assert_whole(more)


STEPS = (2, 5, 9)
"""Some of the commits of a drain, behind which its leader is killed."""


@pytest.mark.process
@pytest.mark.parametrize("nth", STEPS)
def test_c8_a_drain_is_finished_by_the_next_leader(folder: Path, processes: Processes, nth: int):
    roots = {name: str(folder / name) for name in ("b", "c")}
    own = {**QUIET, "node": "a", "storage_root": str(folder / "a")}
    where = str(folder / "w")
    failpoint = f"topology.committed=exit@{nth}"
    child = processes.start(
        "support.topology_tasks:ask", where, roots, "DECOMMISSION NODE c", own, failpoints=failpoint
    )
    try:
        request = int(child.line())
        assert child.wait() == EXIT_CODE
    finally:
        child.close()
    with opened(folder, "a", "b", "c") as db:
        assert db.sql(f"WAIT FOR REQUEST {request}").one() == (request, "node c left")
        assert tablets(db)["c"] == ("left", 0)
        assert_whole(db, folder / "c")
