"""Nodes as processes over a PostgreSQL of their own: they join, serve, die, come back and stop."""

from __future__ import annotations

import contextlib
import json
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest

import support
from ebla.base.system_processes import is_there
from ebla.catalog import topology
from ebla.catalog.store import Catalog
from ebla.cli import main as cli
from ebla.cluster import local_cluster, spark_standalone
from ebla.cluster import place as node_place
from ebla.demo.cluster.story import started
from ebla.errors import NodeUnavailableError
from ebla.model.changes import Decision
from ebla.model.scopes import TOPOLOGY
from ebla.model.topology import BUILDING_CALLS, FEATURES, features_in_use
from ebla.model.topology_changes import SetNodeBuild
from support.clusters import sql

pytestmark = pytest.mark.process

FIRST_PORT = 19_300
"""Where no other test looks for free ports."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local_cluster.LocalCluster]:
    with started(tmp_path_factory.mktemp("cluster") / "c", nodes=2, spark="none") as made:
        yield made


def test_nodes_that_die_come_back_and_nothing_is_lost(cluster: local_cluster.LocalCluster):
    assert [row[:3] for row in sql(cluster, "n2", "SHOW NODES")] == [["n1", "normal", True], ["n2", "normal", True]]
    sql(cluster, "n1", "CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING)")
    sql(cluster, "n2", "INSERT INTO t VALUES (1, 'one')")
    place = cluster.place("n2")
    assert place is not None
    cluster.stop("n2", signal.SIGKILL)
    report = local_cluster.status(cluster.directory)
    assert report["cluster"] == "c"
    assert [(one["name"], one["alive"]) for one in report["nodes"]] == [("n1", True), ("n2", False)]
    sql(cluster, "n1", "INSERT INTO t VALUES (2, 'two')")
    local_cluster.up(cluster.directory)
    back = cluster.place("n2")
    assert back is not None
    assert back.pid != place.pid
    assert sorted(sql(cluster, "n2", "SELECT id, word FROM t WHERE id >= 0 ORDER BY id LIMIT 10")) == [
        [1, "one"], [2, "two"],
    ]  # fmt: skip


def test_a_living_node_writes_the_request_of_one_that_joins(cluster: local_cluster.LocalCluster):
    ids = dict(sql(cluster, "n1", "SELECT name, host_id FROM system.topology"))
    written = "SELECT h.node_id FROM system.history h JOIN system.topology_requests r ON r.id = h.version "
    [(writer,)] = sql(cluster, "n1", f"{written} WHERE r.host_id = '{ids['n2']}' AND r.kind = 'join'")
    was_late = "asks another node" in (cluster.directory / "n2" / "log").read_text()
    assert writer == ids["n1"] or was_late


@pytest.mark.parametrize("missing", ["Spark", "the first token"])
def test_a_cluster_that_does_not_come_up_can_be_stopped_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
):
    def fails(*given: object) -> NoReturn:
        raise NodeUnavailableError(f"expected {missing}")

    monkeypatch.setattr(spark_standalone, "start", lambda *given: ())
    place, standing = (spark_standalone, "start") if missing == "Spark" else (local_cluster, "first_token")
    with monkeypatch.context() as patched:
        patched.setattr(place, standing, fails)
        with pytest.raises(NodeUnavailableError, match=f"expected {missing}"):
            local_cluster.up(tmp_path / "c", nodes=1, with_spark=0, spark="standalone", first_port=FIRST_PORT)
    server = local_cluster.LocalCluster.read(tmp_path / "c").postgres.pid
    assert server is not None
    local_cluster.down(tmp_path / "c")
    assert not is_there(server)
    try:
        back = local_cluster.up(tmp_path / "c")
        assert [row[:3] for row in sql(back, "n1", "SHOW NODES")] == [["n1", "normal", True]]
    finally:
        local_cluster.down(tmp_path / "c", remove=True)


def test_the_commands_of_a_local_cluster_say_what_they_did_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(local_cluster, "FIRST_PORT", FIRST_PORT + 100)
    monkeypatch.setattr(local_cluster, "POSTGRES_PORT", FIRST_PORT + 150)

    def said(*arguments: str) -> dict[str, Any]:
        assert cli.run([*arguments, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    place, root = ("--dir", str(tmp_path / "c")), ("--root", str(tmp_path / "c" / "n1" / "data"))
    up = said("cluster", "up", *place, "--nodes", "1", "--spark", "none")
    try:
        [url] = up["urls"]
        headers = {"Authorization": f"Bearer {up['token']}"}
        assert httpx.get(f"{url}/v1/me", headers=headers, timeout=60).json()["role"] == "admin"
        found = said("cluster", "status", *place)
        facts = {"leader", "version", "transitions", "under_replicated", "jobs", "urls", "cluster"}
        assert facts <= found.keys()
        [node] = found["nodes"]
        assert (node["name"], node["state"], node["alive"], node["address"]) == ("n1", "normal", True, url)
        assert {"pid", "seen_version", "tablets", "load"} <= node.keys()
        of_node = said("node", "status", *root)
        assert (of_node["state"], of_node["pid"], of_node["address"]) == ("ready", node["pid"], url)
        assert said("node", "stop", *root) == {"root": root[1], "state": "stopped", "pid": node["pid"]}
        assert said("cluster", "status", *place)["nodes"][0]["pid"] is None
        assert said("cluster", "up", *place) == up
    finally:
        assert said("cluster", "down", *place, "--remove")["removed"]
    assert not is_there(found["postgres"]["pid"])
    assert not (tmp_path / "c").exists()


def test_a_node_stops_in_time_and_says_so(cluster: local_cluster.LocalCluster):
    root = cluster.root("n2")
    assert node_place.status(root)["state"] == "ready"
    began = time.monotonic()
    assert node_place.stop(root)["state"] == "stopped"
    assert time.monotonic() - began < node_place.STOP_S
    assert node_place.status(root)["state"] == "stopped"
    assert "stopped" in (cluster.directory / "n2" / "log").read_text().splitlines()[-1]
    local_cluster.up(cluster.directory)


def test_a_node_takes_no_more_requests_of_a_token_than_its_limits_say(cluster: local_cluster.LocalCluster):
    def restart(environment: dict[str, str]) -> None:
        cluster.stop("n2")
        cluster.wait("n2", cluster.start("n2", environment=environment))

    def ask(name: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {cluster.token}"}
        return httpx.get(f"{cluster.node(name).url}/v1/version", headers=headers, timeout=60)

    restart({"EBLA_NODE_LIMITS": '{"requests_per_s": 0.01, "burst": 3}'})
    try:
        assert [ask("n2").status_code for _ in range(5)] == [200, 200, 200, 429, 429]
        assert int(ask("n2").headers["Retry-After"]) > 1
        assert {ask("n1").status_code for _ in range(5)} == {200}
    finally:
        restart({})


def test_no_secret_is_where_others_can_read_it(cluster: local_cluster.LocalCluster):
    for file in (cluster.directory / "cluster.json", cluster.directory / "n1" / "node.toml"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for node in ("n1", "n2"):
        place = cluster.place(node)
        assert place is not None
        assert cluster.password.encode() not in Path(f"/proc/{place.pid}/cmdline").read_bytes()
        text = (cluster.directory / node / "log").read_text()
        assert cluster.password not in text
        assert str(cluster.token) not in text
    assert cluster.password not in json.dumps(local_cluster.status(cluster.directory))


def test_a_feature_is_used_when_the_last_node_has_it_and_older_builds_are_refused_then(
    cluster: local_cluster.LocalCluster,
):
    older = {"PYTHONPATH": str(Path(support.__path__[0]) / "older"), "EBLA_TEST_LACKS": BUILDING_CALLS}

    def in_use() -> frozenset[str]:
        with contextlib.closing(Catalog.open(cluster.postgres.url, create=False)) as catalog:
            return features_in_use(catalog.read(topology.members).values())

    def restart(name: str, environment: dict[str, str]) -> None:
        cluster.stop(name)
        cluster.wait(name, cluster.start(name, environment=environment))

    assert BUILDING_CALLS in in_use()
    with pytest.raises(NodeUnavailableError, match=f"found release .* without {BUILDING_CALLS}; start it with release"):
        restart("n2", older)
    with contextlib.closing(Catalog.open(cluster.postgres.url, create=False)) as catalog:
        for member in catalog.read(topology.members).values():  # as all nodes of an older release have said it
            build = SetNodeBuild(node=member.id, release=member.release, features=frozenset(), address=None)
            catalog.commit(Decision(reason="older", updates=(build,), guards=frozenset({TOPOLOGY})))
    restart("n2", older)
    restart("n1", {})
    assert in_use() == FEATURES - {BUILDING_CALLS}
    sql(cluster, "n2", "INSERT INTO t VALUES (7, 'seven')")
    restart("n2", older)
    restart("n2", {})
    assert in_use() == FEATURES
    assert sql(cluster, "n1", "SELECT word FROM t WHERE id = 7") == [["seven"]]
