"""Many writers at once, and writers that die: what was acknowledged is there, what was not is there wholly or not."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

import ebla
from ebla.base.failpoint import EXIT_CODE
from ebla.catalog import reads
from ebla.catalog import schema as s
from ebla.errors import DuplicateKeyError
from ebla.model.relation import SPANS_TABLETS
from ebla.storage import runs as rf
from ebla.tables import writes as w
from ebla.tables.sink import Sink
from support import table_tasks as tasks
from support.processes import ROOT
from support.warehouse import begin, connect, eventually, later, live_runs, named, open_transactions, rows, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def bare(where: Path) -> Iterator[ebla.Database]:
    """A database that never needs Spark."""
    with connect(where, tablets=4) as db:
        db.sql("CREATE TABLE t (id BIGINT, writer INT, n INT, PRIMARY KEY (id))")
        yield db


@pytest.fixture
def db(spark: SparkSession, bare: ebla.Database) -> Iterator[ebla.Database]:
    with connect(bare.context.catalog.where, spark) as db:
        yield db


def together(*tasks: Callable[[], object]) -> list[Any]:
    """Run them in threads that begin at the same moment: their results, or what they raised."""
    gate = threading.Barrier(len(tasks))

    def run(task: Callable[[], object]) -> object:
        gate.wait()
        try:
            return task()
        except ebla.EblaError as error:
            return error

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [f.result() for f in [pool.submit(run, task) for task in tasks]]


def content(db: ebla.Database) -> dict[int, tuple[int | None, int]]:
    """The rows by key, read without Spark."""
    with db.context.catalog.reading() as connection:
        relation = reads.relation(connection, "t")
        snapshot = reads.snapshot(connection, relation)
    roots = db.context.roots()
    found: dict[int, tuple[int | None, int]] = {}
    for run in snapshot.level1:
        table = rf.read_run(roots[run.nodes[0]], run)
        found |= {r["id"]: (r["writer"], r["n"]) for r in table.to_pylist()}
    for row in rf.mutations(relation, snapshot.level0, roots, None, snapshot).to_pylist():
        found.pop(row["id"], None)
        if not row["_deleted"]:
            found[row["id"]] = (row["writer"], row["n"])
    return found


def swept(db: ebla.Database) -> None:
    """Once the dead writers' leases have run out, vacuum leaves exactly what the manifest names."""
    later(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)
    assert not open_transactions(db)


# ---- threads: statements that read what they write ------------------------------------------------------


@pytest.mark.spark
def test_counters_incremented_by_threads_are_exact(db):
    db.table("t").upsert([{"id": 1, "n": 0}, {"id": 2, "n": 0}])

    def increment() -> None:
        for _ in range(4):
            db.sql("UPDATE t SET n = n + 1 WHERE id = 1")

    def move() -> None:
        for _ in range(3):
            db.sql("UPDATE t SET n = n + CASE id WHEN 2 THEN 1 ELSE -1 END WHERE id IN (2, 3)")

    def merge() -> None:
        for _ in range(3):
            db.sql("MERGE INTO t USING (SELECT 3 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.n - 1 "
                   "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 100)")  # fmt: skip

    assert together(increment, increment, increment, move, merge) == [None] * 5
    found = {key: n for key, (_, n) in content(db).items()}
    assert found[1] == 12
    assert found[2] == 3
    assert 98 - 3 <= found[3] <= 98  # inserted once, then taken from by merges and moves


@pytest.mark.spark
def test_of_several_inserts_of_one_key_exactly_one_succeeds(db):
    def insert(key: int, writer: int) -> int:
        inserted: int = db.sql(f"INSERT INTO t VALUES ({key}, {writer}, 0)").one()[0]
        return inserted

    for key in range(3):
        results = together(*[partial(insert, key, writer) for writer in range(4)])
        assert results.count(1) == 1
        lost = [r for r in results if r != 1]
        assert all(isinstance(r, DuplicateKeyError) for r in lost)
        assert content(db)[key] == (results.index(1), 0)


