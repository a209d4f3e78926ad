"""What commits change of the topology, as values: nodes, requests, and what holds for the cluster as a whole.

Each of them moves the scope `TOPOLOGY` and the topology's version, which processes follow (`system.processes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ebla.base.ids import NodeId, RelationId, TabletId
from ebla.model.lifecycle.node import NodeState
from ebla.model.lifecycle.tablet import Stage
from ebla.model.tasks import Replica
from ebla.model.topology import Member, Outcome, RequestKind, RequestState, Resize, Tablet, TransitionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNode:
    """A node that the topology has not heard of: it asks to join, or founds the cluster."""

    node: Member


@dataclass(frozen=True, slots=True, kw_only=True)
class NameCluster:
    """The founder says what the cluster is called, which has no name yet."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeBuild:
    """A member was started with another release, other features or at another address."""

    node: NodeId
    release: str
    features: frozenset[str]
    address: str | None


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
    result: str | None = None
    """Of one that is answered by the commit that asks: it has ended, with this result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginRequest:
    request: int
    parameters: Mapping[str, object] = field(default_factory=dict)
    """What is known only now, beside what was asked for."""


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
class BeginTransition:
    """A replica of a tablet is to leave a node, to come to one, or both. Its building tasks are aborted."""

    tablet: Tablet
    kind: TransitionKind
    leaving: Replica | None
    pending: Replica | None
    request: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceTransition:
    """The next stage of a tablet that was in the one before it. A stage that copies has a session from here on.

    Readers go over to the new replicas only if these have every run of the tablet.
    """

    tablet: Tablet
    stage: Stage
    """The stage that it was in when this was decided."""
    to: Stage
    failure: str | None = None
    """Why it goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailTransition:
    """What is done for a stage has failed: the transition is to go back."""

    tablet: Tablet
    stage: Stage
    failure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransition:
    """The tablet has its new replicas, or again its old ones; copies that belong to none of them are removed.

    Building tasks that were aborted go on, under new ids, where the tablet is.
    """

    tablet: Tablet
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReplication:
    """The number of replicas that the tablets of a table or a view, and of its indexes, get by transitions."""

    relation: RelationId
    replication: int


TransitionUpdate = BeginTransition | AdvanceTransition | FailTransition | EndTransition | SetReplication


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
    """The number of the resize."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishGenerations:
    """Every generation of change streams that is committed is known to readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginGenerations:
    """The generations of change streams that a request announced begin with this commit."""

    request: int
    relation: RelationId | None
    """`None`: of every table and view."""


ResizeUpdate = SetResize | ReportCut

Unreported = (
    SetResize
    | PublishGenerations
    | BeginGenerations
    | NameCluster
    | AddNode
    | SetNodeBuild
    | SetNodeState
    | AddRequest
    | BeginRequest
    | EndRequest
    | SetBalancing
)

"""Updates that move the topology's version."""

TopologyUpdate = Unreported | ReportCut

ROWS_ONLY = (
    NameCluster,
    AddRequest,
    BeginRequest,
    EndRequest,
    SetBalancing,
    ReportCut,
    PublishGenerations,
    BeginGenerations,
)
"""Updates that leave the shape as it is: which nodes there are, and where tablets lie."""
