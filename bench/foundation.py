"""Tables: loading, scanning, merging level 0, small upserts, planning over a large manifest.

Everything is compared with plain Spark on the same rows, in the same session, in turns.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import ebla
from bench.data import tpch
from bench.measure import Result, alternately, median
from ebla.base.ids import NodeId, RunId, TabletId, TransactionId
from ebla.base.settings import load
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.model.relation import Column, Kind, Run
from ebla.model.topology import Member
from ebla.model.topology_changes import AddNode
from ebla.spark.session import StartedSession
from ebla.values.token import token_range

KEY = ("l_orderkey", "l_linenumber")
QUERIES = {
    "count": "SELECT count(*) FROM {}",
    "aggregate": "SELECT sum(l_quantity), avg(l_extendedprice) FROM {}",
    "count and aggregate": "SELECT count(*), sum(l_quantity), avg(l_extendedprice) FROM {}",
}


def run(scale: float = 1.0) -> list[Result]:
    file = tpch("lineitem", scale)
    with tempfile.TemporaryDirectory(prefix="ebla-bench-") as folder:
        started = StartedSession.start(load(spark_memory="4g"))
        spark = started.session
        try:
            with ebla.connect(f"{folder}/warehouse", spark=spark, auto_compact=False) as db:
                return [*_tables(db, spark, str(file), Path(folder)), _planning(Path(folder) / "manifest")]
        finally:
            started.stop()


def _tables(db: ebla.Database, spark: SparkSession, file: str, folder: Path) -> list[Result]:
    rows = spark.read.parquet(file)
    columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in rows.schema)
    plain = str(folder / "plain")
    results = [_load(db, rows, columns, file, plain)]
    spark.read.parquet(plain).createOrReplaceTempView("plain_lineitem")
    compacted: dict[str, float] = {}
    for name, query in QUERIES.items():
        ours, theirs = alternately(
            lambda q=query: db.sql(q.format("lineitem")).to_arrow(),  # type: ignore[misc]
            lambda q=query: spark.sql(q.format("plain_lineitem")).toArrow(),  # type: ignore[misc]
            times=15,
            warm=4,
        )
        compacted[name] = ours
        results.append(
            Result(
                work=f"full scan of a compacted table: {name}",
                figure=ours / theirs,
                bar=1.15,
                unit="×",
                detail=f"{ours * 1e3:.0f} ms against {theirs * 1e3:.0f} ms of `spark.read.parquet`",
            )
        )
    batch = rows.sample(fraction=0.02, seed=7).limit(20_000).toArrow()
    upserts = [db.table("lineitem").upsert(batch.slice(i * 1000, 1000)) for i in range(20)]
    assert len(upserts) == 20
    for name, query in QUERIES.items():
        merged = median(lambda q=query: db.sql(q.format("lineitem")).to_arrow(), times=15, warm=4)  # type: ignore[misc]
        results.append(
            Result(
                work=f"the same with 20 level 0 runs of 1,000 rows on top: {name}",
                figure=merged / compacted[name],
                bar=1.5,
                unit="×",
                detail=f"{merged * 1e3:.0f} ms against {compacted[name] * 1e3:.0f} ms compacted",
            )
        )
    return [*results, *_upserts(db, spark, batch)]


def _load(db: ebla.Database, rows: DataFrame, columns: str, file: str, plain: str) -> Result:
    """Sixteen tablets, each sorted by key, against Spark's own repartition, sort and write of the same rows."""

    def ours() -> None:
        db.sql("DROP TABLE IF EXISTS lineitem")
        db.sql(f"CREATE TABLE lineitem ({columns}, PRIMARY KEY ({', '.join(KEY)})) WITH (tablets = 16)")
        db.sql(f"LOAD INTO lineitem FROM '{file}'")

    def theirs() -> None:
        shutil.rmtree(plain, ignore_errors=True)
        rows.repartition(16, *KEY).sortWithinPartitions(*KEY).write.parquet(plain)

    mine, other = alternately(ours, theirs, times=3, warm=1)
    return Result(
        work="bulk load into 16 sorted tablets",
        figure=mine / other,
        bar=1.25,
        unit="×",
        detail=f"{mine:.1f} s against {other:.1f} s of Spark repartition + sort + Parquet write",
    )


