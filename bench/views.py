"""Views: an epoch after a change, against Spark recomputing the view and writing it in the same layout.

TPC-H: lineitem ⋈ orders ⋈ customer ⋈ nation ⋈ part, twelve columns; and an aggregate, revenue per customer and month.
Both sides run in one Spark session on the same rows. A change is committed before the clock starts; the clock stops
when the view has it. Settings are the defaults, background work goes on, and nothing is compacted by hand. What may
take the driver's short cut is measured twice: with it, and on Spark alone (`driver_rows_max=0`).
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import ebla
from bench.data import tpch
from bench.measure import Result, median, seconds
from ebla.base.settings import load
from ebla.spark.session import StartedSession

KEYS = {
    "lineitem": ("l_orderkey", "l_linenumber"),
    "orders": ("o_orderkey",),
    "customer": ("c_custkey",),
    "nation": ("n_nationkey",),
    "part": ("p_partkey",),
}
CARD = """SELECT l.l_orderkey, l.l_linenumber, l.l_quantity, l.l_extendedprice, l.l_shipdate, l.l_shipmode,
 o.o_orderdate, o.o_orderpriority, c.c_name, c.c_mktsegment, n.n_name, p.p_brand
FROM lineitem l JOIN orders o ON l.l_orderkey = o.o_orderkey JOIN customer c ON o.o_custkey = c.c_custkey
JOIN nation n ON c.c_nationkey = n.n_nationkey JOIN part p ON l.l_partkey = p.p_partkey"""
REVENUE = """SELECT o.o_custkey, year(o.o_orderdate) AS y, month(o.o_orderdate) AS m,
 sum(l.l_extendedprice * (1 - l.l_discount)) AS revenue, count(*) AS n
