"""The shop from beginning to end: set up, open, build, watch, close, prove."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, RenderableType
from rich.live import Live

import ebla
from ebla.cli import failure
from ebla.cli.output import write_json
from ebla.demo.shop import building, data, display, pages, proof, report, schema, worker
from ebla.demo.shop.building import FinishedBuild
from ebla.demo.shop.display import BuildRow, ShopDisplay, seconds
from ebla.demo.shop.pages import Pages
from ebla.demo.shop.proof import Proof
from ebla.demo.shop.report import Report, Times
from ebla.demo.shop.watch import Watch
from ebla.demo.shop.writers import Writers, total

if TYPE_CHECKING:
    from ebla.api.database import Database

ROWS = 400_000
SECONDS = 10.0
ROWS_MIN = 30_000
SECONDS_MIN = 4.0
START_S = 12.0
"""Two Sparks start in this time where nothing else runs."""
SETTINGS: dict[str, Any] = {"tablets": 4, "spark_memory": "2g"}
SMALL_CHANGE = 20
FREE_ID = 1_000_000_000
"""From here on no order has an id."""
LOOK_S = 0.25
LINE_S = 3.0
PACE_S = 3.0
"""Commits a second are those of the last seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    rows: int | None = None
    """How many rows there are to begin with; `None`: as many as the machine has time for."""
    seconds: float | None = None
    keep: Path | None = None
    as_json: bool = False


class Teller:
    """Says what happens. Without a terminal there are only lines, without colours or control characters."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.lively = console.is_terminal and not console.is_dumb_terminal and not console.quiet
        self.began = time.perf_counter()

    def say(self, text: str, style: str = "", *, cut: bool = False) -> None:
        """A line. A terminal may cut it if it is no command or message; a pipe gets all of it."""
        if cut and self.lively:
            self.console.print(text, style=style, markup=False, no_wrap=True, overflow="ellipsis")
        else:
            self.console.print(text, style=style, markup=False, soft_wrap=True)

    def title(self, text: str) -> None:
        self.say(f"\n{text}", "bold")

    def busy(self, text: str) -> contextlib.AbstractContextManager[object]:
        """A spinner, where there can be one."""
        return self.console.status(text) if self.lively else contextlib.nullcontext()

    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Something that takes a while: printed when it is done, with its time."""
        began = time.perf_counter()
        with self.busy(text):
            yield
        self.say(f"  {text:<72} {seconds(time.perf_counter() - began):>7}")


# ---- the acts --------------------------------------------------------------------------------------


def fitting(options: Options, start_s: float) -> tuple[int, float]:
    """Rows to begin with, and seconds to watch, so that it all ends in two minutes: fewer where Spark starts slowly."""
    slower = max(1.0, start_s / START_S)
    rows = max(ROWS_MIN, int(ROWS / slower**2)) if options.rows is None else options.rows
    seconds = max(SECONDS_MIN, SECONDS / slower) if options.seconds is None else options.seconds
    return rows, seconds


def set_up(db: Database, options: Options, teller: Teller) -> tuple[data.Rows, float]:
    """The rows that were loaded, and how long to watch."""
    teller.title("Setting up")
    began = time.perf_counter()
    with teller.step("Spark started"):
        _ = db.spark
    count, watch_s = fitting(options, time.perf_counter() - began)
    if options.rows is None and count < ROWS:
        teller.say(f"  the machine is busy: about {count:,} rows instead of {ROWS:,}, so that it ends in two minutes")
    rows = data.generate(data.Sizes.of(count))
    with teller.step(f"{rows.total:,} rows loaded into six tables"):
        schema.create_tables(db, rows)
    return rows, watch_s


@dataclass(slots=True)
class Shop:
    """What the acts share while writers write."""

    writers: Writers
    teller: Teller
    began: float

    @property
    def commits(self) -> int:
        return total(self.writers.tally.counts()).commits

    @contextlib.contextmanager
    def bars(self) -> Iterator[building.Show]:
        """A function that shows how far builds are; what a writer fails with is raised by it."""
        with _showing(self.teller, display.build_frame, display.build_line) as show:

            def look(seen: Sequence[BuildRow]) -> None:
                show(time.perf_counter(), seen, self.writers.tally.counts())
                self.writers.raise_failure()

            yield look


