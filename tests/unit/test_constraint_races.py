"""Two statements that add one constraint at a time: neither may say that it is there when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

import ebla
from ebla.tables import constraint_ddl

ADD = "ALTER TABLE t ADD CONSTRAINT pos CHECK (x > 0)"


def meanwhile(db: ebla.Database, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Run a statement while the next one looks at the rows that are there."""
    look = constraint_ddl._refuse_old

    def looking(*arguments: object) -> None:
        monkeypatch.setattr(constraint_ddl, "_refuse_old", look)
        db.sql(statement)
        look(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(constraint_ddl, "_refuse_old", looking)


def test_a_constraint_that_was_dropped_meanwhile_is_not_reported_as_added(tmp_path: Path, monkeypatch):
    with ebla.connect(str(tmp_path / "w")) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, x INT)")
        meanwhile(db, monkeypatch, "ALTER TABLE t DROP CONSTRAINT pos")
        with pytest.raises(ebla.ConflictError, match="another statement removed it"):
            db.sql(ADD)


def test_a_statement_that_is_cancelled_leaves_the_constraint_of_another(tmp_path: Path, monkeypatch):
    with ebla.connect(str(tmp_path / "w")) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, x INT)")
        look = constraint_ddl._refuse_old

        def cancelled(*arguments: object) -> None:
            raise KeyboardInterrupt

        def looking(*arguments: object) -> None:
            monkeypatch.setattr(constraint_ddl, "_refuse_old", cancelled)
            with pytest.raises(KeyboardInterrupt):
                db.sql(ADD)
            monkeypatch.setattr(constraint_ddl, "_refuse_old", look)
            look(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(constraint_ddl, "_refuse_old", looking)
        db.sql(ADD)
        with pytest.raises(ebla.ConstraintError, match="pos"):
            db.sql("INSERT INTO t VALUES (1, -5)")
