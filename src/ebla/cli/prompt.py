"""The interactive prompt: statements over several lines until `;`, with history and completion.

An error is shown and the prompt goes on. Ctrl-C drops the line, or cancels the statement that runs; Ctrl-D leaves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.lexers import Lexer

from ebla.cli import failure, output, script
from ebla.errors import EblaError, SqlError
from ebla.sql.cursor import words
from ebla.sql.lex import lex, quote, split

if TYPE_CHECKING:
    from ebla.api.database import Database

PROMPT = "ebla> "
CONTINUED = "  ... "
GREETING = "Statements end with ;   \\d lists tables   \\? helps   Ctrl-D leaves"
HELP = """\
statement ;      run a statement; it may go over several lines
\\d               list the tables
\\d NAME          describe a table, or a system table as in \\d system.history
\\?               show this
\\q, exit         leave, as does Ctrl-D
Ctrl-C           drop what was typed, or cancel the statement that runs"""

LEAVING = frozenset({"\\q", "exit", "exit;", "quit", "quit;"})

KEYWORDS = sorted(
    words("""ADD ALTER AND AS ASC BETWEEN BY CASE CAST COLUMN COMMENT COMPACT COUNT CREATE DELETE DESC DESCRIBE DISTINCT
    DROP ELSE END EXISTS EXPLAIN FROM FULL GROUP HAVING IF IN INNER INSERT INTO IS JOIN KEY LEFT LIKE LIMIT LOAD
    MATCHED MERGE NOT NULL OF ON OR ORDER PRIMARY RENAME RETAIN RIGHT SELECT SET SHOW SUM TABLE TABLES THEN TIMESTAMP
    TO TRUNCATE TYPE UNION UPDATE UPSERT USING VACUUM VALUES VERSION WHEN WHERE WITH""")
)


def history_file() -> Path:
    """Where typed statements are kept: the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "ebla" / "history"


def _history() -> History:
    """The user's history; where it cannot be kept, one for this prompt only."""
    try:
        file = history_file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        return FileHistory(str(file))
    except (OSError, RuntimeError):
        return InMemoryHistory()


def is_complete(text: str) -> bool:
    """Whether Enter runs what was typed: a command, nothing at all, or statements up to a `;`."""
    line = text.strip()
    if not line or line.startswith("\\") or line.lower() in LEAVING:
        return True
    try:
        tokens = lex(text)
    except SqlError:
        return False  # a string or comment is still open
    return len(tokens) > 1 and tokens[-2].key == ";"


def loop(database: Database, parameters: Mapping[str, object], *, as_json: bool, debug: bool) -> None:
    """Read and run until the user leaves."""
    session: PromptSession[str] = PromptSession(
        history=_history(),
        lexer=_lexer(),
        multiline=Condition(lambda: not is_complete(get_app().current_buffer.text)),
        prompt_continuation=CONTINUED,
        completer=Names(database),
        complete_while_typing=False,
        enable_open_in_editor=True,
    )
    manner = failure.ErrorFormat(as_json=as_json, debug=debug)
    output.note(GREETING)
    while True:
        try:
            line = session.prompt(PROMPT).strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if line.lower() in LEAVING:
            return
        try:
            answer(database, line, parameters, as_json=as_json)
        except BrokenPipeError:
            raise
        except (Exception, KeyboardInterrupt) as error:
            if failure.was_interrupted(error):
                output.note("; ".join(["cancelled", *failure.notes(error)]))
            else:
                failure.report(error, manner)


def answer(database: Database, line: str, parameters: Mapping[str, object], *, as_json: bool) -> None:
    """Run what was typed: a command that begins with a backslash, or statements, each with its result."""
    if line.startswith("\\"):
        text = command(line)
        if text is None:
            print(HELP)
            return
        script.run(database, text, {}, as_json=as_json)
        return
    for statement in split(line):
        script.run(database, statement.text, parameters, as_json=as_json)


def command(line: str) -> str | None:
    """The statement that a backslash command stands for; `None` for help."""
    word, _, rest = line.rstrip(";").partition(" ")
    name = rest.strip()
    if word in ("\\?", "\\h"):
        return None
    if word == "\\d" and not name:
        return "SHOW TABLES"
    if word == "\\d":
        return f"DESCRIBE {'.'.join(part if part.startswith('`') else quote(part) for part in name.split('.'))}"
    raise SqlError(f"{word}: expected \\d, \\? or \\q")


class Names(Completer):
    """Keywords and the names of tables and columns, on Tab."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        word = document.get_word_before_cursor()
        if not word.strip():
            return
        for name in (*self._names(), *KEYWORDS):
            if name.lower().startswith(word.lower()):
                yield Completion(name, start_position=-len(word))

    def _names(self) -> list[str]:
        try:
            return self._database.words()
        except EblaError:
            return []


def _lexer() -> Lexer | None:
    """Colours, where a dependency brought Pygments along."""
    try:
        from prompt_toolkit.lexers import PygmentsLexer
        from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]
    except ImportError:
        return None
    return PygmentsLexer(SqlLexer)
