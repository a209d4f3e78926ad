"""Processes that die at every step of an index: the next process carries it on, and it is exact in the end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.base.failpoint import EXIT_CODE
from ebla.catalog import build_tasks
from ebla.model.lifecycle.index import Permission
from support.indexes import assert_exact, entries, state
from support.processes import Processes, Sharing
from support.warehouse import connect, later, named, stored

pytestmark = [pytest.mark.spark, pytest.mark.process]

SOURCES = Path(ebla.__file__).parent / "indexes"
CREATE = "CREATE UNIQUE INDEX i ON t (n) INCLUDE (a)"
BUILDING = [
    "index.created=exit",
    "index.barrier_passed=exit",
    "index.barrier_passed=exit@2",
    "index.advanced=exit",
    "index.advanced=exit@2",
    "index.files_written=exit",
    "index.files_written=exit@2",
    "index.tablet_filled=exit",
    "index.tablet_filled=exit@2",
    "index.checked=exit",
    "index.readable=exit",
]
FAILING = ["index.failed=exit"]
WRITING = ["write.indexes_written=exit"]
WITH_ITS_SPARK = "index.files_written=exit@2"
"""Where a process dies together with a Spark of its own; at the other places it shares the one of the tests."""


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "w", spark, tablets=2, auto_refresh=False, barrier_grace_s=0.1) as database:
        database.sql("CREATE TABLE t (id BIGINT, a STRING, n BIGINT, PRIMARY KEY (id))")
        database.table("t").upsert([{"id": i, "a": f"a{i % 3}", "n": i} for i in range(30)])
        yield database
        later(database)
        database.vacuum(retain_s=0)
        assert stored(database) == named(database)


def test_every_failpoint_is_tried():
    found = {name for file in SOURCES.glob("*.py") for name in re.findall(r'\bhit\("([^"]+)"\)', file.read_text())}
    assert found == {point.partition("=")[0] for point in (*BUILDING, *FAILING)}


@pytest.mark.parametrize("point", BUILDING)
def test_killed_while_it_is_built(db: ebla.Database, processes: Processes, spark_processes: Sharing, point: str):
    where = db.context.catalog.where
    run = processes.run if point == WITH_ITS_SPARK else spark_processes.run
    assert run("support.index_tasks:run", where, CREATE, failpoints=point) == EXIT_CODE
    before = left(db)
    # Writers go on with an index that no process carries on.
    db.table("t").upsert([{"id": 3, "a": "changed", "n": 300}, {"id": 100, "a": "new", "n": 100}])
    db.table("t").delete([{"id": 7}])
    db.sql("BUILD INDEXES ON t")
    assert state(db, "i") is Permission.READ_WRITE_AND_DELETE
    assert sum(entries(db, "i").values()) == 30
    assert_exact(db, "i")
    assert left(db) == 0
    if "tablet_filled" in point:
        assert before < 2, "what was filled before the crash is not filled again"


def left(db: ebla.Database) -> int:
    with db.context.catalog.reading() as connection:
        return len(build_tasks.tasks(connection))


def test_killed_while_it_is_removed(db: ebla.Database, spark_processes: Sharing):
    where = db.context.catalog.where
    db.table("t").upsert([{"id": 3, "a": "twice", "n": 4}])
    assert spark_processes.run("support.index_tasks:run", where, CREATE, failpoints=FAILING[0]) == EXIT_CODE
    assert state(db, "i") is Permission.REMOVING_WRITES
    db.table("t").upsert([{"id": 4, "a": "x", "n": 400}])
    db.sql("DROP INDEX IF EXISTS i")
    assert state(db, "i") is None
    for step in (1, 2):
        db.sql("CREATE INDEX i ON t (n)")
        point = f"index.advanced=exit@{step}"
        assert spark_processes.run("support.index_tasks:run", where, "DROP INDEX i", failpoints=point) == EXIT_CODE
        db.sql("DROP INDEX IF EXISTS i")
        assert state(db, "i") is None


@pytest.mark.parametrize("point", [*WRITING, "write.files_written=exit", "catalog.commit.before_commit=exit"])
def test_a_writer_that_dies_writes_rows_and_entries_or_none(db: ebla.Database, spark_processes: Sharing, point: str):
    db.sql("CREATE INDEX i ON t (n)")
    rows = [{"id": 3, "a": "changed", "n": 300}]
    where = db.context.catalog.where
    if "catalog" not in point:  # the first commit of a process may be another one
        assert spark_processes.run("support.index_tasks:write", where, rows, failpoints=point) == EXIT_CODE
        assert db.sql("SELECT n FROM t WHERE id = 3").rows() == [(3,)]
    assert_exact(db, "i")
    assert spark_processes.run("support.index_tasks:write", where, rows) == 0
    assert_exact(db, "i")
    assert db.query("t", where={"n": 300}, columns=["id"]).rows() == [(3,)]