@pytest.mark.spark
def test_a_statement_is_not_starved_by_writers_of_other_keys(db, bare):
    """They commit every few milliseconds; the statement compares its keys with theirs, and need not start over."""
    stop = threading.Event()

    def write() -> None:
        table, number = bare.table("t"), 0
        while not stop.is_set():
            number += 1
            table.upsert([{"id": 10 + number % 7, "n": number}])

    bare.table("t").upsert([{"id": 1, "n": 0}])
    writer = threading.Thread(target=write)
    writer.start()
    try:
        with connect(db.context.catalog.where, db.spark, write_attempts=1) as hasty:
            for _ in range(5):
                hasty.sql("UPDATE t SET n = n + 1 WHERE id = 1")
    finally:
        stop.set()
        writer.join()
    assert content(db)[1] == (None, 5)


@pytest.mark.spark
def test_a_conflict_that_cannot_be_resolved_is_an_error_that_says_with_what(db, monkeypatch):
    db.table("t").upsert([{"id": 1, "n": 0}])
    real = w.commit

    def interfere(sink, reason, *, reads_target):
        if reads_target:
            db.table("t").upsert([{"id": 1, "n": 99}])
        return real(sink, reason, reads_target=reads_target)

    monkeypatch.setattr(w, "commit", interfere)
    message = r"t: expected id = 1 unchanged since version \d+, found a newer write"
    hasty = connect(db.context.catalog.where, db.spark, write_attempts=2)
    with hasty, pytest.raises(ebla.ConflictError, match=message):
        hasty.sql("UPDATE t SET n = n + 1 WHERE id = 1")
    assert content(db)[1] == (None, 99)
    assert not open_transactions(db)


@pytest.mark.spark
def test_writers_a_compactor_a_vacuum_and_readers_at_once(db, bare):
    stop = threading.Event()
    counts: list[int] = []

    def write(writer: int) -> int:
        table, number = bare.table("t"), 0
        while not stop.is_set():
            number += 1
            table.upsert(tasks.batch(writer, number))
        return number

    def maintain() -> None:
        for _ in range(4):
            db.compact("t")
            db.vacuum(retain_s=0)

    def read() -> None:
        while not stop.is_set():
            found = db.sql("SELECT writer, min(n), max(n), count(*) FROM t GROUP BY writer").rows()
            for _writer, least, most, count in found:
                assert (least, count) == (most, tasks.BATCH_ROWS)
            counts.append(len(found))

    def end() -> None:
        try:
            maintain()
            eventually(lambda: 2 in counts)  # a read that began before the first write may end behind all of this
        finally:
            stop.set()

    last = together(lambda: write(1), lambda: write(2), read, end)
    assert not [r for r in last if isinstance(r, BaseException)]
    assert max(counts) == 2
    assert content(db) == {row["id"]: (writer, last[writer - 1]) for writer in (1, 2) for row in tasks.batch(writer, 0)}
    swept(db)


# ---- processes ------------------------------------------------------------------------------------------


@pytest.mark.process
def test_processes_and_threads_that_upsert_and_delete_the_same_keys(bare, processes):
    """What the table holds is what the commits say, in the order of their versions."""
    here: list[list[str]] = []

    def thread() -> None:
        for number in range(10):
            written = bare.table("t").upsert([{"id": number % 12, "writer": 9, "n": number}])
            here.append([str(written.version), "upsert", str(number), str(number % 12)])

    children = {
        w: processes.start("support.table_tasks:write_some", bare.context.catalog.where, w, 24) for w in (1, 2, 3)
    }
    together(thread)
    said = {9: here, **{w: [line.split() for line in child.finish()] for w, child in children.items()}}
    commits = sorted((int(words[0]), writer, words[1:]) for writer, lines in said.items() for words in lines)
    assert len({version for version, _, _ in commits}) == len(commits) == 82
    expected: dict[int, tuple[int, int]] = {}
    for _, writer, words in commits:
        if words[0] == "delete":
            for key in words[1:]:
                expected.pop(int(key), None)
        else:
            expected |= {int(key): (writer, int(words[1])) for key in words[2:]}
    assert content(bare) == expected
    swept(bare)
    assert content(bare) == expected


