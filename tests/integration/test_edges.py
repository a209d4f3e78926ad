"""Values at the ends of every type: stored, found, ordered, paged, aggregated, shown."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.catalog import reads
from ebla.tables.lookup import stored_keys
from ebla.tables.value_lookup import rows_by
from support.edges import END_OF_TIME_US, YEAR_10000, column, edges, raw
from support.folding import fold
from support.warehouse import connect

KINDS = ["tinyint", "bigint", "decimal(38,10)", "decimal(38,38)", "string", "boolean", "date", "timestamp",
         "timestamp_ntz", "float", "double", "binary"]  # fmt: skip


def distinct(kind: str) -> list[Any]:
    """The values that a key may have, each once: minus zero is zero to a key."""
    found = [value for value in edges(kind) if value is not None]
    return [value for value in found if repr(value) != "-0.0"]


def in_order(kind: str, values: list[Any]) -> list[Any]:
    if kind in ("float", "double"):
        return sorted(values, key=lambda value: (math.isnan(value), value))
    return sorted(values)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_at_the_ends_of_a_type_are_stored_and_found_in_order(tmp_path: Path, kind: str) -> None:
    values = distinct(kind)
    rows = pa.table({"k": column(kind, values), "n": pa.array(range(len(values)), pa.int64())})
    right = raw(column(kind, in_order(kind, values)))
    with connect(tmp_path / "w", auto_refresh=False) as db:
        db.sql(f"CREATE TABLE t (k {kind}, n BIGINT, PRIMARY KEY (k))")
        db.table("t").upsert(rows.slice(0, len(values) // 2))
        fold(db, "t", row_group_rows=2)
        db.table("t").upsert(rows)
        assert raw(db.query("t", order_by="k").to_arrow()["k"]) == right
        fold(db, "t", row_group_rows=2)
        assert raw(db.query("t", order_by="k").to_arrow()["k"]) == right
        assert raw(db.query("t", order_by="-k").to_arrow()["k"]) == right[::-1]
        found_by_value(db, kind, rows)
        shown: list[Any] = []
        after = None
        while True:
            page = db.query("t", order_by="k", limit=3, after=after)
            assert len(page.rows()) == page.to_arrow().num_rows
            shown += raw(page.to_arrow()["k"])
            after = page.next
            if after is None:
                break
        assert shown == right
        db.table("t").delete(rows.select(["k"]).slice(1))
        assert raw(db.query("t").to_arrow()["k"]) == raw(rows["k"].slice(0, 1))


def found_by_value(db: ebla.Database, kind: str, rows: pa.Table) -> None:
    """Lookups in sorted files, where statistics prune, find every value: each alone, and all together with NULL."""
    with db.context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, reads.relation(connection, "t"))
    assert snapshot.level1
    assert not snapshot.level0
    keys = rows.select(["k"]).rename_columns(["c0"])
    for at in range(rows.num_rows):
        found = rows_by(db.context, snapshot, ["k"], keys.slice(at, 1), ["k", "n"])
        assert (raw(found["k"]), found["n"].to_pylist()) == (raw(rows["k"].slice(at, 1)), [at])
    every = pa.concat_tables([keys, pa.table({"c0": column(kind, [None])})])
    assert sorted(rows_by(db.context, snapshot, ["k"], every, ["n"])["n"].to_pylist()) == rows["n"].to_pylist()
    assert stored_keys(db.context.storage, db.context.settings, snapshot, rows.select(["k"])).num_rows == rows.num_rows


def test_dates_and_times_beyond_pythons_years_are_shown_as_text(tmp_path: Path) -> None:
    with connect(tmp_path / "w", auto_refresh=False) as db:
        db.sql("CREATE TABLE t (id INT, d DATE, t TIMESTAMP, a ARRAY<DATE>, PRIMARY KEY (id))")
        days = column("date", [YEAR_10000 // 86_400])
        db.table("t").upsert(
            pa.table(
                {
                    "id": pa.array([1], pa.int32()),
                    "d": days,
                    "t": column("timestamp", [END_OF_TIME_US]),
                    "a": pa.ListArray.from_arrays([0, 1], days),
                }
            )
        )
        assert db.query("t").one() == (1, "+10000-01-01", "+10000-01-01 07:59:59+00:00", ["+10000-01-01"])


# ---- with Spark -----------------------------------------------------------------------------------------

VIEWS = {
    "least": "SELECT g, min(t) AS a, max(t) AS b, min(d) AS c, max(d) AS e, count(*) AS n FROM t GROUP BY g",
    "by_time": "SELECT t, count(*) AS n, sum(id) AS s FROM t GROUP BY t",
    "by_day": "SELECT DISTINCT d FROM t",
    "parts": "SELECT id, year(d) AS y, month(d) AS m, day(d) AS p FROM t",
    "whole": "SELECT max(t) AS t, min(d) AS d FROM t",
    "bag": "SELECT t, d, array(d) AS a FROM t WHERE g < 2",
    "double": "SELECT x.id, y.id AS other FROM t x JOIN t y ON x.t = y.t AND x.d = y.d",
    "windowed": "SELECT id, t, row_number() OVER (PARTITION BY g ORDER BY t, d, id) AS n FROM t",
}


def some(ids: list[int]) -> pa.Table:
    """Rows whose dates and times go through all ends of their types."""
    days, times = edges("date"), edges("timestamp")
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "g": pa.array([n % 3 for n in ids], pa.int32()),
            "d": column("date", [days[n % len(days)] for n in ids]),
            "t": column("timestamp", [times[n % len(times)] for n in ids]),
        }
    )


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    columns = [[str(v) for v in c.to_pylist()] if pa.types.is_list(c.type) else raw(c) for c in _plain(table).columns]
    return Counter(zip(*columns, strict=True))


def _plain(table: pa.Table) -> pa.Table:
    """Lists of dates as lists of numbers."""
    kinds = [f.with_type(pa.list_(pa.int32())) if pa.types.is_list(f.type) else f for f in table.schema]
    return table.cast(pa.schema(kinds))


@pytest.mark.spark
def test_views_and_indexes_over_ends_of_time_are_exact(spark: SparkSession, tmp_path: Path) -> None:
    with connect(tmp_path / "w", spark, tablets=2, auto_refresh=False) as db:
        db.sql("CREATE TABLE t (id BIGINT, g INT, d DATE, t TIMESTAMP, PRIMARY KEY (id))")
        db.table("t").upsert(some(list(range(40))))
        db.sql("CREATE INDEX by_t ON t (t DESC, d)")
        db.sql("CREATE UNIQUE INDEX by_id ON t (id, t)")
        for name, text in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        db.table("t").upsert(some(list(range(40, 46))))
        db.table("t").delete([{"id": n} for n in (4, 5, 6, 7, 8, 20, 21)])  # among them the smallest and the largest
        db.sql("CREATE TABLE ends (t TIMESTAMP, d DATE, PRIMARY KEY (t, d))")
        end = "TIMESTAMP '9999-12-31 23:59:59-08:00'"
        db.sql(f"UPDATE t SET t = {end}, d = date_from_unix_date(2147483647) WHERE id = 1")
        insert = f"INSERT INTO ends SELECT {end}, date_from_unix_date(2147483647)"
        db.sql(insert)
        with pytest.raises(ebla.DuplicateKeyError, match=r"\+10000-01-01 07:59:59\+00:00"):
            db.sql(insert)
        db.sql("FLUSH")
        status = db.sql("SELECT name, status, message FROM system.views").rows()
        assert {row[1:] for row in status} == {("ready", None)}, status
        for name, text in VIEWS.items():
            found = db.sql(f"SELECT * FROM {name}")
            assert bag(found.to_arrow()) == bag(db.sql(text).to_arrow()), text
            assert len(found.rows()) == found.to_arrow().num_rows
        plans = dict(db.sql("SELECT name, last_plan FROM system.views").rows())
        assert {name for name, plan in plans.items() if plan == "full refresh"} <= {"whole"}, plans
        assert db.sql("CHECK TABLE t").to_arrow().num_rows >= 0
        ordered = db.query("t", order_by=["-t", "d"], limit=100)
        assert raw(ordered.to_arrow()["t"]) == raw(
            db.sql("SELECT t FROM t ORDER BY t DESC, d LIMIT 100").to_arrow()["t"]
        )
        changes = db.sql("SELECT * FROM t WHERE id = 1").one()
        assert changes == (1, 1, "+5881580-07-11", "+10000-01-01 07:59:59+00:00")
