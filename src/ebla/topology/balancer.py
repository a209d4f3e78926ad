"""Which replicas are made, moved and removed next.

Theory of operation. A plan is a function of the topology alone, and is made anew after every step of it. What is in
flight counts as done (`ebla.topology.load`), so the next plan continues the last one. Its parts, the most urgent first:

1. *Replicas that must be made*: a tablet has lost a replica, or has one on a node that leaves, is removed or is
   replaced. A node that leaves and is alive is copied from (migration); the others are copied from the replicas that
   are left (rebuild). Tablets with the fewest live copies go first. A replica too many is removed.
2. *Tablets that become one* come to the same nodes.
3. *Racks*: two replicas in one rack part, if a rack of the datacenter has none.
4. *Bytes*: a replica goes from a full node of a datacenter to an empty one, if no rack becomes more crowded by it.
5. *Shards*, if there is nothing else to do: a replica goes to another shard of its node.

While a replica of the first or third part waits for a stream, the last two do nothing.

A node that a tablet could not come to a while ago is passed over for that tablet, as if it had a replica of it, until
it has rested (`ebla.topology.pauses`). The replica is made on another node, in the same datacenter, or later.

It ends, because each part does its own work without undoing that of the parts before it, and each move of the bytes
makes the sum of the squares smaller. It does not go back and forth when tablets grow and shrink, because of two gaps:
nodes whose bytes differ by less than `tolerance` of the mean are even, and a replica moves only if its bytes are at
most three quarters of the difference, so that the difference that is left, in whichever direction, is well below what
would move it back.

`balancing = off` leaves the first part alone, and tablets that become one because it was asked for.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from ebla.base.ids import NodeId, TabletId
from ebla.model.lifecycle.node import NodeState, may_hold
from ebla.model.tasks import Replica
from ebla.model.topology import Layout, ResizeType, Tablet, Topology, Transition, TransitionKind, is_together
from ebla.topology import census
from ebla.topology.load import Load, Place, Rack


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    streams_per_shard: int = 2
    """Replicas that leave a shard or come to it at a time."""
    tolerance: float = 0.02
    """Part of the mean by which the bytes of two nodes may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A transition to begin."""

    tablet: Tablet
    kind: TransitionKind
    leaving: Replica | None
    pending: Replica | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckReplica:
    """A replica that must be made, and cannot be as the topology is now."""

    tablet: Tablet
    leaving: Replica | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    moves: tuple[Move, ...] = ()
    stuck: tuple[StuckReplica, ...] = ()


def plan(topology: Topology, limits: Limits = Limits(), *, only_due: bool = False) -> Plan:  # noqa: B008  a frozen value
    """The transitions to begin now. None, when everything is where it should be or on its way there.

    `only_due`: the first part alone.
    """
    scratch = _Scratch(load=Load(topology, limits.streams_per_shard), limits=limits)
    # A resize whose runs are cut waits for transitions to end: its tablets begin no more of them.
    layouts = [layout for layout in topology.layouts.values() if not layout.is_cut(topology.alive)]
    _make_due(scratch, layouts)
    if only_due:
        return Plan(moves=tuple(scratch.moves), stuck=tuple(scratch.stuck))
    merging = [layout for layout in layouts if layout.resize.type is ResizeType.MERGE]
    _bring_together(scratch, [one for one in merging if topology.balancing or one.resize.request is not None])
    if topology.balancing:
        _spread_over_racks(scratch, layouts)
        balanced = [layout for layout in layouts if layout.resize.type is not ResizeType.MERGE]
        if not scratch.waits:
            _even_bytes(scratch, balanced)
        if not scratch.moves and not scratch.waits and all(_within_node(one) for one in topology.transitions.values()):
            _even_shards(scratch, balanced)
    return Plan(moves=tuple(scratch.moves), stuck=tuple(scratch.stuck))


@dataclass(slots=True)
class _Scratch:
    load: Load
    limits: Limits
    moves: list[Move] = field(default_factory=list)
    stuck: list[StuckReplica] = field(default_factory=list)
    planned: set[Tablet] = field(default_factory=set)
    waits: bool = False
    """A replica that must be made or parted from another waits for a stream: what is less urgent does not overtake it,
    since it might have to be undone."""

    def places(self, layouts: Iterable[Layout]) -> Iterator[Place]:
        """Tablets that nothing is planned or under way for."""
        for layout in layouts:
            for place in self.load.places(layout):
                if not self.planned or (layout.relation, place.tablet) not in self.planned:
                    yield place

    def add(
        self, place: Place, kind: TransitionKind, leaving: Replica | None, pending: Replica | None, reason: str
    ) -> None:
        tablet = (place.layout.relation, place.tablet)
        self.load.note(place, kind, leaving, pending)
        self.planned.add(tablet)
        self.moves.append(Move(tablet=tablet, kind=kind, leaving=leaving, pending=pending, reason=reason))

    def give_up(self, place: Place, leaving: Replica | None, reason: str) -> None:
        tablet = (place.layout.relation, place.tablet)
        self.stuck.append(StuckReplica(tablet=tablet, leaving=leaving, reason=reason))


# ---- replicas that must be made -------------------------------------------------------------------------


def _make_due(scratch: _Scratch, layouts: list[Layout]) -> None:
    load = scratch.load
    hosts = {replica.host for replica, count in load.replicas_on.items() if count}
    gone = {host for host in hosts if _must_leave(load, host)}
    odd = census.of(load.topology.layouts).odd
    due = [
        place
        for layout in layouts
        if gone or layout.relation in odd
        for place in scratch.places([layout])
        if len(place.replicas) != layout.replication or any(one.host in gone for one in place.replicas)
    ]
    for place in sorted(due, key=lambda place: (len(load.members_alive(place.replicas)), place.order)):
        _make(scratch, place)


def _must_leave(load: Load, node: NodeId) -> bool:
    """Whether the replicas of a node are to be made elsewhere."""
    member = load.topology.members.get(node)
    leaves = (NodeState.DECOMMISSIONING, NodeState.REMOVING)
    return member is None or not may_hold(member.state) or member.state in leaves or node in load.successor


def _is_drained(load: Load, node: NodeId) -> bool:
    """Whether the replicas of a node that leaves are copied from it: one that was dead and is back has them, too."""
    member = load.topology.members.get(node)
    return member is not None and may_hold(member.state) and node in load.topology.alive


def _make(scratch: _Scratch, place: Place) -> None:
    load = scratch.load
    leaving = next((one for one in place.replicas if _must_leave(load, one.host)), None)
    if len(place.replicas) > place.layout.replication:
        if None not in load.paused(place):
            scratch.add(place, TransitionKind.MIGRATION, _most_dispensable(load, place), None, "one replica too many")
        return
    is_source = leaving is not None and _is_drained(load, leaving.host)
    has_rows = (place.layout.relation, place.tablet) not in load.topology.empty
    if has_rows and not is_source and not load.members_alive(one for one in place.replicas if one != leaving):
        scratch.give_up(place, leaving, "expected a live replica to copy from, found none")
        return
    pending, choice = _target(load, place, leaving)
    if choice is Choice.NONE:
        scratch.give_up(place, leaving, "expected a node without a replica of it, found none")
    elif choice is Choice.RESTS:
        return  # it is planned again when a node has rested
    elif pending is None or (leaving is not None and is_source and not load.may_stream(leaving)):
        scratch.waits = True
    else:
        kind = TransitionKind.MIGRATION if is_source else TransitionKind.REBUILD
        reason = "a replica is missing" if leaving is None else f"{leaving.host} leaves"
        scratch.add(place, kind, leaving, pending, reason)


class Choice(Enum):
    """Which nodes there are to make a replica on."""

    SOME = auto()
    RESTS = auto()
    """Each of them rests, because the replica could not be made there."""
    NONE = auto()


def _target(load: Load, place: Place, leaving: Replica | None) -> tuple[Replica | None, Choice]:
    """Where a replica is made, if a stream is free there; and whether there is any such place."""
    hosts, rests = {one.host for one in place.replicas}, load.paused(place)
    if leaving is not None:
        heir = load.successor.get(leaving.host)
        if heir in load.receivers and heir not in hosts:
            return (None, Choice.RESTS) if heir in rests else (load.shard_for(heir), Choice.SOME)
    others = [one for one in place.replicas if one != leaving]
    near = {load.rack_of[one.host].datacenter for one in ([leaving] if leaving else others) if one.host in load.rack_of}
    crowd = load.crowd(others)
    with_room = [rack for rack in load.nodes_of if load.has_room(rack, hosts)]
    racks = [rack for rack in with_room if rack.datacenter in near] or with_room
    awake = [rack for rack in racks if load.has_room(rack, hosts | rests)]
    if not awake:
        return None, Choice.RESTS if racks else Choice.NONE
    fewest = min(crowd[rack] for rack in awake)
    found = [load.emptiest(rack, hosts | rests) for rack in awake if crowd[rack] == fewest]
    free = [one for one in found if one is not None]
    return min(free, key=lambda one: (load.bytes[one.host], one), default=None), Choice.SOME


def _most_dispensable(load: Load, place: Place) -> Replica:
    """The replica that a tablet with one too many loses: on a dead node, on one that leaves, in a crowded rack, on a
    full node. A live one is not given up for a dead one, not even by a node that leaves."""
    crowd = load.crowd(place.replicas)

    def rank(one: Replica) -> tuple[bool, bool, int, int, Replica]:
        dead, rack = one.host not in load.topology.alive, load.rack_of.get(one.host)
        return dead, _must_leave(load, one.host), 0 if rack is None else crowd[rack], load.bytes.get(one.host, 0), one

    return max(place.replicas, key=rank)


# ---- tablets that become one ----------------------------------------------------------------------------


def _bring_together(scratch: _Scratch, layouts: list[Layout]) -> None:
    """Of two tablets that become one, the second comes to the nodes of the first; where a rack would have two replicas
    by it, the first to those of the second."""
    for layout in layouts:
        if layout.is_paired:
            continue
        places = {place.tablet: place for place in scratch.places([layout])}
        for left in range(0, layout.tablets, 2):
            one, other = places.get(TabletId(left)), places.get(TabletId(left + 1))
            if one is None or other is None or is_together(one.replicas, other.replicas):
                continue
            _follow(scratch, other, one) or _follow(scratch, one, other)


def _follow(scratch: _Scratch, place: Place, leader: Place) -> bool:
    load = scratch.load
    hosts, wanted = {one.host for one in place.replicas}, {one.host for one in leader.replicas}
    for leaving in place.replicas:
        if leaving.host in wanted or leaving.host not in load.receivers or not load.may_stream(leaving):
            continue
        for host in sorted(wanted - hosts - load.paused(place)):
            if host in load.receivers and _keeps_racks(load, place, leaving, load.rack_of[host]):
                pending = load.shard_for(host)
                if pending is not None:
                    reason = "it becomes one with its neighbour"
                    scratch.add(place, TransitionKind.MIGRATION, leaving, pending, reason)
                    return True
    return False


def _keeps_racks(load: Load, place: Place, leaving: Replica, rack: Rack) -> bool:
    crowd = load.crowd(one for one in place.replicas if one != leaving)
    return crowd[rack] <= crowd[load.rack_of[leaving.host]]


# ---- racks ----------------------------------------------------------------------------------------------


def _spread_over_racks(scratch: _Scratch, layouts: list[Layout]) -> None:
    load = scratch.load
    if len(load.nodes_of) <= len({rack.datacenter for rack in load.nodes_of}):
        return
    numbers = {rack: number for number, rack in enumerate(load.nodes_of)}
    rack_of = {node: numbers.get(rack, -1) for node, rack in load.rack_of.items()}
    crowded = census.crowded(load.topology.layouts, rack_of)
    for layout in layouts:
        if layout.relation in crowded:
            for place in scratch.places([layout]):
                if len({rack_of.get(host) for host, _ in place.replicas}) < len(place.replicas):
                    _part(scratch, place)


def _part(scratch: _Scratch, place: Place) -> None:
    load = scratch.load
    crowd = load.crowd(place.replicas)
    hosts = {one.host for one in place.replicas} | load.paused(place)
    for leaving in sorted(place.replicas, key=lambda one: (-load.bytes.get(one.host, 0), one)):
        rack = load.rack_of.get(leaving.host)
        if rack is None or crowd[rack] < 2 or leaving.host not in load.receivers:
            continue
        empty = [one for one in load.racks(rack.datacenter) if not crowd[one] and load.has_room(one, hosts)]
        found = [replica for one in empty if (replica := load.emptiest(one, hosts)) is not None]
        if empty and not (found and load.may_stream(leaving)):
            scratch.waits = True
        elif empty:
            pending = min(found, key=lambda one: (load.bytes[one.host], one))
            scratch.add(place, TransitionKind.MIGRATION, leaving, pending, f"{rack.name} has two replicas of it")
            return


# ---- bytes ----------------------------------------------------------------------------------------------


def _even_bytes(scratch: _Scratch, layouts: list[Layout]) -> None:
    load = scratch.load
    for datacenter in sorted({rack.datacenter for rack in load.nodes_of}):
        racks = load.racks(datacenter)
        nodes = [node for rack in racks for node in load.nodes_of[rack]]
        gap = scratch.limits.tolerance * sum(load.bytes[node] for node in nodes) / len(nodes)
        free = [load.free[rack][0][0] for rack in racks if load.free.get(rack)]
        full = [node for node in nodes if free and load.bytes[node] - min(free) > gap]
        if full:
            _empty(scratch, layouts, full, racks, gap)


def _empty(scratch: _Scratch, layouts: list[Layout], full: list[NodeId], racks: list[Rack], gap: float) -> None:
    """Take from the fullest node until nothing of it may go, then from the next."""
    load = scratch.load
    held: dict[NodeId, _Held] = {node: {} for node in full}
    for place in sorted(scratch.places(layouts), key=lambda place: place.order):  # and so are those of each node
        of_replicas = tuple([load.rack_of.get(one.host) for one in place.replicas])
        for replica in place.replicas:
            if replica.host in held:
                held[replica.host].setdefault(of_replicas, []).append(place)
    heap = [(-load.bytes[node], node) for node in full]
    heapq.heapify(heap)
    while heap:
        _, node = heapq.heappop(heap)
        racks = sorted((one for one in racks if load.free.get(one)), key=lambda one: load.free[one][0])
        if not racks:
            return
        found = _best(scratch, node, held[node], racks, gap)
        if found is not None:
            place, pending = found
            scratch.add(place, TransitionKind.MIGRATION, place.replica_on(node), pending, f"{node} has more bytes")
            heapq.heappush(heap, (-load.bytes[node], node))


_Held = dict[tuple[Rack | None, ...], list[Place]]
"""The tablets of a node by the racks of their replicas, the smallest first."""


def _best(scratch: _Scratch, node: NodeId, held: _Held, racks: list[Rack], gap: float) -> tuple[Place, Replica] | None:
    """The largest replica that at most levels its node with another; failing that the smallest that does more."""
    load = scratch.load
    difference = load.bytes[node] - load.free[racks[0]][0][0]
    if difference <= gap:
        return None
    open_racks = [rack for rack in racks if load.bytes[node] - load.free[rack][0][0] > gap]
    found = []
    for of_replicas, places in held.items():
        allowed = _not_more_crowded(of_replicas, load.rack_of[node], open_racks)
        first = _first(scratch, node, places, allowed, difference, gap) if allowed else None
        if first is not None:
            found.append(first)

    def rank(one: tuple[Place, Replica]) -> tuple[bool, int]:
        size = one[0].size
        return 2 * size > difference, size if 2 * size > difference else -size

    return min(found, key=rank, default=None)


def _first(
    scratch: _Scratch, node: NodeId, places: list[Place], racks: list[Rack], difference: int, gap: float
) -> tuple[Place, Replica] | None:
    """The best of some tablets whose replicas lie in the same racks."""
    load = scratch.load
    middle = bisect_right(places, difference / 2, key=lambda place: place.size)
    for place in (*reversed(places[:middle]), *places[middle:]):
        if 4 * place.size > 3 * difference:
            break
        if (place.layout.relation, place.tablet) in scratch.planned:
            continue
        pending = _emptier(load, place, node, racks, gap)
        if pending is not None and load.may_stream(place.replica_on(node)):
            return place, pending
    return None


def _not_more_crowded(of_replicas: tuple[Rack | None, ...], leaving: Rack, racks: list[Rack]) -> list[Rack]:
    """The racks that a replica may go to from its own, with the others of its tablet where they are."""
    crowd = Counter(of_replicas)
    return [rack for rack in racks if rack == leaving or crowd[rack] < crowd[leaving]]


def _emptier(load: Load, place: Place, node: NodeId, racks: list[Rack], gap: float) -> Replica | None:
    """The emptiest node that a replica may go to, if it is so much emptier."""
    full = load.bytes[node]
    hosts = {one.host for one in place.replicas} | load.paused(place)
    for rack in racks:
        for size, other in load.free[rack]:
            if full - size <= gap or 4 * place.size > 3 * (full - size):
                break
            if other not in hosts:
                return load.shard_for(other)
    return None


# ---- shards ---------------------------------------------------------------------------------------------


def _within_node(transition: Transition) -> bool:
    leaving, pending = transition.leaving, transition.pending
    return leaving is not None and pending is not None and leaving.host == pending.host


def _even_shards(scratch: _Scratch, layouts: list[Layout]) -> None:
    load = scratch.load
    shards: dict[NodeId, set[Replica]] = {
        node: {Replica(node, shard) for shard in range(member.shards)} for node, member in load.receivers.items()
    }
    for replica, count in load.replicas_on.items():
        if count and replica.host in shards:
            shards[replica.host].add(replica)
    uneven = {node for node in shards if _next_shards(load, node, shards[node]) is not None}
    if not uneven:
        return
    for place in scratch.places(layouts):
        for replica in place.replicas:
            if replica.host in uneven and _change_shard(scratch, place, replica, shards[replica.host]):
                break


def _change_shard(scratch: _Scratch, place: Place, replica: Replica, shards: set[Replica]) -> bool:
    load = scratch.load
    found = _next_shards(load, replica.host, shards)
    if found is None or replica not in found[0] or replica.host in load.paused(place):
        return False
    pending = found[1]
    if not (load.may_stream(replica) and load.may_stream(pending)):
        return False
    scratch.add(place, TransitionKind.MIGRATION, replica, pending, f"shard {replica.shard} has more tablets")
    return True


def _next_shards(load: Load, node: NodeId, shards: set[Replica]) -> tuple[set[Replica], Replica] | None:
    """The shards of a node that have too many replicas, and the one that takes the next. Shards that the node has no
    more are given up first."""
    count = load.receivers[node].shards
    least = min((one for one in shards if one.shard < count), key=lambda one: (load.replicas_on[one], one.shard))
    beyond = {one for one in shards if one.shard >= count and load.replicas_on[one]}
    most = beyond or {one for one in shards if load.replicas_on[one] - load.replicas_on[least] > 1}
    return (most, least) if most else None