@pytest.mark.process
def test_writers_killed_at_random_leave_whole_batches_or_nothing(bare, processes):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    children = [processes.start("support.table_tasks:write_forever", bare.context.catalog.where, w) for w in range(4)]
    acknowledged = [[int(child.line())] for child in children]
    for child in chance.sample(children, len(children)):
        time.sleep(chance.uniform(0, 0.1))  # the moment of death
        child.kill()
    for known, child in zip(acknowledged, children, strict=True):
        known += [int(line) for line in child.rest() if line]
        child.close()
    found = content(bare)
    for writer, known in enumerate(acknowledged):
        numbers = {found[row["id"]] for row in tasks.batch(writer, 0)}
        assert len(numbers) == 1, f"seed {seed}: writer {writer} left a part of a batch: {numbers}"
        assert numbers <= {(writer, known[-1]), (writer, known[-1] + 1)}, f"seed {seed}: acknowledged {known[-1]}"
    bare.table("t").upsert(tasks.batch(0, -1))  # the table goes on
    found |= {row["id"]: (0, -1) for row in tasks.batch(0, 0)}
    swept(bare)
    assert content(bare) == found


FAILPOINTS = {
    "write.begun": False,
    "write.files_written": False,
    "catalog.commit.begun": False,
    "catalog.commit.checked": False,
    "catalog.commit.applied": False,
    "catalog.commit.applied@2": False,
    "catalog.commit.before_commit": False,
    "catalog.commit.done": True,
}
"""Where a writer dies, and whether its batch is there afterwards."""


@pytest.mark.process
def test_a_writer_that_dies_at_any_failpoint(bare, processes):
    bare.table("t").upsert(tasks.batch(1, 0))
    number = 0
    for point, there in FAILPOINTS.items():
        name, _, nth = point.partition("@")
        failpoint = f"{name}=exit@{nth or 1}"
        before = content(bare)
        where = bare.context.catalog.where
        status = processes.run("support.table_tasks:write_once", where, number + 1, failpoints=failpoint)
        assert status == EXIT_CODE, point
        number += there
        expected = {row["id"]: (1, number) for row in tasks.batch(1, 0)}
        assert content(bare) == expected, point
        assert (content(bare) == before) is not there
        assert len(open_transactions(bare)) == (not there), point
        later(bare)
        bare.vacuum(retain_s=3600)
        assert stored(bare) == named(bare), point
    swept(bare)


@pytest.mark.process
@pytest.mark.parametrize("point", ["vacuum.horizon_set", "sweep.read"])
def test_a_vacuum_that_dies_before_it_deletes_is_finished_by_the_next(bare, processes, point):
    for number in range(3):
        bare.table("t").upsert(tasks.batch(1, number))
        bare.sql("TRUNCATE TABLE t")
    bare.table("t").upsert(tasks.batch(1, 9))
    where = bare.context.catalog.where
    assert processes.run("support.table_tasks:vacuum", where, failpoints=f"{point}=exit") == EXIT_CODE
    assert len(stored(bare) - named(bare)) == 3
    assert content(bare) == {row["id"]: (1, 9) for row in tasks.batch(1, 0)}
    assert bare.vacuum(retain_s=0).files == 3
    swept(bare)


@pytest.mark.process
def test_a_cut_of_runs_that_dies_leaves_them_as_they_were(bare, processes):
    bare.table("t").upsert(tasks.batch(1, 0))
    where, expected = bare.context.catalog.where, content(bare)
    assert [run.tablet for run in live_runs(bare, "t")] == [SPANS_TABLETS]
    assert processes.run("support.table_tasks:cut", where, failpoints="cut.files_written=exit") == EXIT_CODE
    assert [run.tablet for run in live_runs(bare, "t")] == [SPANS_TABLETS]
    assert stored(bare) - named(bare)
    swept(bare)
    assert processes.run("support.table_tasks:cut", where) == 0
    assert content(bare) == expected
    assert SPANS_TABLETS not in {run.tablet for run in live_runs(bare, "t")}
    swept(bare)


