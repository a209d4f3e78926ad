"""The shop of the demonstration: data, watch, display, writers and proofs, each able to fail; and all of it once."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

import ebla
from ebla.catalog import reads
from ebla.demo.shop import building, data, display, pages, report, run, schema, worker
from ebla.demo.shop.building import FinishedBuild, KilledBuild
from ebla.demo.shop.display import BuildRow, ShopDisplay
from ebla.demo.shop.pages import PageCheck, Pages
from ebla.demo.shop.proof import Proof, prove, prove_by_duckdb, recomputation, tables_of, unread
from ebla.demo.shop.report import Report, Times
from ebla.demo.shop.watch import EpochRow, ViewRow, Watch, percentile
from ebla.demo.shop.writers import Count, Writer, Writers
from ebla.model import changes as c
from support.warehouse import connect

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")

# ---- data -----------------------------------------------------------------------------------------------


def test_the_shop_is_the_same_every_time():
    sizes = data.Sizes.of(2000)
    assert data.generate(sizes) == data.generate(sizes)


def test_sizes_make_up_the_rows_that_were_asked_for():
    made = data.generate(data.Sizes.of(40_000))
    assert abs(made.total - 40_000) < 1000
    keys = made.lines.select(["order_id", "line"])
    assert keys.group_by(["order_id", "line"]).aggregate([]).num_rows == made.lines.num_rows


def test_some_name_stands_twice_however_few_rows_there_are():
    names = data.generate(data.Sizes.of(1)).customers["name"].to_pylist()
    assert len(set(names)) < len(names)


# ---- the watch ------------------------------------------------------------------------------------------


def seen(**changed: Any) -> dict[str, Any]:
    return {"name": "card", "status": "ready", "applied_version": 5, "behind": 2, "age_s": 9.0, "last_plan":
            "incremental", "last_epoch_s": 0.5, "message": None} | changed  # fmt: skip


def test_an_epoch_is_noticed_when_a_view_moves():
    watch = Watch()
    watch.look(1.0, [seen()])
    watch.look(2.0, [seen()])
    watch.look(3.0, [seen(applied_version=9, last_epoch_s=0.75)])
    expected = EpochRow(at_s=3.0, view="card", plan="incremental", seconds=0.75, version=9, versions=4)
    assert watch.epochs == [expected]
    assert watch.seconds_of("card") == [0.75]


def test_a_view_is_not_staler_than_the_time_since_the_first_write():
    watch = Watch()
    watch.look(1.5, [seen(age_s=9.0)])
    watch.look(20.0, [seen(age_s=0.25)])
    assert watch.ages == {"card": [1.5, 0.25]}


def test_a_watch_that_begins_after_the_writers_does_not_make_views_younger():
    watch = Watch()
    watch.look(0.5, [seen(age_s=9.0)], 30.0)
    assert watch.ages == {"card": [9.0]}


def test_columns_of_show_views_are_taken_by_name():
    assert ViewRow.of({"handler": "h", "rows": 7, "status": "ready", "name": "card"}) == ViewRow(
        name="card", status="ready", rows=7
    )


@pytest.mark.parametrize(("part", "expected"), [(0.5, 2.0), (0.95, 4.0), (0.25, 1.0)])
def test_percentiles_are_values_that_were_seen(part, expected):
    assert percentile([4.0, 1.0, 3.0, 2.0], part) == expected
    assert percentile([], part) is None


# ---- the display ----------------------------------------------------------------------------------------

SNAPSHOT = ShopDisplay(
    elapsed_s=10.2,
    seconds=25.0,
    version=1345,
    counts={"orders placed": Count(1200, 34567), "orders cancelled": Count(3, 9)},
    commits_per_s=41.7,
    views=[
        ViewRow(name="card", status="ready", applied_version=1300, behind=45, age_s=1.25, last_plan="incremental",
                 last_epoch_s=0.5),
        ViewRow(name="by_country", status="building"),
    ],
    epochs=[EpochRow(at_s=9.6, view="card", plan="incremental", seconds=0.5, version=1300, versions=60)],
    trails={"card": [0.0, 0.5, 1.0, 2.0]},
)  # fmt: skip
FRAME = """\
 the shop is open  ━━━━━━━━────────────  10 s, 15 s to go  version 1,345
