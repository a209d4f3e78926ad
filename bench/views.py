"""Views: an epoch after a change, against Spark recomputing the view and writing it in the same layout.

TPC-H: lineitem ⋈ orders ⋈ customer ⋈ nation ⋈ part, twelve columns; and an aggregate, revenue per customer and month.
Both sides run in one Spark session on the same rows. The change is committed before the clock starts; the clock stops
when the view has it.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import ebla
from bench.data import tpch
from bench.measure import Result, median, seconds
from ebla.settings import load
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
 sum(l.l_extendedprice) AS revenue, count(*) AS n
FROM lineitem l JOIN orders o ON l.l_orderkey = o.o_orderkey
GROUP BY o.o_custkey, year(o.o_orderdate), month(o.o_orderdate)"""


def run(scale: float = 1.0) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="ebla-bench-") as folder:
        started = Started.start(load(spark_memory="6g"))
        try:
            with ebla.connect(f"{folder}/warehouse", spark=started.session, auto_compact=False) as db:
                return _Bench(db, started.session, Path(folder), scale).run()
        finally:
            started.stop()


class _Bench:
    def __init__(self, db: ebla.Database, spark: SparkSession, folder: Path, scale: float) -> None:
        self.db = db
        self.spark = spark
        self.folder = folder
        self.scale = scale

    def run(self) -> list[Result]:
        for table, key in KEYS.items():
            file = tpch(table, self.scale)
            frame = self.spark.read.parquet(str(file))
            columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in frame.schema)
            tablets = 16 if table in ("lineitem", "orders") else 2
            self.db.sql(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({', '.join(key)})) WITH (tablets = {tablets})")
            self.db.sql(f"LOAD INTO {table} FROM '{file}'")
            frame.createOrReplaceTempView(f"plain_{table}")
        self.db.sql(f"CREATE MATERIALIZED VIEW card WITH (tablets = 16) AS {CARD}")
        card = self.recompute(CARD, ("l_orderkey", "l_linenumber"))
        lineitem = [self.epoch("lineitem", "l_quantity", 0.001, seed) for seed in range(5)]
        orders = [self.epoch("orders", "o_custkey", 0.001, seed) for seed in range(4)]
        one = [self.epoch("lineitem", "l_quantity", 0, seed) for seed in range(4)]
        more = [self.epoch("lineitem", "l_quantity", 0.01, seed) for seed in range(3)]
        self.db.sql("DROP MATERIALIZED VIEW card")
        self.db.sql(f"CREATE MATERIALIZED VIEW revenue WITH (tablets = 16) AS {REVENUE}")
        revenue = self.recompute(REVENUE, ("o_custkey", "y", "m"))
        grouped = [self.epoch("lineitem", "l_extendedprice", 0.001, seed) for seed in range(4)]
        trivial = median(lambda: self.spark.range(1000).count(), times=20, warm=10)
        fixed = statistics.median(one)
        return [
            self.faster("0.1 % of lineitem changed", lineitem, card, 20),
            self.faster("0.1 % of orders changed, join columns too", orders, card, 12),
            self.faster("1 % of lineitem changed", more, card, 8),
            self.faster("aggregate view, 0.1 % of lineitem changed", grouped, revenue, 8),
            Result(
                work="fixed price of an epoch: one changed row",
                figure=fixed,
                bar=fixed,
                unit="s",
                detail=f"{fixed / trivial:.1f} warm trivial Spark jobs of {trivial * 1e3:.0f} ms; no bar",
            ),
        ]

    def faster(self, work: str, epochs: list[float], recomputed: float, bar: float) -> Result:
        taken = statistics.median(epochs[1:])
        return Result(
            work=work,
            figure=recomputed / taken,
            bar=bar,
            unit="× faster",
            at_least=True,
            detail=f"{taken:.2f} s against {recomputed:.1f} s",
        )

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

    def epoch(self, table: str, column: str, part: float, seed: int) -> float:
        """Change some rows, then time the epoch alone."""
        rows = self.sample(table, part, seed)
        place = rows.schema.get_field_index(column)
        kind = rows.schema.field(column).type
        moved = pc.add(rows[column], pa.scalar(1)).cast(kind)
        self.db.table(table).upsert(rows.set_column(place, column, moved))
        taken = seconds(lambda: self.db.sql("FLUSH"))
        shown = self.db.sql("SHOW VIEWS").rows()[0]
        print(table, column, rows.num_rows, f"{taken:.3f} s", shown[5:7], flush=True)
        return taken

    def sample(self, table: str, part: float, seed: int) -> pa.Table:
        frame = self.spark.read.parquet(str(tpch(table, self.scale)))
        if part == 0:
            return frame.filter(f"{KEYS[table][0]} = {7 + 32 * seed}").limit(1).toArrow()
        return frame.sample(fraction=part, seed=seed).toArrow()
