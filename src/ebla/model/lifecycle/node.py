"""The life of a node: whether it serves, whether tablets come to it or leave it, and how it goes for ever.

Theory of operation. A node is a place for tablets: a storage root with a host id that is written into it. The states
say what the cluster plans with the node. Whether its process answers is no state but a fact beside it, the lease of the
process: a `normal` node may be down for a while and come back, and nothing of the topology changes.

The nodes of the process that creates a catalog found the cluster. Any other comes by a request to join, which the
coordinator answers. `none` has asked and is no member yet; what can be refused is refused there. While it is
`bootstrapping` or `replacing`, tablets come to it. A node goes by `decommissioning`, which needs it alive, or
`removing`, which needs it dead; either way each of its replicas is made elsewhere first, so a node that has `left`
holds nothing that is read. `left` is for ever: the row stays, and its host id is never accepted again, because a
process that slept through its removal may still believe in what it had.

A `rebuilding` node is a full member: it serves what it has, and what it has lost is copied to it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from ebla.model.lifecycle.steps import Actor, Lifecycle, Step


class NodeState(StrEnum):
    NONE = "none"
    BOOTSTRAPPING = "bootstrapping"
    REPLACING = "replacing"
    NORMAL = "normal"
    REBUILDING = "rebuilding"
    DECOMMISSIONING = "decommissioning"
    REMOVING = "removing"
    LEFT = "left"


class Rights(NamedTuple):
    """What is permitted in a state."""

    is_member: bool
    """The node follows the topology: a barrier waits for it while it is alive."""
    may_hold: bool
    """Replicas may be on it: it is read from and written to where the map says so."""
    may_receive: bool
    """The balancer, new relations and lost replicas may choose it."""


N = NodeState

RIGHTS: Mapping[NodeState, Rights] = {
    N.NONE: Rights(is_member=False, may_hold=False, may_receive=False),
    N.BOOTSTRAPPING: Rights(is_member=True, may_hold=True, may_receive=True),
    N.REPLACING: Rights(is_member=True, may_hold=True, may_receive=True),
    N.NORMAL: Rights(is_member=True, may_hold=True, may_receive=True),
    N.REBUILDING: Rights(is_member=True, may_hold=True, may_receive=True),
    N.DECOMMISSIONING: Rights(is_member=True, may_hold=True, may_receive=False),
    N.REMOVING: Rights(is_member=True, may_hold=True, may_receive=False),
    N.LEFT: Rights(is_member=False, may_hold=False, may_receive=False),
}

STEPS = (
    Step(None, N.NORMAL, Actor.PROCESS, "the catalog has no node", "founds the cluster"),
    Step(None, N.NONE, Actor.PROCESS, "asks to join", "stores its host id and root with the request"),
    Step(N.NONE, N.BOOTSTRAPPING, Actor.COORDINATOR, "the request is accepted", "lets tablets come"),
    Step(N.NONE, N.REPLACING, Actor.COORDINATOR, "accepted for a dead node", "gives it that node's replicas"),
    Step(N.NONE, N.LEFT, Actor.COORDINATOR, "the request is refused", "answers with the reason"),
    Step(N.BOOTSTRAPPING, N.NORMAL, Actor.COORDINATOR, "every live node has seen it", "ends the request"),
    Step(N.BOOTSTRAPPING, N.LEFT, Actor.COORDINATOR, "it died empty", "ends the request with an error"),
    Step(N.REPLACING, N.NORMAL, Actor.COORDINATOR, "it has every replica of the dead node", "ends the request"),
    Step(N.REPLACING, N.LEFT, Actor.COORDINATOR, "it died itself", "gives the replicas back to the dead node"),
    Step(N.NORMAL, N.REBUILDING, Actor.COORDINATOR, "REBUILD NODE", "copies what it lacks to it"),
    Step(N.REBUILDING, N.NORMAL, Actor.COORDINATOR, "it lacks nothing, or sources are missing", "ends the request"),
    Step(N.NORMAL, N.DECOMMISSIONING, Actor.COORDINATOR, "DECOMMISSION NODE, and the others can hold all", "drains it"),
    Step(N.DECOMMISSIONING, N.NORMAL, Actor.COORDINATOR, "it cannot be drained", "ends the request with an error"),
    Step(N.DECOMMISSIONING, N.LEFT, Actor.COORDINATOR, "no replica is on it", "ends the request"),
    Step(N.NORMAL, N.REMOVING, Actor.COORDINATOR, "REMOVE NODE of a dead one", "rebuilds its replicas elsewhere"),
    Step(N.REMOVING, N.NORMAL, Actor.COORDINATOR, "its replicas cannot be rebuilt", "ends the request with an error"),
    Step(N.REMOVING, N.LEFT, Actor.COORDINATOR, "no replica is on it", "ends the request"),
    Step(N.NORMAL, N.LEFT, Actor.COORDINATOR, "another node has replaced it", "ends its part in the cluster"),
)

LIFE = Lifecycle("node", STEPS)


def is_member(state: NodeState) -> bool:
    return RIGHTS[state].is_member


def may_hold(state: NodeState) -> bool:
    return RIGHTS[state].may_hold


def may_receive(state: NodeState) -> bool:
    return RIGHTS[state].may_receive