def build_views(
    shop: Shop, desk: Database, lines: int, builder: worker.Worker, reopen: Callable[[], Database]
) -> FinishedBuild:
    """Build the views while the writers write: first by a worker, which is killed, then by `reopen`'s connection."""
    say, before, began = shop.teller.say, shop.commits, time.perf_counter()
    shop.teller.title("Three writers begin, and the views are built meanwhile")
    for name, what in schema.ABOUT.items():
        say(f"  CREATE MATERIALIZED VIEW {name}: {what}")
    say("  card is begun by another process, in small chunks")
    with shop.bars() as show:
        killed = building.begin_and_kill(desk, builder, lines, show)
    say(
        f"  KILLED: the worker, process {builder.process.pid}, with SIGKILL; it left card at {killed.percent:.0f} %, "
        f"{killed.rows:,} rows",
        "yellow",
    )
    db = reopen()
    shop.writers.move_to(db)
    with shop.bars() as show:
        resumed_rows = building.carry_on(db, show)
    built = FinishedBuild(
        killed=killed,
        resumed_rows=resumed_rows,
        seconds=time.perf_counter() - began,
        commits=shop.commits - before,
    )
    say(f"  {report.resumption(built)}", "green" if built.resumed else "bold red")
    return built


def create_index(shop: Shop, db: Database) -> Pages:
    """Create an index of `card`, time queries with it, and have one refused. The index is checked at the end."""
    teller = shop.teller
    with teller.busy("first-100 queries, without an index"):
        before_s = pages.timed(db, pages.FEW)
    teller.title(schema.INDEX)
    with shop.bars() as show:
        build_s = building.create_index(db, show)
    teller.say(f"  readable after {seconds(build_s)}, while the writers wrote", "green")
    teller.say(f"  {pages.statement()}", cut=True)
    path = pages.explained(db)
    teller.say(f"  EXPLAIN: {path}")
    with teller.busy("first-100 queries"):
        open_s = pages.timed(db)
    teller.say(f"  {report.latency(open_s)}; without the index {report.latency(before_s)}")
    teller.title(schema.UNIQUE_INDEX)
    with teller.busy("built, and looked at"):
        refused = pages.refused(db)
    teller.say(f"  REFUSED: {refused}", "yellow")
    return Pages(build_s=build_s, path=path, before_s=before_s, open_s=open_s, refused=refused)


def explain(db: Database, teller: Teller) -> None:
    teller.title("EXPLAIN MATERIALIZED VIEW card, in short: what a change of each table does")
    for table, way in schema.explained(db, "card"):
        teller.say(f"  {table:<10} {way}", cut=True)


def watch_shop(shop: Shop, db: Database, for_s: float) -> Watch:
    """Watch the writers and the views. What one of them fails with ends the demonstration."""
    shop.teller.title(f"The writers go on for {for_s:.0f} s; epochs run in the background, by themselves")
    watch = Watch()
    with _showing(shop.teller, lambda s: display.frame(s, shop.teller.console.width), display.line) as show:
        for snapshot in _snapshots(db, shop, watch, for_s):
            show(snapshot.elapsed_s, snapshot, last=snapshot.remaining_s == 0)
            shop.writers.raise_failure()
            for view in watch.failed:
                raise RuntimeError(f"view {view.name} failed: {view.message}")
    return watch


def _snapshots(db: Database, shop: Shop, watch: Watch, for_s: float) -> Iterator[ShopDisplay]:
    began = time.perf_counter()
    commits: deque[tuple[float, int]] = deque([(0.0, shop.commits)])
    elapsed_s = 0.0
    while elapsed_s < for_s:
        time.sleep(min(LOOK_S, for_s - elapsed_s))
        elapsed_s = time.perf_counter() - began
        watch.look(elapsed_s, db.sql("SHOW VIEWS").to_arrow().to_pylist(), time.perf_counter() - shop.began)
        counts = shop.writers.tally.counts()
        commits.append((elapsed_s, total(counts).commits))
        while commits[-1][0] - commits[0][0] > PACE_S and len(commits) > 2:
            commits.popleft()
        (first_s, first), (last_s, last) = commits[0], commits[-1]
        yield ShopDisplay(
            elapsed_s=elapsed_s,
            seconds=for_s,
            version=db.version,
            counts=counts,
            commits_per_s=(last - first) / max(last_s - first_s, 1e-9),
            views=watch.views,
            epochs=watch.epochs,
            trails=watch.trails,
        )


