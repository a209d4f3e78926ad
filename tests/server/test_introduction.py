"""A node that is about to join shows a living node the secret of the cluster, which then writes its request."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

import ebla
from ebla.base.ids import NodeId
from ebla.catalog import topology
from ebla.catalog.processes import Role
from ebla.cluster import introduction, process
from ebla.cluster.config import NodeConfig
from ebla.cluster.introduction import Introduction
from ebla.errors import NodeConflictError, UsageError
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import NodeState
from ebla.model.topology import FEATURES, Member
from ebla.server import rpc
from ebla.server.app import create_app
from ebla.server.gate import JOIN_BYTES_MAX
from ebla.server.join import Join
from ebla.server.listener import Address, Listener
from ebla.server.options import Options
from ebla.storage.files import Root
from ebla.topology.admission import Candidate
from support.catalogs import exclusively
from support.certificates import make_certificate
from support.nodes import SECRET, own_port
from support.warehouse import connect, unchanged

OTHER = "the secret of another cluster"
BUILD: dict[str, Any] = {"release": version("ebla"), "features": FEATURES}


class OldJoin(BaseModel):
    """What a node of an older release takes: nothing beyond this."""

    model_config = ConfigDict(extra="forbid")

    name: str
    cluster: str


def older() -> APIRouter:
    made = APIRouter(prefix="/rpc")

    @made.post("/join")
    def join(body: OldJoin) -> dict[str, str]:
        return {"cluster": body.cluster}

    return made


class Living:
    """A node of a cluster, which serves while the stack is open."""

    def __init__(
        self, folder: Path, stack: ExitStack, name: str = "n1", routers: tuple[APIRouter, ...] | None = None, **tls: str
    ) -> None:
        address = Address(port=own_port(stack), **tls)
        self.url = f"{'https' if address.has_tls else 'http'}://127.0.0.1:{address.port}"
        self.place, self.folder = str(folder / "warehouse"), folder
        given: dict[str, Any] = {"node": name, "address": self.url, "storage_root": str(folder / name)}
        self.db = stack.enter_context(connect(self.place, role=Role.NODE, auto_refresh=False, **given))
        if routers is None:
            routers = (rpc.router(self.db, SECRET),)
        self.listener = stack.enter_context(Listener(create_app(self.db, Options(routers=routers)), address))

    def config(self, secret: str | None, name: str = "n2", **said: str) -> NodeConfig:
        given = {"catalog": self.place, "name": name, "root": "/data", "spark_master": "none", "secret": secret}
        return NodeConfig.model_validate({**given, **said})

    def opened(self, stack: ExitStack, name: str = "n2", **said: str) -> ebla.Database:
        """A node process that joins, with a storage root of its own."""
        config = self.config(SECRET, name, **{"root": str(self.folder / name), **said})
        return stack.enter_context(process._opened(config))

    def candidate(self, **said: Any) -> Candidate:
        given: dict[str, Any] = {"id": NodeId(str(uuid.uuid4())), "name": "n2", "root": str(self.folder / "n2"), **said}
        node = Member(**given, address="http://127.0.0.1:1", state=NodeState.NONE, **BUILD)
        return Candidate(node=node, holder="a process", cluster=self.db.context.catalog.cluster_id())

    def post(self, candidate: Candidate, secret: str = SECRET) -> httpx.Response:
        body = Join.of(candidate).model_dump(exclude_none=True)
        return httpx.post(f"{self.url}/rpc/join", json=body, headers={rpc.SECRET: secret})

    def asked(self) -> list[tuple[str, str, str]]:
        """The requests to join: the kind, the state, and the name of the node that wrote it."""
        members = self.db.context.catalog.read(topology.members)
        written = "system.topology_requests r JOIN system.history h ON h.version = r.id"
        found = self.db.sql(f"SELECT r.kind, r.state, h.node_id FROM {written}")
        return [(kind, state, members[NodeId(node)].name) for kind, state, node in found.rows()]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that answers late is not taken for one that does not answer."""
    for limit in ("CONNECT_S", "SECRET_S", "REQUEST_S"):
        monkeypatch.setattr(introduction, limit, 150.0)


class Dropping(httpx.BaseTransport):
    """Calls of which the answer to the first request to join is lost."""

    def __init__(self) -> None:
        self._calls, self.lost = httpx.HTTPTransport(), list[str]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._calls.handle_request(request)
        if b'"node"' in request.read() and not self.lost:
            answer.read()
            self.lost.append(f"http://{request.url.netloc.decode()}")
            raise httpx.ReadError("the connection was lost")
        return answer

    def close(self) -> None:
        self._calls.close()