╭─ writes, 42 commits a second ─────╮╭─ epochs ────────────────────────────────────────────────╮
│                   commits    rows ││   at  view                          plan           took │
│ orders placed       1,200  34,567 ││ 10 s  card                          incremental  0.50 s │
│ orders cancelled        3       9 ││                                                         │
│ all                 1,203  34,576 ││                                                         │
╰───────────────────────────────────╯│                                                         │
                                     │                                                         │
                                     │                                                         │
                                     │                                                         │
                                     │                                                         │
                                     ╰─────────────────────────────────────────────────────────╯
╭─ views ──────────────────────────────────────────────────────────────────────────────────────╮
│ view        status    version  behind  last epoch      took     age  lately                  │
│ card        ready       1,300      45  incremental   0.50 s  1.25 s  ▁▃▅█                    │
│ by_country  building        –       –                     –       –                          │
╰──────────────────────────────────────────────────────────────────────────────────────────────╯
"""


def rendered(snapshot: ShopDisplay, width: int = 96) -> str:
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(display.frame(snapshot, width))
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def test_a_frame_shows_writes_epochs_and_views():
    assert rendered(SNAPSHOT) + "\n" == FRAME


def test_a_frame_keeps_its_height_while_epochs_come():
    empty = replace(SNAPSHOT, epochs=())
    many = replace(SNAPSHOT, epochs=list(SNAPSHOT.epochs) * 50)
    assert len(rendered(empty).splitlines()) == len(rendered(many).splitlines())


@pytest.mark.parametrize("width", [80, 99, 100, 160])
def test_no_word_of_a_frame_is_cut(width):
    text = rendered(SNAPSHOT, width)
    assert "…" not in text
    assert text.count("card") == 2
    assert {len(line) for line in text.splitlines()[1:]} == {width}


def test_rows_of_views_are_shown_once_they_are_known():
    views = [replace(view, rows=286229) for view in SNAPSHOT.views]
    assert "286,229" in rendered(replace(SNAPSHOT, views=views))


def test_a_line_says_the_same_in_plain_text():
    assert display.line(SNAPSHOT) == ("  10 s  1,203 commits of 34,576 rows, epochs: 1, age: card 1.25 s, by_country –")


BUILDS = [
    BuildRow(name="card", phase="scanning", percent=24.6, rows=70358, tablets="1/4", rows_per_s=9351.0),
    BuildRow(name="revenue", phase="waiting", percent=0.0, tablets="0/4", detail="the build on lines"),
    BuildRow(name="by_country", phase="readable", percent=100.0),
]
BUILD_FRAME = """\
  card              ━━━━━───────────────   25 %  scanning, 70,358 rows, tablets 1/4, 9,351 rows/s
  revenue           ────────────────────    0 %  waiting for the build on lines
  by_country        ━━━━━━━━━━━━━━━━━━━━  100 %  readable
  writers                                        1,203 commits of 34,576 rows
