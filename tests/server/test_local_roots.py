"""Nodes with storage roots of their own: none opens another's, and all read and write all tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import ebla
from ebla.base.ids import NodeId
from ebla.catalog import reads
from ebla.errors import NodeConflictError, StorageError
from ebla.model.topology import LOCAL
from ebla.storage.files import Root
from ebla.storage.remote_root import RemoteRoot
from ebla.storage.roots import CACHE
from support.nodes import Nodes
from support.warehouse import eventually

pytestmark = pytest.mark.postgres

ROWS = [{"id": number, "word": f"word {number}"} for number in range(500)]


@pytest.fixture
def nodes(postgres_url: str, tmp_path: Path) -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield Nodes(postgres_url, tmp_path, stack)


def start(nodes: Nodes, *names: str, **settings: Any) -> list[ebla.Database]:
    """Nodes with local roots that know of each other."""
    found = [nodes.start(name, local_root=True, tablets=4, **settings) for name in names]
    eventually(lambda: all(len(one.context.reached()) == len(names) for one in found))
    return found


def files(root: Path) -> list[Path]:
    """The runs under a root; the cache of files of other nodes lies beside them."""
    return sorted(root.glob("r*/*.parquet"))


def count(db: ebla.Database, table: str = "t") -> int:
    return len(db.query(table, limit=10_000))


def test_a_root_that_is_local_is_recorded_and_opened_by_its_own_process_alone(nodes: Nodes, tmp_path: Path):
    one, two = start(nodes, "one", "two")
    roots = one.context.roots()
    assert type(roots[one.context.node]) is Root
    assert isinstance(roots[two.context.node], RemoteRoot)
    said = dict(one.sql("SELECT name, storage_root FROM system.topology").rows())
    assert said == {name: f"{LOCAL}{tmp_path / name}" for name in ("one", "two")}
    with pytest.raises(StorageError, match="local to the machine of its node"):
        Root(said["two"])


def test_each_node_reads_and_writes_what_lies_on_the_other(nodes: Nodes, tmp_path: Path):
    one, two = start(nodes, "one", "two")
    one.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING)")
    one.table("t").upsert(ROWS[:250])
    two.table("t").upsert(ROWS[250:])
    two.table("t").upsert([{"id": 1, "word": "changed"}])
    assert files(tmp_path / "one")
    assert files(tmp_path / "two")
    for db in (one, two):
        assert count(db) == 500
        assert db.query("t", where={"id": 1}).rows() == [(1, "changed")]
    cached = {row[0]: row for row in two.sql("SELECT name, entries, bytes FROM system.caches").rows()}
    assert cached["files of other nodes"][1] > 0
    two.table("t").delete([{"id": 2}])
    assert count(one) == 499


def test_two_copies_lie_on_two_machines_and_one_is_enough(nodes: Nodes, tmp_path: Path):
    one, two = start(nodes, "one", "two")
    one.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING) WITH (replication = 2)")
    one.table("t").upsert(ROWS)
    names = [[file.name for file in files(tmp_path / name)] for name in ("one", "two")]
    assert names[0] == names[1] != []
    assert count(two) == 500
    assert not list((tmp_path / "two" / CACHE).rglob("*.parquet"))  # its own copies are read


def test_a_copy_that_is_lost_is_read_elsewhere_and_made_good(nodes: Nodes, tmp_path: Path):
    one, two, three = start(nodes, "one", "two", "three")
    one.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING) WITH (replication = 2)")
    one.table("t").upsert(ROWS)
    lost = files(tmp_path / "two")[:1]
    for file in lost:
        file.unlink()
    assert [count(db) for db in (one, two, three)] == [500] * 3
    found = three.sql("CHECK TABLE t").to_arrow().to_pylist()
    assert found[0]["missing"] == len(lost) == 1
    three.sql("REPAIR TABLE t")
    assert all(file.exists() for file in lost)
    file = lost[0]
    file.write_bytes(file.read_bytes()[:-9] + b"otherbyte")
    assert three.sql("CHECK TABLE t").to_arrow().to_pylist()[0]["damaged"] == 1
    three.sql("REPAIR TABLE t")
    assert three.sql("CHECK TABLE t").to_arrow().to_pylist()[0]["damaged"] == 0


def test_only_the_runs_that_are_needed_are_fetched(nodes: Nodes, tmp_path: Path):
    one, two = start(nodes, "one", "two", auto_compact=False)
    one.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING)")
    one.table("t").upsert(ROWS)
    one.sql("CREATE TABLE u (id BIGINT PRIMARY KEY, word STRING)")
    one.table("u").upsert(ROWS)
    assert len(two.query("t", where={"id": 3})) == 1
    number = one.context.catalog.read(lambda connection: reads.relation(connection, "t").id)
    fetched = {file.parent.name for file in (tmp_path / "two" / CACHE).rglob("*.parquet")}
    assert fetched == {f"r{number}"}


def test_a_tablet_moves_between_machines(nodes: Nodes, tmp_path: Path):
    one, two = start(nodes, "one", "two")
    one.sql("ALTER CLUSTER SET balancing = off")
    one.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING) WITH (tablets = 1)")
    one.table("t").upsert(ROWS)
    source, target = ("one", "two") if files(tmp_path / "one") else ("two", "one")
    assert not files(tmp_path / target)
    [(request,)] = one.sql(f"MOVE TABLET 0 OF t FROM '{source}' TO '{target}'").rows()
    one.sql(f"WAIT FOR REQUEST {request}")
    assert files(tmp_path / target)
    assert [count(one), count(two)] == [500, 500]
    two.table("t").upsert([{"id": 900, "word": "new"}])
    assert count(one) == 501


def test_a_process_that_is_no_node_is_told_what_to_do(nodes: Nodes, postgres_url: str, tmp_path: Path):
    one, two = start(nodes, "one", "two")
    one.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING)")
    one.table("t").upsert(ROWS)
    with (
        ebla.connect(postgres_url, node="one", storage_root=str(tmp_path / "one"), auto_refresh=False) as stranger,
        pytest.raises(StorageError, match=r"local to its machine, and a process that is no node .* over HTTP"),
    ):
        stranger.query("t", limit=10_000)
    assert NodeId(two.context.node) in one.context.reached()


def test_the_layout_of_a_member_does_not_change(nodes: Nodes, postgres_url: str, tmp_path: Path):
    with ebla.connect(postgres_url, node="one", storage_root=str(tmp_path / "one"), auto_refresh=False):
        pass
    with pytest.raises(NodeConflictError, match=f"expected storage root {tmp_path}/one, found {LOCAL}{tmp_path}/one"):
        ebla.connect(postgres_url, node="one", storage_root=str(tmp_path / "one"), local_root=True)


def test_any_node_sweeps_and_backs_up_the_files_of_all(nodes: Nodes, tmp_path: Path):
    one, two = start(nodes, "one", "two")
    one.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING)")
    one.table("t").upsert(ROWS)
    kept = files(tmp_path / "two")
    left = kept[0].parent / "t1-77.parquet"
    left.write_bytes(b"of a transaction that is over")
    one.sql("VACUUM")
    assert files(tmp_path / "two") == kept
    made = two.backup(str(tmp_path / "backup"))
    assert made.files == len(files(tmp_path / "one")) + len(kept) == made.copied
