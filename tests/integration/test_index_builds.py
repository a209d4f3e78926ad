"""Indexes are built as views are: by the leader, from one scan, with progress, at a pace, and validated."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.catalog import build_tasks
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.model.lifecycle.index import Permission
from ebla.storage.files import MARKER
from ebla.tables import batch as b
from ebla.tables import chunk_scan as scanned
from support.indexes import assert_exact, begin_index, damage, entries, state, step_until
from support.steps import Steps
from support.warehouse import (
    begin,
    connect,
    eventually,
    later,
    named,
    names_of,
    open_transactions,
    pins,
    refused,
    rows,
    stored,
)

pytestmark = [pytest.mark.spark]

QUIET: dict[str, Any] = {"auto_refresh": False, "tablets": 2, "barrier_grace_s": 5.0}
READABLE = Permission.READ_WRITE_AND_DELETE
VIEW = "SELECT id, n, upper(a) AS a FROM t WHERE n >= 0"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "w", spark, **QUIET) as database:
        prepare(database)
        yield database


def prepare(db: ebla.Database, count: int = 20) -> None:
    db.sql("CREATE TABLE t (id BIGINT, a STRING, n BIGINT, PRIMARY KEY (id))")
    write(db, *range(count))


def write(db: ebla.Database, *numbers: int, **changed: Any) -> None:
    db.table("t").upsert([{"id": i, "a": f"a{i % 3}", "n": i, **changed} for i in numbers])


def nothing_left(db: ebla.Database) -> None:
    """No build, task, pin, lease, open transaction, and no file without a name."""
    with db.context.catalog.reading() as connection:
        assert (build_tasks.tasks(connection), build_tasks.builds(connection)) == ([], {})
    eventually(lambda: db.sql("SELECT * FROM system.meta WHERE key = 'view_building_processing_base'").rows() == [])
    assert not open_transactions(db)
    assert pins(db) == []
    later(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)


# ---- one scan -------------------------------------------------------------------------------------------


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The version of every scan of a base."""
    versions: list[int] = []
    read = scanned.base_rows

    def counted(context: Any, snapshot: Any, parts: Any) -> Any:
        versions.append(int(snapshot.version))
        return read(context, snapshot, parts)

    monkeypatch.setattr(scanned, "base_rows", counted)
    return versions


def test_one_scan_of_a_base_feeds_its_views_and_its_indexes(db: ebla.Database, steps: Steps, scans: list[int]) -> None:
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW v AS {VIEW}")
    db.sql("CREATE ASYNC INDEX i ON t (n DESC) INCLUDE (a); CREATE ASYNC INDEX u ON t (upper(a), id) WHERE n > 3")
    db.sql("CREATE ASYNC MATERIALIZED VIEW w AS SELECT id, a FROM t")
    # The scan reads at the indexes' version; what comes after it is in the end nevertheless.
    steps.at("build.before_chunk", lambda number: write(db, 1, 2, 100, n=50 + number))
    steps.at("index.files_written", lambda number: write(db, 3, 4, 101, n=60 + number))
    db.sql("WAIT FOR v, w, i, u")
    assert len(scans) == 1
    [chosen] = {v for (v,) in db.sql("SELECT read_version FROM system.indexes").rows()}
    assert scans[0] >= chosen
    assert_exact(db, "i", "u")
    db.sql("FLUSH v, w")
    assert rows(db, "v") == rows(db, VIEW)
    assert rows(db, "w") == rows(db, "SELECT id, a FROM t")
    nothing_left(db)


def test_a_view_does_not_wait_for_an_index_that_waits_for_a_transaction(db: ebla.Database, scans: list[int]) -> None:
    begin(db, "t", "slow writer")
    db.sql(f"CREATE ASYNC INDEX i ON t (n); CREATE MATERIALIZED VIEW v AS {VIEW}")
    assert state(db, "i") is Permission.DELETE_ONLY
    assert rows(db, "v") == rows(db, VIEW)
    assert len(scans) == 1