@pytest.mark.process
def test_a_merge_of_level_0_that_dies_leaves_the_runs_as_they_were(bare, processes):
    for number in range(2):
        bare.table("t").upsert(tasks.batch(1, number))
    where, expected = bare.context.catalog.where, content(bare)
    died = processes.run("support.table_tasks:merge", where, failpoints="merge.files_written=exit")
    assert died == EXIT_CODE
    assert content(bare) == expected
    assert len(open_transactions(bare)) == 1
    assert stored(bare) - named(bare)
    swept(bare)
    assert processes.run("support.table_tasks:merge", where) == 0
    assert content(bare) == expected
    assert len(live_runs(bare, "t")) == 1
    swept(bare)


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "point"), [("write_large", "write.tablets_written"), ("compact", "compact.files_written")]
)
def test_a_process_that_dies_in_the_middle_of_sparks_work(db, bare, task, point, tmp_path):
    """These have a Spark of their own, and so a process of their own."""
    bare.table("t").upsert(tasks.batch(1, 0))
    bare.table("t").upsert(tasks.batch(1, 1))
    arguments = [bare.context.catalog.where, *([2] if task == "write_large" else [])]
    died = subprocess.run(
        [sys.executable, "-c", f"from support import table_tasks as t; t.{task}(*{arguments!r})"],
        env={**os.environ, "EBLA_FAILPOINTS": f"{point}=exit", "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert died.returncode == EXIT_CODE, died.stderr
    expected = {row["id"]: (1, 1) for row in tasks.batch(1, 0)}
    assert content(bare) == expected
    assert len(open_transactions(bare)) == 1
    assert stored(bare) - named(bare)
    swept(bare)
    db.compact("t")
    assert content(db) == expected
    assert rows(db, "SELECT DISTINCT writer, n FROM t") == [(1, 1)]


def test_every_failpoint_of_the_core_is_died_at():
    tested = {point.partition("@")[0] for point in FAILPOINTS}
    tested |= {"vacuum.horizon_set", "sweep.read", "write.tablets_written", "compact.files_written"}
    tested |= {"merge.files_written", "cut.files_written"}
    tested |= {"backup.read", "backup.copied", "restore.copied"}  # in test_backup
    # Those of test_staging, test_index_crashes and test_constraints.
    tested |= {"staging.staged", "staging.before_flip", "staging.flipped", "write.indexes_written", "constraint.added"}
    commits = [ROOT / "src/ebla/catalog/store.py", ROOT / "src/ebla/catalog/apply.py"]
    source = [*(ROOT / "src/ebla/tables").glob("*.py"), *commits]
    assert tested == {name for file in source for name in re.findall(r'hit\("([^"]+)"\)', file.read_text())}


# ---- leases ---------------------------------------------------------------------------------------------


def test_a_writer_taken_for_dead_cannot_commit_and_starts_over(bare, monkeypatch):
    """Its lease ran out while it wrote (it was asleep), and its files were swept. It is run again by itself."""
    real = Sink.put
    slept: list[int] = []

    def oversleep(self, batch):
        real(self, batch)
        if not slept:
            slept.append(self.transaction.id)
            later(bare)
            with connect(bare.context.catalog.where) as other:
                later(other)
                other.vacuum(retain_s=0)
                assert not stored(other)

    monkeypatch.setattr(Sink, "put", oversleep)
    bare.table("t").upsert(tasks.batch(1, 1))
    assert slept
    assert content(bare) == {row["id"]: (1, 1) for row in tasks.batch(1, 0)}
    swept(bare)


def test_a_long_writer_is_kept_alive(where):
    """Its lease is shorter than its work, and is renewed meanwhile: a pause of the machine does not end it."""
    with connect(where, transaction_lease_s=3.0) as db:
        db.sql("CREATE TABLE t (id BIGINT, writer INT, n INT, PRIMARY KEY (id))")
        transaction = begin(db, "t")
        with db.context.kept_alive(transaction.id):
            seen: set[int] = set()
            deadline = time.monotonic() + 150
            while len(seen) < 4 and time.monotonic() < deadline:
                with db.context.catalog.reading() as connection:
                    seen.add(connection.execute(select(s.transactions.c.expires_at)).scalar_one())
                time.sleep(0.02)
        assert len(seen) == 4
