"""Online building: the coordinator's decision, without Spark; and a view built on Spark, against Spark's own writing.

The view is the five-way join of `bench.views`. Both sides compute it from the same rows in one session and write it
partitioned and sorted the same way. Ours also decides, checks a sample and becomes readable; with writers it is exact.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from bench.measure import ROOT, Result, seconds
from bench.views import CARD, QUIET, Bench
from ebla.base.settings import load
from ebla.spark.session import StartedSession

sys.path.insert(0, str(Path(ROOT).parent / "tests"))

from support.build_load import Load

CHANGED_PER_S = 500


def run(scale: float = 1.0) -> list[Result]:
    return [*decisions(scale), *building(scale)]


def decisions(scale: float) -> list[Result]:
    load = Load(tasks=int(100_000 * scale))
    times = sorted(load.decide_s() for _ in range(200))
    return [
        Result(
            work="coordinator's decision with 100,000 open tasks",
            figure=times[-2] * 1000,
            bar=50,
            unit="ms",
            detail=f"99th of 100; median {statistics.median(times) * 1000:.1f} ms; "
            f"indexing all tasks anew {load.load_s * 1000:.0f} ms",
        )
    ]


def building(scale: float) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="ebla-bench-") as folder:
        started = StartedSession.start(load(spark_memory="6g"))
        try:
            bench = Bench(started.session, Path(folder), scale, QUIET)
            idle, plain = _in_turn(bench, writing=False)
            busy, again = _in_turn(bench, writing=True)
            bench.close()
        finally:
            started.stop()
    return [
        _against("building the five-way join view, idle", idle, plain, 1.3),
        _against(f"the same with {CHANGED_PER_S} changed rows per second, exact at the end", busy, again, 1.8),
    ]


def _against(work: str, ours: float, theirs: float, bar: float) -> Result:
    detail = f"{ours:.1f} s against {theirs:.1f} s for Spark's CREATE TABLE AS SELECT"
    return Result(work=work, figure=ours / theirs, bar=bar, unit="×", detail=detail)


def _in_turn(bench: Bench, *, writing: bool, times: int = 3) -> tuple[float, float]:
    """Median seconds of building the view, and of Spark writing it."""
    ours, theirs = [], []
    for turn in range(times + 1):
        plain = bench.recompute(CARD, ("l_orderkey", "l_linenumber"))
        with _Writer(bench, CHANGED_PER_S if writing else 0) as writer:
            mine = seconds(lambda: bench.create("card", CARD))
        if writing:
            _prove(bench)
            assert writer.rows, "nothing was written meanwhile"
        bench.db.sql("DROP MATERIALIZED VIEW card")
        bench.db.compact("lineitem")
        if turn:  # the first is to warm up
            ours.append(mine)
            theirs.append(plain)
    return statistics.median(ours), statistics.median(theirs)


def _prove(bench: Bench) -> None:
    bench.db.sql("FLUSH card")
    told = "SELECT count(*), sum(CAST(xxhash64(*) AS DECIMAL(38, 0))) FROM"
    assert bench.db.sql(f"{told} card").one() == bench.db.sql(f"{told} ({CARD})").one()


class _Writer:
    """Changes rows of lineitem at a rate, a batch every 200 ms, until it is left."""

    def __init__(self, bench: Bench, rows_per_s: int) -> None:
        self.rows = 0
        self._rate = rows_per_s
        self._table = bench.db.table("lineitem")
        self._stop = threading.Event()
        query = f"SELECT * FROM lineitem WHERE l_orderkey % 1000 = {bench.turn % 1000} LIMIT {max(1, rows_per_s) * 60}"
        bench.turn += 1
        self._some = bench.db.sql(query).to_arrow() if rows_per_s else None
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> _Writer:
        if self._rate:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._rate:
            self._thread.join()

    def _write(self) -> None:
        assert self._some is not None
        began, size = time.monotonic(), self._rate // 5
        while not self._stop.wait(max(0.0, began + self.rows / self._rate - time.monotonic())):
            at = self.rows % max(1, self._some.num_rows - size)
            rows = self._some.slice(at, size)
            place, kind = rows.schema.get_field_index("l_quantity"), rows.schema.field("l_quantity").type
            other = pa.array([Decimal(self.rows // size % 50)] * rows.num_rows, kind)
            self._table.upsert(rows.set_column(place, "l_quantity", other))
            self.rows += rows.num_rows
