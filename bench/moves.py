"""Tablets that move and are split, with their files, beside writers and queries; against `cp` and plain Spark."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa

import ebla
from bench.data import tpch
from bench.measure import Result, seconds
from bench.query import SHOWN, load_lineitem
from ebla.catalog import reads

MEBIBYTE = 2**20
ROW_BYTES = 64 * 1024
WRITERS = 2
BATCH_ROWS = 100
KINDS: dict[str, tuple[str, ...] | None] = {"by the index": SHOWN, "of whole rows": None}
"""What queries show: columns that the index has, as in `bench indexes`, or all of them. The rows of a page lie all over
the table, and the cache of the default settings has no room for the table: most of it is read for a page."""
TURN_S = 0.5
MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")


def run(scale: float = 1.0) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="ebla-bench-") as folder:
        return [
            _move(Path(folder) / "move", int(1024 * scale)),
            _writers(Path(folder) / "write", int(1024 * scale)),
            *_lineitem(Path(folder) / "lineitem", scale),
        ]


def _ask(db: ebla.Database, statement: str) -> int:
    return int(db.sql(statement).one()[0])


def _wait(db: ebla.Database, request: int) -> None:
    db.sql(f"WAIT FOR REQUEST {request}")


def _fill(db: ebla.Database, mebibytes: int) -> None:
    """Rows whose bytes cannot be made fewer."""
    rows = 64 * MEBIBYTE // ROW_BYTES
    for first in range(0, mebibytes * MEBIBYTE // ROW_BYTES, rows):
        raw = [os.urandom(ROW_BYTES) for _ in range(rows)]
        db.table("t").upsert(pa.table({"id": range(first, first + rows), "raw": raw}))


def _open(folder: Path, *others: str) -> ebla.Database:
    nodes = {name: str(folder / name) for name in others}
    return ebla.connect(str(folder / "w"), nodes=nodes, auto_compact=False, repair_period_s=0)


# ---- one tablet -----------------------------------------------------------------------------------------


def _move(folder: Path, mebibytes: int) -> Result:
    """The tablet goes to the other node and back, in turn with `cp` of the same files."""
    with _open(folder, "node2") as db:
        db.sql("ALTER CLUSTER SET balancing = OFF")
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, raw BINARY) WITH (tablets = 1)")
        _fill(db, mebibytes)
        ours, theirs, flushed = list[float](), list[float](), list[float]()
        for turn in range(3):
            files = [str(file) for file in folder.rglob("*.parquet")]
            place = folder / "copied"
            place.mkdir()
            theirs.append(seconds(lambda f=files, p=place: subprocess.run(["cp", *f, str(p)], check=True)))  # type: ignore[misc]
            copied = [str(file) for file in place.iterdir()]
            flushed.append(theirs[-1] + seconds(lambda f=copied: subprocess.run(["sync", *f], check=True)))  # type: ignore[misc]
            shutil.rmtree(place)
            ends = ("node1", "node2") if turn % 2 == 0 else ("node2", "node1")
            held = db.sql("SHOW TABLETS OF t").to_arrow().to_pylist()[0]["replicas"]
            source, target = ends if held == ends[0] else ends[::-1]
            move = f"MOVE TABLET 0 OF t FROM '{source}' TO '{target}'"
            ours.append(seconds(lambda m=move: _wait(db, _ask(db, m))))  # type: ignore[misc]
            db.vacuum(retain_s=0)
    mine, other = statistics.median(ours), statistics.median(theirs)
    return Result(
        work=f"moving a tablet of {mebibytes} MiB, against `cp` of its files",
        figure=mine / other,
        bar=1.5,
        unit="×",
        detail=f"{mine:.2f} s against {other:.2f} s, and {statistics.median(flushed):.2f} s with `sync` of the copies; "
        "each copy of a tablet is flushed and read again",
    )


# ---- writers --------------------------------------------------------------------------------------------


def _writers(folder: Path, mebibytes: int) -> Result:
    """Two writers upsert batches without a pause; then one of two nodes, with half of the tablets, is drained."""
    with _open(folder, "node2") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, raw BINARY) WITH (tablets = 8)")
        _fill(db, mebibytes)
        _rate(db, lambda: time.sleep(2))  # warm
        alone, took = _rate(db, lambda: time.sleep(5))
        during, moving = _rate(db, lambda: _wait(db, _ask(db, "ALTER CLUSTER DECOMMISSION NODE node2")))
    return Result(
        work="rows that writers write per second while half of the tablets migrate, against none",
        figure=during / alone,
        bar=0.6,
        unit="×",
        detail=f"{during:,.0f} rows/s for {moving:.1f} s against {alone:,.0f} for {took:.1f} s; "
        f"{WRITERS} writers, commits of {BATCH_ROWS} rows, {mebibytes // 2} MiB migrate",
        at_least=True,
    )


def _rate(db: ebla.Database, meanwhile: Callable[[], object]) -> tuple[float, float]:
    """Rows per second while something goes on, and how long that took."""
    over, counts = threading.Event(), [0] * WRITERS

    def write(number: int) -> None:
        chance = random.Random(number)
        while not over.is_set():
            ids = chance.sample(range(10**9), BATCH_ROWS)
            db.table("t").upsert(pa.table({"id": ids, "raw": [b"x" * 100] * BATCH_ROWS}))
            counts[number] += BATCH_ROWS

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        took = seconds(meanwhile)
        written = sum(counts)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    return written / took, took


# ---- lineitem -------------------------------------------------------------------------------------------


def _lineitem(folder: Path, scale: float) -> list[Result]:
    """First-100 queries alone, while every second tablet moves, and while 16 tablets become 32."""
    with _open(folder, "node2") as db:
        db.sql("ALTER CLUSTER SET balancing = OFF")
        load_lineitem(db, str(tpch("lineitem", scale)))
        db.sql("CREATE INDEX by_mode ON lineitem (l_shipmode, l_extendedprice)")
        rewritten = statistics.median(seconds(lambda: _rewrite(db, folder / "plain")) for _ in range(3))
        _p50(db, lambda: time.sleep(5))  # warm
        alone = _p50(db, lambda: time.sleep(10))
        moving = _p50(db, lambda: _move_half(db))
        took = list[float]()
        split = _p50(db, lambda: took.append(seconds(lambda: _split(db, 32))))
        _split(db, 16)
        db.compact("lineitem")
        by_itself = seconds(lambda: _split(db, 32))
    return [
        Result(
            work="split of lineitem, 16 → 32 tablets, against rewriting it once with Spark",
            figure=by_itself / rewritten,
            bar=1.3,
            unit="×",
            detail=f"{by_itself:.2f} s against {rewritten:.2f} s; with its index, and {took[0]:.2f} s beside queries",
        ),
        *(
            Result(
                work=f"p50 of first-100 queries {kind} during {what}, against none",
                figure=during[kind] / alone[kind],
                bar=1.5,
                unit="×",
                detail=f"{during[kind] * 1e3:.1f} ms against {alone[kind] * 1e3:.1f} ms",
            )
            for kind in KINDS
            for what, during in (("migrations", moving), ("the split", split))
        ),
    ]


def _rewrite(db: ebla.Database, place: Path) -> None:
    with db.context.catalog.reading() as connection:
        found = reads.snapshot(connection, reads.relation(connection, "lineitem"))
    roots = db.context.roots()
    files = [roots[run.nodes[0]].full(run.path) for run in (*found.level1, *found.level0)]
    db.spark.read.parquet(*files).write.mode("overwrite").parquet(str(place))


def _split(db: ebla.Database, tablets: int) -> None:
    _wait(db, _ask(db, f"ALTER TABLE lineitem SET (tablets = {tablets})"))


def _move_half(db: ebla.Database) -> None:
    """Move every second tablet to the other node."""
    other = {"node1": "node2", "node2": "node1"}
    shown = db.sql("SHOW TABLETS OF lineitem").to_arrow().to_pylist()[::2]
    moves = [(row["tablet"], row["replicas"]) for row in shown]
    for request in [_ask(db, f"MOVE TABLET {n} OF lineitem FROM '{at}' TO '{other[at]}'") for n, at in moves]:
        _wait(db, request)


def _p50(db: ebla.Database, meanwhile: Callable[[], object]) -> dict[str, float]:
    """The medians of queries of each kind, in seconds, that follow each other while something goes on.

    The kinds take turns of the same length of time: what one of them takes counts little against the other.
    """
    beside, chance = threading.Thread(target=meanwhile), random.Random(7)
    times = {kind: list[float]() for kind in KINDS}
    beside.start()
    while beside.is_alive():
        for kind, columns in KINDS.items():
            until = time.perf_counter() + TURN_S
            while time.perf_counter() < until:
                price = ebla.between(Decimal(chance.randint(1000, 90_000)), None)
                where = {"l_shipmode": chance.choice(MODES), "l_extendedprice": price}
                asks = partial(db.query, "lineitem", where=where, order_by="l_extendedprice", columns=columns)
                times[kind].append(seconds(asks))
    beside.join()
    return {kind: statistics.median(found) for kind, found in times.items()}