@pytest.mark.parametrize(("secret", "found"), [(None, "none"), (OTHER, "another one")])
def test_a_node_without_the_secret_is_refused_and_leaves_nothing(
    stack: ExitStack, tmp_path: Path, secret: str | None, found: str
):
    living = Living(tmp_path, stack)
    with unchanged(living.db), pytest.raises(UsageError) as caught:
        process._opened(living.config(secret))
    assert str(caught.value) == (
        f"secret: expected the secret of the cluster, which n1 at {living.listener.url} has, found {found}; "
        "give this node the same `secret`"
    )
    assert [one.name for one in living.db.context.catalog.read(topology.members).values()] == ["n1"]


def test_a_node_with_the_secret_joins_and_a_living_node_writes_its_request(stack: ExitStack, tmp_path: Path):
    living = Living(tmp_path, stack)
    joined = living.opened(stack)
    members = joined.context.catalog.read(topology.members).values()
    assert sorted((one.name, one.state) for one in members) == [("n1", NodeState.NORMAL), ("n2", NodeState.NORMAL)]
    assert living.asked() == [("join", "done", "n1")]
    assert joined.sql("SELECT holder FROM system.topology_requests").rows() == [(joined.context.holder,)]


def test_a_replacement_goes_the_same_way_and_the_coordinator_says_that_it_is_impossible(
    stack: ExitStack, tmp_path: Path
):
    living = Living(tmp_path, stack)
    with pytest.raises(UsageError, match="n1: expected a dead node to replace, found it alive"):
        living.opened(stack, replaces="n1")
    assert living.asked() == [("replace", "failed", "n1")]
    with pytest.raises(NodeConflictError, match="which left; its id is never accepted again"):
        living.opened(stack)
    assert len(living.asked()) == 1


def test_a_request_whose_answer_was_lost_is_not_written_again(stack: ExitStack, tmp_path: Path):
    living, lost = Living(tmp_path, stack), Dropping()
    other = Living(tmp_path, stack, "n3")
    candidate = living.candidate()
    with Introduction(living.config(SECRET), httpx.Client(headers={rpc.SECRET: SECRET}, transport=lost)) as asked:
        request = asked.ask(other.db.context.catalog, candidate)
    assert lost.lost == [living.url]
    requests = living.db.sql("SELECT id FROM system.topology_requests WHERE holder = 'a process'").rows()
    assert requests == [(request,)]
    assert living.post(candidate).json()["request"] == other.post(candidate).json()["request"] == request
    handshake = other.db.background.membership.handshake
    assert handshake.admit(candidate) == request
    with pytest.raises(UsageError, match="n2: expected its process to stay alive, found it gone"):
        handshake.wait(int(request or 0))
    assert living.post(candidate).json()["request"] == request
    again = living.post(replace(candidate, holder="the next process"))
    assert (again.status_code, again.json()["title"]) == (409, "NodeConflictError")


