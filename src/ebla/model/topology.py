"""The topology as values: nodes, where replicas lie, what is in transition, what was asked for.

The coordinator decides from one `Topology` (`ebla.topology.coordinator`), the balancer and the resizer from the same.
Whatever a decision needs to know is in it; nothing here reads or writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ebla.base.ids import NodeId, RelationId, TabletId, Version
from ebla.model.lifecycle.node import NodeState, is_member, may_receive
from ebla.model.lifecycle.tablet import Stage
from ebla.model.relation import Move
from ebla.model.tasks import Replica

LEASE = "topology"
"""The lease that the leader of the topology holds."""

BUILDING_CALLS = "building_calls"
"""A node does tasks of builds that another one calls it for (`ebla.server.rpc`)."""
LOCAL_ROOTS = "local_roots"
"""A node reaches the files of nodes whose storage roots are local to their machines (`ebla.server.files`)."""
FEATURES = frozenset({"tablet_transitions", "topology_requests", BUILDING_CALLS, LOCAL_ROOTS})
"""What a node of this release can do. One that lacks what all members can is refused."""

LOCAL = "local://"
"""What the recorded storage root of a node begins with that only the processes of its machine reach by path."""

Tablet = tuple[RelationId, TabletId]
"""A tablet of a table or a view. Those of indexes lie where their bases' do and move with them."""


# ---- nodes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node, as the topology knows it."""

    id: NodeId
    name: str
    root: str
    datacenter: str = "dc1"
    rack: str = "rack1"
    shards: int = 1
    state: NodeState = NodeState.NORMAL
    release: str = ""
    features: frozenset[str] = frozenset()
    address: str | None = None
    replaced: NodeId | None = None
    """The node in whose place it came."""

    @property
    def has_local_root(self) -> bool:
        return is_local(self.root)


def is_local(root: str) -> bool:
    """Whether a storage root, as it is recorded, is reached by path on one machine alone."""
    return root.startswith(LOCAL)


def features_in_use(members: Iterable[Member]) -> frozenset[str]:
    """What all members can: a feature is used from the moment on that the last of them has it."""
    found = [member.features for member in members if is_member(member.state)]
    return frozenset.intersection(*found) if found else frozenset()


def release_step(release: str) -> tuple[int, int]:
    """The numbers of a release that a rolling upgrade takes one after the other."""
    major, minor = (*release.split("."), "0", "0")[:2]
    return int(major) if major.isdigit() else 0, int(minor) if minor.isdigit() else 0


def is_next_to(release: str, other: str) -> bool:
    """Whether nodes of both releases may be in one cluster: they are the same, or one step apart."""
    (major, minor), (of_other, minor_of_other) = release_step(release), release_step(other)
    return major == of_other and abs(minor - minor_of_other) <= 1


# ---- requests -------------------------------------------------------------------------------------------


class RequestKind(StrEnum):
    JOIN = "join"
    LEAVE = "leave"
    REPLACE = "replace"
    REMOVE = "remove"
    REBUILD = "rebuild"
    NEW_CDC_GENERATION = "new_cdc_generation"
    REPLICATION = "replication"
    RESIZE = "resize"
    MOVE = "move"
    TRUNCATE = "truncate"


BESIDE = frozenset({RequestKind.JOIN, RequestKind.NEW_CDC_GENERATION, RequestKind.TRUNCATE})
"""Requests that move no tablet: they wait for no other kind, and no other waits for them."""


class RequestState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """Why a request did not end as it was meant to."""

    REFUSED = "refused"
    """The request was impossible from the start, and changed nothing."""
    WENT_BACK = "went_back"
    """The request had begun and could not go on; what it had changed was taken back."""
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    """The request had begun, and a newer one goes on from where it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    id: int
    """The version of the commit that queued it."""
    kind: RequestKind
    state: RequestState
    node: NodeId | None = None
    """The node that it is about."""
    relation: RelationId | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    begun: Version | None = None
    holder: str = ""
    """The process that asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildResult:
    """What a node that was rebuilt has not."""

    lacks: int = 0
    """How many files and copies."""
    reason: str = ""
    """Why one of them could not be copied."""


# ---- tablets --------------------------------------------------------------------------------------------