@contextlib.contextmanager
def _showing(
    teller: Teller, frame: Callable[..., RenderableType], line: Callable[..., str]
) -> Iterator[Callable[..., None]]:
    """A function that shows something seen at a time: as a living picture, or as a line every few seconds."""
    if teller.lively:
        with Live(console=teller.console, auto_refresh=False) as live:
            yield lambda at_s, *what, last=False: live.update(frame(*what), refresh=True)
        return
    last_s = -LINE_S

    def show(at_s: float, *what: Any, last: bool = False) -> None:
        nonlocal last_s
        if at_s - last_s >= LINE_S or last:
            last_s = at_s
            teller.say(f"  {line(*what)}")

    yield show


def close_shop(db: Database, rows: data.Rows, teller: Teller) -> Times:
    """Bring the views up to the last write. Then, in the quiet, time a small change against a new computation."""
    teller.title("The shop is closed")
    with teller.step("FLUSH"):
        db.sql("FLUSH")
    schema.run_handler(db, False)  # else an epoch in the background may come before the one that is timed
    with teller.step(f"{SMALL_CHANGE} more orders, and FLUSH"):
        numbers = np.random.default_rng(1)
        orders = data.new_orders(FREE_ID, SMALL_CHANGE, rows.customers.num_rows, numbers)
        db.table("orders").upsert(orders)
        db.table("lines").upsert(data.new_lines(orders["id"].to_numpy(), rows.products, numbers))
        flushed = {row["view"]: row for row in db.sql(f"FLUSH {', '.join(schema.VIEWS)}").to_arrow().to_pylist()}
    schema.run_handler(db, True)
    card = flushed["card"]
    if card["gained"] == 0:
        raise RuntimeError(f"expected FLUSH to apply the small change to card, found {card}")
    with teller.step("card's query computed from nothing, and written as Parquet by Spark"):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="ebla-shop-") as folder:
            db.sql(schema.VIEWS["card"]).to_spark().write.parquet(f"{folder}/card")
        recompute_s = time.perf_counter() - began
    return Times(small_change_s=card["seconds"], recompute_s=recompute_s)


def prove_all(db: Database, teller: Teller) -> list[Proof]:
    """Compare each view, which shows every write, with its query over the tables at the version that it shows."""
    teller.title("Is every view what its query gives?")
    proofs: list[Proof] = []
    for name in schema.VIEWS:
        if missed := proof.unread(db, name, schema.VIEWS):
            raise RuntimeError(f"view {name}: expected FLUSH to apply every write, found later ones of {missed}")
        with teller.busy(f"{name}: its rows and its query's rows are compared by Spark"):
            proofs.append(proof.prove(db, name, schema.VIEWS))
        _tell_proof(proofs[-1], teller)
    with teller.busy("card: the same by DuckDB"):
        proofs.append(proof.prove_by_duckdb(db, "card", schema.VIEWS))
    _tell_proof(proofs[-1], teller)
    return proofs


def ask_closed(db: Database, teller: Teller) -> list[float]:
    with teller.busy("first-100 queries"):
        found = pages.timed(db)
    teller.say(f"  {report.latency(found)}")
    return found


def check_index(db: Database, teller: Teller) -> pages.PageCheck:
    """Compare the index with its definition over the view, on Spark."""
    with teller.busy(f"CHECK INDEX {schema.INDEX_NAME}"):
        checked = pages.check_pages(db)
    teller.say(f"  {report.checked(checked)}", "green" if checked.right else "bold red")
    return checked


def _tell_proof(found: Proof, teller: Teller) -> None:
    teller.say(f"  {report.verdict(found)}", "green" if found.equal else "bold red")
    for row in found.examples:
        teller.say(f"    {row[0]}: {', '.join(str(value) for value in row[1:])}", "red")


# ---- the whole ------------------------------------------------------------------------------------------