# ---- progress -------------------------------------------------------------------------------------------


def test_progress_says_what_is_waited_for_and_is_100_exactly_when_it_is_readable(
    db: ebla.Database, steps: Steps
) -> None:
    db.sql("CREATE INDEX later ON t (a) WITH (build = 'deferred')")
    assert db.progress("later").progress.detail == "BUILD INDEXES ON t"
    old = begin(db, "t", "slow writer")
    db.sql("CREATE ASYNC INDEX i ON t (n) WITH (chunk_rows = 3) ")
    at = db.progress("i").progress
    assert (at.phase.value, at.percent, at.detail) == ("waiting", 0.0, f"transaction {old.id} (slow writer, test)")
    seen: list[tuple[str, float, int, bool]] = []

    def look(number: int) -> None:
        one = db.sql("SELECT phase, percent, rows, base FROM system.build_progress WHERE name = 'i'").one()
        assert one[3] == "t"
        shown = db.sql("SHOW PROGRESS i").to_arrow().to_pylist()[0]
        assert (shown["phase"], shown["percent"], shown["rows"]) == one[:3]
        seen.append((*one[:3], state(db, "i") is READABLE))

    for point in ("index.tablet_filled", "index.checked"):
        steps.at(point, look)
    bars: list[tuple[str, float | None]] = []
    db.context.progress = lambda what, part: bars.append((what, part))
    release = threading.Timer(0.5, tx.abort, (db.context.catalog, old.id))
    release.start()
    db.sql("WAIT FOR i")
    release.join()
    assert [p for _, p, _, _ in seen] == sorted(p for _, p, _, _ in seen)
    assert all(percent < 100 and not readable for _, percent, _, readable in seen)
    assert {phase for phase, *_ in seen} == {"scanning", "validating"}
    assert any("waiting" in what and f"for transaction {old.id} (slow writer, test)" in what for what, _ in bars)
    assert any("building i: scanning" in what and "rows" in what for what, _ in bars)
    assert all(part is not None for _, part in bars)
    done = db.progress("i").progress
    assert (done.phase.value, done.percent, done.eta_s) == ("readable", 100.0, 0.0)
    assert db.sql("SELECT percent FROM system.indexes WHERE name = 'i'").one() == (100.0,)
    assert_exact(db, "i")


# ---- pace, pause, cancel --------------------------------------------------------------------------------


def test_an_index_is_paused_altered_resumed_and_filled_in_chunks(db: ebla.Database, steps: Steps) -> None:
    db.sql("CREATE ASYNC INDEX i ON t (a, n) WITH (rows_per_minute = 0, chunk_rows = 4)")
    step_until(db, "i", Permission.BACKFILLING)
    assert db.progress("i").progress.detail == "RESUME: it is paused"
    assert db.sql("SELECT rows_per_minute, chunk_rows FROM system.build_progress").one() == (0, 4)
    write(db, 1, 50, n=500)  # writes go on
    with refused(db, ebla.UsageError, "rows_per_minute: expected a whole number"):
        db.sql("ALTER INDEX i SET (rows_per_minute = -1)")
    with refused(db, ebla.UnknownNameError, "index t2: expected an index of this name"):
        db.sql("ALTER INDEX t2 PAUSE")
    began = time.monotonic()
    db.sql("ALTER INDEX i SET (rows_per_minute = 600, chunk_rows = 5); WAIT FOR i")
    assert time.monotonic() - began >= 20 / 600 * 60
    assert steps.passed["index.tablet_filled"] >= 4
    assert db.query("t", where={"a": "a1"}, order_by="n", columns=["n"], limit=3).rows() == [(4,), (7,), (10,)]
    assert_exact(db, "i")
    for statement in ("ALTER INDEX i PAUSE", "ALTER INDEX i SET (chunk_rows = 3)"):
        with refused(db, ebla.UsageError, "index i: expected a build that goes on, found it built"):
            db.sql(statement)
    with refused(db, ebla.UsageError, "rows_per_minute: expected an index that is built now, found it deferred"):
        db.sql("CREATE INDEX d ON t (a) WITH (build = 'deferred', rows_per_minute = 5)")
    nothing_left(db)


