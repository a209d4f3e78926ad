"""`ADD COLUMN … DEFAULT` while rows come: no row that is there, or comes, holds NULL in place of the default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ebla
from ebla.base.failpoint import hit
from ebla.errors import UsageError
from ebla.tables import reshape

ADD = "ALTER TABLE t ADD COLUMN note STRING DEFAULT 'none'"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(str(tmp_path / "w"), auto_compact=False) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        yield db
        assert not db.context.has_spark


def once(act: Callable[[], object]) -> Callable[[], None]:
    left = [act]

    def do() -> None:
        if left:
            left.pop()()

    return do


def test_rows_that_come_after_the_look_refuse_the_default(db: ebla.Database, monkeypatch: pytest.MonkeyPatch):
    wait, insert = reshape.barrier, once(lambda: db.sql("INSERT INTO t VALUES (1)"))

    def waiting(*arguments: object) -> None:
        insert()
        wait(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(reshape, "barrier", waiting)
    with pytest.raises(UsageError, match="expected an added column without DEFAULT, found 'none' for"):
        db.sql(ADD)
    assert db.query("t").rows() == [(1,)]


def test_a_write_that_was_planned_without_the_column_is_planned_again(
    db: ebla.Database, monkeypatch: pytest.MonkeyPatch
):
    alter = once(lambda: db.sql(ADD))

    def hitting(name: str) -> None:
        if name == "write.files_written":
            alter()
        hit(name)

    monkeypatch.setattr("ebla.tables.writes.hit", hitting)
    db.sql("INSERT INTO t (id) VALUES (1)")
    db.table("t").upsert([{"id": 2}])
    assert sorted(db.query("t").rows()) == [(1, "none"), (2, "none")]


def test_a_column_that_is_there_needs_no_default(db: ebla.Database):
    db.sql("ALTER TABLE t ADD COLUMN note STRING; INSERT INTO t VALUES (1, 'a')")
    db.sql(ADD.replace("COLUMN", "COLUMN IF NOT EXISTS"))
    assert db.query("t").rows() == [(1, "a")]
