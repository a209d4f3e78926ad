"""First-100 queries through a sorted path, beside DuckDB scanning the same rows as Parquet.

The path is an index built as a table: `by_mode (l_shipmode, l_extendedprice, l_orderkey, l_linenumber)`. Values are
drawn with a fixed seed; equality alone has only the seven modes. All queries are run once before they are timed, so
whatever fits into the cache of decoded row groups is there: at a small scale everything, and no figure is a cold one.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

import ebla
from bench.data import tpch
from bench.measure import Result, seconds
from ebla.catalog import reads
from ebla.predicates import conditions as c
from ebla.query.answer import Answer
from ebla.storage.duck import literally

MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
ENTRY = ("l_shipmode", "l_extendedprice", "l_orderkey", "l_linenumber")
SHOWN = ("l_orderkey", "l_linenumber", "l_shipmode", "l_extendedprice")
ROW_GROUP_BYTES = 2**20
"""Of base and index alike: a seek decodes one row group of each run."""
CACHE_BYTES = 8 * 2**30
"""For decoded columns, so that a warm query finds its rows in memory, as PostgreSQL does."""
TIMES = 200
PATH = ("by_mode",)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Requests of one kind, and the same for DuckDB as SQL."""

    work: str
    bar_ms: float
    requests: Sequence[dict[str, Any]]
    sql: Callable[[dict[str, Any]], str]
    p99_ms: float | None = None


def run(scale: float = 1.0) -> list[Result]:
    file = tpch("lineitem", scale)
    with tempfile.TemporaryDirectory(prefix="ebla-bench-") as folder:
        place = f"{folder}/warehouse"
        _build(place, str(file))
        with ebla.connect(place, create=False, auto_compact=False) as db:
            return _measure(db)


def _build(place: str, file: str) -> None:
    with ebla.connect(place, auto_compact=False, row_group_bytes=ROW_GROUP_BYTES) as db:
        fields = load_lineitem(db, file)
        entry = ", ".join(f"{name} {fields[name]}" for name in ENTRY)
        db.sql(f"CREATE TABLE by_mode ({entry}, PRIMARY KEY ({', '.join(ENTRY)})) WITH (tablets = 16)")
        db.sql(f"INSERT INTO by_mode SELECT {', '.join(ENTRY)} FROM lineitem")
        db.compact("by_mode")


def load_lineitem(db: ebla.Database, file: str) -> dict[str, str]:
    """The table of this benchmark and of that of indexes, compacted; its columns and their types."""
    fields = {f.name: f.dataType.simpleString() for f in db.spark.read.parquet(file).schema}
    columns = ", ".join(f"{name} {kind}" for name, kind in fields.items())
    db.sql(f"CREATE TABLE lineitem ({columns}, PRIMARY KEY (l_orderkey, l_linenumber)) WITH (tablets = 16)")
    db.sql(f"LOAD INTO lineitem FROM '{file}'")
    db.compact("lineitem")
    return fields


def _measure(db: ebla.Database) -> list[Result]:
    cases = cases_of(random.Random(7))
    results: list[Result] = []
    compacted: dict[str, float] = {}
    with scanner(db) as duck:
        for case in cases:
            p50, p99 = latency(db, case.requests, also=PATH)
            compacted[case.work] = p50
            text = [case.sql(one) for one in case.requests[:7]]
            scanned = statistics.median([seconds(lambda t=t: duck.sql(t).to_arrow_table()) for t in text])  # type: ignore[misc]
            detail = f"p99 {p99 * 1e3:.1f} ms; DuckDB's scan {scanned * 1e3:.0f} ms, {scanned / p50:.0f} times as much"
            results.append(Result(work=case.work, figure=p50 * 1e3, bar=case.bar_ms, unit="ms", detail=detail))
            if case.p99_ms is not None:
                results.append(
                    Result(work=f"{case.work}: p99", figure=p99 * 1e3, bar=case.p99_ms, unit="ms", detail="")
                )
                results.append(
                    Result(
                        work=f"{case.work}: against DuckDB's scan of the same Parquet",
                        figure=scanned / p50,
                        bar=20,
                        unit="×",
                        detail="",
                        at_least=True,
                    )
                )
    _write_level0(db)
    for case in cases:
        p50, p99 = latency(db, case.requests, also=PATH)
        results.append(
            Result(
                work=f"{case.work}, 20 level 0 runs of 1,000 rows unmerged",
                figure=p50 / compacted[case.work],
                bar=2,
                unit="×",
                detail=f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms",
            )
        )
    return results


