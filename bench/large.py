"""TPC-H ten times as large: 60 million lines. An epoch after 0.1 % of them changed, against recomputing the view.

It takes most of an hour and runs only by name: `python -m bench large`. Both sides run in one Spark session on the same
rows. Settings are the defaults, but for `driver_rows_max` where the driver is measured: 0.1 % are 60,000 rows, and the
driver takes 10,000 by default.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.measure import Result
from bench.views import CARD, PATHS, SPARK, Bench, faster
from ebla.base.settings import load
from ebla.spark.session import StartedSession

SCALE = 10
DRIVER_ROWS_MAX = 100_000
TIMES = 3


def run(scale: float = 1.0) -> list[Result]:
    """`scale` 1 is ten times the scale of the other benchmarks; a smaller one is for trying out."""
    with tempfile.TemporaryDirectory(prefix="ebla-bench-") as folder:
        started = StartedSession.start(load(spark_memory="8g"))
        try:
            return _measured(Bench(started.session, Path(folder), SCALE * scale))
        finally:
            started.stop()


def _measured(bench: Bench) -> list[Result]:
    bench.create("card", CARD)
    taken = {}
    for path, settings in PATHS.items():
        bench.reopen(settings if settings is SPARK else {"driver_rows_max": DRIVER_ROWS_MAX})
        taken[path] = bench.epochs("lineitem", "l_quantity", 0.001, TIMES)
    recomputed = bench.recompute_once(CARD, ("l_orderkey", "l_linenumber"))
    bench.close()
    bars = {"on Spark": 60, "by the driver": 200}
    return [
        faster(f"TPC-H scale {bench.scale:g}, 0.1 % of lineitem changed, {path}", taken[path], recomputed, bars[path])
        for path in PATHS
    ]
