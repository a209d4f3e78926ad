"""Views that are joined by columns of another width than the key: lookups go by the key's own type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ebla
from support.folding import fold
from support.warehouse import connect

QUERY = "SELECT o.id, o.customer, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id"
BEYOND = 3_000_000_000
"""No INT."""


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ebla.Database]:
    named, key = request.param
    with connect(tmp_path / "w", spark, auto_refresh=False, auto_compact=False) as database:
        database.sql(f"CREATE TABLE orders (id BIGINT, customer {named}, PRIMARY KEY (id))")
        database.sql(f"CREATE TABLE customers (id {key}, name STRING, PRIMARY KEY (id)) WITH (tablets = 4)")
        database.table("customers").upsert([{"id": n, "name": f"customer {n}"} for n in range(40)])
        fold(database, "customers")
        database.sql(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
        yield database


@pytest.mark.parametrize("db", [("INT", "BIGINT"), ("BIGINT", "INT"), ("SMALLINT", "INT")], indirect=True)
def test_a_join_of_numbers_of_two_widths_is_followed(db: ebla.Database) -> None:
    db.table("orders").upsert([{"id": n, "customer": None if n == 7 else n} for n in range(50)])
    if db.sql("SELECT typeof(customer) FROM orders LIMIT 1").one()[0] == "bigint":
        db.table("orders").upsert([{"id": 100, "customer": BEYOND}])
    db.sql("FLUSH")
    db.table("customers").upsert([{"id": 3, "name": "another"}])
    db.sql("FLUSH")
    assert db.sql("SELECT last_plan FROM system.views").one()[0] == "incremental"
    assert sorted(db.sql("SELECT * FROM v").rows()) == sorted(db.sql(QUERY).rows())
