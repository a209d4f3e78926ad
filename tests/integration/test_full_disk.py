"""No space left while a write goes on: it is rolled back to the last byte, says so, and the table goes on."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ebla
from ebla.errors import StorageFullError
from support import disks
from support.disks import WAYS, free_bytes, small_disk
from support.warehouse import connect, eventually, named, refused, rows, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEGABYTE = 2**20
PARTS = ("expected room for the write, found the disk full; it was rolled back: free space and retry",)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 3) as at:
        yield at


def table_of(megabytes: float, *, first: int = 0) -> pa.Table:
    """Bytes that cannot be made fewer."""
    count = int(megabytes * MEGABYTE / 1024)
    return pa.table({"id": range(first, first + count), "raw": [os.urandom(1024) for _ in range(count)]})


def create(where: Path, spark: SparkSession, **settings: Any) -> ebla.Database:
    db = connect(where, spark, tablets=8, **settings)
    db.sql("CREATE TABLE t (id BIGINT, raw BINARY, PRIMARY KEY (id))")
    db.table("t").upsert([{"id": -1, "raw": b"x"}])
    return db


@pytest.mark.spark
@pytest.mark.parametrize("path", ["arrow", "spark"])
@pytest.mark.parametrize("place", ["runs", "catalog and runs"])
def test_a_write_that_does_not_fit_leaves_nothing(spark, tmp_path, disk, path, place):
    settings: dict[str, Any] = {"batch_rows_max": 0} if path == "spark" else {}
    if place == "runs":
        db = create(tmp_path / "warehouse", spark, storage_root=str(disk / "data"), **settings)
    else:
        db = create(disk / "warehouse", spark, **settings)
    with db:
        before = free_bytes(disk)
        with refused(db, StorageFullError, *PARTS):
            db.table("t").upsert(table_of(4))
        eventually(lambda: free_bytes(disk) >= before - 300_000)  # the catalog's log may have grown
        assert rows(db, "SELECT id FROM t") == [(-1,)]
        db.table("t").upsert(table_of(0.5))
        assert db.sql("SELECT count(*) FROM t").one() == (513,)
        db.vacuum(retain_s=0)
        assert stored(db) == named(db)


@pytest.mark.spark
def test_a_statement_and_a_compaction_that_do_not_fit_leave_nothing(spark, tmp_path, disk):
    with create(tmp_path / "warehouse", spark, storage_root=str(disk / "data")) as db:
        db.table("t").upsert(table_of(1.8))
        for text in ("INSERT INTO t SELECT id + 100000, raw FROM t", "UPDATE t SET raw = reverse(raw)", "COMPACT t"):
            with refused(db, StorageFullError, *PARTS):
                db.sql(text)
            eventually(lambda: free_bytes(disk) > MEGABYTE)
        assert db.sql("SELECT count(*) FROM t").one() == (1844,)
        db.sql("DELETE FROM t WHERE id >= 100")
        db.sql("COMPACT t; VACUUM RETAIN 0 SECONDS; UPDATE t SET raw = reverse(raw)")
        assert db.sql("SELECT count(*) FROM t").one() == (101,)


@pytest.mark.spark
def test_an_index_that_does_not_fit_says_so_and_goes_on_when_there_is_room(spark, tmp_path, disk):
    with create(tmp_path / "warehouse", spark, storage_root=str(disk / "data"), barrier_grace_s=0.1) as db:
        db.table("t").upsert(table_of(1))
        filler = disk / "filler"
        filler.write_bytes(os.urandom(free_bytes(disk) - 400_000))
        with pytest.raises(StorageFullError, match=r"found the disk full.*SHOW PROGRESS i tells when"):
            db.sql("CREATE INDEX i ON t (id) INCLUDE (raw)")
        assert "found the disk full" in str(db.progress("i").row()["detail"])
        filler.unlink()
        db.sql("WAIT FOR i")
        assert db.progress("i").progress.percent == 100.0


@pytest.mark.spark
@pytest.mark.parametrize("path", ["arrow", "spark"])
def test_a_full_disk_of_one_replica_rolls_the_others_back(spark, tmp_path, disk, path):
    settings: dict[str, Any] = {"batch_rows_max": 0} if path == "spark" else {}
    nodes = {"node2": str(disk / "node2")}
    with create(tmp_path / "warehouse", spark, nodes=nodes, replication=2, **settings) as db:
        with refused(db, StorageFullError, *PARTS):
            db.table("t").upsert(table_of(4))
        eventually(lambda: free_bytes(disk) > 2 * MEGABYTE)
        db.table("t").upsert(table_of(0.5))
        assert db.sql("SELECT count(*) FROM t").one() == (513,)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_small_disk_of_every_kind_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[Path, int], AbstractContextManager[Path]]
):
    """Without Spark. Here the way is tried alone, so that the one that others hide works where it is needed."""
    monkeypatch.setattr(disks, "WAYS", (way,))
    with small_disk(tmp_path / "disk", 3) as disk, connect(tmp_path / "w", storage_root=str(disk / "data")) as db:
        db.sql("CREATE TABLE t (id BIGINT, raw BINARY, PRIMARY KEY (id))")
        with refused(db, StorageFullError, *PARTS):
            db.table("t").upsert(table_of(4))
        assert free_bytes(disk) > 2 * MEGABYTE
        assert db.table("t").upsert(table_of(0.5)).rows == 512


def test_a_limit_on_the_size_of_files_is_a_full_disk_too(tmp_path):
    """What a user without the right to mount can try. The limit holds for this process, so only for a moment."""
    with connect(tmp_path / "warehouse") as db:
        db.sql("CREATE TABLE t (id BIGINT, raw BINARY, PRIMARY KEY (id))")
        big, limits = table_of(2), resource.getrlimit(resource.RLIMIT_FSIZE)
        with refused(db, StorageFullError, *PARTS):
            resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE, limits[1]))
            try:
                db.table("t").upsert(big)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert db.table("t").upsert(big).rows == 2048