def run(options: Options, warehouse: Path, teller: Teller) -> Report:
    with contextlib.ExitStack() as opened, _quiet_when_interrupted():
        desk = opened.enter_context(ebla.connect(str(warehouse), auto_refresh=False, **SETTINGS))
        builder = opened.enter_context(worker.started(warehouse))
        rows, watch_s = set_up(desk, options, teller)
        db: Database = desk

        def reopen() -> Database:
            nonlocal db
            db = opened.enter_context(ebla.connect(str(warehouse), desk.spark, **SETTINGS))
            return db

        shop = Shop(Writers(desk, rows), teller, began=time.perf_counter())
        shop.writers.start()
        try:
            built = build_views(shop, desk, rows.lines.num_rows, builder, reopen)
            schema.create_handler(db)
            found = create_index(shop, db)
            explain(db, teller)
            watch = watch_shop(shop, db, watch_s)
        finally:
            shop.writers.stop()
        writing_s = time.perf_counter() - shop.began
        times = close_shop(db, rows, teller)
        closed_s = ask_closed(db, teller)
        proofs = prove_all(db, teller)
        checked = check_index(db, teller)
        return Report(
            rows_loaded=rows.total,
            writing_s=writing_s,
            total_s=time.perf_counter() - teller.began,
            counts=shop.writers.tally.counts(),
            built=built,
            pages=replace(found, closed_s=closed_s, checked=checked),
            watch=watch,
            proofs=proofs,
            times=times,
        )


def tell_end(made: Report, options: Options, teller: Teller) -> None:
    teller.title("In sum")
    for name, value in report.summary(made):
        teller.say(f"  {name:<13} {value}")
    if not made.ok:
        teller.say(f"\nFAILED: {'; '.join(report.faults(made))}. {made.total_s:.0f} s in total.", "bold red")
        return
    teller.say(
        f"\nEvery view is equal to its recomputation, and the index to its definition. {made.total_s:.0f} s in total.",
        "bold green",
    )
    teller.say("\nTo go on:")
    for command in report.next_steps(str(options.keep) if options.keep else None):
        teller.say(f"  $ {command}", "cyan")


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    failure.quiet_logs(failure.ErrorFormat(as_json=options.as_json, debug=False))
    teller = Teller(Console(quiet=options.as_json, highlight=False))
    try:
        with _warehouse(options.keep) as warehouse:
            made = run(options, warehouse, teller)
    except (Exception, KeyboardInterrupt) as error:
        if failure.was_interrupted(error):
            return failure.INTERRUPTED
        traceback.print_exc()
        if options.as_json:
            write_json({"ok": False, "error": f"{type(error).__name__}: {error}"}, sys.stdout)
        teller.say(f"\nFAILED: the demonstration did not come to its end ({type(error).__name__})", "bold red")
        return 1
    if options.as_json:
        write_json(made.as_json(), sys.stdout)
    tell_end(made, options, teller)
    return 0 if made.ok else 1


@contextlib.contextmanager
def _quiet_when_interrupted() -> Iterator[None]:
    """Ctrl-C cancels all jobs of Spark, also those in the background; their messages would only be noise."""
    try:
        yield
    except BaseException as error:
        if failure.was_interrupted(error):
            logging.getLogger("ebla").setLevel(logging.CRITICAL)
        raise


@contextlib.contextmanager
def _warehouse(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="ebla-shop-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m ebla.demo", description="A shop whose views stay exact while it is written to."
    )
    fewer = "fewer on a busy machine"
    parser.add_argument("--rows", type=int, help=f"rows to begin with, about (default: {ROWS}, {fewer})")
    parser.add_argument(
        "--seconds", type=float, help=f"how long to watch once all is built (default: {SECONDS:.0f}, {fewer})"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the warehouse in DIR, and keep it")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end, and nothing else")
    found = parser.parse_args(arguments)
    if (found.rows is not None and found.rows < 1) or (found.seconds is not None and found.seconds <= 0):
        parser.error("expected --rows of at least 1 and --seconds above 0")
    if found.keep is not None and found.keep.exists() and any(found.keep.iterdir()):
        parser.error(f"--keep {found.keep}: expected a new or empty directory, found files in it")
    return Options(rows=found.rows, seconds=found.seconds, keep=found.keep, as_json=found.json)
