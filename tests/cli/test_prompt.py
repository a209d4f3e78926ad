"""The interactive prompt: its rules, and one real session on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

import ebla
from ebla.cli import prompt
from ebla.errors import SqlError
from support.terminal import Terminal


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("\\d", True),
        ("\\d t", True),
        ("exit", True),
        ("QUIT", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT 1; SELECT", False),
        ("SELECT ';", False),
        ("SELECT ';'", False),
        ("SELECT 1 /* ;", False),
        (";", True),
        ("-- a comment", False),
    ],
)
def test_enter_runs_only_what_is_complete(text, complete):
    assert prompt.is_complete(text) is complete


@pytest.mark.parametrize(
    ("line", "statement"),
    [
        ("\\d", "SHOW TABLES"),
        ("\\d;", "SHOW TABLES"),
        ("\\d orders", "DESCRIBE `orders`"),
        ("\\d  system.runs ;", "DESCRIBE `system`.`runs`"),
        ("\\d `a``b`", "DESCRIBE `a``b`"),
        ("\\?", None),
    ],
)
def test_commands_stand_for_statements(line, statement):
    assert prompt.command(line) == statement


def test_an_unknown_command_is_an_error():
    with pytest.raises(SqlError, match=r"expected \\d, "):
        prompt.command("\\x")


def test_the_history_lies_in_the_state_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert prompt.history_file() == tmp_path / "ebla" / "history"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert prompt.history_file() == tmp_path / ".local" / "state" / "ebla" / "history"


def test_tab_completes_keywords_tables_and_columns(tmp_path):
    with ebla.connect(str(tmp_path / "w")) as db:
        db.sql("CREATE TABLE selections (sequel BIGINT)")
        document = Document("select * from se")
        found = [c.text for c in prompt.Names(db).get_completions(document, CompleteEvent())]
    assert found == ["selections", "sequel", "SELECT", "SET"]


# ---- on a terminal --------------------------------------------------------------------------------------


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    environment = os.environ | {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    started = Terminal([sys.executable, "-m", "ebla", "-w", str(tmp_path / "shop"), "sql"], environment)
    yield started
    started.close()


@pytest.mark.process
def test_a_session(terminal, tmp_path):
    """Create, describe, make a mistake, drop a line, leave. Nothing of it needs Spark."""
    terminal.wait_for("created the warehouse")
    terminal.wait_for("ebla>")
    terminal.type("CREATE TABLE orders (\r")
    terminal.wait_for("...")
    terminal.type("id BIGINT, PRIMARY KEY (id));\r")
    terminal.wait_for("done in")
    terminal.wait_for("ebla>")
    terminal.type("\\d\r")
    assert "orders" in terminal.wait_for("1 row in")
    terminal.wait_for("ebla>")
    terminal.type("\\d orders\r")
    assert "bigint" in terminal.wait_for("1 row in")
    terminal.wait_for("ebla>")
    terminal.type("\\d nope\r")
    terminal.wait_for("error: table nope: expected a table of this name")
    terminal.wait_for("ebla>")
    terminal.type("DROP TABLE orders\x03")
    terminal.wait_for("ebla>")
    terminal.type("SHOW TABLES; DESCRIBE orders;\r")
    assert "orders" in terminal.wait_for("1 row in")
    assert "bigint" in terminal.wait_for("1 row in")
    terminal.wait_for("ebla>")
    terminal.type("\x04")
    assert terminal.wait() == 0
    history = (tmp_path / "state" / "ebla" / "history").read_text(encoding="utf-8")
    assert "+CREATE TABLE orders (\n" in history
    assert "DROP" not in history
