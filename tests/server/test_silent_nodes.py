"""A node that says nothing at all is left for another one; one that is only slow is waited for."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest

import ebla
from ebla.catalog import store
from ebla.demo.cluster.story import started
from ebla.remote import liveness
from ebla.remote.liveness import Liveness, NodeTransport
from ebla.server.app import create_app
from ebla.server.listener import Address, Listener
from ebla.server.options import Options
from support.certificates import make_certificate
from support.clusters import sql

Make = Callable[..., Any]
SLOW_S = 120.0
"""Longer than a busy machine takes for anything here."""


@pytest.fixture
def silent() -> Iterator[str]:
    """The kernel accepts connections; no process answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def watched(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each question whether a node lives was answered with. Clients ask often."""
    found = list[bool]()
    real = Liveness.answers

    def answers(self: Liveness, node: liveness.Address) -> bool:
        found.append(real(self, node))
        return found[-1]

    monkeypatch.setattr(liveness, "ASK_S", 0.05)
    monkeypatch.setattr(liveness, "LIVE_S", 1.0)
    monkeypatch.setattr(Liveness, "answers", answers)
    return found


def test_the_next_node_is_asked_where_one_is_silent(node: Make, silent: str, monkeypatch: pytest.MonkeyPatch):
    asked = watched(monkeypatch)
    with ebla.connect(f"{silent},{node(users=False)}", node_silence_s=2, catalog_retry_s=SLOW_S) as remote:
        assert remote.tables() == []
    assert asked
    assert not asked[0]


def test_a_body_that_no_node_reads_is_sent_to_the_next(
    node: Make, db: ebla.Database, silent: str, monkeypatch: pytest.MonkeyPatch
):
    """It is larger than what the kernel keeps, so the client waits as it sends."""
    watched(monkeypatch)
    db.sql("CREATE TABLE t (id BIGINT, word STRING, PRIMARY KEY (id))")
    big = [{"id": number, "word": "x" * 1_000_000} for number in range(16)]
    with ebla.connect(f"{silent},{node(users=False)}", node_silence_s=2, catalog_retry_s=SLOW_S) as remote:
        assert remote.table("t").upsert(big).rows == 16
    assert db.sql("SELECT id FROM t WHERE id >= 0 ORDER BY id LIMIT 100").rows() == [(one,) for one in range(16)]


def test_an_error_says_that_no_node_answers(silent: str, monkeypatch: pytest.MonkeyPatch):
    watched(monkeypatch)
    with (
        ebla.connect(silent, node_silence_s=0.3, catalog_retry_s=0) as remote,
        pytest.raises(ebla.NodeUnavailableError, match=r"no answer for 0\.3 s, nor one to /health/live"),
    ):
        remote.tables()


def test_a_node_that_is_only_slow_is_waited_for(node: Make, db: ebla.Database, monkeypatch: pytest.MonkeyPatch):
    """There is no other address: to leave this one would be an error."""
    asked = watched(monkeypatch)
    monkeypatch.setattr(liveness, "LIVE_S", SLOW_S)
    db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
    enough = threading.Event()

    def wait(name: str) -> None:
        if name == "catalog.commit.done":
            while sum(asked) < 3:
                assert not enough.wait(0.01)

    monkeypatch.setattr(store, "hit", wait)
    with ebla.connect(node(users=False), node_silence_s=SLOW_S, catalog_retry_s=0) as remote:
        assert remote.sql("INSERT INTO t VALUES (1)").one() == (1, db.version)
    assert asked[:3] == [True, True, True]


def test_over_tls_it_is_waited_for_too(db: ebla.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The node reads no body for a while, and then gives no answer for a while."""
    asked = watched(monkeypatch)
    monkeypatch.setattr(liveness, "LIVE_S", SLOW_S)
    db.sql("CREATE TABLE t (id BIGINT, word STRING, PRIMARY KEY (id))")
    enough = threading.Event()
    app = create_app(db, Options(users=False))

    def questions(number: int) -> bool:
        return sum(asked) >= number

    async def late(scope: Any, receive: Any, send: Any) -> None:
        while scope.get("method") == "POST" and not questions(2):
            await asyncio.sleep(0.01)
        await app(scope, receive, send)

    def wait(name: str) -> None:
        if name == "catalog.commit.done":
            while not questions(5):
                assert not enough.wait(0.01)

    cert, key = make_certificate(tmp_path)
    address = Address(port=0, tls_cert=str(cert), tls_key=str(key))
    big = [{"id": number, "word": "x" * 1_000_000} for number in range(16)]
    with Listener(late, address) as listener:
        given: dict[str, Any] = {"ca_file": str(cert), "node_silence_s": SLOW_S, "catalog_retry_s": 0}
        with ebla.connect(listener.url, **given) as remote:
            monkeypatch.setattr(store, "hit", wait)
            assert remote.table("t").upsert(big).rows == 16
    assert db.sql("SELECT id FROM t WHERE id >= 0 ORDER BY id LIMIT 100").rows() == [(one,) for one in range(16)]


def test_each_answer_starts_the_time_anew(monkeypatch: pytest.MonkeyPatch):
    clock, lives = iter((10.0, 40.0, 70.0, 75.0, 99.9, 100.0, 100.0)), iter([True] * 3 + [False] * 4)
    monkeypatch.setattr(Liveness, "answers", lambda self, node: next(lives))
    watch = Liveness(["http://a:1"], ssl.create_default_context(), 30.0, clock=lambda: next(clock))
    for _ in range(5):
        watch.require(("a", 1), since=0.0)
    with pytest.raises(httpcore.ReadTimeout, match="no answer for 30 s"):
        watch.require(("a", 1), since=0.0)
    watch.require(("a", 1), since=90.0)  # of another request, which has not waited for as long


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://a:7601", ("a", 7601)),
        ("http://A", ("a", 80)),
        ("https://a", ("a", 443)),
        ("https://[::1]:7601", ("::1", 7601)),
        ("http://bücher.example:1", ("xn--bcher-kva.example", 1)),
    ],
)
def test_a_connection_knows_which_node_it_goes_to(url: str, address: liveness.Address, monkeypatch: pytest.MonkeyPatch):
    """As the transport names hosts, whatever the spelling of the address."""
    met = list[tuple[str, int]]()

    def connect(self: object, host: str, port: int, *rest: object) -> httpcore.NetworkStream:
        met.append((host, port))
        raise httpcore.ConnectError("here it ends")

    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    context = ssl.create_default_context()
    watch = Liveness([url], context, 1.0)
    with (
        httpx.Client(transport=NodeTransport(watch, context, ())) as client,
        pytest.raises(httpx.ConnectError),
    ):
        client.get(url)
    assert met == [address] == list(watch._urls)


@pytest.mark.process
def test_a_node_that_is_stopped_is_left_and_its_write_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = watched(monkeypatch)
    monkeypatch.setattr(liveness, "LIVE_S", 2.0)
    with started(tmp_path / "c", nodes=2, spark="none") as cluster:
        sql(cluster, "n1", "CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id)); INSERT INTO t VALUES (1, 0)")
        first, second = (cluster.node(name).url for name in ("n1", "n2"))
        place = cluster.place("n1")
        assert place is not None
        common: dict[str, Any] = {"token": cluster.token, "node_silence_s": 5, "catalog_retry_s": SLOW_S}
        with ebla.connect(f"{first},{second}", **common) as remote:
            assert remote.tables() == ["t"]
            os.kill(place.pid, signal.SIGSTOP)
            try:
                assert remote.sql("UPDATE t SET n = n + 1 WHERE id = 1").one()[0] == 1
            finally:
                os.kill(place.pid, signal.SIGCONT)
        assert not all(asked)
        with ebla.connect(first, **common) as remote:  # which had the first try in its queue
            assert remote.query("t", where={"id": 1}).rows() == [(1, 1)]
        assert sql(cluster, "n2", "SELECT n FROM t WHERE id = 1") == [[1]]
