"""A warehouse that an older release made and left in the middle of a build: today's code opens it and goes on."""

from __future__ import annotations

import contextlib
import gzip
import sqlite3
import tarfile
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.catalog.migrations import MIGRATIONS
from support.warehouse import connect, rows

DATA = Path(__file__).parents[1] / "data" / "older_release"
"""`make.py` says how it was made."""

ORDERS = [
    (1, 1, Decimal("10.00"), date(2026, 1, 1), "none", None),
    (2, 2, Decimal("12.50"), date(2026, 1, 2), "gift", "here"),
    (4, 1, Decimal("7.25"), date(2026, 1, 4), "none", None),
    (5, 2, Decimal("99.99"), date(2026, 1, 5), "none", None),
    (6, 3, Decimal("1.00"), None, "none", None),
    (7, 1, Decimal("0.00"), date(2026, 1, 7), "none", None),
    (8, 3, Decimal("8.00"), date(2026, 1, 8), "none", None),
]


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The warehouse as the older release left it."""
    folder = tmp_path / "warehouse"
    folder.mkdir()
    with tarfile.open(DATA / "data.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    with contextlib.closing(sqlite3.connect(folder / "catalog.db")) as connection:
        connection.executescript(gzip.decompress((DATA / "catalog.sql.gz").read_bytes()).decode("utf-8"))
    return folder


def of_older(warehouse: Path, query: str) -> list[tuple[object, ...]]:
    """What the catalog says, as its tables are, without a release's code."""
    with contextlib.closing(sqlite3.connect(warehouse / "catalog.db")) as connection:
        return connection.execute(query).fetchall()


def correct(db: ebla.Database, what: str) -> None:
    [(_, _, missing, spurious, different, *_)] = db.sql(f"CHECK {what}").rows()
    assert (missing, spurious, different) == (0, 0, 0)


@pytest.fixture
def db(older: Path, spark: SparkSession) -> Iterator[ebla.Database]:
    with connect(older, spark, tablets=2, auto_refresh=False) as database:
        yield database


def test_every_migration_runs_over_what_is_stored(older: Path):
    assert of_older(older, "SELECT max(number) FROM migrations") == [(9,)]
    with connect(older, auto_refresh=False):
        pass
    assert of_older(older, "SELECT number, name FROM migrations ORDER BY number") == [
        (one.number, one.name) for one in MIGRATIONS
    ]


def test_the_kind_of_each_commit_and_transaction_is_read_from_its_reason_once(older: Path):
    with connect(older, auto_refresh=False):
        pass
    kinds: dict[object, list[object]] = {}
    for version, work in of_older(older, "SELECT version, work FROM history WHERE version <= 60 ORDER BY version"):
        kinds.setdefault(work, []).append(version)
    assert kinds == {
        None: [*range(1, 6), 12, 16, 21, 25, 28, 30, 31, 34, 36, 37, 40, 42, 43, 45, 47, 48, 49, 59],
        "write": [6, 7, 8, 50, 51, 52, 53, 57],
        "build": [9, 10, 11, 17, 18, 19, 20, 26, 27, 32, 33, 38, 39, 44, 58],
        "index_fill": [13, 14, 15, 22, 23, 24],
        "chunk": [29, 35, 41, 60],
        "compaction": [46],
        "epoch": [54, 56],
        "epoch_failure": [55],
    }
    found = of_older(older, "SELECT DISTINCT reason, work FROM transactions WHERE reason LIKE '% of %'")
    assert set(found) >= {("build of card", "chunk"), ("epoch of sums", "epoch"), ("epoch of ratio", "epoch")}


@pytest.mark.spark
def test_tables_are_as_they_were(db: ebla.Database):
    assert rows(db, "orders") == ORDERS
    assert rows(db, "customers") == [(1, "Ada", "UK", None), (2, "Dido", "TN", None), (3, "Grace", "UK", None)]
    [[shown]] = db.sql("SHOW CREATE TABLE orders").rows()
    for part in ("DEFAULT 'none'", "CONSTRAINT positive", "what was bought", "place STRING"):
        assert part in shown
    with pytest.raises(ebla.ConstraintError, match="positive"):
        db.sql("INSERT INTO orders (id, customer, total) VALUES (9, 1, -1)")
    with pytest.raises(ebla.EblaError, match="customers_by_name"):
        db.sql("INSERT INTO customers (id, name) VALUES (9, 'ada')")


@pytest.mark.spark
def test_views_go_on_from_where_they_were(db: ebla.Database):
    """`ratio` is stopped as it was, with the row to blame, and goes on when that is mended."""
    status, message = db.sql("SELECT status, message FROM system.views WHERE name = 'ratio'").one()
    assert status == "failed"
    assert "DIVIDE_BY_ZERO" in message
    assert "orders (id = 7)" in message
    before = {name: rows(db, name) for name in ("card", "sums", "ratio")}
    assert [len(of) for of in before.values()] == [6, 3, 6]
    db.sql("UPDATE orders SET total = 2 WHERE id = 7; FLUSH")
    plans = dict(db.sql("SELECT name, last_plan FROM system.views").rows())
    assert {plans[name] for name in before} == {"incremental"}
    for name in before:
        correct(db, f"VIEW {name}")
        assert len(rows(db, name)) == (3 if name == "sums" else 7)


@pytest.mark.spark
def test_a_build_goes_on_behind_its_chunks(db: ebla.Database):
    covered = "SELECT sum(row_count) FROM system.view_building_segments"
    assert db.sql(covered).one() == (2,)
    db.sql("WAIT FOR dear")
    assert db.sql(covered).one() == (None,)
    db.sql("FLUSH dear")
    assert rows(db, "dear") == [one[:3] for one in ORDERS if one[2] > 5]
    correct(db, "VIEW dear")


@pytest.mark.spark
def test_indexes_lead_and_are_kept(db: ebla.Database):
    db.sql("UPSERT INTO orders (id, customer, total) VALUES (9, 1, 50.00)")
    [path] = db.sql("EXPLAIN SELECT id FROM orders WHERE customer = 1 ORDER BY total DESC LIMIT 100").rows()[0]
    assert "orders_by_customer" in str(path)
    assert db.sql("SELECT id FROM orders WHERE customer = 1 ORDER BY total DESC LIMIT 100").rows() == [
        (9,), (1,), (4,), (7,),
    ]  # fmt: skip
    for index in ("orders_by_customer", "customers_by_name"):
        correct(db, f"INDEX {index}")


@pytest.mark.spark
def test_handlers_and_the_topology_are_as_they_were(db: ebla.Database):
    [shop] = [one for one in db.sql("SHOW HANDLERS").rows() if one[0] == "shop"]
    inputs = "orders AS STREAM, customers AS STREAM, countries AS BATCH"
    assert shop == ("shop", "card", inputs, None, True, '{"dictionary_period_s": 300}')
    assert db.sql("SELECT host_id, node_state FROM system.topology").rows() == [("node1", "normal")]
    db.sql("ALTER TABLE orders SET (tablets = 4)")
    assert rows(db, "orders") == ORDERS
    db.vacuum(retain_s=0)
    assert rows(db, "orders") == ORDERS
