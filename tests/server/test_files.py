"""Files of nodes whose roots are local: what the endpoint gives and refuses, and how other nodes read and write."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

import ebla
from ebla.catalog import transactions as tx
from ebla.server import rpc
from ebla.server.app import create_app
from ebla.server.files import CHECKSUM
from ebla.server.listener import Address, Listener
from ebla.server.options import Options

SECRET = "the secret of a cluster"


@pytest.fixture
def client(db: ebla.Database) -> Iterator[httpx.Client]:
    app = create_app(db, Options(routers=(rpc.router(db, SECRET),)))
    with ExitStack() as stack:
        listener = stack.enter_context(Listener(app, Address(port=0)))
        node = db.context.node
        address = f"{listener.url}/rpc/files/{node}/"
        yield stack.enter_context(
            httpx.Client(base_url=address, headers={rpc.SECRET: SECRET}, trust_env=False, timeout=150)
        )


@pytest.fixture
def run(db: ebla.Database) -> Path:
    """The file of a run, as the manifest names it."""
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING)")
    db.table("t").upsert([{"id": number, "word": f"word {number}"} for number in range(2000)])
    root = Path(next(iter(db.context.roots().values())).location)
    [found] = root.rglob("*.parquet")
    return found


def name(run: Path) -> str:
    return f"{run.parent.name}/{run.name}"


def test_a_run_comes_whole_with_its_checksum(client: httpx.Client, run: Path):
    answer = client.get(name(run))
    assert (answer.status_code, answer.content) == (200, run.read_bytes())
    assert answer.headers[CHECKSUM] == hashlib.sha256(run.read_bytes()).hexdigest()
    head = client.head(name(run))
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["Content-Length"]) == run.stat().st_size
    assert head.headers[CHECKSUM] == answer.headers[CHECKSUM]


@pytest.mark.parametrize(
    ("span", "first", "end"), [("bytes=100-", 100, None), ("bytes=0-9", 0, 10), ("bytes=7-7", 7, 8)]
)
def test_a_range_of_a_run_comes(client: httpx.Client, run: Path, span: str, first: int, end: int | None):
    answer = client.get(name(run), headers={"Range": span})
    whole = run.read_bytes()
    assert (answer.status_code, answer.content) == (206, whole[first:end])
    last = (len(whole) if end is None else end) - 1
    assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(whole)}"
    assert answer.headers[CHECKSUM] == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize("span", ["bytes=99999999-", "bytes=5-3", "bytes=-5", "rows=1-2"])
def test_a_range_that_is_none_is_refused(client: httpx.Client, run: Path, span: str):
    answer = client.get(name(run), headers={"Range": span})
    assert (answer.status_code, answer.content) == (416, b"")
    assert answer.headers["Content-Range"] == f"bytes */{run.stat().st_size}"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("headers", [{rpc.SECRET: "another secret than theirs"}, {rpc.SECRET: ""}])
def test_strangers_are_refused(client: httpx.Client, run: Path, method: str, headers: dict[str, str]):
    before = run.read_bytes()
    answer = client.request(method, name(run), headers={**headers, CHECKSUM: "0" * 64}, content=b"")
    assert answer.status_code == 401
    assert run.read_bytes() == before


PLACES = [
    "ebla-root.json",
    "../secret.parquet",
    "r1/../../secret.parquet",
    "r1/../ebla-root.json",
    "%2e%2e/secret.parquet",
    "r1%2f..%2f..%2fsecret.parquet",
    "/etc/passwd",
    "//etc/passwd",
    "r1/t999999-0.parquet",
    "r1/t1-0.parquet.part",
    "r1/t1-scratch1/part-0.parquet",
]


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_no_other_file_can_be_asked_for(client: httpx.Client, run: Path, method: str, path: str):
    (run.parent.parent.parent / "secret.parquet").write_bytes(b"secret")
    (run.parent / "t999999-0.parquet").write_bytes(b"of no transaction")
    marker = (run.parent.parent / "ebla-root.json").read_bytes()
    content = b"changed"
    target = httpx.URL(str(client.base_url) + path)
    answer = client.request(method, target, headers={CHECKSUM: hashlib.sha256(content).hexdigest()}, content=content)
    assert answer.status_code in (404, 405)
    assert b"secret" not in answer.content.replace(b"secret.parquet", b"")
    assert (run.parent.parent.parent / "secret.parquet").read_bytes() == b"secret"
    assert (run.parent.parent / "ebla-root.json").read_bytes() == marker


@pytest.mark.parametrize("path", ["ebla-root.json", "../secret", "r1", "r1/../ebla-root.json", "r1/t1-x/../../x"])
def test_nothing_else_can_be_removed(client: httpx.Client, run: Path, path: str):
    answer = client.request("DELETE", httpx.URL(str(client.base_url) + path))
    assert answer.status_code in (404, 405)
    assert run.exists()
    assert (run.parent.parent / "ebla-root.json").exists()


def test_a_file_is_written_whole_or_not_at_all(db: ebla.Database, client: httpx.Client, run: Path):
    context, content = db.context, b"some bytes" * 1000
    begun = tx.begin(context.catalog, None, node=context.node, holder="test", reason="write", lease_us=10**8)
    path, good = f"{run.parent.name}/t{begun.id}-0.parquet", hashlib.sha256(content).hexdigest()
    wrong = client.put(path, content=content, headers={CHECKSUM: "0" * 64})
    assert wrong.status_code == 500
    assert "thrown away" in wrong.json()["detail"]
    assert list(run.parent.iterdir()) == [run]
    assert client.put(path, content=content, headers={CHECKSUM: good}).status_code == 204
    assert (run.parent.parent / path).read_bytes() == content
    assert client.get(path).content == content
    assert [path, len(content), False] in client.get(str(client.base_url).rstrip("/")).json()
    assert client.delete(path).json() is True
    assert client.delete(path).json() is False
    tx.abort(context.catalog, begun.id)
    assert client.put(path, content=content, headers={CHECKSUM: good}).status_code == 404
    assert list(run.parent.iterdir()) == [run]


def test_a_node_of_another_process_is_unknown(client: httpx.Client, run: Path):
    other = str(client.base_url).replace(f"/{client.base_url.path.rstrip('/').rsplit('/', 1)[-1]}/", "/another/")
    answer = client.get(f"{other}{name(run)}")
    assert answer.status_code == 404
    assert "node another" in answer.json()["detail"]