FROM lineitem l JOIN orders o ON l.l_orderkey = o.o_orderkey
GROUP BY o.o_custkey, year(o.o_orderdate), month(o.o_orderdate)"""
TOP = """SELECT l.l_orderkey, l.l_linenumber, o.o_orderdate, c.c_name, l.l_extendedprice * (1 - l.l_discount) AS revenue
FROM lineitem l JOIN orders o ON l.l_orderkey = o.o_orderkey JOIN customer c ON o.o_custkey = c.c_custkey
ORDER BY revenue DESC, l_orderkey, l_linenumber LIMIT 100"""
TEN = [
    f"{CARD} WHERE {column} = '{value}'"
    for column, values in {
        "l.l_shipmode": ("AIR", "RAIL", "SHIP", "MAIL", "FOB"),
        "c.c_mktsegment": ("BUILDING", "MACHINERY", "FURNITURE", "HOUSEHOLD", "AUTOMOBILE"),
    }.items()
    for value in values
]


PARTS = ("epochs", "aggregate", "top", "update", "ten", "doubled")
ON_REQUEST = ("large",)
"""Parts of `epochs` that may be run alone."""


def run(scale: float = 1.0, only: Sequence[str] = PARTS) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="ebla-bench-") as folder:
        started = StartedSession.start(load(spark_memory="6g"))
        try:
            return _measured(started.session, Path(folder), scale, only)
        finally:
            started.stop()


def _measured(session: SparkSession, folder: Path, scale: float, only: Sequence[str]) -> list[Result]:
    one = Bench(session, folder, scale)
    parts = {
        "epochs": one.run,
        "large": one.large_changes,
        "aggregate": one.aggregate,
        "top": one.first_rows,
        "update": one.update,
        "ten": one.ten_views,
    }
    results = [line for part, measure in parts.items() if part in only for line in measure()]
    if "doubled" not in only:
        one.close()
        return results
    one.take("by the driver")
    before = one.small_change()
    one.close()
    two = Bench(session, folder, 2 * scale)
    after = two.small_change(rows=one.changed)
    two.close()
    doubled = Result(
        work="the same change, tables doubled",
        figure=after / before,
        bar=1.3,
        unit="× the time",
        detail=f"{after:.2f} s against {before:.2f} s for {one.changed} rows of lineitem",
    )
    return [*results, doubled]


SPARK: dict[str, Any] = {"driver_rows_max": 0}
DRIVER: dict[str, Any] = {}
QUIET: dict[str, Any] = {"auto_compact": False, "auto_refresh": False}
PATHS = {"on Spark": SPARK, "by the driver": DRIVER}
"""Settings besides the defaults, by the path that an epoch then takes."""


class Bench:
    def __init__(self, spark: SparkSession, folder: Path, scale: float, settings: Mapping[str, Any] = DRIVER) -> None:
        self.spark = spark
        self.folder = folder
        self.scale = scale
        self.changed = 0
        self.turn = 0
        self.db = self.opened(settings)
        for table in KEYS:
            self.load(table, table).createOrReplaceTempView(f"plain_{table}")

    def load(self, table: str, name: str) -> DataFrame:
        """Fill a table of this name with one of TPC-H; the plain rows."""
        file = tpch(table, self.scale)
        frame = self.spark.read.parquet(str(file))
        columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in frame.schema)
        tablets = 16 if table in ("lineitem", "orders") else 2
        key = ", ".join(KEYS[table])
        self.db.sql(f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({key})) WITH (tablets = {tablets})")
        self.db.sql(f"LOAD INTO {name} FROM '{file}'")
        return frame

    def opened(self, settings: Mapping[str, Any]) -> ebla.Database:
        return ebla.connect(str(self.folder / f"warehouse{self.scale:g}"), spark=self.spark, **settings)

    def take(self, path: str) -> None:
        """From now on epochs run on this path."""
        self.reopen(PATHS[path])

    def reopen(self, settings: Mapping[str, Any]) -> None:
        self.db.close()
        self.db = self.opened(settings)

    def close(self) -> None:
        self.db.close()

    # ---- the bars ---------------------------------------------------------------------------------------

    def run(self) -> list[Result]:
        self.create("card", CARD)
        key = ("l_orderkey", "l_linenumber")
        trivial = median(lambda: self.spark.range(1000).count(), times=20, warm=10)
        before = self.recompute(CARD, key)
        taken = {path: self.small_epochs(path) for path in PATHS}
        large = self.large_epochs()
        recomputed = statistics.mean((before, self.recompute(CARD, key)))
        self.reopen(QUIET)  # compaction has jobs of its own
        idle = self.jobs_of_an_idle_epoch()
        self.db.sql("DROP MATERIALIZED VIEW card")
        results = [line for path in PATHS for line in _small_results(path, taken[path], recomputed, trivial)]
        return [
            *results,
            *_large_results(large, recomputed),
            Result(work="epoch without changes", figure=idle, bar=0, unit="Spark jobs", detail="counted by Spark"),
        ]

    def large_changes(self) -> list[Result]:
        """The changes of 1 % and more alone."""
        self.create("card", CARD)
        key = ("l_orderkey", "l_linenumber")
        before = self.recompute(CARD, key)
        large = self.large_epochs()
        recomputed = statistics.mean((before, self.recompute(CARD, key)))
        self.db.sql("DROP MATERIALIZED VIEW card")
        return _large_results(large, recomputed)

    def large_epochs(self) -> list[float]:
        """After changes of 1 %, 10 % and all of the lines."""
        self.take("on Spark")
        return [self.epochs("lineitem", "l_quantity", part, times) for part, times in ((0.01, 3), (0.1, 2), (1, 2))]

    def small_epochs(self, path: str) -> tuple[float, float, float]:
        """After a change of one line, of 0.1 % of the lines, and of 0.1 % of the orders."""
        self.take(path)
        one = self.epochs("lineitem", "l_quantity", 0, 10, warm=10)  # as the trivial job that it is compared with
        lineitem = self.epochs("lineitem", "l_quantity", 0.001, 6)
        return one, lineitem, self.epochs("orders", "o_custkey", 0.001, 5)

    def aggregate(self) -> list[Result]:
        self.create("revenue", REVENUE)
        recomputed = self.recompute(REVENUE, ("o_custkey", "y", "m"))
        found = []
        for path in PATHS:
            self.take(path)
            taken = self.epochs("lineitem", "l_extendedprice", 0.001, 5)
            found.append(faster(f"aggregate view, 0.1 % of lineitem changed, {path}", taken, recomputed, 30))
        self.db.sql("DROP MATERIALIZED VIEW revenue")
        return found

    def first_rows(self) -> list[Result]:
        self.create("top", TOP)
        recomputed = self.recompute(TOP, ("l_orderkey", "l_linenumber"))
        found = []
        for path in PATHS:
            self.take(path)
            taken = self.epochs("lineitem", "l_extendedprice", 0.001, 5)
            found.append(faster(f"top 100 of a join, 0.1 % of lineitem changed, {path}", taken, recomputed, 20))
        self.db.sql("DROP MATERIALIZED VIEW top")
        return found

    def update(self) -> list[Result]:
        """A statement that changes a tenth of a table's rows, against Spark writing the table once with that change."""
        part, changed = "l_orderkey % 10 = 3", "l_quantity + 1"
        frame = self.load("lineitem", "changed_lines")
        kind = frame.schema["l_quantity"].dataType.simpleString()
        target = str(self.folder / "rewritten")
        new = f"CASE WHEN {part} THEN CAST({changed} AS {kind}) ELSE l_quantity END AS l_quantity"

        def rewrite() -> None:
            shutil.rmtree(target, ignore_errors=True)
            frame.selectExpr(*[new if c == "l_quantity" else c for c in frame.columns]).write.parquet(target)

        def update() -> None:
            self.db.sql(f"UPDATE changed_lines SET l_quantity = {changed} WHERE {part}")

        taken = [(seconds(update), seconds(rewrite)) for _ in range(3)][1:]
        self.db.sql("DROP TABLE changed_lines")
        ours, theirs = (statistics.median(side) for side in zip(*taken, strict=True))
        result = Result(
            work="UPDATE of 10 % of lineitem by SQL",
            figure=ours / theirs,
            bar=1.0,
            unit="× rewriting the table once",
            detail=f"{ours:.2f} s against {theirs:.2f} s",
        )
        return [result]

    def ten_views(self) -> list[Result]:
        """Ten views over the same inputs in one epoch, against one of them alone."""
        self.create("only", TEN[0])
        alone = {path: self.ten_epochs(path) for path in PATHS}
        for number, query in enumerate(TEN[1:]):
            self.create(f"view{number}", query)
        together = {path: self.ten_epochs(path) for path in PATHS}
        for number in range(len(TEN) - 1):
            self.db.sql(f"DROP MATERIALIZED VIEW view{number}")
        self.db.sql("DROP MATERIALIZED VIEW only")
        return [
            Result(
                work=f"ten views over the same inputs, one epoch, {path}",
                figure=together[path] / alone[path],
                bar=3,
                unit="× one view",
                detail=f"{together[path]:.2f} s against {alone[path]:.2f} s, 0.1 % of lineitem changed",
            )
            for path in PATHS
        ]

    def ten_epochs(self, path: str) -> float:
        self.take(path)
        return self.epochs("lineitem", "l_quantity", 0.001, 4)

    def small_change(self, rows: int | None = None) -> float:
        """An epoch after a change of a number of lines that does not follow the table's size."""
        self.create("card", CARD)
        part = 0.001 if rows is None else rows / self.db.sql("SELECT count(*) FROM lineitem").one()[0]
        return self.epochs("lineitem", "l_quantity", part, 6)

    # ---- how --------------------------------------------------------------------------------------------

    def create(self, name: str, query: str) -> None:
        self.db.sql(f"CREATE MATERIALIZED VIEW {name} WITH (tablets = 16) AS {query}")

    def recompute(self, query: str, key: tuple[str, ...]) -> float:
        """Median seconds of Spark recomputing a view; the first time is not counted."""
        return statistics.median([self.recompute_once(query, key) for _ in range(3)][1:])

    def recompute_once(self, query: str, key: tuple[str, ...]) -> float:
        target = str(self.folder / "recomputed")
        text = query
        for table in KEYS:
            text = text.replace(f" {table} {table[0]} ", f" plain_{table} {table[0]} ")
        shutil.rmtree(target, ignore_errors=True)

        def again() -> None:
            self.spark.sql(text).repartition(16, *key).sortWithinPartitions(*key).write.parquet(target)

        return seconds(again)

    def epochs(self, table: str, column: str, part: float, times: int, *, warm: int = 1) -> float:
        """Median seconds of an epoch after a change; the first ones are not counted."""
        taken = [self.epoch(table, column, part) for _ in range(times + warm)]
        return statistics.median(taken[warm:])

    def epoch(self, table: str, column: str, part: float) -> float:
        """Change some rows, each turn to other values, then time the epoch alone."""
        self.turn += 1
        frame = self.spark.read.parquet(str(tpch(table, self.scale)))
        if part > 0.05:
            kind = frame.schema[column].dataType.simpleString()
            moved = frame.sample(fraction=part, seed=self.turn) if part < 1 else frame
            self.db.table(table).upsert(moved.selectExpr(*_moved(frame.columns, column, kind, self.turn)))
        else:
            rows = self.sample(table, part)
            self.changed = rows.num_rows
            place, kind = rows.schema.get_field_index(column), rows.schema.field(column).type
            moved_rows = pc.add(rows[column], pa.scalar(self.turn)).cast(kind)
            self.db.table(table).upsert(rows.set_column(place, column, moved_rows))
        compacts = self.db.context.services.is_stepping("compaction")
        taken = seconds(lambda: self.db.sql("FLUSH"))
        plans = self.db.sql("SELECT name, last_plan FROM system.views").rows()
        print(
            f"  {table}.{column} {part:g}: {taken:.3f} s {sorted({str(p) for _, p in plans})}"
            f"{', begun beside compaction' if compacts else ''}",
            flush=True,
        )
        return taken

    def sample(self, table: str, part: float) -> pa.Table:
        frame = self.spark.read.parquet(str(tpch(table, self.scale)))
        if part == 0:
            return frame.filter(f"{KEYS[table][0]} = {7 + 32 * self.turn}").limit(1).toArrow()
        return frame.sample(fraction=part, seed=self.turn).toArrow()

    def jobs_of_an_idle_epoch(self) -> int:
        tracker = self.spark.sparkContext.statusTracker()
        before = len(tracker.getJobIdsForGroup(None))
        self.db.sql("FLUSH")
        return len(tracker.getJobIdsForGroup(None)) - before


