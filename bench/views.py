"""Views: an epoch after a change, against Spark recomputing the view and writing it in the same layout.

TPC-H: lineitem ⋈ orders ⋈ customer ⋈ nation ⋈ part, twelve columns; and an aggregate, revenue per customer and month.
Both sides run in one Spark session on the same rows. A change is committed before the clock starts; the clock stops
when the view has it. Between measurements tables are compacted, as they would be in the background.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import ebla
from bench.data import tpch
from bench.measure import Result, median, seconds
from ebla.base.settings import load
from ebla.spark.session import Started

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
TEN = [
    f"{CARD} WHERE {column} = '{value}'"
    for column, values in {
        "l.l_shipmode": ("AIR", "RAIL", "SHIP", "MAIL", "FOB"),
        "c.c_mktsegment": ("BUILDING", "MACHINERY", "FURNITURE", "HOUSEHOLD", "AUTOMOBILE"),
    }.items()
    for value in values
]


def run(scale: float = 1.0) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="ebla-bench-") as folder:
        started = Started.start(load(spark_memory="6g"))
        try:
            one = _Bench(started.session, Path(folder), scale)
            results = one.run()
            results += one.ten_views()
            before = one.small_change()
            one.close()
            two = _Bench(started.session, Path(folder), 2 * scale)
            after = two.small_change(rows=one.changed)
            two.close()
        finally:
            started.stop()
    doubled = Result(
        work="the same change, tables doubled",
        figure=after / before,
        bar=1.3,
        unit="× the time",
        detail=f"{after:.2f} s against {before:.2f} s for {one.changed} rows of lineitem",
    )
    return [*results, doubled]


class _Bench:
    def __init__(self, spark: SparkSession, folder: Path, scale: float) -> None:
        self.spark = spark
        self.folder = folder
        self.scale = scale
        self.changed = 0
        self.turn = 0
        self.db = ebla.connect(str(folder / f"warehouse{scale:g}"), spark=spark, auto_compact=False, auto_refresh=False)
        for table, key in KEYS.items():
            file = tpch(table, scale)
            frame = spark.read.parquet(str(file))
            columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in frame.schema)
            tablets = 16 if table in ("lineitem", "orders") else 2
            self.db.sql(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({', '.join(key)})) WITH (tablets = {tablets})")
            self.db.sql(f"LOAD INTO {table} FROM '{file}'")
            frame.createOrReplaceTempView(f"plain_{table}")

    def close(self) -> None:
        self.db.close()

    # ---- the bars ---------------------------------------------------------------------------------------

    def run(self) -> list[Result]:
        self.create("card", CARD)
        card = self.recompute(CARD, ("l_orderkey", "l_linenumber"))
        one = self.epochs("lineitem", "l_quantity", 0, 6)
        lineitem = self.epochs("lineitem", "l_quantity", 0.001, 6)
        orders = self.epochs("orders", "o_custkey", 0.001, 5)
        more = self.epochs("lineitem", "l_quantity", 0.01, 3)
        much = self.epochs("lineitem", "l_quantity", 0.1, 2)
        all_of_it = self.epochs("lineitem", "l_quantity", 1, 2)
        again = self.recompute(CARD, ("l_orderkey", "l_linenumber"))
        baseline = statistics.mean((card, again))
        idle = self.jobs_of_an_idle_epoch()
        self.db.sql("DROP MATERIALIZED VIEW card")
        self.create("revenue", REVENUE)
        revenue = self.recompute(REVENUE, ("o_custkey", "y", "m"))
        grouped = self.epochs("lineitem", "l_extendedprice", 0.001, 5)
        self.db.sql("DROP MATERIALIZED VIEW revenue")
        trivial = median(lambda: self.spark.range(1000).count(), times=20, warm=10)
        return [
            faster("0.1 % of lineitem changed", lineitem, baseline, 20),
            faster("0.1 % of orders changed, join columns too", orders, baseline, 12),
            faster("1 % of lineitem changed", more, baseline, 8),
            faster("10 % of lineitem changed", much, baseline, 1.5),
            Result(
                work="100 % of lineitem changed",
                figure=all_of_it / baseline,
                bar=1.2,
                unit="× recomputing",
                detail=f"{all_of_it:.1f} s against {baseline:.1f} s",
            ),
            faster("aggregate view, 0.1 % of lineitem changed", grouped, revenue, 8),
            Result(work="epoch without changes", figure=idle, bar=0, unit="Spark jobs", detail="counted by Spark"),
            Result(
                work="fixed price of an epoch: one changed row",
                figure=one,
                bar=one,
                unit="s",
                detail=f"{one / trivial:.1f} warm trivial Spark jobs of {trivial * 1e3:.0f} ms; no bar",
            ),
        ]

    def ten_views(self) -> list[Result]:
        """Ten views over the same inputs in one epoch, against one of them alone."""
        self.create("only", TEN[0])
        alone = self.epochs("lineitem", "l_quantity", 0.001, 4)
        for number, query in enumerate(TEN[1:]):
            self.create(f"view{number}", query)
        together = self.epochs("lineitem", "l_quantity", 0.001, 4)
        for number in range(len(TEN) - 1):
            self.db.sql(f"DROP MATERIALIZED VIEW view{number}")
        self.db.sql("DROP MATERIALIZED VIEW only")
        return [
            Result(
                work="ten views over the same inputs, one epoch",
                figure=together / alone,
                bar=4,
                unit="× one view",
                detail=f"{together:.2f} s against {alone:.2f} s, 0.1 % of lineitem changed",
            )
        ]

    def small_change(self, rows: int | None = None) -> float:
        """An epoch after a change of a number of lines that does not follow the table's size."""
        self.create("card", CARD)
        part = 0.001 if rows is None else rows / self.db.sql("SELECT count(*) FROM lineitem").one()[0]
        return self.epochs("lineitem", "l_quantity", part, 6)

    # ---- how --------------------------------------------------------------------------------------------

    def create(self, name: str, query: str) -> None:
        self.db.sql(f"CREATE MATERIALIZED VIEW {name} WITH (tablets = 16) AS {query}")

    def recompute(self, query: str, key: tuple[str, ...]) -> float:
        target = str(self.folder / "recomputed")
        text = query
        for table in KEYS:
            text = text.replace(f" {table} {table[0]} ", f" plain_{table} {table[0]} ")

        def again() -> None:
            shutil.rmtree(target, ignore_errors=True)
            self.spark.sql(text).repartition(16, *key).sortWithinPartitions(*key).write.parquet(target)

        again()
        return statistics.median(seconds(again) for _ in range(2))

    def epochs(self, table: str, column: str, part: float, times: int, *, warm: int = 1) -> float:
        """Median seconds of an epoch after a change; the first ones are not counted."""
        for name in ("lineitem", "orders", *self.views()):
            self.db.compact(name)
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
            self.db.compact(table)
        else:
            rows = self.sample(table, part)
            self.changed = rows.num_rows
            place, kind = rows.schema.get_field_index(column), rows.schema.field(column).type
            moved_rows = pc.add(rows[column], pa.scalar(self.turn)).cast(kind)
            self.db.table(table).upsert(rows.set_column(place, column, moved_rows))
        taken = seconds(lambda: self.db.sql("FLUSH"))
        plans = self.db.sql("SELECT name, last_plan FROM system.views").rows()
        print(f"  {table}.{column} {part:g}: {taken:.3f} s {sorted({str(p) for _, p in plans})}", flush=True)
        return taken

    def sample(self, table: str, part: float) -> pa.Table:
        frame = self.spark.read.parquet(str(tpch(table, self.scale)))
        if part == 0:
            return frame.filter(f"{KEYS[table][0]} = {7 + 32 * self.turn}").limit(1).toArrow()
        return frame.sample(fraction=part, seed=self.turn).toArrow()

    def views(self) -> list[str]:
        return [str(name) for (name,) in self.db.sql("SELECT name FROM system.views").rows()]

    def jobs_of_an_idle_epoch(self) -> int:
        tracker = self.spark.sparkContext.statusTracker()
        before = len(tracker.getJobIdsForGroup(None))
        self.db.sql("FLUSH")
        return len(tracker.getJobIdsForGroup(None)) - before


def _moved(columns: Sequence[str], column: str, kind: str, by: int) -> list[str]:
    return [f"CAST({c} + {by} AS {kind}) AS {c}" if c == column else c for c in columns]


def faster(work: str, taken: float, recomputed: float, bar: float) -> Result:
    return Result(
        work=work,
        figure=recomputed / taken,
        bar=bar,
        unit="× faster",
        at_least=True,
        detail=f"{taken:.2f} s against {recomputed:.1f} s",
    )
