"""`ebla compact` and `ebla vacuum`: the work, its progress, and its result as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebla.cli import progress
from ebla.cli.output import Sheet

if TYPE_CHECKING:
    from ebla.api.database import Database


def compact(database: Database, table: str | None) -> Sheet:
    """Fold the level 0 of one table, or of every one in turn."""
    names = database.tables() if table is None else [table]
    rows = []
    with progress.progress_line(database, "compacting") as tell:
        for number, name in enumerate(names):
            tell(f"compacting {name}", number / len(names) if len(names) > 1 else None)
            done = database.compact(name)
            rows.append((done.relation, done.tablets, done.folded_runs, done.version))
    return Sheet(columns=["relation", "tablets", "folded_runs", "version"], rows=rows)


def vacuum(database: Database, table: str | None, *, retain_s: float | None) -> Sheet:
    """Forget old versions of one table, or of all."""
    with progress.progress_line(database, "vacuum"):
        done = database.vacuum(table, retain_s=retain_s)
    return Sheet(
        columns=["horizon", "files", "bytes", "orphans"],
        rows=[(done.horizon, done.files, done.bytes, done.orphans)],
    )
