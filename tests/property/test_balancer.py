"""The balancer on any cluster, through any failure: constraints hold at each step, and it comes to an end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ebla.base.ids import NodeId, TabletId
from ebla.model.lifecycle.node import NodeState
from ebla.model.tasks import Replica
from ebla.model.topology import Layout, Member, Resize, ResizeType, Topology, TransitionKind, copies_max, is_together
from ebla.topology.balancer import Limits, Move, plan
from ebla.topology.load import outcome
from support.topologies import bytes_of, end, layout, member, settle, start, topology, turn_back

LEAVES = (NodeState.DECOMMISSIONING, NodeState.REMOVING)


@st.composite
def clusters(draw: st.DrawFn, racks: int = 3, datacenters: int = 2, sizes: int = 1000) -> Topology:
    count = draw(st.integers(1, 6))
    members = [
        member(
            f"n{number}",
            dc=f"dc{draw(st.integers(1, datacenters))}",
            rack=f"r{draw(st.integers(1, racks))}",
            shards=draw(st.integers(1, 3)),
        )
        for number in range(count)
    ]
    return topology(
        members, *(draw(layouts(members, relation, sizes)) for relation in range(1, draw(st.integers(2, 3))))
    )


@st.composite
def layouts(draw: st.DrawFn, members: list[Member], relation: int, sizes: int) -> Layout:
    replication = draw(st.integers(1, min(3, len(members))))
    tablets = 2 ** draw(st.integers(0, 4))
    placed = []
    for _ in range(tablets):
        hosts = draw(st.permutations(members))[:replication]
        placed.append([(one.id, draw(st.integers(0, one.shards - 1))) for one in hosts])
    return layout(
        placed, relation=relation, sizes=draw(st.lists(st.integers(0, sizes), min_size=tablets, max_size=tablets))
    )


# ---- what holds at each step ----------------------------------------------------------------------------


def crowding(state: Topology, replicas: tuple[Replica, ...]) -> int:
    """How many replicas share a rack with another of the same tablet."""
    racks = Counter((state.members[one.host].datacenter, state.members[one.host].rack) for one in replicas)
    return sum(count - 1 for count in racks.values())


def assert_allowed(state: Topology, moves: tuple[Move, ...], limits: Limits) -> None:
    going = start(state, moves)
    streams: Counter[Replica] = Counter()
    before: Counter[Replica] = Counter()
    for counted, among in ((before, state), (streams, going)):
        for one in among.transitions.values():
            if one.pending is not None:
                counted[one.pending] += 1
                if one.leaving is not None and one.kind is TransitionKind.MIGRATION:
                    counted[one.leaving] += 1
    assert all(count <= max(limits.streams_per_shard, before[shard]) for shard, count in streams.items())
    receivers = {one.id for one in state.receivers()}
    for move in moves:
        relation, number = move.tablet
        of_tablet = state.layouts[relation].replicas[number]
        after = outcome(of_tablet, going.transitions[move.tablet])
        assert len({one.host for one in after}) == len(after), "a node has two replicas of a tablet"
        assert move.leaving is None or move.leaving in of_tablet
        if move.pending is not None:
            assert move.pending.host in receivers
            assert move.pending.shard < state.members[move.pending.host].shards
            sources = {one.host for one in of_tablet if one.host in state.alive}
            assert sources, "nothing to copy from"
        if move.leaving is not None and move.leaving.host in receivers:
            assert crowding(state, after) <= crowding(state, of_tablet), "a rack became more crowded"
        elif move.leaving is not None and move.kind is TransitionKind.MIGRATION and move.pending is not None:
            assert move.leaving.host in state.alive


# ---- failures -------------------------------------------------------------------------------------------


def happen(state: Topology, data: st.DataObject) -> Topology:
    """One thing that happens to a cluster."""
    draw = data.draw
    event = draw(
        st.sampled_from(
            [
                "end",
                "back",
                "die",
                "wake",
                "decommission",
                "remove",
                "replace",
                "add",
                "grow",
                "copies",
                "merge",
                "revoke",
            ]
        )
    )
    nodes = sorted(state.members)
    node = draw(st.sampled_from(nodes))
    found = state.members[node]
    if event in ("end", "back") and state.transitions:
        tablet = draw(st.sampled_from(sorted(state.transitions)))
        return end(state, tablet) if event == "end" else turn_back(state, tablet)
    if event == "die":
        return replace(state, alive=state.alive - {node})
    if event == "wake":
        return replace(state, alive=state.alive | {node})
    if event in ("decommission", "remove") and found.state is NodeState.NORMAL:
        wanted = NodeState.DECOMMISSIONING if event == "decommission" else NodeState.REMOVING
        if (event == "remove") == (node not in state.alive):
            return replace(state, members={**state.members, node: replace(found, state=wanted)})
    if event == "add" and len(nodes) < 9:
        new = member(f"n{len(nodes)}", dc=found.datacenter, rack=draw(st.sampled_from(["r1", "r2", "r9"])))
        return replace(state, members={**state.members, new.id: new}, alive=state.alive | {new.id})
    if event == "replace" and len(nodes) < 9 and found.state is NodeState.NORMAL and node not in state.alive:
        heir = member(
            f"n{len(nodes)}", dc=found.datacenter, rack="r9", state=NodeState.REPLACING, replaced=node, shards=2
        )
        if node not in replaced(state):
            return replace(state, members={**state.members, heir.id: heir}, alive=state.alive | {heir.id})
    if event in ("grow", "copies", "merge", "revoke"):
        relation = draw(st.sampled_from(sorted(state.layouts)))
        return replace(state, layouts={**state.layouts, relation: change(state, state.layouts[relation], event, data)})
    return state


def change(state: Topology, one: Layout, event: str, data: st.DataObject) -> Layout:
    """What becomes of a table by itself, or by a request."""
    draw = data.draw
    if event == "grow":
        return replace(one, bytes=tuple(size * draw(st.integers(1, 3)) for size in one.bytes))
    if event == "copies":
        return replace(one, replication=draw(st.integers(1, max(1, min(3, copies_max(state.receivers())[0])))))
    merges = event == "merge" and one.tablets > 1
    asked = draw(st.sampled_from([None, 7]))
    resize = (
        Resize(type=ResizeType.MERGE, number=one.resize.number + 1, tablets=1, request=asked) if merges else Resize()
    )
    return replace(one, resize=resize)


def replaced(state: Topology) -> set[NodeId]:
    """The nodes whose place another one takes."""
    heirs = (one for one in state.members.values() if one.state is NodeState.REPLACING and one.id in state.alive)
    return {one.replaced for one in heirs if one.replaced is not None}


@given(clusters(), st.integers(1, 3), st.data())
def test_constraints_hold_through_any_failure_and_the_plans_end(
    state: Topology, streams: int, data: st.DataObject
) -> None:
    limits = Limits(streams_per_shard=streams)
    for _ in range(data.draw(st.integers(0, 12))):
        found = plan(state, limits)
        assert_allowed(state, found.moves, limits)
        state = start(state, found.moves)
        state = happen(state, data)
    for tablet in tuple(state.transitions):
        state = end(state, tablet)
    after, _ = settle(state, limits)
    last = plan(after, limits)
    stuck = {(one.tablet, one.leaving) for one in last.stuck}
    for one in after.layouts.values():
        for number, replicas in enumerate(one.replicas):
            tablet = (one.relation, TabletId(number))
            for replica in replicas:
                leaves = after.members[replica.host].state in LEAVES or replica.host in replaced(after)
                assert not leaves or tablet in {of for of, _ in stuck}, "a node that leaves has a replica"
            assert len(replicas) == one.replication or tablet in {of for of, _ in stuck}


@given(clusters(), st.data())
def test_no_tablet_comes_to_a_node_that_rests_and_all_is_right_when_none_does(
    state: Topology, data: st.DataObject
) -> None:
    draw, nodes = data.draw, sorted(state.members)
    for _ in range(draw(st.integers(0, 6))):
        state = happen(state, data)
        found = plan(state)
        tried = {move.tablet: None if move.pending is None else move.pending.host for move in found.moves}
        rests = {
            tablet: frozenset({*draw(st.lists(st.sampled_from([None, *nodes]), max_size=3)), node})
            for tablet, node in tried.items()
        }
        again = plan(replace(state, paused=rests))
        assert_allowed(state, again.moves, Limits())
        for move in again.moves:
            pending = None if move.pending is None else move.pending.host
            assert pending not in rests.get(move.tablet, ())
        assert {one.tablet for one in again.stuck} == {one.tablet for one in found.stuck}, "it is not stuck, but waits"
        state = start(state, again.moves)
    settle(end(state, *state.transitions))


# ---- convergence ----------------------------------------------------------------------------------------


@given(clusters(racks=1))
def test_nodes_of_a_datacenter_come_to_even_bytes(state: Topology) -> None:
    after, _ = settle(state)
    held = bytes_of(after)
    for datacenter in {one.datacenter for one in state.members.values()}:
        loads = [held[one.id] for one in state.members.values() if one.datacenter == datacenter]
        largest = max((size for one in after.layouts.values() for size in one.bytes), default=0)
        mean = sum(loads) / len(loads)
        # Nothing that could go is at most three quarters of the difference; an empty tablet counts as a byte.
        assert max(loads) - min(loads) <= max(0.02 * mean, 4 / 3 * largest) + 50


@given(clusters(racks=3, datacenters=1))
def test_nodes_of_a_rack_come_to_even_bytes_and_replicas_to_as_many_racks_as_there_are(state: Topology) -> None:
    after, _ = settle(state)
    held = bytes_of(after)
    racks = {one.rack for one in state.members.values()}
    largest = max((size for one in after.layouts.values() for size in one.bytes), default=0)
    mean = sum(held.values()) / len(held)
    for rack in racks:
        loads = [held[one.id] for one in state.members.values() if one.rack == rack]
        assert max(loads) - min(loads) <= max(0.02 * mean, 4 / 3 * largest) + 50
    for one in after.layouts.values():
        for replicas in one.replicas:
            found = {state.members[replica.host].rack for replica in replicas}
            assert len(found) == min(len(replicas), len(racks))


@given(clusters())
def test_shards_of_a_node_come_to_even_numbers(state: Topology) -> None:
    after, _ = settle(state)
    counts = Counter(replica for one in after.layouts.values() for of in one.replicas for replica in of)
    for node in state.members.values():
        of_node = [counts[Replica(node.id, shard)] for shard in range(node.shards)]
        assert max(of_node) - min(of_node) <= 1


@given(clusters(), st.integers(1, 3), st.sampled_from([None, 7]))
def test_tablets_that_become_one_come_together_in_any_cluster(
    state: Topology, streams: int, request: int | None
) -> None:
    merge = Resize(type=ResizeType.MERGE, number=1, tablets=1, request=request)
    layouts = {
        relation: replace(one, resize=merge) if one.tablets > 1 else one for relation, one in state.layouts.items()
    }
    after, _ = settle(replace(state, layouts=layouts), Limits(streams_per_shard=streams))
    for one in after.layouts.values():
        if one.resize == merge:
            assert all(is_together(first, second) for first, second in one.pairs())


@given(clusters(), st.integers(1, 3))
def test_tablets_do_not_go_back_and_forth(state: Topology, streams: int) -> None:
    """Replicas never lie again as they have lain before, and few move twice."""
    limits = Limits(streams_per_shard=streams)
    seen = {placed(state)}
    moved = 0
    while (found := plan(state, limits).moves) or state.transitions:
        moved += len(found)
        state = start(state, found)
        for tablet in tuple(state.transitions):
            state = end(state, tablet)
            assert placed(state) not in seen, "back and forth"
            seen.add(placed(state))
    # Once to a node, and once to a shard of it.
    assert moved <= 3 * sum(len(of) for one in state.layouts.values() for of in one.replicas)


def placed(state: Topology) -> tuple[object, ...]:
    return tuple(one.replicas for one in state.layouts.values())


@given(clusters(racks=1, datacenters=1), st.data())
def test_a_cluster_that_has_settled_stays_when_tablets_grow_by_a_hundredth(
    state: Topology, data: st.DataObject
) -> None:
    """Sizes change all the time. Within the tolerance that moves nothing."""
    after, _ = settle(state)
    held = bytes_of(after)
    mean = sum(held.values()) / len(held)
    if max(held.values()) - min(held.values()) > 0.01 * mean:
        return
    grown = {
        relation: replace(one, bytes=tuple(size + size * data.draw(st.integers(0, 1)) // 200 for size in one.bytes))
        for relation, one in after.layouts.items()
    }
    moves = plan(replace(after, layouts=grown)).moves
    assert [move for move in moves if move.leaving and move.pending and move.leaving.host != move.pending.host] == []
