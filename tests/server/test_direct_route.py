"""The route that resolves no parameters: it takes and refuses what FastAPI would, and is described in the same way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

import ebla
from ebla.server.app import create_app
from ebla.server.direct_route import DirectRoute
from ebla.server.listener import Address, Listener
from ebla.server.options import Options

JSON = "application/json"


@pytest.fixture
def resolved(db: ebla.Database) -> Iterator[httpx.Client]:
    """Of a node whose routes are all FastAPI's own."""
    taken: list[str] = []

    def handler(route: DirectRoute) -> Any:
        taken.append(route.path)
        return APIRoute.get_route_handler(route)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DirectRoute, "get_route_handler", handler)
        app = create_app(db, Options(users=False))  # which asks for the handlers of routes, and keeps them
    assert taken == ["/v1/query"]
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(Listener(app, Address(port=0)))
        yield stack.enter_context(httpx.Client(base_url=listener.url, timeout=150))


BODIES = [
    (b'{"relation": "t"}', JSON),
    (b'{"relation": "t"}', None),
    (b'{"relation": "t"}', "application/problem+json; charset=utf-8"),
    (b'{"relation": "t", "limit": "2", "explain": 0}', "Application/JSON"),
    (b'{"relation": "t"}', "text/plain"),
    (b'{"relation": "t"}', "application/octet-stream"),
    (b'{"relation": 7, "limit": 0, "more": 1, "wait_s": -1}', JSON),
    (b'{"limit": 5}', JSON),
    (b'[{"relation": "t"}]', JSON),
    (b"null", JSON),
    (b"", JSON),
    (b'{"relation": ', JSON),
    (b'{"relation": "t"} x', JSON),
    (b'"\xff"', JSON),
    (b"[" * 100_000, JSON),
    (b'{"relation": "nothing"}', JSON),
    (b'{"relation": "t", "where": {"id": {"near": 1}}}', JSON),
]


@pytest.mark.parametrize(("content", "kind"), BODIES)
def test_it_takes_and_refuses_what_fastapi_does(
    db: ebla.Database, client: httpx.Client, resolved: httpx.Client, content: bytes, kind: str | None
):
    db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id)); INSERT INTO t VALUES (1)")
    headers = {"Ebla-Request": "same", **({} if kind is None else {"Content-Type": kind})}

    def ask(one: httpx.Client) -> tuple[int, str, Any]:
        found = one.post("/v1/query", content=content, headers=headers)
        return found.status_code, found.headers["content-type"], found.json()

    assert ask(client) == ask(resolved)


def test_it_is_described_as_fastapi_describes_it(client: httpx.Client, resolved: httpx.Client):
    ours, theirs = (one.get("/openapi.json").json()["paths"]["/v1/query"] for one in (client, resolved))
    assert ours == theirs
    assert ours["post"]["requestBody"]["content"][JSON]["schema"] == {"$ref": "#/components/schemas/QueryBody"}


def test_an_answer_is_in_the_form_that_the_client_accepts(db: ebla.Database, client: httpx.Client):
    db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id)); INSERT INTO t VALUES (1)")
    found = client.post("/v1/query", json={"relation": "t"}, headers={"Accept": "text/csv"})
    assert (found.headers["content-type"].partition(";")[0], found.text) == ("text/csv", '"id"\n1\n')