def test_where_every_answer_is_lost_the_node_finds_what_was_written(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    living = Living(tmp_path, stack)
    dropping = lambda secret, *given: httpx.Client(headers={rpc.SECRET: str(secret)}, transport=Dropping())  # noqa: E731
    monkeypatch.setattr(introduction, "calling", dropping)
    living.opened(stack)
    assert living.asked() == [("join", "done", "n1")]


def test_a_node_that_does_not_answer_is_waited_for_once(stack: ExitStack, tmp_path: Path):
    living, sent = Living(tmp_path, stack), list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(str(request.url))
        raise httpx.ReadTimeout("it sleeps")

    asked = stack.enter_context(
        Introduction(living.config(SECRET), httpx.Client(transport=httpx.MockTransport(answer)))
    )
    asked.enter()
    assert asked.ask(living.db.context.catalog, living.candidate()) is None
    assert sent == [f"{living.url}/rpc/join"]


def test_a_node_that_nothing_answers_writes_its_request_itself(stack: ExitStack, tmp_path: Path):
    living = Living(tmp_path, stack)
    living.listener.stop()
    living.opened(stack)
    assert living.asked() == [("join", "done", "n2")]


def test_a_node_of_an_older_release_acknowledges_the_secret_alone(stack: ExitStack, tmp_path: Path):
    living = Living(tmp_path, stack, routers=(older(),))
    living.opened(stack)
    assert living.asked() == [("join", "done", "n2")]


def test_a_node_of_an_older_release_shows_the_secret_alone_and_nothing_is_written(stack: ExitStack, tmp_path: Path):
    living = Living(tmp_path, stack)
    cluster = living.db.context.catalog.cluster_id()
    with unchanged(living.db):
        answer = httpx.post(
            f"{living.url}/rpc/join", json={"name": "n2", "cluster": cluster}, headers={rpc.SECRET: SECRET}
        )
    assert (answer.status_code, answer.json()["cluster"]) == (200, cluster)


# ---- refusals -------------------------------------------------------------------------------------------


def test_a_receiver_refuses_what_it_can_see_and_writes_nothing(stack: ExitStack, tmp_path: Path):
    living = Living(tmp_path, stack)
    catalog = living.db.context.catalog
    left, foreign = NodeId("left-id"), str(tmp_path / "foreign")
    gone = Member(id=left, name="gone", root="/gone", state=NodeState.BOOTSTRAPPING)
    exclusively(catalog, t.AddNode(node=gone))
    exclusively(catalog, t.SetNodeState(node=left, state=NodeState.LEFT))
    Root(foreign).claim({"cluster": catalog.cluster_id(), "node": "id-4", "name": "n4"})
    cases = [
        (
            replace(living.candidate(), cluster="another"),
            400,
            UsageError,
            "found one of cluster another; give it the a",
        ),
        (
            replace(living.candidate(), cluster_name="shop"),
            400,
            UsageError,
            "found one that means cluster shop; give it",
        ),
        (living.candidate(id=left, root="/gone"), 409, NodeConflictError, "which left; its id is never accepted again"),
        (
            living.candidate(id=left),
            409,
            NodeConflictError,
            "expected a host id of its own, found left-id of node gone",
        ),
        (
            living.candidate(root=foreign),
            409,
            NodeConflictError,
            f"a storage root of its own, found {foreign} of node id-4",
        ),
        (living.candidate(name="n1"), 409, NodeConflictError, "expected a name of its own, found node n1"),
        (
            living.candidate(root=str(tmp_path / "n1")),
            409,
            NodeConflictError,
            "expected a storage root of its own, found",
        ),
        (living.candidate(shards=0), 400, UsageError, "body.node.shards: Input should be greater than or equal to 1"),
        (living.candidate(root="/data\nline"), 400, UsageError, "body.node.root: String should match pattern"),
    ]
    with unchanged(living.db):
        for candidate, status, kind, says in cases:
            answer = living.post(candidate)
            assert (answer.status_code, answer.json()["title"]) == (status, kind.__name__)
            assert says in answer.json()["detail"]


def test_a_refusal_reaches_the_node_with_its_class(stack: ExitStack, tmp_path: Path):
    living = Living(tmp_path, stack)
    asked = stack.enter_context(Introduction(living.config(SECRET)))
    taken = living.candidate(name="n1")
    with (
        unchanged(living.db),
        pytest.raises(NodeConflictError, match=rf"^n1 at {living.url}: node n1 at .* a name of its"),
    ):
        asked.ask(living.db.context.catalog, taken)
    foreign = replace(living.candidate(), cluster="another")
    with pytest.raises(UsageError, match=r"n1 at .* expected a node of cluster .*, found one of cluster another; give"):
        asked.ask(living.db.context.catalog, foreign)


@pytest.mark.parametrize("body", [b"{", b"x" * (JOIN_BYTES_MAX + 1)])
def test_nothing_is_read_of_a_node_without_the_secret(stack: ExitStack, tmp_path: Path, body: bytes):
    living = Living(tmp_path, stack)
    answer = httpx.post(f"{living.url}/rpc/join", content=body, headers={rpc.SECRET: OTHER})
    assert (answer.status_code, answer.json()["title"]) == (401, "TokenError")
    assert SECRET not in answer.text
    known = httpx.post(f"{living.url}/rpc/join", content=body, headers={rpc.SECRET: SECRET})
    assert known.status_code == (400 if len(body) == 1 else 413)


def test_the_certificate_of_a_node_is_checked_before_the_secret_is_shown(
    stack: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    cert, key = make_certificate(tmp_path)
    living = Living(tmp_path, stack, tls_cert=str(cert), tls_key=str(key))
    caplog.set_level("INFO")
    with Introduction(living.config(OTHER)) as ignorant:
        ignorant.enter()
        assert ignorant.ask(living.db.context.catalog, living.candidate()) is None
    assert "certificate" in caplog.text
    assert OTHER not in caplog.text
    with (
        Introduction(living.config(OTHER, tls_ca=str(cert))) as stranger,
        pytest.raises(UsageError, match="secret: expected the secret of the cluster"),
    ):
        stranger.enter()


def test_where_no_node_can_tell_the_catalog_alone_decides(stack: ExitStack, tmp_path: Path):
    living = Living(tmp_path, stack, routers=())  # as a node of a release before, it does not know the question
    for secret in (SECRET, OTHER):
        with Introduction(living.config(secret)) as asked:
            asked.enter()
            assert asked.ask(living.db.context.catalog, living.candidate()) is None
        living.listener.stop()
