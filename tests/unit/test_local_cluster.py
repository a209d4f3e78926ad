"""A cluster on one machine: what is done with processes, without PostgreSQL and Spark."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from ebla.base.system_processes import is_there
from ebla.cluster import local_cluster, spark_standalone
from ebla.cluster.detached_process import DetachedProcess
from ebla.cluster.local_cluster import LocalCluster, Node
from ebla.cluster.place import Place
from ebla.cluster.postgres import Postgres
from ebla.errors import NodeUnavailableError


def cluster_of(directory: Path, *names: str) -> LocalCluster:
    return LocalCluster(
        directory=directory,
        postgres_directory=directory / "postgres",
        postgres_port=1,
        password="",
        secret="",
        spark="none",
        nodes=tuple(Node(name=name, port=1, spark_master="none") for name in names),
    )


def test_a_node_that_does_not_serve_in_time_is_asked_to_end(tmp_path: Path):
    cluster = cluster_of(tmp_path, "n1")
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "log").write_text("it waits\n")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        with pytest.raises(NodeUnavailableError, match="node n1: expected it to serve, found: it waits"):
            cluster.wait("n1", process, timeout_s=0.1)
        assert process.wait(150) != 0


STOPS_SLOWLY = """
import signal, sys, time
heard = []
signal.signal(signal.SIGTERM, lambda *given: heard.append(given))
print("ready", flush=True)
while not heard:
    time.sleep(0.01)
time.sleep(float(sys.argv[1]))
print(len(heard), flush=True)
"""


def test_each_node_is_asked_once_to_end_and_finishes_its_work(tmp_path: Path):
    """A second signal ends a node at once: the slowest one would get it while the others are waited for."""
    cluster = cluster_of(tmp_path, "n1", "n2")
    cluster.write()
    with ExitStack() as stack:
        processes = []
        for name, stops_s in (("n1", "0.3"), ("n2", "1.0")):
            cluster.root(name).mkdir(parents=True)
            command = [sys.executable, "-c", STOPS_SLOWLY, stops_s, "ebla", "node"]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            Place(name=name, pid=process.pid, address="", started_at=0.0).write(cluster.root(name))
            processes.append(process)
        local_cluster.down(tmp_path)
        assert [process.communicate()[0] for process in processes] == ["1\n", "1\n"]


def test_a_process_that_does_not_end_in_time_is_killed_and_gone(tmp_path: Path):
    command = [sys.executable, "-c", STOPS_SLOWLY, "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            local_cluster.end(process.pid, signal.SIGTERM, 0.1)
            assert not is_there(process.pid)
        finally:
            process.kill()


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
