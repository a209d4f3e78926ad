"""`ebla status`: what it says, and that it needs neither Spark nor Java."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

import ebla
from ebla.base.ids import NodeId, Version
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.cli import status
from ebla.cli.main import run

SECOND_US = 1_000_000


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """A warehouse with two tables; small writes need no Spark."""
    place = str(tmp_path / "shop")
    with ebla.connect(place, tablets=4, auto_compact=False) as db:
        db.sql("CREATE TABLE empty (id BIGINT, PRIMARY KEY (id)); CREATE TABLE orders (id BIGINT, PRIMARY KEY (id))")
        db.table("orders").upsert([{"id": n} for n in range(10)])
        db.table("orders").upsert([{"id": n} for n in range(5, 15)])
        db.table("orders").delete([{"id": 0}])
    return place


def test_tables_are_counted_from_the_manifest(shop):
    found = {t.name: t for t in status.read(shop).tables}
    orders, empty = found["orders"], found["empty"]
    assert (orders.size.rows, orders.size.exact, orders.size.level0_runs) == (20, False, 3)
    assert (orders.tablets, orders.written_version) == (4, status.read(shop).version)
    assert orders.size.bytes > 0
    assert (empty.size.rows, empty.size.exact, empty.written_version) == (0, True, None)


def test_copies_count_as_bytes_but_not_as_rows(tmp_path):
    sizes = {}
    for copies in (1, 2):
        place = str(tmp_path / f"copies{copies}")
        nodes = {"node2": str(tmp_path / f"other{copies}")}
        with ebla.connect(place, nodes=nodes, replication=copies, tablets=1, auto_compact=False) as db:
            db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
            db.table("t").upsert([{"id": n} for n in range(100)])
        sizes[copies] = status.read(place).tables[0].size
    assert sizes[2].rows == sizes[1].rows == 100
    assert sizes[2].level0_runs == sizes[1].level0_runs == 1
    assert sizes[2].bytes == 2 * sizes[1].bytes


def test_who_is_at_work_is_shown(shop, capsys):
    with ebla.connect(shop) as db:
        catalog = db.context.catalog
        with catalog.reading() as connection:
            orders = reads.relation(connection, "orders")
        tx.begin(
            catalog, orders, node=NodeId("node1"), holder="me", reason="upsert into orders", lease_us=90 * SECOND_US
        )
        tx.begin(catalog, orders, node=NodeId("node1"), holder="dead", reason="load into orders", lease_us=0)
        tx.pin(catalog, Version(3), holder="reader", reason="query", lease_us=3600 * SECOND_US)
        tx.pin(catalog, Version(3), holder="gone", reason="query", lease_us=0)
        assert run(["-w", shop, "status", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [(t["holder"], t["table"]) for t in found["transactions"]] == [("me", "orders"), ("dead", "orders")]
        assert [(p["holder"], p["version"]) for p in found["pins"]] == [("reader", 3)]
        assert run(["-w", shop, "status"]) == 0
        text = capsys.readouterr().out
    assert "1 minute left" in text
    assert "ran out" in text


def test_the_last_write_survives_vacuum(shop):
    before = status.read(shop)
    with ebla.connect(shop, auto_compact=False) as db:
        db.sql("TRUNCATE TABLE orders")
        db.vacuum(retain_s=0)
    found = {t.name: t for t in status.read(shop).tables}["orders"]
    assert found.written_version == before.version + 1
    assert found.written_at is not None
    assert found.size.rows == 0


def test_text_says_where_what_and_when(shop, capsys):
    assert run(["status", "--warehouse", shop]) == 0
    text = capsys.readouterr().out
    assert f"catalog  {shop}/catalog.db" in text
    assert "delete from orders" in text
    assert f"{shop}/data" in text
    assert "<= 20" in text
    assert "open transactions: none" in text


@pytest.mark.process
def test_it_starts_no_java(shop):
    """In an environment without any program, so that Java cannot be found."""
    found = subprocess.run(
        [sys.executable, "-m", "ebla", "-w", shop, "status", "--json"],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert json.loads(found.stdout)["version"] > 0


def test_both_kinds_of_catalog(catalog_url, tmp_path, capsys):
    root = str(tmp_path / "data")
    with ebla.connect(catalog_url, storage_root=root) as db:
        db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
        db.table("t").upsert([{"id": 1}])
    assert run(["status", "-w", catalog_url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(t["table"], t["rows"], t["rows_exact"]) for t in found["tables"]] == [("t", 1, True)]
    assert found["nodes"][0]["root"] == root
    password = make_url(catalog_url).password if "://" in catalog_url else None
    assert password is None or str(password) not in found["catalog"]


def test_it_wants_an_existing_warehouse_and_makes_none(tmp_path, capsys):
    place = tmp_path / "nowhere"
    assert run(["-w", str(place), "status"]) == 3
    assert "expected an Ebla warehouse, found none" in capsys.readouterr().err
    assert not place.exists()


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 s"),
        (59_900_000, "60 s"),
        (60_000_000, "1 minute"),
        (7_200_000_000, "2 hours"),
        (90_000_000_000, "1 day"),
    ],
)
def test_spans(us, text):
    assert status.span(us) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**30, "5.0 GiB")])
def test_amounts(size, text):
    assert status.amount(size) == text
