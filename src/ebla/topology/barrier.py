"""The barrier of the topology's steps: which of them all live nodes and open transactions know (`ebla.model.barrier`).

A process follows the versions of the topology and says in `system.processes` which one it has seen. A node that is down
is not waited for: what it commits later is checked against the state as it is then.
"""

from __future__ import annotations

from ebla.base.ids import NodeId, Version
from ebla.model import barrier
from ebla.model.lifecycle.node import is_member
from ebla.model.topology import Topology


def blind(topology: Topology, version: Version) -> list[NodeId]:
    """The live members that have not seen a version yet."""
    return sorted(
        node.id
        for node in topology.members.values()
        if is_member(node.state) and node.id in topology.alive and topology.seen.get(node.id, 0) < version
    )


def holds_up_to(topology: Topology) -> Version:
    """The newest step that all that is at work knows, or a later version."""
    follows = (
        topology.seen.get(node.id, Version(0))
        for node in topology.members.values()
        if is_member(node.state) and node.id in topology.alive
    )
    return barrier.holds_up_to(follows, topology.oldest_open, topology.version)


def holds(topology: Topology, version: Version) -> bool:
    """Whether nothing is at work that does not know the step of this version."""
    return holds_up_to(topology) >= version


def waited_for(topology: Topology) -> Version | None:
    """The oldest step that transactions alone keep from holding; `None`: no step waits for them."""
    steps = [one.since for one in topology.transitions.values() if not blind(topology, one.since)]
    first, oldest = min(steps, default=None), topology.oldest_open
    return first if first is not None and oldest is not None and oldest < first else None
