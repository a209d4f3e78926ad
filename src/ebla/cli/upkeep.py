"""`ebla compact`, `vacuum`, `backup` and `restore`: the work, its progress, and its result as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebla.cli import progress
from ebla.cli.output import Sheet
from ebla.errors import UsageError

if TYPE_CHECKING:
    from ebla.api.database import Database
    from ebla.tables.backup import Backup


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


def backup(database: Database, place: str) -> Sheet:
    """Copy the warehouse into a directory."""
    with progress.progress_line(database, "backup"):
        done = database.backup(place)
    return _backed_up(done)


def restore(place: str, warehouse: str, roots: Sequence[str]) -> Sheet:
    """Make a warehouse of a backup; `roots`: texts name=path."""
    from ebla.api.restore import restore as restored

    named = dict(_root(text) for text in roots)
    with progress.display("restore") as tell:
        done = restored(place, warehouse, roots=named, progress=tell)
    return _backed_up(done)


def _root(text: str) -> tuple[str, str]:
    name, separator, path = text.partition("=")
    if not (separator and name and path):
        raise UsageError(f"--root: expected name=path, found {text!r}")
    return name, path


def _backed_up(done: Backup) -> Sheet:
    return Sheet(
        columns=["version", "files", "bytes", "copied"], rows=[(done.version, done.files, done.bytes, done.copied)]
    )