@pytest.mark.parametrize(
    "point", ["index.advanced", "build.before_chunk", "index.files_written", "index.tablet_filled", "index.checked"]
)
def test_a_cancel_at_any_point_leaves_nothing(db: ebla.Database, steps: Steps, point: str) -> None:
    cancelling: list[threading.Thread] = []

    def cancel(number: int) -> None:
        if number == 0:  # it waits for the removal, which this process carries out
            cancelling.append(threading.Thread(target=db.sql, args=("CANCEL BUILD i",)))
            cancelling[0].start()
            while state(db, "i") in (Permission.BACKFILLING, Permission.WRITE_AND_DELETE, Permission.DELETE_ONLY):
                time.sleep(0.01)

    steps.at(point, cancel)
    db.sql("CREATE ASYNC INDEX i ON t (n) WITH (chunk_rows = 7)")
    with pytest.raises(ebla.UnknownNameError, match="expected it built, found it dropped meanwhile"):
        db.sql("WAIT FOR i")
    cancelling[0].join()
    db.sql("CREATE INDEX i ON t (n)")  # the name is free
    assert_exact(db, "i")
    with refused(db, ebla.UsageError, "index i: expected a build that can be cancelled, found it built; DROP INDEX"):
        db.sql("CANCEL BUILD i")
    db.sql("DROP INDEX i; CANCEL BUILD IF EXISTS i")
    nothing_left(db)


# ---- validation, failures -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "kind", "said"),
    [
        ({"n": 3, "id": 3, "a": "a0"}, b.DELETE, "1 missing and 0 too many"),
        ({"n": 777, "id": 777, "a": "a0"}, b.UPSERT, "0 missing and 1 too many"),
        ({"n": 777, "id": 3, "a": "a0"}, b.UPSERT, "1 missing and 1 too many"),
        ({"n": 3, "id": 3, "a": "other"}, b.UPSERT, "1 missing and 1 too many"),
    ],
    ids=["missing", "spurious", "elsewhere", "different"],
)
def test_an_index_that_differs_from_its_table_never_becomes_readable(
    db: ebla.Database, steps: Steps, entry: dict[str, Any], kind: str, said: str
) -> None:
    steps.at("build.before_check", lambda number: damage(db, "i", [(entry, kind)]) if number == 0 else None)
    with pytest.raises(
        ebla.CorruptRunError, match=rf"index i: expected the entries of .* found {said}; create it again"
    ):
        db.sql("CREATE INDEX i ON t (n) INCLUDE (a)")
    assert state(db, "i") is None
    db.sql("CREATE INDEX i ON t (n) INCLUDE (a)")
    assert_exact(db, "i")
    nothing_left(db)


def test_entries_are_counted(db: ebla.Database, steps: Steps) -> None:
    """What no sample would find: the manifest itself says that there are too few."""
    db.compact("t")

    def fewer(number: int) -> None:
        mine = s.runs.c.relation_id == relation(db, "i")
        with db.context.catalog.writing() as connection:
            connection.execute(s.runs.update().where(mine).values(row_count=2))

    steps.at("build.before_check", fewer)
    with pytest.raises(ebla.CorruptRunError, match=r"index i: expected 20 entries, as t has rows, found 4; create"):
        db.sql("CREATE INDEX i ON t (n) INCLUDE (a)")
    assert state(db, "i") is None


def relation(db: ebla.Database, name: str) -> int:
    return int(db.sql(f"SELECT relation_id FROM system.relations WHERE name = '{name}'").one()[0])


