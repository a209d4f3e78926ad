"""Keys of megabytes: the catalog stays small, and every row is found."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

import ebla
from ebla.base.ids import RelationId, Version
from ebla.catalog import reads
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.storage import runs as rf
from ebla.values import bounds

BOUNDS = select(s.runs.c.key_min, s.runs.c.key_max)
MEGABYTES_10 = 10 * 2**20
CATALOG_BYTES_MAX = 4 * 2**20
"""With the log that is not folded into the file yet."""


def size_of(warehouse: Path) -> int:
    return sum(file.stat().st_size for file in warehouse.glob("catalog.db*"))


def test_long_keys_leave_the_catalog_small(tmp_path: Path):
    long = "x" * MEGABYTES_10
    with ebla.connect(str(tmp_path / "w"), auto_compact=False) as db:
        db.sql("CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id)); CREATE INDEX by_name ON t (name DESC)")
        db.sql("CREATE TABLE u (name STRING, raw BINARY, PRIMARY KEY (name, raw))")
        for n in range(4):
            db.table("t").upsert([{"id": n, "name": f"{long}{n}"}])
        db.table("u").upsert([{"name": f"{long}{n}", "raw": b"\xff" * 100} for n in range(2)])
        assert size_of(tmp_path / "w") < CATALOG_BYTES_MAX
        assert [row[0] for row in db.query("t", where={"name": f"{long}2"}).rows()] == [2]
        assert [row[0] for row in db.query("t", order_by="-name", columns=["id"]).rows()] == [3, 2, 1, 0]
        assert db.query("u", where={"name": f"{long}1"}, columns=["raw"]).rows() == [(b"\xff" * 100,)]
        checked = db.sql("CHECK TABLE t").rows()
        assert checked[0][5:7] == (0, 0)
        told = db.context.catalog.read(lambda connection: connection.execute(BOUNDS).all())
        assert all(len(bound or "") <= bounds.BOUND_CHARS for row in told for bound in row)


def test_a_message_shows_the_beginning_of_a_long_key(tmp_path: Path):
    with ebla.connect(str(tmp_path / "w")) as db:
        db.sql("CREATE TABLE u (name STRING, PRIMARY KEY (name))")
        relation = db.context.catalog.read(lambda connection: reads.relation(connection, "u"))
    said = rf.show_key(relation, ["x" * MEGABYTES_10])
    assert said.startswith("name = 'xxx")
    assert said.endswith(f"x… ({MEGABYTES_10 + 2} characters)")
    assert len(said) < 300


def test_a_long_key_of_a_dictionary_is_noted(catalog_url: str):
    """PostgreSQL refuses to index long texts."""
    catalog = Catalog.open(catalog_url)
    keys = [f'["{"x" * 100_000}{n}"]' for n in range(2)]
    logged = tuple(
        c.DictionaryChange(relation=RelationId(1), version=Version(1), key=key, columns=("a",)) for key in keys
    )
    catalog.commit(c.Decision(reason="gather", updates=(c.LogDictionaryChanges(changes=logged),)))
    with catalog.reading() as connection:
        found = connection.execute(s.mv_dictionary_changes.select()).all()
    assert len({row.row_key for row in found}) == 2
    assert all(len(row.row_key) < 500 for row in found)
    catalog.close()
