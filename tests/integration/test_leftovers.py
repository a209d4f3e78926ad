"""Relations come, are changed, emptied and dropped for ever, and the catalog stays as small as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ebla
from ebla.base.ids import Version
from ebla.catalog import rows, schema
from ebla.errors import SnapshotError
from ebla.model import changes as c
from ebla.relations.views import progress_name
from support.warehouse import connect, later

TABLES = ("relations", "columns", "tablets", "tablet_maps", "folds", "truncations", "guards", "progress", "runs")


@pytest.fixture
def db(catalog_url: str, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(catalog_url, storage_root=str(tmp_path / "data")) as database:
        database.sql("CREATE TABLE kept (id BIGINT, n BIGINT, PRIMARY KEY (id))")
        yield database


def sizes(db: ebla.Database) -> dict[str, int]:
    with db.context.catalog.reading() as connection:
        return {name: len(rows.find(connection, schema.metadata.tables[name])) for name in TABLES}


def position(db: ebla.Database, relation: str) -> c.Update:
    with db.context.catalog.reading() as connection:
        number = rows.one(connection, schema.relations, name=relation, dropped_version=None).relation_id  # type: ignore[union-attr]
    return c.SetProgress(name=progress_name(number), value="{}")


def test_what_came_and_went_leaves_nothing_in_the_catalog(db: ebla.Database) -> None:
    def day(name: str) -> dict[str, int]:
        for _ in range(3):
            db.sql(f"CREATE TABLE {name} (id BIGINT, PRIMARY KEY (id))")
            db.table(name).upsert([{"id": 1}])
            db.context.catalog.commit(c.Decision(reason="an epoch", updates=(position(db, name),)))
            db.sql(f"TRUNCATE TABLE {name}; ALTER TABLE kept ADD COLUMN more INT; ALTER TABLE kept DROP COLUMN more")
            db.table("kept").upsert([{"id": 1, "n": 1}])
            db.sql(f"TRUNCATE TABLE kept; TRUNCATE TABLE kept; DROP TABLE {name}")
        later(db)
        db.vacuum(retain_s=0)
        return sizes(db)

    first = day("one")
    assert first["relations"] == first["tablet_maps"] == first["truncations"] == 1
    assert first["runs"] == first["progress"] == first["folds"] == 0
    second = day("two")
    assert {name: second[name] - first[name] for name in TABLES if second[name] != first[name]} == {
        "columns": 3  # of columns that were dropped: their names in files are never given away again
    }
    with pytest.raises(SnapshotError, match="older rows were vacuumed"):
        db.sql("SELECT * FROM kept VERSION AS OF 2").rows()


def test_a_pinned_version_keeps_what_it_needs(db: ebla.Database) -> None:
    needed = ("columns", "truncations", "runs")
    db.table("kept").upsert([{"id": 1, "n": 7}])
    hold = db.pins.hold(Version(db.version), "a reader")
    db.sql("ALTER TABLE kept ADD COLUMN more INT; TRUNCATE TABLE kept; TRUNCATE TABLE kept")
    before = sizes(db)
    db.vacuum(retain_s=0)
    assert {name: sizes(db)[name] for name in needed} == {name: before[name] for name in needed}
    hold.release()
    db.vacuum(retain_s=0)
    after = sizes(db)
    assert (after["truncations"], after["runs"], after["columns"]) == (1, 0, before["columns"] - 2)