class TransitionKind(StrEnum):
    MIGRATION = "migration"
    """A replica moves: the leaving one is there to be copied from."""
    REBUILD = "rebuild"
    """A replica is made from the others: its node is dead, or one more is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    tablet: Tablet
    kind: TransitionKind
    stage: Stage
    leaving: Replica | None
    pending: Replica | None
    session: str | None
    request: int | None
    """The request that it is a part of."""
    begun: Version
    since: Version
    """The commit of its stage."""
    failure: str | None = None
    """Why it goes back."""

    @property
    def move(self) -> Move:
        """What readers and writers of the tablet have to know of it."""
        leaving, pending = (None if one is None else one.host for one in (self.leaving, self.pending))
        return Move(self.stage, leaving, pending)


class ResizeType(StrEnum):
    NONE = "none"
    SPLIT = "split"
    MERGE = "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """A decision to have twice or half as many tablets, until it is finalized or revoked."""

    type: ResizeType = ResizeType.NONE
    number: int = 0
    """Grows with each decision; replicas report the number of the one that their runs are cut for."""
    tablets: int = 0
    """How many tablets were asked for; a resize goes there by doubling or halving."""
    request: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the tablets of a table or a view lie."""

    relation: RelationId
    name: str
    replication: int
    min_copies: int
    replicas: tuple[tuple[Replica, ...], ...]
    """The replicas of each tablet, the preferred reader first."""
    bytes: tuple[int, ...]
    """The bytes of one copy of each tablet, with its indexes'."""
    resize: Resize = Resize()
    reported: Mapping[tuple[TabletId, NodeId], int] = field(default_factory=dict)
    """The number of the last resize that a replica has cut its runs for."""

    @property
    def tablets(self) -> int:
        return len(self.replicas)

    def is_cut(self, alive: Collection[NodeId]) -> bool:
        """A resize is decided, and every live replica has reported that its runs are cut for it; where tablets become
        one, both have the same nodes. What a dead node has of the cut runs is missing, and copied to it later."""
        if self.resize.type is ResizeType.NONE:
            return False
        if self.resize.type is ResizeType.MERGE and not self.is_paired:
            return False
        return not self.uncut(alive)

    @property
    def is_paired(self) -> bool:
        """Whether each two tablets that a merge makes one lie on the same nodes."""
        return all(is_together(one, other) for one, other in self.pairs())

    def uncut(self, alive: Collection[NodeId]) -> list[TabletId]:
        """The tablets of which a live replica has not reported the resize that is decided, or no replica lives."""
        number, found = self.resize.number, []
        for tablet, replicas in enumerate(self.replicas):
            live = [replica.host for replica in replicas if replica.host in alive]
            if not live or any(self.reported.get((TabletId(tablet), host), 0) < number for host in live):
                found.append(TabletId(tablet))
        return found

    def pairs(self) -> Iterator[tuple[tuple[Replica, ...], tuple[Replica, ...]]]:
        """The replicas of each two tablets that a merge makes one."""
        return zip(self.replicas[::2], self.replicas[1::2], strict=True)


def receiving(members: Collection[Member]) -> list[Member]:
    """The nodes that new replicas may come to while they live. One that is being replaced gets none: its successor has
    room for those that it has, and may have one of the same tablet otherwise."""
    replaced = {m.replaced for m in members if m.state is NodeState.REPLACING}
    return [m for m in members if may_receive(m.state) and m.id not in replaced]


def copies_max(receivers: Collection[Member]) -> tuple[int, str]:
    """How many copies of a tablet some nodes can have, and of what they have that many: where there are racks each copy
    is in another one, and otherwise on another node."""
    racks = {(member.datacenter, member.rack) for member in receivers}
    return (len(racks), "racks") if len(racks) > 1 else (len(receivers), "nodes")


def is_together(one: Iterable[Replica], other: Iterable[Replica]) -> bool:
    return {replica.host for replica in one} == {replica.host for replica in other}


# ---- all of it ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    version: Version
    """The version of the last commit that changed the topology."""
    members: Mapping[NodeId, Member]
    alive: frozenset[NodeId]
    """Nodes whose process holds its lease."""
    seen: Mapping[NodeId, Version]
    """The topology version that each live node follows."""
    holders: frozenset[str] = frozenset()
    """The processes that hold their leases."""
    layouts: Mapping[RelationId, Layout]
    transitions: Mapping[Tablet, Transition]
    requests: tuple[Request, ...]
    """The requests that have not ended, the oldest first."""
    balancing: bool = True
    rebuilt: Mapping[int, RebuildResult] = field(default_factory=dict)
    """The requests to rebuild a node whose node has what can be copied to it."""
    paused: Mapping[Tablet, frozenset[NodeId | None]] = field(default_factory=dict)
    """Nodes that a tablet could not come to a while ago, and is not to come to yet; `None`: it could not give up a
    replica."""
    unreached: Mapping[NodeId, Mapping[str, int]] = field(default_factory=dict)
    """Of each dead node, how many runs of each relation it has that no live node has."""
    empty: frozenset[Tablet] = frozenset()
    """The tablets that no live node has and that have no run: nothing is lost where they are made anew."""
    unpublished: tuple[str, ...] = ()
    """Generations of change streams that are committed and not published."""
    oldest_open: Version | None = None
    """The version of schema and topology under which the oldest transaction began that is open on a relation of which
    tablets are in transition, and that no open session keeps apart."""
    lacking: Mapping[Tablet, int] = field(default_factory=dict)
    """How many copies the pending replica lacks, of each tablet that is being copied."""

    def receivers(self) -> list[Member]:
        """The nodes that new replicas may come to."""
        return [m for m in receiving(self.members.values()) if m.id in self.alive]
