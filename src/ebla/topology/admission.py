"""What any process of a cluster checks of a node that asks to join, before it writes the request.

The coordinator checks the rest when the request's turn has come (`ebla.topology.requests`): features, the release, and
of a replacement the dead node. A node asks once with each host id and root: what its process asks again, because an
answer was lost, finds the request that is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ebla.base.ids import NodeId
from ebla.catalog.topology import OPEN
from ebla.errors import NodeConflictError, UsageError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import NodeState
from ebla.model.scopes import TOPOLOGY
from ebla.model.topology import Member, Request, RequestKind

ASKS = frozenset({RequestKind.JOIN, RequestKind.REPLACE})
"""The kinds of requests by which a node becomes a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node that asks to become a member. Its process lives by now (`system.processes`)."""

    node: Member
    holder: str
    """Its process."""
    cluster: str
    """The id of the cluster that it means."""
    cluster_name: str | None = None
    """The name of it, where its configuration says one."""


def require_cluster(node: str, found: str, cluster: str) -> None:
    """Refuse a node, by its name, that has the catalog of another cluster; both by their ids."""
    if found != cluster:
        raise UsageError(
            f"node {node}: expected a node of cluster {cluster}, found one of cluster {found}; "
            "give it the address of the catalog of this cluster"
        )


def require_name(candidate: Candidate, name: str | None) -> None:
    """Refuse a node that means a cluster of another name."""
    if candidate.cluster_name is not None and candidate.cluster_name != name:
        own = "a cluster without a name" if name is None else f"cluster {name}"
        raise UsageError(
            f"node {candidate.node.name}: expected a node that means {own}, found one that means cluster "
            f"{candidate.cluster_name}; give it the name of the cluster that it shall join"
        )


def require_root(candidate: Candidate, owner: Mapping[str, str] | None) -> None:
    """Refuse a storage root that is marked as another node's; `owner`: what its marker says, where it can be seen."""
    if owner is None or (owner["cluster"], owner["node"]) == (candidate.cluster, candidate.node.id):
        return
    whose = f"node {owner['node']}" if owner["cluster"] == candidate.cluster else "another warehouse"
    raise NodeConflictError(
        f"node {candidate.node.name}: expected a storage root of its own, found {candidate.node.root} of {whose}"
    )


def written(candidate: Candidate, member: Member, requests: Sequence[Request]) -> int | None:
    """The request that a node of this id was written with; `None`: it is a member. Another node's id is refused.

    Two processes of a new node may ask at the same moment; an id that has left is never accepted again.
    """
    node = candidate.node
    if member.root != node.root:
        raise NodeConflictError(
            f"node {node.name}: expected a host id of its own, found {member.id} of node {member.name} at "
            f"{member.root}; begin anew with a fresh storage root"
        )
    asked = max((one for one in requests if one.kind in ASKS), key=lambda one: one.id, default=None)
    if asked is not None and (asked.holder == candidate.holder or asked.state in OPEN):
        return asked.id
    if member.state is NodeState.LEFT:
        raise NodeConflictError(
            f"node {node.name}: expected a fresh storage root, found {node.root} of node {member.name} ({member.id}), "
            "which left; its id is never accepted again"
        )
    return None


def asking(candidate: Candidate) -> c.Decision:
    """The commit that writes the node and its request."""
    node = candidate.node
    kind = RequestKind.JOIN if node.replaced is None else RequestKind.REPLACE
    parameters: dict[str, NodeId] = {} if node.replaced is None else {"replaced_id": node.replaced}
    asked = t.AddRequest(kind=kind, holder=candidate.holder, node=node.id, parameters=parameters)
    reason = f"ask for {kind} of {node.name}"
    return c.Decision(reason=reason, updates=(t.AddNode(node=node), asked), guards=frozenset({TOPOLOGY}))
