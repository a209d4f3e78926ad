"""Nothing that is per commit stays: neither in the catalog nor in the caches of a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select

import ebla
from ebla.catalog import schema
from ebla.catalog.store import now_us
from support.warehouse import connect, eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROUNDS = 3
COMMITS = 40
"""Of a round: enough that anything of a commit would be seen."""


def in_hours(hours: int) -> Callable[[], int]:
    return lambda: now_us() + hours * 3_600_000_000


def counts(db: ebla.Database) -> dict[str, int]:
    """The rows of each table of the catalog, and the entries of each cache."""
    with db.context.catalog.reading() as connection:
        found = {
            table.name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
            for table in schema.metadata.sorted_tables
        }
    kept = db.sql("SELECT name, entries, bytes, bytes_max FROM system.caches").rows()
    assert all(0 <= size <= most for _, _, size, most in kept)
    return found | {f"cache of {name}": entries for name, entries, _, _ in kept}


def test_counts_of_rows_and_of_entries_stay_what_they_are(spark: SparkSession, tmp_path: Path):
    with connect(tmp_path / "warehouse", spark, tablets=2, retention_s=0, auto_refresh=False) as db:
        db.sql("CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id))")
        db.sql("CREATE MATERIALIZED VIEW sums AS SELECT customer, sum(total) AS s FROM orders GROUP BY customer")
        db.sql("CREATE INDEX by_total ON orders (total)")
        catalog, orders, found = db.context.catalog, db.table("orders"), []
        for number in range(ROUNDS):
            for commit in range(COMMITS):
                orders.upsert([{"id": commit % 7, "customer": commit % 3, "total": number}])
                db.query("orders", order_by="total")
                db.query("orders", order_by="id")
                if commit % 15 == 0:
                    db.sql("FLUSH")
                    db.query("sums", order_by="customer")
            db.sql("FLUSH")
            for name in ("orders", "by_total", "sums"):
                db.compact(name)
                db.query(name if name != "by_total" else "orders")
            catalog.clock = in_hours(2 * (number + 1))
            db.vacuum()
            found.append(counts(db))
        last, before = found[-1], found[-2]
        assert max(last["history"], last["transactions"]) < COMMITS, "a round has far more commits"
        grown = {name: (before[name], last[name]) for name in last if last[name] > before[name]}
        grown.pop("cache of runs", None)  # grows until its two generations are full
        assert not grown


def test_a_process_that_maintains_views_vacuums_by_itself(spark: SparkSession, tmp_path: Path):
    with connect(tmp_path / "warehouse", spark, retention_s=0, auto_refresh=True, vacuum_period_s=0.2) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id))")
        for number in range(3):
            db.table("t").upsert([{"id": 1, "n": number}])
        db.compact("t")
        eventually(lambda: not db.sql("SELECT * FROM system.runs WHERE end_version < 4000000000000000000").rows())
        assert db.sql("SELECT count(*) FROM system.leases WHERE name = 'vacuum'").rows() == [(1,)]
