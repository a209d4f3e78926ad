"""The shop of the demonstration: data, watch, display, writers and proofs, each able to fail; and all of it once."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import ebla
from ebla.catalog import changes as c
from ebla.catalog import reads
from ebla.demo.shop import data, display, report, run, schema
from ebla.demo.shop.display import Snapshot
from ebla.demo.shop.proof import Proof, prove, prove_by_duckdb, recomputation, tables_of, unread
from ebla.demo.shop.report import Report, Times
from ebla.demo.shop.watch import EpochSeen, ViewSeen, Watch, percentile
from ebla.demo.shop.writers import Count, Writer, Writers
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


# ---- the watch ------------------------------------------------------------------------------------------


def seen(**changed: Any) -> dict[str, Any]:
    return {"name": "card", "status": "ready", "applied_version": 5, "behind": 2, "age_s": 9.0, "last_plan":
            "incremental", "last_epoch_s": 0.5, "message": None} | changed  # fmt: skip


def test_an_epoch_is_noticed_when_a_view_moves():
    watch = Watch()
    watch.look(1.0, [seen()])
    watch.look(2.0, [seen()])
    watch.look(3.0, [seen(applied_version=9, last_epoch_s=0.75)])
    expected = EpochSeen(at_s=3.0, view="card", plan="incremental", seconds=0.75, version=9, versions=4)
    assert watch.epochs == [expected]
    assert watch.seconds_of("card") == [0.75]


def test_a_view_is_not_staler_than_the_time_since_the_first_write():
    watch = Watch()
    watch.look(1.5, [seen(age_s=9.0)])
    watch.look(20.0, [seen(age_s=0.25)])
    assert watch.ages == {"card": [1.5, 0.25]}


def test_columns_of_show_views_are_taken_by_name():
    assert ViewSeen.of({"handler": "h", "rows": 7, "status": "ready", "name": "card"}) == ViewSeen(
        name="card", status="ready", rows=7
    )


@pytest.mark.parametrize(("part", "expected"), [(0.5, 2.0), (0.95, 4.0), (0.25, 1.0)])
def test_percentiles_are_values_that_were_seen(part, expected):
    assert percentile([4.0, 1.0, 3.0, 2.0], part) == expected
    assert percentile([], part) is None


# ---- the display ----------------------------------------------------------------------------------------

SNAPSHOT = Snapshot(
    elapsed_s=10.2,
    seconds=25.0,
    version=1345,
    counts={"orders placed": Count(1200, 34567), "orders cancelled": Count(3, 9)},
    commits_per_s=41.7,
    views=[
        ViewSeen(name="card", status="ready", applied_version=1300, behind=45, age_s=1.25, last_plan="incremental",
                 last_epoch_s=0.5),
        ViewSeen(name="by_country", status="building"),
    ],
    epochs=[EpochSeen(at_s=9.6, view="card", plan="incremental", seconds=0.5, version=1300, versions=60)],
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


def rendered(snapshot: Snapshot, width: int = 96) -> str:
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
        writers.check()


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


def made_report(*proofs: Proof) -> Report:
    watch = Watch()
    watch.look(1.0, [seen()])
    watch.look(2.0, [seen(applied_version=9)])
    return Report(
        rows_loaded=100,
        writing_s=2.0,
        total_s=30.0,
        counts=SNAPSHOT.counts,
        watch=watch,
        proofs=proofs,
        times=Times(small_change_s=0.5, recompute_s=4.0),
    )


@pytest.mark.parametrize(
    ("proof", "code", "words"),
    [
        (PROOF, 0, "Every view is equal to its recomputation"),
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
    assert not CONTROL.search(found.stdout)
    with ebla.connect(str(kept), create=False) as kept_db:
        assert {"customers", "orders", "lines"} < set(kept_db.tables())
