"""A backup taken while writers go on becomes a warehouse with the same rows, in another place, on either database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import ebla
from ebla.base.failpoint import EXIT_CODE
from ebla.errors import CorruptRunError, NodeConflictError, UsageError
from ebla.tables import backup
from support.warehouse import connect, named, shown, stored


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    """A table on two nodes, with an index and three versions."""
    with connect(tmp_path / "shop", nodes={"disk2": str(tmp_path / "disk2")}, replication=2, auto_refresh=False) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        write(db, 1)
        write(db, 2)
        yield db


def write(db: ebla.Database, n: int) -> None:
    db.table("t").upsert([{"id": i, "n": n} for i in range(40)])


def content(db: ebla.Database) -> dict[int, int]:
    return {row[0]: row[1] for row in shown(db, "t")}


def test_a_restored_warehouse_has_the_rows_the_versions_and_the_copies(db, tmp_path):
    then = db.version
    done = db.backup(str(tmp_path / "kept"))
    write(db, 3)
    assert (done.version, done.copied) == (then, done.files)
    assert ebla.restore(str(tmp_path / "kept"), str(tmp_path / "copy")).version == then
    with connect(tmp_path / "copy", nodes={"disk2": str(tmp_path / "copy" / "data-disk2")}) as copy:
        assert copy.version == then
        assert content(copy) == dict.fromkeys(range(40), 2)
        assert stored(copy) == named(copy)
        assert len({node for node, _ in named(copy)}) == 2
        write(copy, 4)
        assert content(copy) == dict.fromkeys(range(40), 4)
        assert copy.sql("SHOW NODES").to_arrow()["state"].to_pylist() == ["normal", "normal"]
    assert content(db) == dict.fromkeys(range(40), 3)


def test_a_warehouse_goes_to_postgresql_and_back(db, postgres_url, tmp_path):
    db.backup(str(tmp_path / "kept"))
    roots = {"node1": str(tmp_path / "a"), "disk2": str(tmp_path / "b")}
    ebla.restore(str(tmp_path / "kept"), postgres_url, roots=roots)
    with connect(postgres_url, storage_root=roots["node1"], nodes={"disk2": roots["disk2"]}) as there:
        assert content(there) == dict.fromkeys(range(40), 2)
        write(there, 5)
        there.backup(str(tmp_path / "again"))
    ebla.restore(str(tmp_path / "again"), str(tmp_path / "back"))
    with connect(tmp_path / "back") as back:
        assert content(back) == dict.fromkeys(range(40), 5)


def test_a_second_backup_copies_what_is_new_and_removes_what_is_not_needed(db, tmp_path):
    first = db.backup(str(tmp_path / "kept"))
    write(db, 3)
    second = db.backup(str(tmp_path / "kept"))
    assert (second.files, second.copied) == (first.files + 1, 1)
    db.sql("TRUNCATE TABLE t")
    write(db, 4)
    db.vacuum(retain_s=0)
    third = db.backup(str(tmp_path / "kept"))
    assert (third.files, third.copied) == (1, 1)
    kept = [path for path in (tmp_path / "kept" / "files").rglob("*") if path.is_file()]
    assert len(kept) == 1
    assert len(list((tmp_path / "kept").glob("catalog-*"))) == 1
    ebla.restore(str(tmp_path / "kept"), str(tmp_path / "copy"))
    with connect(tmp_path / "copy") as copy:
        assert content(copy) == dict.fromkeys(range(40), 4)


def test_vacuum_forgets_nothing_while_files_are_copied(db, tmp_path, monkeypatch):
    """Between the read of the catalog and the copies, old versions lose their files unless the backup holds them."""
    db.sql("TRUNCATE TABLE t")
    write(db, 3)

    def vacuum_first(point: str) -> None:
        if point == "backup.read":
            assert db.vacuum(retain_s=0).files == 0

    monkeypatch.setattr(backup, "hit", vacuum_first)
    done = db.backup(str(tmp_path / "kept"))
    assert done.copied == done.files == 3
    assert db.vacuum(retain_s=0).files > 0, "the pin is gone with the backup"


@pytest.mark.process
@pytest.mark.parametrize("point", ["backup.read", "backup.copied"])
def test_a_backup_that_dies_leaves_the_one_before(db, processes, tmp_path, point):
    kept = str(tmp_path / "kept")
    db.backup(kept)
    write(db, 3)
    where = db.context.catalog.where
    assert processes.run("support.table_tasks:backup", where, kept, failpoints=f"{point}=exit") == EXIT_CODE
    ebla.restore(kept, str(tmp_path / "copy"))
    with connect(tmp_path / "copy") as copy:
        assert content(copy) == dict.fromkeys(range(40), 2)
    db.backup(kept)
    assert len(list(Path(kept).glob("catalog-*"))) == 1


@pytest.mark.process
def test_a_restore_that_dies_is_begun_again(db, processes, tmp_path):
    kept, copy = str(tmp_path / "kept"), str(tmp_path / "copy")
    db.backup(kept)
    assert processes.run("support.table_tasks:restore", kept, copy, failpoints="restore.copied=exit") == EXIT_CODE
    assert ebla.restore(kept, copy).copied == 0
    with connect(copy) as restored:
        assert content(restored) == dict.fromkeys(range(40), 2)


def test_refused_and_nothing_changed(db, tmp_path):
    kept = tmp_path / "kept"
    db.backup(str(kept))
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("mine")
    with pytest.raises(UsageError, match="expected an empty directory or an earlier backup, found other files"):
        db.backup(str(other))
    with pytest.raises(UsageError, match="expected a backup of a warehouse, found none"):
        ebla.restore(str(other), str(tmp_path / "copy"))
    with pytest.raises(UsageError, match="expected no warehouse there, found one"):
        ebla.restore(str(kept), str(tmp_path / "shop"))
    with pytest.raises(UsageError, match="expected a node of the backup, disk2, node1"):
        ebla.restore(str(kept), str(tmp_path / "copy"), roots={"disk3": "x"})
    with pytest.raises(UsageError, match="expected a storage root for each node of the backup, found none for disk2"):
        ebla.restore(str(kept), "postgresql://ebla@localhost/ebla", roots={"node1": str(tmp_path / "a")})
    with connect(tmp_path / "second") as second, pytest.raises(UsageError, match="found one of another"):
        second.backup(str(kept))
    with pytest.raises(NodeConflictError, match="expected a fresh storage root or its own"):
        ebla.restore(str(kept), str(tmp_path / "copy"), roots={"disk2": str(tmp_path / "second" / "data")})
    assert [path.name for path in other.iterdir()] == ["letter.txt"]
    assert content(db) == dict.fromkeys(range(40), 2)


def test_a_damaged_backup_is_refused(db, tmp_path):
    kept = tmp_path / "kept"
    db.backup(str(kept))
    one = next(path for path in (kept / "files").rglob("*.parquet"))
    one.write_bytes(one.read_bytes()[:-1])
    with pytest.raises(CorruptRunError, match="expected a file of"):
        ebla.restore(str(kept), str(tmp_path / "copy"))
    head = json.loads((kept / backup.HEAD).read_text())
    (kept / backup.HEAD).write_text(json.dumps(head | {"schema": 1}))
    with pytest.raises(UsageError, match="restore it with the release that made it"):
        ebla.restore(str(kept), str(tmp_path / "copy2"))
