"""A node that is about to join shows a living node the secret of the cluster, and is refused without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from ebla.catalog import topology
from ebla.catalog.processes import Role
from ebla.cluster import introduction, process
from ebla.cluster.config import NodeConfig
from ebla.errors import UsageError
from ebla.model.lifecycle.node import NodeState
from ebla.server import rpc
from ebla.server.app import create_app
from ebla.server.listener import Address, Listener
from ebla.server.options import Options
from support.certificates import make_certificate
from support.nodes import SECRET, own_port
from support.warehouse import connect, unchanged

OTHER = "the secret of another cluster"


class Living:
    """A node of a cluster, which serves while the stack is open."""

    def __init__(self, folder: Path, stack: ExitStack, secret: str | None = SECRET, **tls: str) -> None:
        address = Address(port=own_port(stack), **tls)
        scheme = "https" if address.has_tls else "http"
        url = f"{scheme}://127.0.0.1:{address.port}"
        self.place = str(folder / "warehouse")
        self.db = stack.enter_context(connect(self.place, role=Role.NODE, node="n1", address=url, auto_refresh=False))
        routers = () if secret is None else (rpc.router(self.db, secret),)
        self.listener = stack.enter_context(Listener(create_app(self.db, Options(routers=routers)), address))

    def config(self, secret: str | None, **said: str) -> NodeConfig:
        given = {"catalog": self.place, "name": "n2", "root": "/data", "spark_master": "none", "secret": secret}
        return NodeConfig.model_validate({**given, **said})


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A living node answers, however busy the machine is: without an answer a node goes on."""
    for name in ("CONNECT_S", "ANSWER_S"):
        monkeypatch.setattr(introduction, name, 150.0)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


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


def test_a_node_with_the_secret_joins(stack: ExitStack, tmp_path: Path):
    living = Living(tmp_path, stack)
    joined = stack.enter_context(process._opened(living.config(SECRET, root=str(tmp_path / "n2"))))
    members = joined.context.catalog.read(topology.members).values()
    assert sorted((one.name, one.state) for one in members) == [("n1", NodeState.NORMAL), ("n2", NodeState.NORMAL)]


def test_a_node_with_the_secret_is_welcome_and_one_of_another_cluster_is_not(stack: ExitStack, tmp_path: Path):
    living = Living(tmp_path, stack)
    config, url = living.config(SECRET), living.listener.url
    introduction.introduce(config)
    client = stack.enter_context(httpx.Client(headers={rpc.SECRET: SECRET}, timeout=150))
    assert introduction._is_welcome(client, config, living.db.context.catalog.cluster_id(), "n1", url)
    with pytest.raises(UsageError, match=r"n1 at .* expected a node of cluster .*, found one of cluster another; give"):
        introduction._is_welcome(client, config, "another", "n1", url)


def test_the_certificate_of_a_node_is_checked_before_the_secret_is_shown(
    stack: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    cert, key = make_certificate(tmp_path)
    living = Living(tmp_path, stack, tls_cert=str(cert), tls_key=str(key))
    caplog.set_level("INFO")
    introduction.introduce(living.config(OTHER))
    assert "certificate" in caplog.text
    assert OTHER not in caplog.text
    with pytest.raises(UsageError, match="secret: expected the secret of the cluster"):
        introduction.introduce(living.config(OTHER, tls_ca=str(cert)))


def test_where_no_node_can_tell_the_catalog_alone_decides(stack: ExitStack, tmp_path: Path):
    living = Living(tmp_path, stack, secret=None)  # as a node of an older release, it does not know the question
    introduction.introduce(living.config(SECRET))
    living.listener.stop()
    introduction.introduce(living.config(OTHER))
