"""The balancer by example: what is made, moved and removed, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebla.base.ids import NodeId, RelationId, TabletId
from ebla.model.lifecycle.node import NodeState
from ebla.model.tasks import Replica
from ebla.model.topology import Member, Resize, ResizeType, Tablet, Topology, TransitionKind
from ebla.model.topology_changes import BeginTransition
from ebla.topology import census, coordinator
from ebla.topology.balancer import Limits, plan
from support.topologies import begun, bytes_of, end, layout, member, moves_of, settle, start, topology, turn_back

MIGRATION, REBUILD = TransitionKind.MIGRATION, TransitionKind.REBUILD
ONE = Limits(streams_per_shard=1)
MANY = Limits(streams_per_shard=100)
TABLET: Tablet = RelationId(1), TabletId(0)


def nodes(*names: str, dc: str = "dc1", rack: str = "r1", shards: int = 1) -> list[Member]:
    return [member(name, dc=dc, rack=rack, shards=shards) for name in names]


# ---- sums -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [1, 3])
def test_sums_follow_the_maps_that_change(changed: int) -> None:
    before = {RelationId(n): layout([["a", "b"], ["b", "c"]], relation=n, sizes=[100, 7]) for n in range(1, 7)}
    racks = {NodeId("a"): 1, NodeId("b"): 2, NodeId("c"): 3, NodeId("d"): 1}
    assert (census.of(before).odd, census.crowded(before, racks)) == (frozenset(), frozenset())
    other = {RelationId(n): layout([["a", "d"], ["c"]], relation=n, sizes=[9, 7]) for n in range(1, 1 + changed)}
    after = {n: one for n, one in (before | other).items() if n != 6}
    found, crowded = census.of(after), census.crowded(after, racks)
    alone = census._count(after, None)
    assert ({n: size for n, size in found.bytes.items() if size}, +found.replicas) == (alone.bytes, alone.replicas)
    assert found.odd == alone.odd == frozenset(other)
    assert crowded == frozenset(other)


# ---- bytes ----------------------------------------------------------------------------------------------


def test_an_even_cluster_is_left_alone() -> None:
    assert plan(topology(nodes("a", "b"), layout([["a"], ["b"]]))).moves == ()


def test_a_new_node_gets_its_part() -> None:
    state = topology(nodes("a", "b", "c"), layout([["a"]] * 6 + [["b"]] * 6))
    after, moves = settle(state)
    assert set(bytes_of(after).values()) == {400}
    assert len(moves) == 4
    assert {move.kind for move in moves} == {MIGRATION}


def test_large_and_small_tablets_come_to_the_same_bytes() -> None:
    state = topology(nodes("a", "b"), layout([["a"]] * 5, sizes=[400, 100, 100, 100, 100]))
    after, moves = settle(state, MANY)
    assert bytes_of(after) == {"a": 400, "b": 400}
    assert [move.tablet[1] for move in moves] == [0]


def test_a_tablet_larger_than_the_difference_stays() -> None:
    assert plan(topology(nodes("a", "b"), layout([["a"]], sizes=1000))).moves == ()


def test_what_is_in_flight_counts_as_done() -> None:
    state = topology(nodes("a", "b"), layout([["a"]] * 4))
    first = plan(state, ONE)
    assert len(first.moves) == 1
    going = start(state, first.moves)
    assert plan(going, MANY).moves[0].tablet != first.moves[0].tablet
    second = plan(going, MANY)
    assert len(second.moves) == 1  # two of four, of which one is under way
    assert plan(start(going, second.moves), MANY).moves == ()


def test_what_goes_back_counts_where_it_was() -> None:
    state = topology(nodes("a", "b"), layout([["a"]] * 2))
    (move,) = plan(state, MANY).moves
    back = turn_back(start(state, [move]), move.tablet)
    (other,) = plan(back, MANY).moves
    assert other.tablet != move.tablet


def test_streams_of_a_shard_are_bounded_on_both_sides() -> None:
    state = topology(nodes("a", "b", "c", shards=2), layout([[("a", 0)]] * 8 + [[("a", 1)]] * 8))
    found = plan(state, ONE).moves
    leaving = [move.leaving for move in found if move.leaving]
    assert sorted(leaving) == [Replica(NodeId("a"), 0), Replica(NodeId("a"), 1)]
    assert len({move.pending for move in found}) == len(found)
    assert plan(start(state, found), ONE).moves == ()


def test_each_datacenter_is_balanced_by_itself() -> None:
    members = [*nodes("a", "b", dc="x"), *nodes("c", dc="y")]
    state = topology(members, layout([["a"]] * 4))
    after, _ = settle(state)
    assert bytes_of(after) == {"a": 200, "b": 200, "c": 0}


def test_balancing_that_is_off_still_makes_what_is_missing() -> None:
    state = topology(nodes("a", "b", "c"), layout([["a"]] * 4), balancing=False)
    assert plan(state).moves == ()
    short = topology(nodes("a", "b"), layout([["a"]], replication=2), balancing=False)
    assert moves_of(plan(short)) == [(0, None, "b")]


def test_empty_tablets_are_spread_by_their_number() -> None:
    after, _ = settle(topology(nodes("a", "b"), layout([["a"]] * 4, sizes=0)))
    hosts = [replicas[0].host for replicas in after.layouts[RelationId(1)].replicas]
    assert sorted(hosts) == ["a", "a", "b", "b"]


def test_a_dead_node_that_is_normal_is_neither_filled_nor_emptied() -> None:
    state = topology(nodes("a", "b", "c"), layout([["a"], ["a"], ["b"], ["c"]]), dead=["c"])
    after, _ = settle(state)
    assert bytes_of(after)[NodeId("c")] == 100


# ---- constraints ----------------------------------------------------------------------------------------


def test_no_node_has_two_replicas_of_a_tablet() -> None:
    after, _ = settle(topology(nodes("a", "b", "c"), layout([["a", "b"]] * 6)))
    for replicas in after.layouts[RelationId(1)].replicas:
        assert len({one.host for one in replicas}) == 2
    assert set(bytes_of(after).values()) == {400}


def test_replicas_keep_their_racks() -> None:
    members = [*nodes("a", "b", rack="r1"), *nodes("c", rack="r2")]
    after, moves = settle(topology(members, layout([["a", "c"]] * 4)))
    assert bytes_of(after) == {"a": 200, "b": 200, "c": 400}
    assert len(moves) == 2


def test_a_new_rack_parts_replicas_that_were_in_one() -> None:
    members = [*nodes("a", "b", rack="r1"), *nodes("c", rack="r2")]
    after, _ = settle(topology(members, layout([["a", "b"]] * 4)))
    racks = {node.id: node.rack for node in members}
    for replicas in after.layouts[RelationId(1)].replicas:
        assert {racks[one.host] for one in replicas} == {"r1", "r2"}


# ---- replicas that must be made -------------------------------------------------------------------------


def test_a_node_that_leaves_is_drained_by_migration() -> None:
    members = [member("a", state=NodeState.DECOMMISSIONING), *nodes("b", "c")]
    after, moves = settle(topology(members, layout([["a"], ["a"], ["b"], ["c"]])))
    assert bytes_of(after)[NodeId("a")] == 0
    assert {move.kind for move in moves} == {MIGRATION}


def test_a_removed_node_is_drained_from_the_others() -> None:
    members = [member("a", state=NodeState.REMOVING), *nodes("b", "c")]
    (move,) = plan(topology(members, layout([["a", "b"]]), dead=["a"])).moves
    assert (move.kind, move.leaving, move.pending) == (REBUILD, Replica(NodeId("a"), 0), Replica(NodeId("c"), 0))


def test_a_replaced_node_gives_its_replicas_to_the_one_in_its_place() -> None:
    members = [*nodes("a", "b"), member("new", state=NodeState.REPLACING, replaced="a"), *nodes("c")]
    state = topology(members, layout([["a", "b"]] * 4), dead=["a"])
    after, moves = settle(state)
    made = [move for move in moves if move.kind is REBUILD]
    assert {move.pending.host for move in made if move.pending} == {"new"}
    assert len(made) == 4
    assert bytes_of(after)[NodeId("a")] == 0


def test_a_tablet_that_lost_a_replica_gets_another() -> None:
    state = topology(nodes("a", "b", "c"), layout([["a", "b"], ["a"]], replication=2))
    (move,) = plan(state).moves
    assert (move.tablet[1], move.kind, move.leaving) == (1, REBUILD, None)
    assert move.pending is not None
    assert move.pending.host == "c"


def test_tablets_with_the_fewest_copies_go_first() -> None:
    state = topology(nodes("a", "b", "c", "d"), layout([["a", "b"], ["c"], ["a", "b"]], replication=3, sizes=[9, 1, 9]))
    first = plan(state, ONE).moves[0]
    assert first.tablet[1] == 1


def test_a_replica_too_many_goes() -> None:
    state = topology(nodes("a", "b", "c"), layout([["a", "b", "c"]], replication=2), dead=["b"])
    (move,) = plan(state).moves
    assert (move.leaving, move.pending) == (Replica(NodeId("b"), 0), None)


def test_a_replica_too_many_on_a_dead_node_goes_before_one_on_a_node_that_leaves() -> None:
    leaves = member("a", state=NodeState.DECOMMISSIONING)
    state = topology([leaves, *nodes("b", "c")], layout([["a", "b"]], replication=1), dead=["b"])
    (move,) = plan(state).moves
    assert (move.leaving, move.pending) == (Replica(NodeId("b"), 0), None)
    (alive,) = plan(replace(state, alive=frozenset(state.members))).moves
    assert (alive.leaving, alive.pending) == (Replica(NodeId("a"), 0), None)


def test_without_a_source_or_a_node_it_is_said_why() -> None:
    members = [member("a", state=NodeState.REMOVING), *nodes("b")]
    (stuck,) = plan(topology(members, layout([["a"]]), dead=["a"])).stuck
    assert stuck.reason == "expected a live replica to copy from, found none"
    (stuck,) = plan(topology(members, layout([["a", "b"]]), dead=["a"])).stuck
    assert stuck.reason == "expected a node without a replica of it, found none"


def test_an_empty_tablet_of_a_removed_node_needs_no_source() -> None:
    gone = member("a", state=NodeState.REMOVING)
    state = topology([gone, *nodes("b")], layout([["a"]]), dead=["a"])
    assert plan(state).moves == ()
    (move,) = plan(replace(state, empty=frozenset({(RelationId(1), TabletId(0))}))).moves
    assert (move.kind, move.leaving, move.pending) == (REBUILD, Replica(NodeId("a"), 0), Replica(NodeId("b"), 0))


def test_a_node_that_is_back_while_it_is_removed_or_replaced_is_copied_from() -> None:
    """Of tablets of one copy, it is the only one to copy from."""
    members = [member("a", state=NodeState.REMOVING), *nodes("b")]
    (move,) = plan(topology(members, layout([["a"]]))).moves
    assert (move.kind, move.leaving, move.pending) == (MIGRATION, Replica(NodeId("a"), 0), Replica(NodeId("b"), 0))
    heir = replace(member("c", state=NodeState.REPLACING), replaced=NodeId("a"))
    (move,) = plan(topology([*nodes("a", "b"), heir], layout([["a"]]))).moves
    assert (move.kind, move.leaving, move.pending) == (MIGRATION, Replica(NodeId("a"), 0), Replica(NodeId("c"), 0))


def test_a_busy_target_is_waited_for() -> None:
    members = [member("a", state=NodeState.DECOMMISSIONING, shards=4), *nodes("b")]
    state = topology(members, layout([[("a", shard)] for shard in range(4)]))
    found = plan(state, ONE)
    assert (len(found.moves), found.stuck) == (1, ())


# ---- pauses ---------------------------------------------------------------------------------------------


def resting(state: Topology, *hosts: str | None) -> Topology:
    """The first tablet is not to come to these nodes yet."""
    return replace(state, paused={TABLET: frozenset(None if one is None else NodeId(one) for one in hosts)})


def test_a_replica_is_made_elsewhere_while_a_node_rests() -> None:
    leaves = member("a", state=NodeState.DECOMMISSIONING)
    state = topology([leaves, *nodes("b", "c")], layout([["a"]]))
    assert moves_of(plan(resting(state, "b"))) == [(0, "a", "c")]
    assert moves_of(plan(resting(state, "c"))) == [(0, "a", "b")]
    both = plan(resting(state, "b", "c"))
    assert (both.moves, both.stuck) == ((), ()), "it is made when one of them has rested"


def test_a_node_that_rests_sends_no_replica_to_another_datacenter() -> None:
    members = [member("a", state=NodeState.DECOMMISSIONING), *nodes("b"), member("far", dc="dc2")]
    state = topology(members, layout([["a"]]))
    assert plan(resting(state, "b")).moves == ()
    alone = topology([members[0], members[2]], layout([["a"]]))
    assert moves_of(plan(alone)) == [(0, "a", "far")]


def test_the_node_that_replaces_another_is_waited_for_while_it_rests() -> None:
    heir = replace(member("d", state=NodeState.REPLACING), replaced=NodeId("a"))
    state = topology([*nodes("a", "b", "c"), heir], layout([["a", "b"]]), dead=["a"])
    assert moves_of(plan(state)) == [(0, "a", "d")]
    assert plan(resting(state, "d")).moves == ()


def test_a_replica_too_many_rests_after_it_could_not_be_given_up() -> None:
    state = topology(nodes("a", "b"), layout([["a", "b"]], replication=1))
    assert plan(state).moves
    assert plan(resting(state, None)).moves == ()


def test_bytes_racks_and_shards_pass_over_a_node_that_rests() -> None:
    bytes_ = topology(nodes("a", "b"), layout([["a"]] * 2))
    assert moves_of(plan(resting(bytes_, "b"))) == [(1, "a", "b")]
    racks = topology([*nodes("a", "b"), member("c", rack="r2")], layout([["a", "b"]]))
    assert moves_of(plan(racks)) == [(0, "a", "c")]
    assert plan(resting(racks, "c")).moves == ()
    shards = topology(nodes("a", shards=2), layout([["a"]] * 2))
    assert [move.tablet for move in plan(shards).moves] == [TABLET]
    assert [move.tablet[1] for move in plan(resting(shards, "a")).moves] == [1]
    merge = Resize(type=ResizeType.MERGE, number=1)
    pair = replace(topology(nodes("a", "b"), layout([["a"], ["b"]], resize=merge)), balancing=True)
    assert moves_of(plan(resting(pair, "b"))) == [(1, "b", "a")]


# ---- resize ---------------------------------------------------------------------------------------------


def test_tablets_that_become_one_come_together_and_stay() -> None:
    merge = Resize(type=ResizeType.MERGE, number=3)
    state = topology(nodes("a", "b", "c"), layout([["a", "b"], ["c", "a"], ["b", "c"], ["a", "c"]], resize=merge))
    after, _ = settle(state)
    for one, other in after.layouts[RelationId(1)].pairs():
        assert {replica.host for replica in one} == {replica.host for replica in other}


def test_a_resize_that_is_cut_begins_no_transitions() -> None:
    split = Resize(type=ResizeType.SPLIT, number=1)
    table = layout([["a"]] * 4, resize=split)
    state = topology(nodes("a", "b"), table)
    assert plan(state).moves
    cut = replace(table, reported={(TabletId(t), NodeId("a")): 1 for t in range(4)})
    assert cut.is_cut({NodeId("a")})
    assert plan(topology(nodes("a", "b"), cut)).moves == ()


# ---- shards ---------------------------------------------------------------------------------------------


def test_the_coordinator_begins_moves_between_the_shards_of_a_node() -> None:
    state = topology(nodes("a", shards=2), layout([[("a", 0)]] * 4))
    decision = coordinator.step(state)
    assert decision is not None
    moves = [(one.leaving, one.pending) for one in decision.updates if isinstance(one, BeginTransition)]
    assert moves == [(Replica(NodeId("a"), 0), Replica(NodeId("a"), 1))] * 2


def test_tablets_are_spread_over_the_shards_of_a_node() -> None:
    after, moves = settle(topology(nodes("a", shards=4), layout([["a"]] * 8)))
    shards = sorted(replicas[0].shard for replicas in after.layouts[RelationId(1)].replicas)
    assert shards == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(moves) == 6


def test_shards_that_a_node_has_no_more_are_left() -> None:
    after, _ = settle(topology(nodes("a", shards=2), layout([[("a", 7)], [("a", 0)], [("a", 1)]])))
    assert {replicas[0].shard for replicas in after.layouts[RelationId(1)].replicas} == {0, 1}


def test_shards_wait_for_bytes() -> None:
    state = topology(nodes("a", "b", shards=2), layout([["a"]] * 4))
    moves = plan(state).moves
    assert moves
    assert all(move.pending and move.pending.host == "b" for move in moves)
    going = start(state, moves)
    assert plan(going).moves == ()
    (first, *_) = moves
    assert begun(first).tablet in going.transitions
    done = end(going, first.tablet)
    assert bytes_of(done)[NodeId("b")] == 100
