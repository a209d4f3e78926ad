"""CHECK and REPAIR of views and of a table's files; those of indexes are with the indexes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.errors import CorruptRunError, SnapshotError, SqlError, UnknownNameError
from ebla.storage.model import ROW_SEQ, ROW_TXN
from ebla.tables import batch as b
from support.indexes import damage

pytestmark = pytest.mark.spark

CARD = "SELECT o.id, o.total, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id"
NAMES = "SELECT c.name FROM orders o JOIN customers c ON o.customer = c.id"


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(
        str(tmp_path / "warehouse"),
        spark=spark,
        tablets=2,
        replication=2,
        nodes={"node2": str(tmp_path / "second")},
        auto_compact=False,
        auto_refresh=False,
    ) as database:
        database.sql(
            """CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id));
            CREATE TABLE orders (id BIGINT, customer BIGINT, total DECIMAL(12,2), PRIMARY KEY (id))"""
        )
        database.table("customers").upsert([{"id": i, "name": f"c{i}"} for i in range(5)])
        database.table("orders").upsert([{"id": i, "customer": i % 6, "total": i} for i in range(60)])
        yield database


def wrong(db: ebla.Database, statement: str) -> tuple[Any, ...]:
    return db.sql(statement).rows()[0][2:5]


def bag(db: ebla.Database, text: str) -> Counter[Any]:
    return Counter(db.sql(text).rows())


def test_a_view_with_a_key(db: ebla.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW card AS {CARD}")
    db.table("orders").upsert([{"id": 7, "customer": 3, "total": 70}])
    assert wrong(db, "CHECK VIEW card") == (0, 0, 0)  # at the version that it names, not at the newest
    damage(
        db,
        "card",
        [
            ({"id": 1}, b.DELETE),
            ({"id": 2}, b.DELETE),
            ({"id": 3, "total": 333, "name": "c3"}, b.UPSERT),
            ({"id": 999, "total": 1, "name": "ghost"}, b.UPSERT),
        ],
    )
    applied = db.sql("SELECT applied_version FROM system.views").one()[0]
    assert db.sql("CHECK VIEW card").rows()[0] == ("card", applied, 2, 1, 1, 100.0, False)
    assert db.sql("REPAIR VIEW card").rows()[0][2:] == (2, 1, 1, 100.0, True)
    assert bag(db, "SELECT * FROM card") == bag(db, CARD)
    assert wrong(db, "CHECK MATERIALIZED VIEW card") == (0, 0, 0)


def test_a_view_without_a_key(db: ebla.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW names AS {NAMES}")
    damage(db, "names", [({"name": "c1", ROW_TXN: 10**6, ROW_SEQ: i}, b.UPSERT) for i in range(3)])
    assert wrong(db, "CHECK VIEW names") == (0, 3, 0)
    db.sql("REPAIR VIEW names")
    assert bag(db, "SELECT * FROM names") == bag(db, NAMES)


def test_a_sample_of_a_view_finds_a_part(db: ebla.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW card AS {CARD}")
    damage(db, "card", [({"id": 1000 + i, "total": 1, "name": "ghost"}, b.UPSERT) for i in range(400)])
    found = db.sql("CHECK VIEW card SAMPLE 25 PERCENT").rows()[0]
    assert 50 < found[3] < 150
    assert found[5] == 25.0


def test_sums_of_floating_numbers_may_differ_in_the_last_digit(db: ebla.Database) -> None:
    query = "SELECT customer, sum(CAST(total AS DOUBLE)) AS s FROM orders GROUP BY customer"
    db.sql(f"CREATE MATERIALIZED VIEW sums AS {query}")
    rows = dict(db.sql("SELECT customer, s FROM sums").rows())
    damage(db, "sums", [({"customer": 1, "s": rows[1] * (1 + 1e-14)}, b.UPSERT)])
    assert wrong(db, "CHECK VIEW sums") == (0, 0, 0)
    damage(db, "sums", [({"customer": 1, "s": rows[1] * 1.001}, b.UPSERT)])
    assert wrong(db, "CHECK VIEW sums") == (0, 0, 1)


def test_files_of_a_table_are_mended_from_copies(db: ebla.Database, tmp_path: Path) -> None:
    whole = db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0]
    assert (whole["missing"], whole["damaged"], whole["copies"]) == (0, 0, 2 * whole["runs"])
    expected = bag(db, "SELECT * FROM orders")
    files = sorted((tmp_path / "second").rglob("*.parquet"))
    table = [f for f in files if f"/{_folder(db, 'orders')}/" in str(f)]
    os.remove(table[0])
    found = db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0]
    assert (found["missing"], found["damaged"]) == (1, 0)
    db.sql("REPAIR TABLE orders")
    assert db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0] == whole
    data = bytearray(table[0].read_bytes())
    data[20:60] = bytes(40)
    table[0].write_bytes(data)
    found = db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0]
    assert (found["missing"], found["damaged"]) == (0, 1)
    mended = db.sql("REPAIR TABLE orders").to_arrow().to_pylist()[0]
    assert (mended["damaged"], mended["repaired"]) == (1, True)
    assert db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0] == whole
    assert bag(db, "SELECT * FROM orders") == expected


def test_a_run_without_a_sound_copy_is_named(db: ebla.Database, tmp_path: Path) -> None:
    for file in [*tmp_path.rglob("*.parquet")]:
        if f"/{_folder(db, 'orders')}/" in str(file):
            os.remove(file)
    with pytest.raises(CorruptRunError, match="expected a sound copy of"):
        db.sql("REPAIR TABLE orders")


def _folder(db: ebla.Database, table: str) -> str:
    path = db.sql(
        f"SELECT path FROM system.runs r JOIN system.relations t USING (relation_id) WHERE t.name = '{table}'"
    )
    return str(path.rows()[0][0]).split("/")[0]


@pytest.mark.parametrize(
    ("statement", "error", "says"),
    [
        ("CHECK VIEW nope", UnknownNameError, "nope"),
        ("CHECK VIEW orders", UnknownNameError, "orders"),
        ("CHECK TABLE nope", UnknownNameError, "nope"),
        ("CHECK VIEW card SAMPLE 0", SqlError, "a percentage above 0 and up to 100"),
        ("CHECK VIEW card SAMPLE 101", SqlError, "a percentage above 0 and up to 100"),
        ("CHECK card", SqlError, "INDEX, VIEW or TABLE"),
    ],
)
def test_bad_input(db: ebla.Database, statement: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        db.sql(statement)


def test_a_view_that_is_not_built_says_how_far_it_is(db: ebla.Database) -> None:
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (rows_per_minute = 0) AS {CARD}")
    with pytest.raises(SnapshotError, match="found it building"):
        db.sql("CHECK VIEW card")
