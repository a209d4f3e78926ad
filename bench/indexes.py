"""Indexes on lineitem: what it takes to build them, to read through them, and to keep them.

The queries are those of `bench.query`, through an index that CREATE INDEX has made, beside DuckDB's scan of the base's
Parquet and beside PostgreSQL with the same B-tree on the same rows. All queries are run once before they are timed, and
there is memory for all that they read, decoded.
Writers upsert batches of 1,000 rows, half of them new, the others rows of the table with another price.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import ebla
from bench.data import tpch
from bench.measure import Result, seconds
from bench.query import CACHE_BYTES, ROW_GROUP_BYTES, Case, cases_of, latency, load_lineitem, scanner
from ebla.predicates import conditions as c

INDEX = "CREATE INDEX by_mode ON lineitem (l_shipmode, l_extendedprice)"
THREE = (
    "CREATE INDEX three_a ON lineitem (l_shipmode, l_extendedprice)",
    "CREATE INDEX three_b ON lineitem (l_partkey, l_shipdate DESC)",
    "CREATE INDEX three_c ON lineitem (l_shipdate) INCLUDE (l_quantity)",
)
BATCH_ROWS = 1_000
BATCHES = 12
TIMES_POSTGRES = 50


def run(scale: float = 1.0) -> list[Result]:
    file = str(tpch("lineitem", scale))
    with tempfile.TemporaryDirectory(prefix="ebla-bench-") as folder:
        place = f"{folder}/warehouse"
        results = _build(place, file)
        with ebla.connect(
            place,
            create=False,
            auto_compact=False,
            row_group_bytes=ROW_GROUP_BYTES,
            read_cache_bytes=CACHE_BYTES,
        ) as db:
            results += _write(db, file)
            results += _read(db, file)
    return results


# ---- building -------------------------------------------------------------------------------------------


def _build(place: str, file: str) -> list[Result]:
    with ebla.connect(place, auto_compact=False, spark_memory="4g", row_group_bytes=ROW_GROUP_BYTES) as db:
        load_lineitem(db, file)
        for text in THREE:  # Spark and the disk are warm after this
            db.sql(text)
        _drop(db, "three_a", "three_b", "three_c")
        one, together = [], []
        for _ in range(3):
            one.append(seconds(lambda: db.sql(THREE[0])))
            _drop(db, "three_a")
            for text in THREE:
                db.sql(f"{text} WITH (build = 'deferred')")
            together.append(seconds(lambda: db.sql("BUILD INDEXES ON lineitem")))
            _drop(db, "three_a", "three_b", "three_c")
        db.sql(INDEX)
    alone, three = statistics.median(one), statistics.median(together)
    return [
        Result(
            work="three indexes together against one",
            figure=three / alone,
            bar=1.8,
            unit="×",
            detail=f"{three:.1f} s and {alone:.1f} s",
        )
    ]


def _drop(db: ebla.Database, *names: str) -> None:
    for name in names:
        db.sql(f"DROP INDEX {name}")


# ---- reading --------------------------------------------------------------------------------------------


def _read(db: ebla.Database, file: str) -> list[Result]:
    cases = cases_of(random.Random(7))
    results: list[Result] = []
    compacted: dict[str, float] = {}
    with scanner(db) as duck, _postgres(file) as server:
        for case in cases:
            p50, p99 = latency(db, case.requests)
            compacted[case.work] = p50
            text = [case.sql(one) for one in case.requests[:7]]
            scanned = statistics.median([seconds(lambda t=t: duck.sql(t).to_arrow_table()) for t in text])  # type: ignore[misc]
            detail = f"p99 {p99 * 1e3:.1f} ms; DuckDB's scan {scanned * 1e3:.0f} ms"
            if server is not None:
                detail += f"; PostgreSQL {_postgres_p50(server, case) * 1e3:.1f} ms"
            results.append(
                Result(work=f"index: {case.work}", figure=p50 * 1e3, bar=case.bar_ms, unit="ms", detail=detail)
            )
            if case.p99_ms is not None:
                results += [
                    Result(work=f"index: {case.work}: p99", figure=p99 * 1e3, bar=case.p99_ms, unit="ms", detail=""),
                    Result(
                        work=f"index: {case.work}: against DuckDB's scan of the same Parquet",
                        figure=scanned / p50,
                        bar=20,
                        unit="×",
                        detail="",
                        at_least=True,
                    ),
                ]
    for number in range(20):
        db.table("lineitem").upsert(_rows(file, random.Random(100 + number), number))
    for case in cases:
        p50, p99 = latency(db, case.requests)
        results.append(
            Result(
                work=f"index: {case.work}, 20 level 0 runs unmerged",
                figure=p50 / compacted[case.work],
                bar=2,
                unit="×",
                detail=f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms",
            )
        )
    return results


# ---- writing --------------------------------------------------------------------------------------------


def _rows(file: str, chance: random.Random, number: int) -> pa.Table:
    """Half of them rows of the table with another price, the others new ones behind all others.

    They come from the file that was loaded, so that to find them warms nothing of ours.
    """
    rows = f"FROM read_parquet('{file}')"
    with duckdb.connect() as duck:
        last = duck.sql(f"SELECT max(l_orderkey) {rows}").fetchall()[0][0]
        some = f"SELECT * {rows} WHERE l_orderkey >= {chance.randrange(1, last - BATCH_ROWS)}"
        old = duck.sql(f"{some} ORDER BY l_orderkey, l_linenumber LIMIT {BATCH_ROWS // 2}").to_arrow_table()
    price = pc.add(old["l_extendedprice"], pa.scalar(number, pa.int64())).cast(old.schema.field("l_extendedprice").type)
    changed = old.set_column(old.schema.get_field_index("l_extendedprice"), "l_extendedprice", price)
    keys = pa.array([100_000_000 + number * BATCH_ROWS + n for n in range(old.num_rows)])
    new = old.set_column(old.schema.get_field_index("l_orderkey"), "l_orderkey", keys.cast(old["l_orderkey"].type))
    return pa.concat_tables([changed, new])


def _write(db: ebla.Database, file: str) -> list[Result]:
    """The same batches with the index and without, in turn, each after a compaction."""
    rates: dict[str, list[float]] = {"with": [], "without": []}
    for turn in range(2):
        for which in ("with", "without"):
            if which == "with" and turn:
                db.sql(INDEX)
            elif which == "without":
                db.sql("DROP INDEX by_mode")
            db.compact("lineitem")
            batches = [_rows(file, random.Random(turn * 1000 + n), 100 + turn * 100 + n) for n in range(BATCHES + 2)]
            for rows in batches[:2]:
                db.table("lineitem").upsert(rows)
            began = time.perf_counter()
            for rows in batches[2:]:
                db.table("lineitem").upsert(rows)
            rates[which].append(BATCHES * BATCH_ROWS / (time.perf_counter() - began))
    db.sql(INDEX)
    for name in ("lineitem", "by_mode"):
        db.compact(name)
    ours, plain = statistics.median(rates["with"]), statistics.median(rates["without"])
    return [
        Result(
            work="writers' throughput with an index against none",
            figure=ours / plain,
            bar=0.5,
            unit="×",
            detail=f"{ours:,.0f} and {plain:,.0f} rows a second",
            at_least=True,
        )
    ]


# ---- PostgreSQL -----------------------------------------------------------------------------------------


@contextmanager
def _postgres(file: str) -> Iterator[Any]:
    """A connection to a server with the same rows and the same B-tree; `None` where PostgreSQL is not installed."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from support.postgres import PostgresServer, find_binaries

    binaries = find_binaries()
    if binaries is None:
        print("PostgreSQL is not installed: its figures are missing")
        yield None
        return
    import psycopg

    with PostgresServer(binaries) as server, server.database() as url, psycopg.connect(url) as connection:
        duck = duckdb.connect()
        duck.execute(f"CREATE VIEW lineitem AS SELECT * FROM read_parquet('{file}')")
        columns = [(name, kind) for name, kind, *_ in duck.sql("DESCRIBE lineitem").fetchall()]
        declared = ", ".join(f"{name} {kind}" for name, kind in columns)
        connection.execute(f"CREATE TABLE lineitem ({declared}, PRIMARY KEY (l_orderkey, l_linenumber))")
        with tempfile.NamedTemporaryFile(suffix=".csv") as rows:
            duck.execute(f"COPY lineitem TO '{rows.name}' (HEADER false)")
            with (
                connection.cursor().copy("COPY lineitem FROM STDIN (FORMAT csv)") as sink,
                open(rows.name, "rb") as out,
            ):
                while part := out.read(2**20):
                    sink.write(part)
        connection.execute("CREATE INDEX ON lineitem (l_shipmode, l_extendedprice, l_orderkey, l_linenumber)")
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE lineitem")
        yield connection


def _postgres_p50(connection: Any, case: Case) -> float:
    def text(one: dict[str, Any]) -> str:
        found = one["where"].get("l_shipmode")
        sql = case.sql(one)
        if isinstance(found, c.Prefix):
            sql = sql.replace(f"starts_with(l_shipmode, '{found.text}')", f"l_shipmode LIKE '{found.text}%'")
        return sql

    texts = [text(one) for one in case.requests[:TIMES_POSTGRES]]
    for one in texts:
        connection.execute(one).fetchall()
    return statistics.median(seconds(lambda t=t: connection.execute(t).fetchall()) for t in texts)  # type: ignore[misc]