def _upserts(db: ebla.Database, spark: SparkSession, batch: pa.Table) -> list[Result]:
    table = db.table("lineitem")
    catalog = db.context.catalog
    spent: list[float] = []
    commit = catalog.commit

    def timed(*arguments: Any, **named: Any) -> c.CommitRecord:
        start = time.perf_counter()
        done = commit(*arguments, **named)
        spent.append(time.perf_counter() - start)
        return done

    catalog.commit = timed  # type: ignore[method-assign]
    parts = iter([batch.slice((i % 20) * 1000, 1000) for i in range(200)])
    arrow = median(lambda: table.upsert(next(parts)), times=40, warm=5)
    commit_ms = statistics.median(spent[5:]) * 1e3
    catalog.commit = commit  # type: ignore[method-assign]
    frame = spark.createDataFrame(batch.slice(0, 1000))
    trivial = median(lambda: spark.range(1000).count(), times=20, warm=10)
    framed = median(lambda: table.upsert(frame), times=10, warm=3)
    trivial = (trivial + median(lambda: spark.range(1000).count(), times=20, warm=2)) / 2
    return [
        Result(
            work="upsert of 1,000 rows: catalog commit alone (SQLite)",
            figure=commit_ms,
            bar=10,
            unit="ms",
            detail="median of 40, flushed to disk",
        ),
        Result(
            work="upsert of 1,000 rows, whole, from Arrow",
            figure=arrow / trivial,
            bar=5,
            unit="trivial jobs",
            detail=f"{arrow * 1e3:.1f} ms; a warm trivial Spark job takes {trivial * 1e3:.0f} ms",
        ),
        Result(
            work="upsert of 1,000 rows, whole, from a Spark DataFrame",
            figure=framed / trivial,
            bar=5,
            unit="trivial jobs",
            detail=f"{framed * 1e3:.0f} ms",
        ),
    ]


def _planning(folder: Path, runs: int = 100_000, tablets: int = 1024) -> Result:
    """The snapshot of one tablet out of a manifest of 100,000 visible runs."""
    catalog = Catalog.open(str(folder))
    node = NodeId("node1")
    catalog.commit(
        c.Decision(reason="node", updates=(AddNode(node=Member(id=node, name=node, root=str(folder))),), exclusive=True)
    )
    column = Column(name="id", physical="id", type="bigint", key_position=0)
    made = catalog.commit(
        c.Decision(
            reason="table",
            exclusive=True,
            updates=(
                c.CreateRelation(
                    name="t",
                    kind=Kind.TABLE,
                    tablets=tablets,
                    replication=1,
                    columns=(column,),
                    placement=((node,),) * tablets,
                    comment=None,
                    options={},
                ),
            ),
        )
    )
    assert made.relation is not None
    many = [
        Run(
            id=RunId(f"r{i}"),
            relation=made.relation,
            level=1,
            tablet=TabletId(i % tablets),
            token_min=token_range(i % tablets, tablets).first,
            token_max=token_range(i % tablets, tablets).last,
            rows=1,
            tombstones=0,
            bytes=1,
            path=f"r{i}.parquet",
            nodes=(node,),
            transaction=TransactionId(1),
            schema_version=1,
        )
        for i in range(runs)
    ]
    for start in range(0, runs, 10_000):
        part = tuple(many[start : start + 10_000])
        catalog.commit(c.Decision(reason="runs", updates=(c.AddRuns(runs=part),), relation=made.relation))
    with catalog.reading() as connection:
        relation = reads.relation(connection, "t")
    turn = iter(range(10_000))

    def plan() -> None:
        with catalog.reading() as connection:
            found = reads.snapshot(connection, relation, tokens=[token_range(next(turn) * 7 % tablets, tablets)])
        assert len(found.level1) in (runs // tablets, runs // tablets + 1)

    planned = median(plan, times=50, warm=5)
    catalog.close()
    return Result(
        work="100,000 runs in the manifest: planning a snapshot of one tablet",
        figure=planned * 1e3,
        bar=20,
        unit="ms",
        detail=f"{tablets} tablets, median of 50",
    )
