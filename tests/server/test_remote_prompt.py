"""A person at a cluster: the prompt over HTTP, and how far a statement is."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ebla
from ebla.base import user_requests
from ebla.tables import writes
from support.terminal import Terminal

Make = Callable[..., Any]


@pytest.fixture
def terminal(node: Make, tokens: dict[str, str], tmp_path: Path) -> Iterator[Terminal]:
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "EBLA_TOKEN": tokens["writer"],
        "JAVA_HOME": str(tmp_path),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    started = Terminal([sys.executable, "-m", "ebla", "-w", node(), "sql"], environment)
    yield started
    started.close()


@pytest.mark.process
def test_a_session_over_http(terminal: Terminal, db: ebla.Database):
    terminal.wait_for("ebla>")
    terminal.type("CREATE TABLE orders (\r")
    terminal.wait_for("...")
    terminal.type("id BIGINT, PRIMARY KEY (id));\r")
    terminal.wait_for("done in")
    terminal.wait_for("ebla>")
    terminal.type("INSERT INTO orders VALUES (7);\r")
    terminal.wait_for("ebla>")
    terminal.type("\\d\r")
    assert "orders" in terminal.wait_for("1 row in")
    terminal.wait_for("ebla>")
    terminal.type("DROP USER the_admin;\r")
    terminal.wait_for("error: user the_writer: expected the role admin")
    terminal.wait_for("ebla>")
    terminal.type("\x04")
    assert terminal.wait() == 0
    assert db.query("orders").rows() == [(7,)]


def test_a_client_is_told_how_far_its_statement_is(node: Make, db: ebla.Database, monkeypatch: pytest.MonkeyPatch):
    db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
    heard, told = threading.Event(), list[tuple[str, float | None]]()

    def hear(doing: str, part: float | None) -> None:
        told.append((doing, part))
        heard.set()

    def work(name: str) -> None:
        if name == "write.files_written":
            user_requests.tell("half of it", 0.5)
            assert heard.wait(150), "the client heard nothing while its statement ran"

    monkeypatch.setattr(writes, "hit", work)
    with ebla.connect(node(users=False)) as remote, remote.telling(hear):
        remote.sql("INSERT INTO t VALUES (1)")
    assert told[0] == ("half of it", 0.5)
