"""A catalog that a newer release has migrated by one step: processes of this release go on, and none is started."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from ebla.catalog import migrations
from ebla.catalog import schema as s
from ebla.catalog.migrations import MIGRATIONS, Migration
from ebla.catalog.store import Catalog
from ebla.errors import CatalogError
from support import catalog_tasks as tasks
from support.catalogs import NODE, Clock, dump
from support.warehouse import connect, rows

OWN = ("meta", "migrations")


def _add_to_every_table(connection: Connection) -> None:
    """What a migration may do that leaves the catalog as the release before reads and writes it."""
    for table in s.metadata.sorted_tables:
        connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN may_be_null BIGINT"))
        connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN has_default TEXT NOT NULL DEFAULT 'unknown'"))
    connection.execute(text("CREATE TABLE of_the_next_release (id BIGINT PRIMARY KEY, note TEXT)"))
    connection.execute(text("INSERT INTO of_the_next_release VALUES (1, 'new')"))


NEXT = Migration(number=MIGRATIONS[-1].number + 1, name="of the next release", run=_add_to_every_table)


def migrate(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first process of the next release does when it starts."""
    with monkeypatch.context() as newer:
        newer.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, NEXT))
        Catalog.open(url, create=False).close()


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[Catalog]:
    """A catalog to which the same is done, and which no newer release has met."""
    with contextlib.closing(Catalog.open(str(tmp_path / "twin"), clock=Clock())) as catalog:
        yield catalog


def test_an_open_catalog_is_read_and_written_on(catalog_url: str, twin: Catalog, monkeypatch: pytest.MonkeyPatch):
    with contextlib.closing(Catalog.open(catalog_url, clock=Clock())) as catalog:
        migrate(catalog_url, monkeypatch)
        for one in (catalog, twin):
            tasks.prepare(one)
            one.commit(tasks.every_update(one), node=NODE)
        assert dump(catalog, without=OWN) == dump(twin, without=OWN)


def test_an_open_warehouse_is_read_and_written_on(catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with connect(catalog_url, storage_root=str(tmp_path / "root"), auto_refresh=False) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, n INT); CREATE INDEX by_n ON t (n)")
        db.table("t").upsert([{"id": number, "n": number} for number in range(10)])
        then = db.version
        migrate(catalog_url, monkeypatch)
        db.table("t").upsert([{"id": number, "n": -number} for number in range(5, 15)])
        db.sql("ALTER TABLE t ADD COLUMN word STRING; CREATE TABLE u (id INT); CREATE USER ada ROLE reader")
        db.sql("INSERT INTO t VALUES (15, 0, 'new'); DELETE FROM t WHERE id = 1; DROP TABLE u")
        wanted = [(0, 0), (2, 2), (3, 3), (4, 4), *((number, -number) for number in range(5, 15)), (15, 0)]
        assert sorted(db.query("t", columns=["id", "n"]).rows()) == wanted
        assert db.query("t", where={"n": -14}, columns=["id"]).rows() == [(14,)]
        assert db.query("t", where={"n": 0}, order_by="id", columns=["id", "word"]).rows() == [(0, None), (15, "new")]
        assert rows(db, f"SELECT count(*) FROM system.history WHERE version > {then}") == [(db.version - then,)]
        db.vacuum(retain_s=0)


def test_a_process_that_starts_is_told_to_be_upgraded(
    catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    Catalog.open(catalog_url).close()
    migrate(catalog_url, monkeypatch)
    number = MIGRATIONS[-1].number
    says = f"expected a catalog of schema {number} or older, found {number + 1}; it was written by a newer release"
    with pytest.raises(CatalogError, match=f"{says} of Ebla: upgrade this one"):
        connect(catalog_url, storage_root=str(tmp_path / "root"))
