"""A large level 0: what queries, small writes and small epochs cost behind an `UPDATE` of half a table, beside before.

Default settings, but that nothing is compacted and epochs run only when `FLUSH` asks for one, so that the change stays
in level 0. Figures are medians of processor time, which other work on the machine disturbs least.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

import ebla
from bench.measure import Result

ROWS = 1_200_000
TIMES = 15
WARM = 3
RATIO_MAX = 2.0
Work = dict[str, Callable[[int], object]]


def run(scale: float = 1.0) -> list[Result]:
    rows = int(ROWS * scale)
    with (
        tempfile.TemporaryDirectory() as folder,
        ebla.connect(f"{folder}/warehouse", auto_compact=False, auto_refresh=False) as db,
    ):
        _fill(db, rows)
        work = _work(db)
        before = {name: _seconds(one) for name, one in work.items()}
        db.sql("UPDATE t SET n = (n * 31 + 7) % 1000003 WHERE a % 2 = 0")
        after = {name: _seconds(one) for name, one in work.items() if "epoch" not in name}
        db.sql("FLUSH v")
        after |= {name: _seconds(one) for name, one in work.items() if "epoch" in name}
    return [_result(f"{name}, {rows // 2:,} rows in level 0", before[name], after[name]) for name in after]


def _fill(db: ebla.Database, rows: int) -> None:
    a, b = np.arange(rows) // 4, np.arange(rows) % 4
    table = {
        "a": a,
        "b": b.astype(np.int32),
        "n": (a * 7919 + b) % 1000003,
        "s": np.char.add("k", (a % 5000).astype(str)),
    }
    db.sql("CREATE TABLE t (a BIGINT, b INT, n BIGINT, s STRING, x DOUBLE, PRIMARY KEY (a, b))")
    db.table("t").upsert(pa.table({**table, "x": a / 7}))
    db.sql("CREATE INDEX by_n ON t (n); CREATE INDEX by_s ON t (s, n) INCLUDE (x)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT s, count(*) AS k, sum(n) AS total FROM t GROUP BY s")
    db.sql("FLUSH v; COMPACT")


def _work(db: ebla.Database) -> Work:
    def write(at: int) -> None:
        db.table("t").upsert([{"a": 5000 + at, "b": 1, "n": at, "s": f"k{at}", "x": 1.0}])

    def epoch(at: int) -> None:
        write(at)
        db.sql("FLUSH v")

    return {
        "first 100 by key": lambda at: db.query("t", order_by=["a", "b"], limit=100),
        "first 100 by an index, whole rows": lambda at: db.query("t", order_by="n", limit=100),
        "first 100 by an index, its columns": lambda at: db.query(
            "t", order_by="n", columns=["a", "b", "n"], limit=100
        ),
        "100 of one value by an index": lambda at: db.query(
            "t", where={"s": f"k{at}"}, order_by="n", columns=["s", "n", "x"], limit=100
        ),
        "one row by key": lambda at: db.query("t", where={"a": 1000 + at, "b": 1}),
        "upsert of one row": write,
        "UPDATE of one row by key": lambda at: db.sql(f"UPDATE t SET n = n + 1 WHERE a = {7000 + at} AND b = 2"),
        "epoch of one row": epoch,
    }


def _seconds(work: Callable[[int], object]) -> float:
    found = []
    for at in range(WARM + TIMES):
        begin = time.process_time()
        work(at)
        found.append(time.process_time() - begin)
    return statistics.median(found[WARM:])


def _result(work: str, before: float, after: float) -> Result:
    detail = f"{after * 1e3:.1f} ms of processor time, before {before * 1e3:.1f} ms; medians of {TIMES}"
    return Result(work=work, figure=after / before, bar=RATIO_MAX, unit="of before", detail=detail)
