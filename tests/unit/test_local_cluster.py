"""A cluster on one machine: what is done with processes, without PostgreSQL and Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ebla.cluster.local_cluster import LocalCluster, Node
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
