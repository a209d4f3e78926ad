"""What nodes ask each other: with the secret alone, and so that none has to wait for its next look at the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.catalog import topology
from ebla.cluster.peer import Peer
from ebla.cluster.peers import Peers
from ebla.server import rpc
from ebla.server.app import create_app
from ebla.server.listener import Address, Listener
from ebla.server.options import Limits, Options
from ebla.topology import service
from support.certificates import make_certificate
from support.nodes import SECRET, Nodes
from support.warehouse import eventually


@pytest.fixture
def nodes(postgres_url: str, tmp_path: Path) -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield Nodes(postgres_url, tmp_path, stack)


@pytest.mark.parametrize("headers", [{}, {rpc.SECRET: "another secret than theirs"}])
@pytest.mark.parametrize("name", ["join", "wake", "work_on_view_building_tasks"])
def test_strangers_are_refused(db: ebla.Database, headers: dict[str, str], name: str):
    app = create_app(db, Options(routers=(rpc.router(db, SECRET),)))
    with Listener(app, Address(port=0)) as listener:
        answer = httpx.post(f"{listener.url}/rpc/{name}", json={}, headers=headers, timeout=150)
        assert answer.status_code == 401
        assert SECRET not in answer.text
        known = httpx.post(f"{listener.url}/rpc/wake", json={"topology": 0}, headers={rpc.SECRET: SECRET}, timeout=150)
        assert known.json() == {"topology": int(db.background.membership.coordination.seen)}


def test_no_stranger_fills_the_memory_of_a_node(db: ebla.Database):
    options = Options(routers=(rpc.router(db, SECRET),), limits=Limits(body_bytes=1000))
    with Listener(create_app(db, options), Address(port=0)) as listener:
        for body in (lambda: b"x" * 2000, lambda: iter([b"x" * 800] * 3)):
            for headers, status in (({}, 401), ({rpc.SECRET: SECRET}, 413)):  # a stranger's is not read at all
                answer = httpx.post(f"{listener.url}/rpc/wake", content=body(), headers=headers, timeout=150)
                assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert httpx.put(f"{listener.url}/rpc/files/n1/a", content=b"x" * 2000, timeout=150).status_code == 401


def test_nodes_verify_each_other(db: ebla.Database, tmp_path: Path):
    cert, key = make_certificate(tmp_path)
    address = Address(port=0, tls_cert=str(cert), tls_key=str(key))
    app = create_app(db, Options(routers=(rpc.router(db, SECRET),)))
    with Listener(app, address) as listener:
        peer = Peer(listener.url)
        seen = int(db.background.membership.coordination.seen)
        with Peers(db, SECRET, str(cert)) as verifying:
            assert verifying.post(peer, "wake", {"topology": 0}, 60.0) == {"topology": seen}
        with Peers(db, SECRET) as ignorant, pytest.raises(ebla.NodeUnavailableError, match="certificate"):
            ignorant.post(peer, "wake", {"topology": 0}, 60.0)


@pytest.mark.postgres
def test_a_step_of_the_topology_is_followed_at_once(nodes: Nodes, monkeypatch):
    one, two = nodes.start("one"), nodes.start("two")
    eventually(lambda: one.background.membership.coordination.seen == two.background.membership.coordination.seen != 0)
    monkeypatch.setattr(service, "LOOK_S", 3600.0)
    eventually(lambda: _sleeps(two))
    one.sql("ALTER CLUSTER SET balancing = off")
    moved = one.context.catalog.read(topology.version)
    eventually(lambda: two.background.membership.coordination.seen == moved)


def _sleeps(node: ebla.Database) -> bool:
    """Whether the next look is an hour away: a node that was asked to look has looked since the period is that long."""
    rounds = node.background.membership.coordination.rounds
    node.background.membership.coordination.ask()
    return node.background.membership.coordination.wait_round(rounds)


@pytest.mark.postgres
@pytest.mark.spark
def test_tasks_of_a_build_are_done_where_their_tablets_lie(nodes: Nodes, spark: SparkSession):
    one, two = nodes.start("one", spark), nodes.start("two", spark)
    one.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT) WITH (tablets = 4)")
    eventually(lambda: "two" in {row[2] for row in one.sql("SHOW TABLETS OF t").rows()})
    one.table("t").upsert([{"id": i, "n": i % 3} for i in range(100)])
    eventually(lambda: len(one.sql("SHOW RUNNERS").rows()) == 2)
    one.sql("CREATE MATERIALIZED VIEW v AS SELECT id, n + 1 AS m FROM t WHERE n > 0")
    assert sorted(one.sql("SELECT * FROM v").rows()) == [(i, i % 3 + 1) for i in range(100) if i % 3]
    assert one.builder.called._all() or two.builder.called._all(), "expected a call to another process"


def test_no_request_makes_routes(db: ebla.Database, monkeypatch: pytest.MonkeyPatch):
    """Making one turns a warning off for a moment, for all threads: of two nodes in a process that did it at the same
    moment one refused a request, where warnings are errors."""
    app = create_app(db, Options(users=False, routers=(rpc.router(db, SECRET),)))

    def made(*given: object) -> None:
        raise AssertionError("expected the routes to be there, found one that is made for a request")

    monkeypatch.setattr("fastapi._compat.v2.ModelField.__post_init__", made)
    with Listener(app, Address(port=0)) as listener, httpx.Client(headers={rpc.SECRET: SECRET}, timeout=150) as client:
        assert client.get(f"{listener.url}/v1/version").status_code == 200
        assert client.post(f"{listener.url}/rpc/wake", json={"topology": 0}).status_code == 200


def test_clients_end_idle_connections_before_a_node_does(db: ebla.Database):
    """A file that is put on a connection which the node ends at that moment is lost, and cannot be sent again."""
    ends_s = httpx.Limits().keepalive_expiry
    assert ends_s is not None
    with Listener(create_app(db, Options(users=False)), Address(port=0)) as listener:
        assert listener._server.config.timeout_keep_alive > 2 * ends_s
