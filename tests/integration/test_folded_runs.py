"""Level 0 runs that are folded in all their tablets and have not ended, as a tablet map that changed leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ebla
from ebla.catalog import manifest, reads
from ebla.model import changes as c
from ebla.model.tablets import token_range
from ebla.tables.compaction import compact
from support.catalogs import commit
from support.warehouse import connect, later, named, shown, stored


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "w", tablets=2) as database:
        database.sql("CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id))")
        yield database


def test_a_compaction_with_nothing_else_to_do_ends_them(db: ebla.Database) -> None:
    db.table("t").upsert([{"id": 1, "n": 1}])
    db.table("t").delete([{"id": 1}])
    catalog = db.context.catalog
    with catalog.reading() as connection:
        table = reads.relation(connection, "t")
        runs = reads.snapshot(connection, table).level0
    assert {run.tablet for run in runs} <= {0, 1}
    folded = c.SetCutoff(relation=table.id, tablets=(token_range(runs[0].tablet, 2),), cutoff=catalog.version())
    commit(catalog, folded)
    assert compact(db.context, "t").folded_runs == 2
    with catalog.reading() as connection:
        assert manifest.levels(connection, table).level0_runs == 0
    assert not shown(db, "t")
    assert compact(db.context, "t").version is None
    later(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db) == set()
