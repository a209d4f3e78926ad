"""Nodes that come to a cluster on real files: they ask, and the coordinator answers in the background."""

from __future__ import annotations

from pathlib import Path

import pytest

import ebla
from ebla.base.ids import NodeId
from ebla.catalog import topology
from ebla.errors import NodeConflictError, UsageError
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import NodeState
from ebla.model.topology import Member
from support.catalogs import exclusively
from support.warehouse import connect, eventually


def states(db: ebla.Database) -> dict[str, str]:
    with db.context.catalog.reading() as connection:
        return {member.name: member.state.value for member in topology.members(connection).values()}


def asked(db: ebla.Database) -> list[tuple[str, str]]:
    """Every request: its kind, and how it ended."""
    return [(row[0], row[1]) for row in db.sql("SELECT kind, state FROM system.topology_requests ORDER BY id").rows()]


def test_the_nodes_of_the_first_process_found_the_cluster_and_others_ask(tmp_path: Path):
    nodes = {"node2": str(tmp_path / "two")}
    with connect(tmp_path / "w", nodes=nodes) as db:
        assert states(db) == {"node1": "normal", "node2": "normal"}
        assert asked(db) == []
        with connect(tmp_path / "w", nodes={**nodes, "node3": str(tmp_path / "three")}) as other:
            assert states(other) == {"node1": "normal", "node2": "normal", "node3": "normal"}
            assert asked(other) == [("join", "done")]
        with connect(tmp_path / "w", nodes=nodes) as other:
            assert asked(other) == [("join", "done")], "a member does not ask again"


def test_every_process_follows_the_topology(tmp_path: Path):
    with connect(tmp_path / "w") as first, connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two")}) as second:
        newest = second.context.catalog.read(topology.version)
        eventually(lambda: all(db.background.coordination.seen == newest for db in (first, second)))


def test_c7_a_crashed_join_must_start_clean_and_a_removed_node_is_refused(tmp_path: Path):
    place = tmp_path / "two"
    with connect(tmp_path / "w") as db:
        node = Member(id=NodeId("node2"), name="node2", root=str(place), state=NodeState.NONE)
        exclusively(db.context.catalog, t.AddNode(node=node))
        with pytest.raises(NodeConflictError, match="node node2: expected a node that has not asked to join"):
            connect(tmp_path / "w", nodes={"node2": str(place)})
        exclusively(db.context.catalog, t.SetNodeState(node=node.id, state=NodeState.LEFT))
        with pytest.raises(NodeConflictError, match="found one that left; its id is never accepted again"):
            connect(tmp_path / "w", nodes={"node2": str(place)})
        assert states(db) == {"node1": "normal", "node2": "left"}


def test_a_node_that_lacks_a_feature_is_refused_and_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with connect(tmp_path / "w") as db:
        monkeypatch.setattr("ebla.node.registration.FEATURES", frozenset({"topology_requests"}))
        with pytest.raises(UsageError, match="found it without tablet_transitions; upgrade it"):
            connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two")})
        assert states(db) == {"node1": "normal", "node2": "left"}
        assert asked(db) == [("join", "failed")]