def cases_of(chance: random.Random) -> list[Case]:
    def where(one: dict[str, Any]) -> str:
        parts = []
        for name, wanted in one["where"].items():
            match wanted:
                case c.Range(low, high):
                    parts += [f"{name} >= {low}" if low is not None else "true"]
                    parts += [f"{name} <= {high}" if high is not None else "true"]
                case c.Prefix(text):
                    parts.append(f"starts_with({name}, '{text}')")
                case value:
                    parts.append(f"{name} = '{value}'")
        return " AND ".join(parts)

    def first(*order: str, shown: str = ", ".join(SHOWN)) -> Callable[[dict[str, Any]], str]:
        return lambda one: (
            f"SELECT {shown} FROM lineitem WHERE {where(one)} ORDER BY {', '.join(order)}, l_orderkey, l_linenumber "
            f"LIMIT {one.get('limit', 100)}"
        )

    def price() -> Decimal:
        return Decimal(chance.randrange(1_000_00, 90_000_00)) / 100

    def many(make: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"columns": SHOWN, **make()} for _ in range(TIMES)]

    def mode() -> str:
        return chance.choice(MODES)

    def above() -> dict[str, Any]:
        return {"l_shipmode": mode(), "l_extendedprice": ebla.between(price(), None)}

    return [
        Case(
            work="first 100 by equality + order",
            bar_ms=10,
            p99_ms=30,
            requests=many(lambda: {"where": {"l_shipmode": mode()}, "order_by": "l_extendedprice"}),
            sql=first("l_extendedprice"),
        ),
        Case(
            work="first 100 of a range",
            bar_ms=15,
            requests=many(lambda: {"where": above(), "order_by": "l_extendedprice"}),
            sql=first("l_extendedprice"),
        ),
        Case(
            work="first 100 by prefix, two-column order",
            bar_ms=15,
            requests=many(
                lambda: {
                    "where": {"l_shipmode": ebla.prefix(mode()[:2])},
                    "order_by": ["l_shipmode", "l_extendedprice"],
                }
            ),
            sql=first("l_shipmode", "l_extendedprice"),
        ),
        Case(
            work="first 100 of a range, downwards",
            bar_ms=15,
            requests=many(
                lambda: {
                    "where": {"l_shipmode": mode(), "l_extendedprice": ebla.between(None, price())},
                    "order_by": "-l_extendedprice",
                }
            ),
            sql=first("l_extendedprice DESC"),
        ),
        Case(
            work="a page of 50 by keyset",
            bar_ms=15,
            requests=many(
                lambda: {
                    "where": {"l_shipmode": mode()},
                    "order_by": "l_extendedprice",
                    "limit": 50,
                    "after": {"l_extendedprice": price(), "l_orderkey": 1, "l_linenumber": 1},
                }
            ),
            sql=lambda one: (
                f"SELECT {', '.join(SHOWN)} FROM lineitem WHERE l_shipmode = '{one['where']['l_shipmode']}' AND "
                f"(l_extendedprice, l_orderkey, l_linenumber) > ({one['after']['l_extendedprice']}, 1, 1) "
                "ORDER BY l_extendedprice, l_orderkey, l_linenumber LIMIT 50"
            ),
        ),
        Case(
            work="100 full rows by key from a path without them",
            bar_ms=60,
            requests=[{"where": above(), "order_by": "l_extendedprice"} for _ in range(TIMES)],
            sql=first("l_extendedprice", shown="*"),
        ),
    ]


def ask(db: ebla.Database, one: dict[str, Any], *, also: Sequence[str] = ()) -> Answer:
    return db.reader.query("lineitem", lambda relation: c.request(relation, **one), also=also)


def latency(db: ebla.Database, requests: Sequence[dict[str, Any]], *, also: Sequence[str] = ()) -> tuple[float, float]:
    """The median and the 99th percentile, in seconds, of requests that all go through `by_mode`."""
    for one in requests:
        found = ask(db, one, also=also)
        assert found.plan.fitted.path.name == "by_mode", found.plan
    times = sorted(seconds(lambda one=one: ask(db, one, also=also)) for one in requests)  # type: ignore[misc]
    return statistics.median(times), times[int(len(times) * 0.99)]


def scanner(db: ebla.Database) -> duckdb.DuckDBPyConnection:
    """DuckDB with the base's own files as a view."""
    with db.context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, reads.relation(connection, "lineitem"))
    roots = db.context.roots()
    files = [literally(roots[run.nodes[0]].inner(run.path)) for run in snapshot.level1]
    duck = duckdb.connect()
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    duck.execute(f"CREATE VIEW lineitem AS SELECT * FROM read_parquet([{listed}])")
    return duck


def _write_level0(db: ebla.Database) -> None:
    """Twenty commits of 1,000 rows each, into the base and, as a writer of an index would, into the path."""
    chance = random.Random(11)
    for _ in range(20):
        page = ask(db, {"where": {"l_shipmode": chance.choice(MODES)}, "limit": 1000, "order_by": "l_extendedprice",
                         "after": {"l_extendedprice": Decimal(chance.randrange(1_000, 60_000)), "l_orderkey": 1,
                                   "l_linenumber": 1}})  # fmt: skip
        rows: pa.Table = page.table
        db.table("lineitem").upsert(rows)
        db.table("by_mode").upsert(rows.select(list(ENTRY)))
