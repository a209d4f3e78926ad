"""C8: the leader of the topology is killed at every step of a procedure, and the next one finishes it exactly once."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

import ebla
from ebla.base.failpoint import EXIT_CODE
from support.processes import Processes
from support.warehouse import connect

pytestmark = pytest.mark.process

QUICK: dict[str, Any] = {"leader_lease_s": 0.3, "auto_compact": False, "fsync": False}
STEPS = 2
"""Commits of the coordinator for a request that finds everything in place."""
KILLS = [f"topology.{place}=exit@{nth}" for place in ("before_commit", "committed") for nth in range(1, STEPS + 1)]


def reasons(db: ebla.Database) -> list[str]:
    found = db.sql("SELECT reason FROM system.history ORDER BY version").rows()
    return [reason for (reason,) in found if "rebuild" in reason or "request" in reason]


@pytest.mark.parametrize("failpoint", KILLS)
def test_c8_a_request_is_finished_by_the_next_leader_exactly_once(tmp_path: Path, processes: Processes, failpoint: str):
    where, nodes = str(tmp_path / "w"), {"node2": str(tmp_path / "two")}
    connect(where, nodes=nodes, **QUICK).close()
    child = processes.start(
        "support.topology_tasks:ask", where, nodes, "REBUILD NODE node2", QUICK, failpoints=failpoint
    )
    with contextlib.closing(child):
        request = int(child.line())
        assert child.wait() == EXIT_CODE
    with connect(where, nodes=nodes, **QUICK) as db:
        assert db.sql(f"WAIT FOR REQUEST {request}").one() == (request, "node node2 has all of its copies")
        assert reasons(db) == [
            "ask for rebuild of node2",
            "begin rebuild of node2",
            f"end request {request}: node node2 has all of its copies",
        ]
        assert db.sql("SELECT node_state FROM system.topology WHERE name = 'node2'").one() == ("normal",)


def test_c7_a_join_whose_process_died_ends_and_its_name_is_free(tmp_path: Path, processes: Processes):
    where, two = str(tmp_path / "w"), str(tmp_path / "two")
    connect(where, **QUICK).close()
    child = processes.start(
        "support.topology_tasks:ask", where, {"node2": two}, "", QUICK, failpoints="topology.committed=exit@1"
    )
    with contextlib.closing(child):
        assert child.wait() == EXIT_CODE
    with connect(where, **QUICK) as db:
        [(request,)] = db.sql("SELECT id FROM system.topology_requests").rows()
        with pytest.raises(ebla.UsageError, match="expected its process to stay alive, found it gone"):
            db.sql(f"WAIT FOR REQUEST {request}")
        with pytest.raises(ebla.NodeConflictError, match="which left; its id is never accepted again"):
            connect(where, nodes={"node2": two}, **QUICK)
        with connect(where, nodes={"node2": str(tmp_path / "fresh")}, **QUICK) as again:
            found = again.sql("SELECT node_state FROM system.topology WHERE name = 'node2'").rows()
            assert sorted(found) == [("left",), ("normal",)]
