"""What commits change of the topology, as values: nodes, requests, and what holds for the cluster as a whole.

Each of them moves the scope `TOPOLOGY` and the topology's version, which processes follow (`system.processes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ebla.base.ids import NodeId, RelationId, TabletId
from ebla.model.lifecycle.node import NodeState
from ebla.model.topology import Member, Outcome, RequestKind, RequestState, Resize


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNode:
    """A node that the topology has not heard of: it asks to join, or founds the cluster."""

    node: Member


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeState:
    """The next state of a node."""

    node: NodeId
    state: NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """Something is asked of the topology. The version of the commit is the request's id."""

    kind: RequestKind
    holder: str
    """The process that asks."""
    node: NodeId | None = None
    relation: RelationId | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginRequest:
    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """The answer: `done` with a result, or another state with a code and a message. It is kept for ever."""

    request: int
    state: RequestState
    result: str | None = None
    code: Outcome | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBalancing:
    on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetResize:
    """A decision to split tablets or to make each two of them one, or that the last decision is revoked."""

    relation: RelationId
    resize: Resize


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCut:
    """The runs that a node has of these tablets fit what a resize will make of them. Those in which something is left
    to do when it is committed are left out."""

    relation: RelationId
    tablets: tuple[TabletId, ...]
    host: NodeId
    number: int
    """Of the resize."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishGenerations:
    """Every generation of change streams that is committed is known to readers."""


ResizeUpdate = SetResize | ReportCut

Unreported = (
    SetResize | PublishGenerations | AddNode | SetNodeState | AddRequest | BeginRequest | EndRequest | SetBalancing
)

"""Updates that move the topology's version."""

TopologyUpdate = Unreported | ReportCut

ROWS_ONLY = (AddRequest, BeginRequest, EndRequest, SetBalancing, ReportCut, PublishGenerations)
"""Updates that leave the shape as it is: which nodes there are, and where tablets lie."""
