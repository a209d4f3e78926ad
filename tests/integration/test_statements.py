"""How many statements the catalog is sent: by a small write, and by the epoch of one view. On both databases."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import event

import ebla
from support.warehouse import connect

UPSERT_MAX = 10
EPOCH_MAX = 25


@contextmanager
def sent(db: ebla.Database) -> Iterator[list[str]]:
    """The statements of this thread. Beginning and ending a transaction is none."""
    found: list[str] = []
    here = threading.current_thread()

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if threading.current_thread() is here and not statement.startswith("BEGIN"):
            found.append(statement)

    event.listen(db.context.catalog.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(db.context.catalog.engine, "before_cursor_execute", note)


def test_a_small_upsert_needs_few_statements(catalog_url: str, tmp_path: Path) -> None:
    with connect(catalog_url, storage_root=str(tmp_path / "rows")) as db:
        db.sql("CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id))")
        orders = db.table("orders")
        orders.upsert([{"id": 1, "customer": 1, "total": 1}])
        with sent(db) as statements:
            orders.upsert([{"id": 2, "customer": 1, "total": 5}])
        assert len(statements) <= UPSERT_MAX, statements


@pytest.mark.spark
def test_the_epoch_of_one_view_needs_few_statements(catalog_url: str, spark: SparkSession, tmp_path: Path) -> None:
    with connect(catalog_url, spark, storage_root=str(tmp_path / "rows"), auto_refresh=False) as db:
        db.sql("CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id))")
        orders = db.table("orders")
        orders.upsert([{"id": i, "customer": i % 3, "total": i} for i in range(9)])
        query = "SELECT customer, sum(total) AS s FROM orders GROUP BY customer"
        db.sql(f"CREATE MATERIALIZED VIEW sums AS {query}")
        for number in range(2):  # the first one reads what is remembered from then on
            orders.upsert([{"id": 2, "customer": 1, "total": number}])
            with sent(db) as statements:
                done = db.sql("FLUSH").rows()
        assert [row[0] for row in done] == ["sums"]
        assert len(statements) <= EPOCH_MAX, "\n".join(["", *(" ".join(one.split())[:90] for one in statements)])
        assert sorted(db.sql("SELECT * FROM sums").rows()) == sorted(db.sql(query).rows())
        version = orders.upsert([{"id": 2, "customer": 1, "total": 9}]).version
        for text in ("SHOW VIEWS", "SELECT name, age_s FROM system.views WHERE behind > 0"):
            with sent(db) as statements:
                assert [row["name"] for row in db.sql(text).to_arrow().to_pylist()] == ["sums"]
            assert len(statements) == 1, statements
        with sent(db) as statements, pytest.raises(ebla.SnapshotError, match=f"expected version {version} applied"):
            db.query("sums", at_least=version, wait_s=0)
        assert len(statements) == 1, statements
