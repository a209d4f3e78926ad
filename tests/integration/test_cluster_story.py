"""The demonstration's story with assertions: real node processes, a real PostgreSQL, and Spark in two of the nodes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from chaos import storm
from ebla.cluster import local_cluster
from ebla.demo.cluster import story
from ebla.demo.cluster.load import Load

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(400)
def test_a_cluster_changes_its_shape_and_loses_processes_while_it_is_written_to(tmp_path: Path):
    said: list[str] = []
    with story.started(tmp_path / "c") as cluster:
        load = story.tell(story.Story(cluster, say=said.append), seed=1)
    assert load.commits > 100
    assert any("equal to its recomputation" in line for line in said)


@pytest.mark.timeout(600)
def test_two_minutes_of_chaos_lose_nothing(tmp_path: Path):
    """`make chaos MINUTES=30` is the longer one."""
    found = storm.run(tmp_path, seconds=120, seed=1, say=lambda text: None)
    assert found.happened.total() > 3


@pytest.mark.timeout(400)
def test_a_worker_of_spark_standalone_dies_and_the_view_goes_on(tmp_path: Path):
    with story.started(tmp_path / "c", nodes=1, spark="standalone") as cluster:
        played = story.Story(cluster)
        played.create()
        with Load(played.urls, cluster.token) as load:
            load.goes_on(20)
            played.follow(load)
            local_cluster.end(cluster.spark_pids[1], signal.SIGKILL, 10)
            load.goes_on(20)
            local_cluster.up(cluster.directory)
            load.goes_on(20)
            played.follow(load)
        played.prove(load)