"""


def test_every_build_has_a_bar():
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(display.build_frame(BUILDS, SNAPSHOT.counts))
    assert "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines()) == BUILD_FRAME


def test_bars_are_a_line_where_there_is_no_terminal():
    assert display.build_line(BUILDS, SNAPSHOT.counts) == (
        "card 25 % scanning, 70,358 rows, tablets 1/4, 9,351 rows/s; revenue 0 % waiting for the build on lines; "
        "by_country 100 % readable; writers: 1,203 commits"
    )


# ---- building -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [1, 60, 1400, 280_000])
def test_the_worker_is_killed_before_its_last_chunk(lines):
    chunk_rows, rows_per_minute = building.pace(lines)
    assert chunk_rows >= 1
    assert lines < 8 or building.CHUNKS_UNTIL_KILLED * chunk_rows < lines / 2
    assert rows_per_minute >= 60


@pytest.mark.process
def test_a_worker_that_ends_by_itself_is_an_error_with_its_words(tmp_path):
    with worker.started(tmp_path / "nothing") as process:
        process.process.wait(150)
        with pytest.raises(
            RuntimeError, match=r"expected it to build until it is killed, found it ended with 1: (.|\n)*nothing"
        ):
            process.raise_failure()


@pytest.mark.process
def test_a_worker_is_gone_after_its_block(tmp_path):
    with connect(tmp_path / "warehouse"), worker.started(tmp_path / "warehouse") as process:
        process.raise_failure()
    assert process.process.returncode == -signal.SIGKILL


# ---- writers --------------------------------------------------------------------------------------------


class Careless(Writer):
    kinds = ("nothing",)

    def act(self) -> None:
        raise ebla.ConflictError("another commit came first")


def test_an_error_in_a_writer_is_raised_and_stops_the_others():
    writers = Writers(None, data.generate(data.Sizes.of(100)), kinds=[Careless])  # type: ignore[arg-type]
    writers.start()
    with pytest.raises(ebla.ConflictError, match="another commit came first") as caught:
        writers.stop()
    assert "Careless" in caught.value.__notes__[0]
    with pytest.raises(ebla.ConflictError):
        writers.raise_failure()


def test_writers_can_be_moved_to_another_connection():
    moved, another = threading.Event(), cast(ebla.Database, object())

    class Looks(Writer):
        kinds = ("nothing",)
        pause_s = 0.01

        def act(self) -> None:
            if self.db is another:
                moved.set()

    writers = Writers(None, data.generate(data.Sizes.of(100)), kinds=[Looks])  # type: ignore[arg-type]
    writers.start()
    assert not moved.is_set()
    writers.move_to(another)
    assert moved.wait(150)
    writers.stop()


# ---- proofs ---------------------------------------------------------------------------------------------

VIEWS = {
    "doubled": "SELECT t.id, 2 * t.n AS n FROM t",
    "summed": "SELECT d.n, count(*) AS times FROM doubled d GROUP BY d.n",
}


@pytest.fixture
def db(spark: Any, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark, auto_refresh=False) as database:
        database.sql("CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id))")
        database.table("t").upsert([{"id": i, "n": i % 3} for i in range(10)])
        for name, query in VIEWS.items():
            database.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        yield database


def test_recomputation_reads_tables_only():
    assert recomputation("summed", VIEWS, 7) == (
        "SELECT d.n, count(*) AS times FROM (SELECT t.id, 2 * t.n AS n FROM t VERSION AS OF 7 AS t) d GROUP BY d.n"
    )
    assert tables_of("summed", VIEWS) == ["t"]


def test_views_are_proved_at_the_version_that_they_show(db):
    db.table("t").upsert([{"id": 3, "n": 70}])  # not in the views yet, and not in their recomputation either
    for view, rows in (("doubled", 10), ("summed", 3)):
        found = prove(db, view, VIEWS)
        assert (found.equal, found.rows, found.expected_rows, found.examples) == (True, rows, rows, ())
    assert prove_by_duckdb(db, "doubled", VIEWS).equal
    assert unread(db, "summed", VIEWS) == ["t"]
    db.sql("FLUSH")
    assert unread(db, "summed", VIEWS) == []
    assert prove(db, "summed", VIEWS).rows == 4


def test_a_proof_finds_a_row_that_should_be_another(db):
    wrong = VIEWS | {"doubled": "SELECT t.id, 2 * t.n + if(t.id = 4, 1, 0) AS n FROM t"}
    found = prove(db, "doubled", wrong)
    assert (found.equal, found.extra, found.missing) == (False, 1, 1)
    assert found.examples == (("only in the view", 4, 2), ("only in the query", 4, 3))
    assert not prove_by_duckdb(db, "doubled", wrong | {"doubled": "SELECT id, 2 * n + (id = 4)::INT AS n FROM t"}).equal


def test_a_proof_finds_rows_that_were_lost(db):
    with db.context.catalog.reading() as connection:
        relation = reads.relation(connection, "doubled")
    lost = c.Decision(
        reason="damage", relation=relation.id, requires=(), updates=(c.TruncateRelation(relation=relation.id),)
    )
    db.context.catalog.commit(lost, node=db.context.node)
    for found in (prove(db, "doubled", VIEWS), prove_by_duckdb(db, "doubled", VIEWS)):
        assert (found.equal, found.rows, found.expected_rows, found.missing) == (False, 0, 10, 10)


def test_a_proof_counts_equal_rows(db):
    bag = {"rests": "SELECT t.n FROM t"}
    db.sql(f"CREATE MATERIALIZED VIEW rests AS {bag['rests']}")
    assert prove(db, "rests", bag).equal
    fewer = prove(db, "rests", {"rests": "SELECT DISTINCT t.n FROM t"})
    assert (fewer.extra, fewer.missing) == (7, 0)


# ---- the end --------------------------------------------------------------------------------------------

PROOF = Proof(view="card", engine="Spark", version=9, rows=5, expected_rows=5, extra=0, missing=0, seconds=1.0)


BUILT = FinishedBuild(
    killed=KilledBuild(exit_code=-9, percent=24.6, rows=70), resumed_rows=70, seconds=12.0, commits=99
)
CHECKED = PageCheck(version=9, missing=0, spurious=0, different=0, seconds=1.0)
PAGES = Pages(
    build_s=3.0,
    path="path: card_by_customer (customer, amount DESC, order_id, line), index, forwards",
    before_s=[0.25],
    open_s=[0.004, 0.002, 0.003],
    refused="unique index one_name of customers: found name = 'Ada Gallo' more than once",
    closed_s=[0.001],
    checked=CHECKED,
)


def made_report(*proofs: Proof, built: FinishedBuild = BUILT, pages: Pages = PAGES) -> Report:
    watch = Watch()
    watch.look(1.0, [seen()])
    watch.look(2.0, [seen(applied_version=9)])
    return Report(
        rows_loaded=100,
        writing_s=2.0,
        total_s=30.0,
        counts=SNAPSHOT.counts,
        built=built,
        pages=pages,
        watch=watch,
        proofs=proofs,
        times=Times(small_change_s=0.5, recompute_s=4.0),
    )


@pytest.mark.parametrize(
    ("proof", "code", "words"),
    [
        (PROOF, 0, "Every view is equal to its recomputation, and the index to its definition"),
        (replace(PROOF, missing=1, expected_rows=6), 1, "FAILED: card is not what its query gives"),
    ],
)
def test_a_difference_fails_the_demonstration(proof, code, words, monkeypatch, capsys):
    monkeypatch.setattr(run, "run", lambda *_: made_report(proof))
    assert run.main([]) == code
    assert words in capsys.readouterr().out
    assert run.main(["--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is (code == 0)
    assert found["proofs"][0]["missing"] == proof.missing
    assert found["card"] == {"epoch_s": {"median": 0.5, "p95": 0.5}, "small_change_s": 0.5, "recompute_s": 4.0}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (made_report(), "no view was compared"),
        (made_report(PROOF, built=replace(BUILT, resumed_rows=35)), "did not go on where the worker was killed"),
        (made_report(PROOF, built=replace(BUILT, killed=replace(BUILT.killed, exit_code=0))), "did not go on"),
        (made_report(PROOF, built=replace(BUILT, killed=replace(BUILT.killed, rows=0))), "did not go on"),
        (made_report(PROOF, pages=replace(PAGES, path="path: card, primary key, scan")), "is not taken by the query"),
        (made_report(PROOF, pages=replace(PAGES, checked=replace(CHECKED, spurious=1))), "what its definition gives"),
        (made_report(PROOF, pages=replace(PAGES, checked=None)), "what its definition gives"),
    ],
)
def test_every_claim_can_fail_the_demonstration(made, words, monkeypatch, capsys):
    monkeypatch.setattr(run, "run", lambda *_: made)
    assert run.main([]) == 1
    assert re.search(f"^FAILED: .*{words}", capsys.readouterr().out, re.MULTILINE)


def test_a_program_learns_of_the_build_and_the_index():
    made = made_report(PROOF).as_json()
    assert made["build"] == {
        "seconds": 12.0,
        "commits": 99,
        "worker_exit_code": -9,
        "killed_at_rows": 70,
        "killed_at_percent": 24.6,
        "resumed_at_rows": 70,
        "resumed": True,
    }
    assert made["index"]["query_s"]["open"] == {"median": 0.003, "p95": 0.004}
    assert made["index"]["check"]["missing"] == 0
    assert "Ada Gallo" in made["index"]["refused"]


def test_latencies_are_told_in_milliseconds():
    assert report.latency(PAGES.open_s) == "3 queries, first 100 rows each: p50 3.0 ms, p95 4.0 ms"


def test_an_error_fails_the_demonstration(monkeypatch, capsys):
    def fails(*_: object) -> Report:
        raise RuntimeError("a writer failed")

    monkeypatch.setattr(run, "run", fails)
    assert run.main([]) == 1
    assert "FAILED: the demonstration did not come to its end (RuntimeError)" in capsys.readouterr().out
    assert run.main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"ok": False, "error": "RuntimeError: a writer failed"}


def test_a_verdict_says_what_differs():
    assert report.verdict(PROOF) == "card        equal   5 rows, recomputed by Spark at version 9 in 1.00 s"
    assert "6 too many, 1 missing" in report.verdict(replace(PROOF, extra=6, missing=1))


def test_a_directory_with_files_is_not_written_to(tmp_path, capsys):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(SystemExit) as caught:
        run.main(["--keep", str(tmp_path)])
    assert caught.value.code == 2
    assert "expected a new or empty directory" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.slow
def test_every_view_of_the_shop_is_equal_to_its_recomputation(tmp_path):
    kept = tmp_path / "shop"
    found = subprocess.run(
        [sys.executable, "-m", "ebla.demo", "--rows", "2000", "--seconds", "3", "--keep", str(kept)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert found.stderr == ""
    for view in schema.VIEWS:
        assert re.search(rf"^  {view} +equal +[1-9]", found.stdout, re.MULTILINE)
    for words in (
        r"KILLED: the worker, process \d+, with SIGKILL; it left card at \d+ %, [1-9]",
        r"all readable after .* card went on from [1-9]",
        rf"EXPLAIN: path: {schema.INDEX_NAME} \(customer, amount DESC, order_id, line\), index, forwards",
        rf"{pages.QUERIES} queries, first 100 rows each: p50 [\d.]+ ms",
        r"REFUSED: unique index one_name of customers: .* found name = '.+' more than once",
        rf"{schema.INDEX_NAME} right: no entry missing",
    ):
        assert re.search(rf"^  {words}", found.stdout, re.MULTILINE), words
    assert not CONTROL.search(found.stdout)
    with ebla.connect(str(kept), create=False) as kept_db:
        assert {"customers", "orders", "lines"} < set(kept_db.tables())
        assert any(pages.page(kept_db, name) for name in pages.NAMES)
        assert pages.explained(kept_db).startswith(f"path: {schema.INDEX_NAME} ")


def test_a_busy_machine_gets_fewer_rows_to_end_in_time():
    assert run.fitting(run.Options(), 5.0) == (run.ROWS, run.SECONDS)
    assert run.fitting(run.Options(), 2 * run.START_S) == (run.ROWS // 4, run.SECONDS / 2)
    assert run.fitting(run.Options(), 100 * run.START_S) == (run.ROWS_MIN, run.SECONDS_MIN)
    assert run.fitting(run.Options(rows=7, seconds=1.0), 100 * run.START_S) == (7, 1.0)
