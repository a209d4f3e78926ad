"""The client of a cluster: what it does without, where it asks next, and that a lost answer is not done twice."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Any

import httpx
import pytest

import ebla
from ebla.catalog import store
from ebla.remote.transport import addresses
from ebla.server.app import create_app
from ebla.server.formats import ARROW
from ebla.server.listener import Address, Listener
from ebla.server.options import Options
from support.proxy import Proxy
from support.warehouse import connect

Make = Callable[..., Any]

WITHOUT_SPARK = """
import sys

OF_NODES = ("pyspark", "py4j", "fastapi", "uvicorn", "starlette", "pydantic_settings", "duckdb", "sqlalchemy")

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OF_NODES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import ebla
with ebla.connect(sys.argv[1], token=sys.argv[2]) as db:
    db.sql("CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id))")
    db.table("t").upsert([{"id": 1, "name": "Ada"}])
    assert db.query("t", where={"name": ebla.prefix("A")}).rows() == [(1, "Ada")]
    assert db.sql("SELECT * FROM t ORDER BY id LIMIT 5").to_pandas().shape == (1, 2)
assert not {"pyspark", "py4j"} & set(sys.modules)
"""


def test_the_client_needs_no_spark_no_java_and_no_database_driver(node: Make, tokens: dict[str, str]):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, node(), tokens["admin"]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_the_command_line_asks_a_cluster(node: Make, tokens: dict[str, str], tmp_path: Path):
    (tmp_path / "token").write_text(f"{tokens['writer']}\n")
    environment = {"EBLA_TOKEN_FILE": str(tmp_path / "token"), "PATH": "", "HOME": str(tmp_path)}
    url = node()

    def ebla_cli(*arguments: str) -> str:
        command = [sys.executable, "-m", "ebla", "-w", url, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    ebla_cli(
        "sql", "CREATE TABLE t (id BIGINT, day DATE, PRIMARY KEY (id)); INSERT INTO t VALUES (7, DATE'2026-11-18')"
    )
    assert '"rows": [[7, "2026-11-18"]]' in ebla_cli("sql", "SELECT * FROM t ORDER BY id LIMIT 1", "--json")
    assert '"rows": [[7]]' in ebla_cli("query", "t", "-W", "day>=2026-11-01", "--columns", "id", "--json")
    assert '"table": "t"' in ebla_cli("status", "--json")
    assert "ebla_" in ebla_cli("metrics")


def test_the_next_address_is_asked_where_one_does_not_answer(node: Make, db: ebla.Database):
    with ebla.connect(f"http://127.0.0.1:9,{node(users=False)}") as remote:
        assert remote.version == db.version


def test_a_node_that_stops_is_left_for_another(node: Make, db: ebla.Database):
    stopping = threading.Event()
    first, second = node(users=False, stopping=stopping.is_set), node(users=False)
    with ebla.connect(f"{first},{second}") as remote:
        assert remote.tables() == []
        stopping.set()
        remote.sql("CREATE TABLE t (id INT)")
        assert remote.tables() == ["t"]


def test_a_node_that_dies_in_a_long_statement_is_left_for_another(
    node: Make, db: ebla.Database, monkeypatch: pytest.MonkeyPatch
):
    """The statement has run for longer than a client waits for nodes that do not answer, and is committed."""
    db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
    before, retry_s, committed, gone = db.version, 0.3, threading.Event(), threading.Event()

    def wait(name: str) -> None:
        if name == "catalog.commit.done" and not committed.is_set():
            committed.set()
            assert gone.wait(150)

    with Proxy(httpx.URL(node(users=False)).port or 0) as dying:
        addresses = f"http://127.0.0.1:{dying.port},{node(users=False)}"
        with ebla.connect(addresses, catalog_retry_s=retry_s) as remote, ThreadPoolExecutor() as pool:
            assert remote.tables() == ["t"]
            monkeypatch.setattr(store, "hit", wait)
            writing = pool.submit(lambda: remote.sql("INSERT INTO t VALUES (1)").one())
            assert committed.wait(150)
            assert not wait_for([writing], timeout=2 * retry_s).done
            with dying.silence():
                gone.set()
                assert writing.result(150) == (1, db.version)
    assert db.version == before + 1


def test_no_node_at_all_is_an_error_that_says_so():
    with (
        ebla.connect("http://127.0.0.1:9", catalog_retry_s=0) as remote,
        pytest.raises(ebla.NodeUnavailableError, match=r"127\.0\.0\.1:9"),
    ):
        remote.tables()


@pytest.mark.parametrize(
    "work",
    [
        lambda db: db.sql("INSERT INTO t VALUES (5, 1)").one(),
        lambda db: db.sql("UPDATE t SET n = n + 1 WHERE id = 1").one(),
        lambda db: db.sql("DELETE FROM t WHERE id = 1").one(),
        lambda db: db.table("t").upsert([{"id": 6, "n": 1}]),
        lambda db: db.table("t").delete([{"id": 1}]),
        lambda db: db.sql("CREATE TABLE u (id INT)").rows(),
        lambda db: db.sql("DROP TABLE t").rows(),
        lambda db: db.sql("INSERT INTO keyless VALUES (1); INSERT INTO keyless VALUES (2)").one(),
    ],
)
def test_a_write_whose_answer_is_lost_is_done_once(
    node: Make, db: ebla.Database, monkeypatch: pytest.MonkeyPatch, work: Make
):
    """The client hears nothing from the first node and asks the second one."""
    db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id)); CREATE TABLE keyless (n INT)")
    db.sql("INSERT INTO t VALUES (1, 1)")
    before = db.version
    with ebla.connect(f"{node(users=False)},{node(users=False)}") as remote:
        real = httpx.Client.request
        lost: list[httpx.Response] = []

        def losing(client: httpx.Client, method: str, url: str, **given: Any) -> httpx.Response:
            answer = real(client, method, url, **given)
            if method != "GET" and not lost:
                lost.append(answer)
                raise httpx.ReadError("the answer was lost")
            return answer

        monkeypatch.setattr(httpx.Client, "request", losing)
        done = work(remote)
    assert lost[0].is_success, lost[0].text
    commits = 2 if "keyless" in repr(lost[0].request.content) else 1
    assert db.version == before + commits
    if isinstance(done, tuple) and done:
        assert done == (1, db.version)
    elif hasattr(done, "version"):
        assert (done.version, done.rows) == (db.version, 1)


@pytest.mark.parametrize("url", ["http://a:1/path", "http://user:secret@a:1", "http://a:1,ftp://b"])
def test_addresses_that_are_none_are_refused_without_their_password(url: str):
    with pytest.raises(ebla.UsageError) as caught:
        addresses(url)
    assert "secret" not in str(caught.value)


def test_addresses_share_the_first_ones_scheme():
    assert addresses("https://a:7601, b:7601") == ["https://a:7601", "https://b:7601"]


def test_the_body_of_an_answer_does_not_wait_for_the_acknowledgement_of_its_head(db: ebla.Database):
    with (
        Listener(create_app(db, Options(users=False)), Address(port=0)) as listener,
        httpx.Client(base_url=listener.url, timeout=150) as client,
    ):
        assert client.get("/health/live").status_code == 200
        (connection,) = listener._server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_lost_catalog_is_told_and_nothing_is_lost_when_it_is_back(
    postgres_server: Any, postgres_url: str, tmp_path: Path
):
    from sqlalchemy.engine import make_url

    proxy = Proxy(postgres_server.port)
    url = make_url(postgres_url).set(port=proxy.port).render_as_string(hide_password=False)
    root = str(tmp_path / "root")
    with (
        connect(url, storage_root=root, auto_refresh=False, catalog_retry_s=0.2) as db,
        Listener(create_app(db, Options(users=False)), Address(port=0)) as listener,
        httpx.Client(base_url=listener.url, timeout=150) as client,
    ):
        client.post("/v1/sql", json={"sql": "CREATE TABLE t (id BIGINT, PRIMARY KEY (id)); INSERT INTO t VALUES (1)"})
        with proxy.silence():
            found = client.post("/v1/query", json={"relation": "t"})
            assert (found.status_code, found.json()["title"]) == (503, "CatalogUnavailableError")
            assert found.json()["retryable"]
            assert found.headers["Retry-After"]
            written = client.post("/v1/tables/t/rows", json={"rows": [{"id": 2}]})
            assert written.status_code == 503
            assert client.get("/health/ready").status_code == 503
        again = client.post("/v1/query", json={"relation": "t"}, headers={"Accept": ARROW})
        assert again.status_code == 200
        assert client.post("/v1/query", json={"relation": "t"}).json()["rows"] == [[1]]
    proxy.__exit__(None, None, None)
