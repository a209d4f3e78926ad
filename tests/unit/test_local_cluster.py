"""A cluster on one machine: what is done with processes, without PostgreSQL and Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ebla.cluster import local_cluster, spark_standalone
from ebla.cluster.detached_process import DetachedProcess
from ebla.cluster.local_cluster import LocalCluster, Node
from ebla.cluster.postgres import Postgres
from ebla.errors import NodeUnavailableError


def test_a_node_that_does_not_serve_in_time_is_asked_to_end(tmp_path: Path):
    cluster = LocalCluster(
        directory=tmp_path,
        postgres_directory=tmp_path / "postgres",
        postgres_port=1,
        password="",
        secret="",
        spark="none",
        nodes=(Node(name="n1", port=1, spark_master="none"),),
    )
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "log").write_text("it waits\n")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        with pytest.raises(NodeUnavailableError, match="node n1: expected it to serve, found: it waits"):
            cluster.wait("n1", process, timeout_s=0.1)
        assert process.wait(30) != 0


def test_a_postgresql_that_cannot_be_made_leaves_the_directory_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(*given: object) -> None:
        raise NodeUnavailableError("initdb: expected success")

    monkeypatch.setattr(Postgres, "_run", fails)
    for _ in range(2):
        with pytest.raises(NodeUnavailableError, match="initdb: expected success"):
            local_cluster.up(tmp_path / "c", spark="none")
    assert list((tmp_path / "c").iterdir()) == []


def test_a_spark_that_does_not_come_up_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started: list[DetachedProcess] = []

    def start(*given: object) -> DetachedProcess:
        started.append(DetachedProcess([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[-1]

    def wait(page: str, word: bytes) -> None:
        if word == b'"ALIVE"':
            raise NodeUnavailableError("the worker is silent")

    monkeypatch.setattr(spark_standalone, "_run", start)
    monkeypatch.setattr(spark_standalone, "_wait", wait)
    with pytest.raises(NodeUnavailableError, match="the worker is silent"):
        spark_standalone.start(tmp_path)
    assert [process.poll() is None for process in started] == [False, False]
