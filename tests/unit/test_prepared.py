"""What a query reads of the catalog again, and what it keeps: as little as a commit leaves it, and never too much."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import ebla
from ebla.base.caches import CacheName
from ebla.tables import tiers
from support.catalogs import statements
from support.folding import fold


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(str(tmp_path), auto_compact=False) as opened:
        for name in ("orders", "other"):
            opened.sql(f"CREATE TABLE {name} (id INT, note STRING, PRIMARY KEY (id)) WITH (tablets = 2)")
            opened.table(name).upsert([{"id": n, "note": "first"} for n in range(4)])
        yield opened


def notes(db: ebla.Database) -> list[str]:
    return [note for (note,) in db.query("orders", columns=["note"], order_by="id").rows()]


def sent(db: ebla.Database) -> int:
    with statements(db.context.catalog, of_this_thread=True) as found:
        notes(db)
    return len(found)


def test_a_commit_to_another_table_costs_no_statement_more(db: ebla.Database):
    notes(db)
    assert sent(db) == 1, "the counters, which say that nothing has changed"
    db.table("other").upsert([{"id": 1, "note": "second"}])
    assert sent(db) == 1
    db.table("orders").upsert([{"id": 1, "note": "second"}])
    assert sent(db) > 1
    assert notes(db) == ["first", "second", "first", "first"]


def test_commits_of_other_processes_are_seen(db: ebla.Database, tmp_path: Path):
    with contextlib.closing(ebla.connect(str(tmp_path), auto_compact=False)) as elsewhere:
        for number in range(4):
            notes(db)
            db.table("other").upsert([{"id": 1, "note": f"{number}"}])
            elsewhere.table("orders").upsert([{"id": number, "note": "elsewhere"}])
            db.table("other").upsert([{"id": 1, "note": f"{number}"}])
            assert notes(db) == ["elsewhere"] * (number + 1) + ["first"] * (3 - number)


def test_a_change_of_the_table_itself_is_seen(db: ebla.Database):
    notes(db)
    db.sql("ALTER TABLE orders RENAME COLUMN note TO text")
    with pytest.raises(ebla.UsageError, match="note"):
        notes(db)
    assert db.query("orders", columns=["text"], order_by="id").rows()[0] == ("first",)
    db.sql("TRUNCATE TABLE orders")
    assert db.query("orders").rows() == []


def test_what_queries_ask_for_is_prepared_behind_a_change_once(db: ebla.Database):
    layers = db.context.storage.caches.cache(CacheName.LAYERS)
    notes(db)
    db.table("orders").upsert([{"id": 1, "note": "second"}])
    with statements(db.context.catalog, of_this_thread=True) as found:
        db.reader.prepare()
        assert found
    made = layers.usage.entries
    assert sent(db) == 1
    assert (layers.usage.entries, notes(db)) == (made, ["first", "second", "first", "first"])
    db.reader.prepare()
    with statements(db.context.catalog, of_this_thread=True) as found:
        db.reader.prepare()
        assert not found, "no query has asked since"


def test_behind_a_fold_a_query_finds_the_columns_that_it_had(db: ebla.Database):
    columns = db.context.storage.caches.cache(CacheName.COLUMNS)
    fold(db, "orders")
    notes(db)
    db.table("orders").upsert([{"id": n, "note": "second"} for n in range(4)])
    fold(db, "orders")
    missed = columns.usage.misses
    assert notes(db) == ["second"] * 4
    assert columns.usage.misses == missed


def test_behind_a_merge_of_level_0_a_query_reads_no_run(db: ebla.Database):
    layers = db.context.storage.caches.cache(CacheName.LAYERS)
    for number in range(6):
        db.table("orders").upsert([{"id": number % 4, "note": f"{number}"}])
    notes(db)
    decoded = db.context.storage.caches.cache(CacheName.LEVEL0).usage.misses
    assert tiers.merge(db.context, "orders") > 0
    made = layers.usage.misses
    assert notes(db) == ["4", "5", "2", "3"]
    assert layers.usage.misses - made <= 1, "the layer of the merged run is there"
    assert db.context.storage.caches.cache(CacheName.LEVEL0).usage.misses - decoded <= 1
