"""C8 and C2 in real processes: leaders and nodes are killed at every step, and nothing acknowledged is lost.

`make chaos` runs the longer matrix: every failpoint at every time it is reached, on both databases.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chaos.clusters import Images, folded
from chaos.deaths import STAGES, VICTIMS, Death, spread
from chaos.kills import Chain, kill_leader_of_others
from chaos.procedures import NAMED, PROCEDURES, Procedure
from support.postgres import PostgresServer
from support.processes import Processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.process

COPIES = [NAMED[name] for name in ("leave", "replace", "rebuild")]
"""Procedures that copy runs: they die with copies that no commit names, too."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    with Images(tmp_path_factory.mktemp("clusters")) as made:
        yield made


def names(procedure: Procedure) -> str:
    return procedure.name.replace(" ", "_")


@pytest.mark.parametrize("procedure", PROCEDURES, ids=names)
def test_c8_leaders_that_die_behind_each_step_are_followed(images: Images, processes: Processes, procedure: Procedure):
    with images.copy(procedure.make) as cluster:
        chain = Chain(cluster=cluster, procedure=procedure, processes=processes)
        chain.run("topology.committed")
        assert chain.kills >= procedure.steps


@pytest.mark.parametrize("procedure", COPIES, ids=names)
def test_c8_leaders_that_die_with_copies_are_followed(images: Images, processes: Processes, procedure: Procedure):
    with images.copy(procedure.make) as cluster:
        chain = Chain(cluster=cluster, procedure=procedure, processes=processes)
        chain.run("copy.files_written")
        assert chain.kills


def test_c8_leaders_that_die_with_runs_cut_are_followed(images: Images, processes: Processes, spark: SparkSession):
    with images.copy(folded) as cluster:
        chain = Chain(cluster=cluster, procedure=NAMED["split"], processes=processes)
        chain.run("cut.files_written")
        assert chain.kills


@pytest.mark.parametrize("step", [1, 2])
def test_c8_a_node_joins_though_the_leader_dies(images: Images, processes: Processes, step: int):
    with images.copy(NAMED["join"].make) as cluster:
        kill_leader_of_others(cluster, processes, NAMED["join"], f"topology.committed=kill@{step}")


@pytest.mark.parametrize("name", ["leave", "split"])
def test_c8_on_postgresql(tmp_path: Path, postgres_server: PostgresServer, processes: Processes, name: str):
    procedure = NAMED[name]
    with Images(tmp_path, postgres_server) as images, images.copy(procedure.make) as cluster:
        Chain(cluster=cluster, procedure=procedure, processes=processes).run("topology.committed")


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("stage", STAGES)
def test_c2_a_move_settles_when_a_node_dies_at_a_stage(images: Images, processes: Processes, stage: str, victim: str):
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(images.copy(spread))
        stack.enter_context(Death(cluster=cluster, processes=processes, stage=stage, victim=victim)).check()
