"""A node's API on a port of its own, in this process and without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import ebla
from ebla.server.app import create_app
from ebla.server.listener import Address, Listener
from ebla.server.options import Options
from support.warehouse import connect

ANSWER_S = 150
"""How long a test waits for an answer at most, on however busy a machine."""
Node = Callable[..., str]
"""Serves the warehouse with some options of the node; returns its address."""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", auto_refresh=False) as opened:
        yield opened


@pytest.fixture
def node(db: ebla.Database) -> Iterator[Node]:
    with ExitStack() as stack:

        def serve(**options: Any) -> str:
            app = create_app(db, Options(**options))
            return stack.enter_context(Listener(app, Address(port=0))).url

        yield serve


@pytest.fixture
def client(node: Node) -> Iterator[httpx.Client]:
    """Of a node that asks for no token."""
    with httpx.Client(base_url=node(users=False), timeout=ANSWER_S) as opened:
        yield opened


@pytest.fixture
def tokens(db: ebla.Database) -> dict[str, str]:
    """Tokens of an admin, a writer and a reader, by the names of their roles."""
    return {role: db.sql(f"CREATE USER the_{role} ROLE {role}").one()[2] for role in ("admin", "writer", "reader")}


class Caller:
    """Sends requests as one user."""

    def __init__(self, url: str, token: str | None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=ANSWER_S)

    def sql(self, text: str, **given: Any) -> httpx.Response:
        return self.http.post("/v1/sql", json={"sql": text}, **given)


@pytest.fixture
def caller() -> Iterator[Callable[[str, str | None], Caller]]:
    made: list[Caller] = []

    def make(url: str, token: str | None) -> Caller:
        made.append(Caller(url, token))
        return made[-1]

    yield make
    for one in made:
        one.http.close()
