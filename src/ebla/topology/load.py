"""What nodes and shards hold, with every transition counted as done, and where one more replica may go.

A replica that moves is counted where it will be: a plan that is made while replicas move continues the one before and
does not repeat it. The replicas of a node that another replaces are counted on the one that replaces it.

`Load` is the scratch pad of one plan. The plan notes each move in it, so that the next one sees the move as done too.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from ebla.base.ids import NodeId, RelationId, TabletId
from ebla.model.lifecycle.node import NodeState, may_hold
from ebla.model.lifecycle.tablet import goes_back
from ebla.model.tasks import Replica
from ebla.model.topology import Layout, Member, Topology, Transition, TransitionKind
from ebla.topology import census

Replicas = tuple[Replica, ...]

NOWHERE: frozenset[NodeId | None] = frozenset()


class Rack(NamedTuple):
    datacenter: str
    name: str


class Place(NamedTuple):
    """A tablet where it lies, with the bytes of one copy of it."""

    size: int
    layout: Layout
    tablet: TabletId
    replicas: Replicas

    @property
    def order(self) -> tuple[int, RelationId, TabletId]:
        return self.size, self.layout.relation, self.tablet

    def replica_on(self, host: NodeId) -> Replica:
        return next(one for one in self.replicas if one.host == host)


def set_after(replicas: Replicas, leaving: Replica | None, pending: Replica | None) -> Replicas:
    """The new set of a transition: the pending replica in the place of the leaving one."""
    if pending is None:
        return tuple(one for one in replicas if one != leaving)
    if leaving is None:
        return (*replicas, pending)
    return tuple(pending if one == leaving else one for one in replicas)


def outcome(replicas: Replicas, transition: Transition) -> Replicas:
    """The replicas that a tablet will have when its transition ends as it goes now."""
    if goes_back(transition.stage):
        return replicas
    return set_after(replicas, transition.leaving, transition.pending)


class Load:
    """Bytes per node, replicas and streams per shard."""

    def __init__(self, topology: Topology, streams_per_shard: int) -> None:
        self.topology = topology
        self.streams_max = streams_per_shard
        self.rack_of = {m.id: Rack(m.datacenter, m.rack) for m in topology.members.values()}
        self.successor = {
            m.replaced: m.id
            for m in topology.members.values()
            if m.state is NodeState.REPLACING and m.replaced is not None and m.id in topology.alive
        }
        """Of a node that is replaced, the one that gets its replicas."""
        self.receivers = {m.id: m for m in topology.receivers()}
        self.nodes_of: dict[Rack, set[NodeId]] = {}
        for node in self.receivers:
            self.nodes_of.setdefault(self.rack_of[node], set()).add(node)
        self.moving: dict[RelationId, dict[TabletId, Transition]] = {}
        for (relation, tablet), transition in topology.transitions.items():
            self.moving.setdefault(relation, {})[tablet] = transition
        self.replicas_on: Counter[Replica] = Counter()
        self.bytes = self._bytes()
        self.streams: Counter[Replica] = Counter()
        for transition in topology.transitions.values():
            self._stream(transition.kind, transition.leaving, transition.pending)
        self.free: dict[Rack, list[tuple[int, NodeId]]] = {}
        """Nodes with room for one more stream, the emptiest first."""
        for node in self.receivers:
            if self.shard_for(node) is not None:
                self.free.setdefault(self.rack_of[node], []).append((self.bytes[node], node))
        for nodes in self.free.values():
            nodes.sort()

    def _bytes(self) -> dict[NodeId, int]:
        counted = census.of(self.topology.layouts)
        self.replicas_on = counted.replicas.copy()
        held = dict(counted.bytes)
        for relation, moving in self.moving.items():
            layout = self.topology.layouts.get(relation)
            if layout is None:
                continue
            for tablet, transition in moving.items():
                before, size = layout.replicas[tablet], layout.bytes[tablet] or 1
                for replicas, sign in ((before, -1), (outcome(before, transition), 1)):
                    for replica in replicas:
                        self.replicas_on[replica] += sign
                        held[replica.host] = held.get(replica.host, 0) + sign * size
        found = dict.fromkeys(self.topology.members, 0)
        for host, size in held.items():
            heir = self.successor.get(host, host)
            found[heir] = found.get(heir, 0) + size
        return found

    def places(self, layout: Layout) -> Iterator[Place]:
        """The tablets that no transition and no move of this plan is about."""
        moving: Mapping[TabletId, Transition] = self.moving.get(layout.relation, {})
        for number, (size, replicas) in enumerate(zip(layout.bytes, layout.replicas, strict=True)):
            if number not in moving:
                yield Place(size or 1, layout, TabletId(number), replicas)

    # ---- streams ----------------------------------------------------------------------------------------

    def _stream(self, kind: TransitionKind, leaving: Replica | None, pending: Replica | None) -> None:
        if pending is None:
            return
        self.streams[pending] += 1
        if leaving is not None and kind is TransitionKind.MIGRATION:
            self.streams[leaving] += 1

    def may_stream(self, replica: Replica) -> bool:
        return self.streams[replica] < self.streams_max

    def shard_for(self, node: NodeId) -> Replica | None:
        """The shard of a node with the fewest replicas, of those that have room for one more stream."""
        shards = (Replica(node, shard) for shard in range(self.receivers[node].shards))
        return min(
            (one for one in shards if self.may_stream(one)),
            key=lambda one: (self.replicas_on[one], one.shard),
            default=None,
        )

    # ---- moves ------------------------------------------------------------------------------------------

    def note(self, place: Place, kind: TransitionKind, leaving: Replica | None, pending: Replica | None) -> None:
        """A move is planned: it counts as done."""
        self._stream(kind, leaving, pending)
        for replica, sign in ((leaving, -1), (pending, 1)):
            if replica is None:
                continue
            self.replicas_on[replica] += sign
            host = self.successor.get(replica.host, replica.host)
            before = self.bytes.get(host, 0)
            self.bytes[host] = before + sign * place.size
            if host in self.receivers:
                self._reorder(host, before)

    def _reorder(self, node: NodeId, before: int) -> None:
        nodes = self.free.setdefault(self.rack_of[node], [])
        at = bisect_left(nodes, (before, node))
        if at < len(nodes) and nodes[at] == (before, node):
            del nodes[at]
        if self.shard_for(node) is not None:
            insort(nodes, (self.bytes[node], node))

    # ---- where to ---------------------------------------------------------------------------------------

    def crowd(self, others: Iterable[Replica]) -> Counter[Rack]:
        """How many of these replicas each rack has."""
        return Counter(self.rack_of[one.host] for one in others if one.host in self.rack_of)

    def racks(self, datacenter: str) -> list[Rack]:
        return [rack for rack in self.nodes_of if rack.datacenter == datacenter]

    def paused(self, place: Place) -> frozenset[NodeId | None]:
        """The nodes that a tablet is not to come to yet, because it could not a while ago."""
        return self.topology.paused.get((place.layout.relation, place.tablet), NOWHERE)

    def has_room(self, rack: Rack, hosts: Set[NodeId | None]) -> bool:
        """Whether a rack has a node that is none of these, be its shards busy or not."""
        return not self.nodes_of[rack] <= hosts

    def emptiest(self, rack: Rack, hosts: Set[NodeId | None]) -> Replica | None:
        """Where a rack takes one more replica of a tablet that these hosts have."""
        for _, node in self.free.get(rack, ()):
            if node not in hosts:
                return self.shard_for(node)
        return None

    def members_alive(self, replicas: Iterable[Replica]) -> list[Member]:
        """The nodes, of those with these replicas, that can be copied from."""
        found = (self.topology.members.get(one.host) for one in replicas if one.host in self.topology.alive)
        return [m for m in found if m is not None and may_hold(m.state)]