def test_one_that_fails_does_not_hold_up_those_that_share_its_scan(db: ebla.Database, scans: list[int]) -> None:
    write(db, 5, a="no number")
    for name, text in {"good": "(n)", "bad": "(cast(substr(a, 2) AS INT))"}.items():
        db.sql(f"CREATE INDEX {name} ON t {text} WITH (build = 'deferred')")
    with pytest.raises(ebla.TypeMismatchError, match="CAST_INVALID_INPUT"):
        db.sql("BUILD INDEXES ON t")
    assert (state(db, "bad"), state(db, "good")) == (None, READABLE)
    assert_exact(db, "good")
    nothing_left(db)


def test_whoever_did_not_build_it_learns_why_it_failed(db: ebla.Database, spark: SparkSession) -> None:
    write(db, 5, n=4)
    with connect(db.context.catalog.where, spark, **QUIET) as other:
        begin_index(db, "CREATE UNIQUE INDEX u ON t (n)")
        failed: list[BaseException] = []

        def wait(one: ebla.Database) -> None:
            try:
                one.sql("WAIT FOR u")
            except ebla.EblaError as error:
                failed.append(error)

        threads = [threading.Thread(target=wait, args=(one,)) for one in (db, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [type(error) for error in failed] == [ebla.DuplicateKeyError] * 2
    assert all("found n = 4 more than once" in str(error) for error in failed)
    assert state(db, "u") is None


def test_a_build_that_failed_can_be_asked_about_until_it_is_dismissed(db: ebla.Database) -> None:
    write(db, 5, n=4)
    began = db.context.catalog.clock()

    def fail() -> None:
        begin_index(db, "CREATE UNIQUE INDEX u ON t (n)")
        with pytest.raises(ebla.DuplicateKeyError, match="found n = 4 more than once"):
            db.sql("WAIT FOR u")
        assert state(db, "u") is None

    fail()
    shown = db.sql("SHOW PROGRESS u").to_arrow().to_pylist()[0]
    assert (shown["name"], shown["phase"], shown["percent"], shown["culprit"]) == ("u", "failed", 0.0, "n = 4")
    assert (shown["rows_per_s"], shown["eta_s"]) == (None, None)
    assert "expected every value once, found n = 4 more than once" in shown["detail"]
    assert began <= shown["failed_at"].timestamp() * 1e6 <= db.context.catalog.clock()
    assert db.sql("SELECT name, phase FROM system.build_progress WHERE phase = 'failed'").rows() == [("u", "failed")]
    with pytest.raises(ebla.DuplicateKeyError, match=r"found n = 4 more than once.*its build failed at 20.* UTC"):
        db.sql("WAIT FOR U")
    db.sql("DROP INDEX u")
    with pytest.raises(ebla.UnknownNameError):
        db.sql("SHOW PROGRESS u")
    with pytest.raises(ebla.UnknownNameError):
        db.sql("DROP INDEX u")
    fail()
    db.sql("CANCEL BUILD u")
    with pytest.raises(ebla.UnknownNameError):
        db.sql("CANCEL BUILD u")
    fail()
    write(db, 5, n=5)
    db.sql("CREATE UNIQUE INDEX U ON t (n)")  # the name is created again
    assert db.progress("u").progress.phase.value == "readable"
    assert db.sql("SELECT name FROM system.troubles").rows() == []


def test_a_statement_that_says_why_leaves_nothing_to_dismiss(db: ebla.Database) -> None:
    write(db, 5, n=4)
    with pytest.raises(ebla.DuplicateKeyError) as caught:
        db.sql("CREATE UNIQUE INDEX u ON t (n)")
    assert str(caught.value.culprit) == "n = 4"
    assert db.sql("SELECT name FROM system.troubles").rows() == []
    assert db.sql("SELECT name FROM system.build_progress").rows() == []


@pytest.mark.parametrize("waits", [True, False])
def test_a_row_on_which_an_indexed_expression_fails_is_named(
    db: ebla.Database, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    monkeypatch.setattr("ebla.indexes.culprit.HERE_MAX", 2)  # so that it is looked for on Spark, too
    write(db, 5, n=1000)
    statement = "CREATE INDEX i ON t ((100 / (n - 1000)))"
    if not waits:
        begin_index(db, statement)
    with pytest.raises(ebla.TypeMismatchError, match=r"DIVIDE_BY_ZERO.*; found at t \(id = 5\)") as caught:
        db.sql(statement if waits else "WAIT FOR i")
    assert str(caught.value.culprit) == "t (id = 5)"
    assert state(db, "i") is None
    db.sql("CREATE INDEX plain ON t (n)")


def test_while_no_process_builds_there_is_no_rate_and_no_end(db: ebla.Database, steps: Steps) -> None:
    db.sql("CREATE ASYNC INDEX i ON t (n) WITH (chunk_rows = 3)")
    at = db.progress("i").progress
    said = "a process that maintains this warehouse, and none does: run `ebla run`"
    assert (at.phase.value, at.detail, at.rows_per_s, at.eta_s) == ("waiting", said, None, None)
    seen: list[float | None] = []
    steps.at("index.tablet_filled", lambda number: seen.append(db.progress("i").progress.rows_per_s))
    db.builder.loop.wait([], lambda: len(seen) >= 2)
    assert seen[-1] is not None  # while a process builds, there is one
    at = db.progress("i").progress
    assert (at.phase.value, at.detail, at.rows_per_s, at.eta_s) == ("waiting", said, None, None)
    assert at.rows > 0
    db.sql("ALTER INDEX i PAUSE")
    assert db.progress("i").progress.detail == "RESUME: it is paused"


# ---- turns ----------------------------------------------------------------------------------------------


def test_a_build_that_waits_by_its_rate_does_not_hold_up_an_index_elsewhere(
    spark: SparkSession, tmp_path: Path
) -> None:
    with connect(tmp_path / "w", spark, **{**QUIET, "auto_refresh": True}) as db:
        prepare(db)
        db.sql("CREATE ASYNC MATERIALIZED VIEW slow WITH (rows_per_minute = 1, chunk_rows = 1) AS SELECT id, n FROM t")
        eventually(lambda: db.progress("slow").progress.rows > 0)
        db.sql("CREATE TABLE one (id INT PRIMARY KEY, n INT); INSERT INTO one VALUES (1, 1)")
        db.sql("CREATE INDEX i ON one (n)")  # would take 19 minutes, waiting for its turn
        assert_exact(db, "i")
        assert db.progress("slow").progress.percent < 100
        db.sql("ALTER MATERIALIZED VIEW slow SET (rows_per_minute = NULL, chunk_rows = NULL); WAIT FOR slow")


# ---- several nodes --------------------------------------------------------------------------------------


def test_entries_are_filled_where_the_tablets_lie(spark: SparkSession, tmp_path: Path) -> None:
    where, nodes = tmp_path / "w", {"node2": str(tmp_path / "two")}
    with connect(where, spark, nodes=nodes, **QUIET) as db:
        prepare(db)
        db.sql("CREATE ASYNC INDEX i ON t (n)")
        hosts = db.sql("SELECT DISTINCT host_id FROM system.view_building_tasks").rows()
        assert names_of(db, {host for (host,) in hosts}) == {"node1", "node2"}
    marker, away = tmp_path / "two" / MARKER, tmp_path / "away"
    marker.rename(away)  # as if the disk were not mounted
    with connect(where, spark, **QUIET) as db:  # a process that is node1 alone
        step_until(db, "i", Permission.BACKFILLING)
        waited = threading.Thread(target=lambda: db.builder.loop.wait([], lambda: left(db) == {"node2"}))
        waited.start()
        waited.join()
        said = f"storage root {tmp_path / 'two'} of node node2: expected to reach it, found it missing"
        assert db.progress("i").progress.detail == said
        away.rename(marker)
        db.sql("WAIT FOR i")
        assert sum(entries(db, "i").values()) == 20
        assert_exact(db, "i")


def left(db: ebla.Database) -> set[str]:
    return names_of(db, {host for (host,) in db.sql("SELECT host_id FROM system.view_building_tasks").rows()})