def _moved(columns: Sequence[str], column: str, kind: str, by: int) -> list[str]:
    return [f"CAST({c} + {by} AS {kind}) AS {c}" if c == column else c for c in columns]


def _small_results(path: str, taken: tuple[float, float, float], recomputed: float, trivial: float) -> list[Result]:
    one, lineitem, orders = taken
    on_spark = PATHS[path] is SPARK
    return [
        faster(f"0.1 % of lineitem changed, {path}", lineitem, recomputed, 30 if on_spark else 70),
        faster(f"0.1 % of orders changed, join columns too, {path}", orders, recomputed, 25 if on_spark else 50),
        Result(
            work=f"one row of lineitem changed, {path}",
            figure=one / trivial,
            bar=4 if on_spark else 1.5,
            unit="warm trivial Spark jobs",
            detail=f"{one * 1e3:.0f} ms; a job takes {trivial * 1e3:.0f} ms",
        ),
    ]


def _large_results(taken: Sequence[float], recomputed: float) -> list[Result]:
    bars = (("1 %", 12), ("10 %", 3), ("100 %", 0.9))
    return [
        faster(f"{part} of lineitem changed, on Spark", seconds_taken, recomputed, bar)
        for (part, bar), seconds_taken in zip(bars, taken, strict=True)
    ]


def faster(work: str, taken: float, recomputed: float, bar: float) -> Result:
    return Result(
        work=work,
        figure=recomputed / taken,
        bar=bar,
        unit="× faster",
        at_least=True,
        detail=f"{taken:.2f} s against {recomputed:.1f} s",
    )
