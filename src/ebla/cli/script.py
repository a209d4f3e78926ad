"""Which statements `ebla sql` runs, and running them."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ebla.cli import output, progress
from ebla.errors import UsageError
from ebla.sql.lex import split
from ebla.sql.parse import parse
from ebla.sql.statements import CreateIndex, CreateTable, CreateView

if TYPE_CHECKING:
    from ebla.api.database import Database


def read(text: str | None, file: str | None) -> str | None:
    """The statements to run: the argument, a file, or standard input; `None` is for the prompt."""
    if text is not None and file is not None:
        raise UsageError("expected either statements or --file, found both")
    if text == "-":
        text, file = None, "-"
    if text is not None:
        return text
    if file is not None and file != "-":
        return read_file(file, f"--file {file}")
    if file == "-" or not sys.stdin.isatty():
        return sys.stdin.read()
    return None


def read_file(file: str, what: str) -> str:
    """The text of a file; `what` names it in messages."""
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise UsageError(f"{what}: expected a readable file, found: {reason}") from error


def creates_tables(text: str) -> bool:
    """Whether a script may begin a new warehouse. Also refuses what does not parse, before anything is opened."""
    statements = [parse(part) for part in split(text)]
    if not statements:
        raise UsageError("expected a statement, found none; try: ebla sql 'SHOW TABLES'")
    return any(isinstance(s, CreateTable) for s in statements)


def run(database: Database, text: str, parameters: Mapping[str, object], *, as_json: bool) -> None:
    """Run statements and show the last one's rows, with their number and the time it took beside them."""
    began = time.perf_counter()
    with progress.progress_line(database, "running"), database.statement():
        sheet = output.Sheet.of(database.sql(text, **parameters))
    seconds = time.perf_counter() - began
    notes = unmaintained(database, text)
    if as_json:
        output.write_json({**output.sheet_json(sheet), **({"notes": notes} if notes else {})})
        return
    output.show(sheet, as_json=False)
    for one in notes:
        output.remark(one)
    output.note(output.summary(sheet, seconds))


def unmaintained(database: Database, text: str) -> list[str]:
    """What the statements created and no process but this one, which ends, keeps up to date or builds."""
    if database.is_remote:
        return []
    created = [s for s in map(parse, split(text)) if isinstance(s, CreateView | CreateIndex)]
    if not created:
        return []
    from ebla.catalog import processes

    catalog = database.context.catalog
    with catalog.reading() as connection:
        alive = processes.alive(connection, catalog.clock())
    if any(process.maintains and process.holder != database.context.holder for process in alive):
        return []
    return [note for statement in created if (note := _unmaintained(statement)) is not None]


def _unmaintained(statement: CreateView | CreateIndex) -> str | None:
    name = statement.name
    if isinstance(statement, CreateIndex):
        if not statement.asynchronous:
            return None  # it is built, and writers keep it
        return f"no process builds index {name}; start ebla run"
    if statement.asynchronous:
        return f"no process builds view {name} and keeps it up to date; start ebla run"
    return f"no process keeps view {name} up to date; start ebla run, or bring it up to date with FLUSH {name}"


def settle(database: Database) -> None:
    """Let a compaction that the statements made due finish: a process that ends cannot do it later."""
    if database.is_remote:
        return
    with progress.progress_line(database, "finishing"):
        database.background.compactor.wait_idle()
