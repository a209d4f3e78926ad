"""Requests as values: every kind in every state of its node is refused with the reason and the numbers, or goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from ebla.base.ids import NodeId, RelationId, TabletId, Version
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import LIFE, NodeState
from ebla.model.lifecycle.tablet import Stage
from ebla.model.tasks import Replica
from ebla.model.topology import (
    Layout,
    Member,
    Outcome,
    RebuildResult,
    Request,
    RequestKind,
    RequestState,
    Resize,
    ResizeType,
    Tablet,
    Topology,
    Transition,
    TransitionKind,
)
from ebla.topology import requests

K, N = RequestKind, NodeState
A, B, C, D = map(NodeId, "abcd")
ORDERS = RelationId(1)


def member(node: NodeId, state: NodeState = N.NORMAL, **given: object) -> Member:
    return replace(Member(id=node, name=f"node-{node}", root=f"/{node}", state=state, release="0.2.0"), **given)  # type: ignore[arg-type]


def layout(*tablets: str, replication: int = 2) -> Layout:
    """Each tablet by the letters of the nodes that have it."""
    replicas = tuple(tuple(Replica(NodeId(host), 0) for host in hosts) for hosts in tablets)
    return Layout(
        relation=ORDERS,
        name="orders",
        replication=replication,
        min_copies=1,
        replicas=replicas,
        bytes=(1,) * len(tablets),
    )


def request(
    kind: RequestKind, node: NodeId = C, state: RequestState = RequestState.QUEUED, id: int = 9, **parameters: object
) -> Request:
    begun = Version(id + 1) if state is RequestState.RUNNING else None
    return Request(id=id, kind=kind, state=state, node=node, parameters=parameters, begun=begun)


def topology(
    *asked: Request,
    members: Iterable[Member] = (member(A), member(B), member(C)),
    dead: str = "",
    layouts: Iterable[Layout] = (layout("ab", "bc"),),
    seen: int = 100,
    transitions: Iterable[Transition] = (),
    rebuilt: Mapping[int, RebuildResult] | None = None,
) -> Topology:
    known = {m.id: m for m in members}
    alive = frozenset(node for node in known if node not in dead)
    return Topology(
        version=Version(50),
        members=known,
        alive=alive,
        seen=dict.fromkeys(alive, Version(seen)),
        layouts={one.relation: one for one in layouts},
        transitions={one.tablet: one for one in transitions},
        requests=asked,
        rebuilt=rebuilt or {},
    )


def moving(leaving: NodeId | None, pending: NodeId | None, request: int | None = None) -> Transition:
    tablet: Tablet = ORDERS, TabletId(0)
    return Transition(
        tablet=tablet,
        kind=TransitionKind.MIGRATION,
        stage=Stage.STREAMING,
        leaving=None if leaving is None else Replica(leaving, 0),
        pending=None if pending is None else Replica(pending, 0),
        session="s",
        request=request,
        begun=Version(1),
        since=Version(2),
    )


def decided(state: Topology) -> c.Decision:
    found = requests.next_step(state)
    assert found is not None
    return found


def refused(state: Topology) -> str:
    """The message with which the only request is refused; its node and all others stay as they are."""
    [ended] = decided(state).updates
    assert isinstance(ended, t.EndRequest)
    assert (ended.state, ended.code) == (RequestState.FAILED, Outcome.REFUSED)
    assert ended.message is not None
    return ended.message


def steps_of(decision: c.Decision) -> list[object]:
    """What a decision does, briefly: the states of nodes, and how the request goes on."""
    found: list[object] = []
    for update in decision.updates:
        match update:
            case t.SetNodeState(node=node, state=state):
                found.append((node, state))
            case t.BeginRequest():
                found.append("begun")
            case t.EndRequest(state=state, code=code):
                found.append(state if code is None else code)
    return found


# ---- begun, gone on, ended ------------------------------------------------------------------------------


def test_nothing_is_decided_where_nothing_is_asked_for():
    assert requests.next_step(topology()) is None


def test_a_join_begins_is_seen_by_all_and_ends():
    new = member(D, N.NONE)
    members = (member(A), member(B, features=frozenset({"cdc"})), new)
    assert steps_of(decided(topology(request(K.JOIN, D), members=members))) == [(D, N.BOOTSTRAPPING), "begun"]
    running = request(K.JOIN, D, RequestState.RUNNING)
    members = (member(A), member(B), replace(new, state=N.BOOTSTRAPPING))
    assert requests.next_step(topology(running, members=members, seen=9)) is None
    assert steps_of(decided(topology(running, members=members, seen=10))) == [(D, N.NORMAL), RequestState.DONE]
    assert steps_of(decided(topology(running, members=members, dead="d"))) == [(D, N.LEFT), Outcome.WENT_BACK]


def test_a_node_that_dies_while_it_joins_keeps_the_tablets_that_it_got():
    running = request(K.JOIN, D, RequestState.RUNNING)
    members = (member(A), member(B), member(D, N.BOOTSTRAPPING))
    state = topology(running, members=members, dead="d", layouts=(layout("d", replication=1),))
    found = decided(state)
    assert steps_of(found) == [(D, N.NORMAL), Outcome.WENT_BACK]
    assert "found it gone, with 1 tablets; start it again, or REMOVE NODE 'node-d'" in str(found.updates[-1])
    assert requests.next_step(topology(running, members=members, dead="d", transitions=[moving(A, D)])) is None


def test_a_join_waits_while_the_process_that_asked_lives():
    running = replace(request(K.JOIN, D, RequestState.RUNNING), holder="process")
    state = topology(running, members=(member(A), member(B), member(D, N.BOOTSTRAPPING)), dead="d")
    assert requests.next_step(replace(state, holders=frozenset({"process"}))) is None
    assert steps_of(decided(replace(state, holders=frozenset({"other"})))) == [(D, N.LEFT), Outcome.WENT_BACK]


def test_a_node_that_is_down_is_not_waited_for():
    running = request(K.JOIN, D, RequestState.RUNNING)
    state = topology(running, members=(member(A), member(B), member(D, N.BOOTSTRAPPING)), dead="b")
    assert steps_of(decided(state)) == [(D, N.NORMAL), RequestState.DONE]


@pytest.mark.parametrize(("kind", "state", "dead"), [(K.LEAVE, N.DECOMMISSIONING, ""), (K.REMOVE, N.REMOVING, "c")])
def test_a_node_goes_when_no_replica_is_on_it(kind: RequestKind, state: NodeState, dead: str):
    before = topology(request(kind), dead=dead)
    if kind is K.LEAVE:
        before = topology(request(kind))
    assert steps_of(decided(before)) == [(C, state), "begun"]
    running = request(kind, state=RequestState.RUNNING)
    members = (member(A), member(B), member(C, state))
    assert requests.next_step(topology(running, members=members, dead=dead)) is None, "a replica is on it"
    moves = topology(running, members=members, dead=dead, layouts=[layout("ab")], transitions=[moving(C, A)])
    assert requests.next_step(moves) is None, "a transition of it goes on"
    empty = topology(running, members=members, dead=dead, layouts=[layout("ab", "ab")])
    assert steps_of(decided(empty)) == [(C, N.LEFT), RequestState.DONE]


def test_a_drain_that_cannot_end_goes_back_with_the_numbers():
    running = request(K.LEAVE, state=RequestState.RUNNING)
    members = (member(A), member(B), member(C, N.DECOMMISSIONING))
    state = topology(running, members=members, dead="b")
    assert steps_of(decided(state)) == [(C, N.NORMAL), Outcome.WENT_BACK]
    ended = decided(state).updates[1]
    assert isinstance(ended, t.EndRequest)
    assert "orders has replication 2, found 1 of 3 left" in (ended.message or "")
    waiting = topology(running, members=members, dead="b", transitions=[moving(C, A)])
    assert requests.next_step(waiting) is None, "the transition settles first"


def test_a_drain_whose_node_dies_with_the_last_copy_goes_back():
    running = request(K.LEAVE, state=RequestState.RUNNING)
    members = (member(A), member(B), member(C, N.DECOMMISSIONING))
    alone = [layout("c", "a", replication=1)]
    assert requests.next_step(topology(running, members=members, layouts=alone)) is None
    state = topology(running, members=members, dead="c", layouts=alone)
    assert steps_of(decided(state)) == [(C, N.NORMAL), Outcome.WENT_BACK]
    assert "node-c: expected a live copy of each of its 1 tablets, found none of 1" in decided(state).reason
    others = [layout("ca", "b", replication=1)]
    assert requests.next_step(topology(running, members=members, dead="c", layouts=others)) is None, "made from a"
    empty = replace(state, empty=frozenset({(ORDERS, TabletId(0))}))
    assert requests.next_step(empty) is None, "nothing is lost with it"


def test_a_drained_node_that_died_with_runs_goes_back():
    running = request(K.LEAVE, state=RequestState.RUNNING)
    members = (member(A), member(B), member(C, N.DECOMMISSIONING))
    state = topology(running, members=members, dead="c", layouts=[layout("ab")])
    found = decided(replace(state, unreached={C: {"orders": 2}}))
    assert steps_of(found) == [(C, N.NORMAL), Outcome.WENT_BACK]
    assert "found none of 2 (2 of orders); bring node-c back" in found.reason


def test_a_replacement_has_every_replica_of_the_dead_node():
    new = member(D, N.NONE, replaced=C)
    asked = request(K.REPLACE, D, replaced_id=C)
    members = (member(A), member(B), member(C), new)
    assert steps_of(decided(topology(asked, members=members, dead="c"))) == [(D, N.REPLACING), "begun"]
    running = request(K.REPLACE, D, RequestState.RUNNING, replaced_id=C)
    members = (member(A), member(B), member(C), replace(new, state=N.REPLACING))
    assert requests.next_step(topology(running, members=members, dead="c")) is None
    done = topology(running, members=members, dead="c", layouts=[layout("ab", "bd")])
    assert steps_of(decided(done)) == [(D, N.NORMAL), (C, N.LEFT), RequestState.DONE]
    died = topology(running, members=members, dead="cd")
    assert steps_of(decided(died)) == [(D, N.LEFT), Outcome.WENT_BACK]


def test_a_rebuilt_node_lacks_nothing():
    assert steps_of(decided(topology(request(K.REBUILD)))) == [(C, N.REBUILDING), "begun"]
    running = request(K.REBUILD, state=RequestState.RUNNING)
    members = (member(A), member(B), member(C, N.REBUILDING))
    assert requests.next_step(topology(running, members=members)) is None
    assert steps_of(decided(topology(running, members=members, rebuilt={9: RebuildResult()}))) == [
        (C, N.NORMAL),
        RequestState.DONE,
    ]
    lost = decided(topology(running, members=members, rebuilt={9: RebuildResult(lacks=2, reason="no room")}))
    assert steps_of(lost) == [(C, N.NORMAL), Outcome.WENT_BACK]
    assert lost.reason.endswith("expected it to have all of its copies, found it without 2 (no room); "
                                "CHECK TABLE names them")  # fmt: skip


def test_every_step_of_a_node_is_in_its_life():
    for kind, state in requests.BEGUN.items():
        before = N.NONE if kind in (K.JOIN, K.REPLACE) else N.NORMAL
        assert LIFE.allows(before, state)
        for after in (N.NORMAL, N.LEFT):
            assert LIFE.allows(state, after) or state is N.REBUILDING


# ---- turns ----------------------------------------------------------------------------------------------


def test_requests_are_answered_one_after_the_other_and_joins_beside_them():
    running = request(K.LEAVE, B, RequestState.RUNNING, id=5)
    queued = request(K.REBUILD, C, id=6)
    members = (member(A), member(B, N.DECOMMISSIONING), member(C), member(D, N.NONE))
    state = topology(running, queued, members=members, layouts=[layout("ab", replication=1)])
    assert requests.next_step(state) is None
    assert requests.waits_for(state, queued) == "request 5 (leave)"
    assert requests.waits_for(state, running) == "1 tablets on node node-b"
    joins = topology(running, queued, request(K.JOIN, D, id=7), members=members, layouts=state.layouts.values())
    assert steps_of(decided(joins)) == [(D, N.BOOTSTRAPPING), "begun"]


def test_a_request_waits_for_tablets_in_transition():
    state = topology(request(K.REBUILD), transitions=[moving(A, B)])
    assert requests.next_step(state) is None
    assert requests.waits_for(state, state.requests[0]) == "1 tablets in transition"


def test_a_request_that_has_not_begun_is_cancelled_and_a_node_that_asked_has_left():
    assert steps_of(requests.cancellation(request(K.LEAVE))) == [Outcome.CANCELLED]
    assert steps_of(requests.cancellation(request(K.JOIN, D))) == [(D, N.LEFT), Outcome.CANCELLED]


# ---- refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(requests.OF_NODES))
@pytest.mark.parametrize("state", list(N))
def test_a_request_in_the_wrong_state_is_refused_with_the_state(kind: RequestKind, state: NodeState):
    dead = "c" if kind in (K.REMOVE, K.REPLACE) else ""
    asked = request(kind, replaced_id=B) if kind is K.REPLACE else request(kind)
    dead = "b" if kind is K.REPLACE else dead
    before = topology(asked, members=(member(A), member(B), member(C, state)), dead=dead, layouts=[layout("ab")])
    expected = N.NONE if kind in (K.JOIN, K.REPLACE) else N.NORMAL
    if state is expected:
        assert steps_of(decided(before)) == [(C, requests.BEGUN[kind]), "begun"]
        return
    ended = decided(before).updates[-1]
    assert isinstance(ended, t.EndRequest)
    assert ended.message == f"node node-c: expected it {expected}, found it {state}; it cannot {kind}"


def test_an_unknown_node_is_refused_with_those_there_are():
    message = refused(topology(request(K.LEAVE, NodeId("x"))))
    assert message == (
        "node x: expected a node of the cluster, found none of this name; nodes are node-a, node-b, node-c"
    )


def test_a_second_request_of_a_node_is_refused():
    first, second = request(K.LEAVE, state=RequestState.RUNNING, id=4), request(K.REBUILD)
    found = requests.refusal(topology(first, second), second)
    assert found is not None
    assert found.startswith("node node-c: expected no other request that has not ended, found request 4 (leave)")


def test_a_request_of_a_node_that_another_one_replaces_is_refused():
    first, second = request(K.REPLACE, D, id=4, replaced_id=C), request(K.REMOVE)
    members = (member(A), member(B), member(C), member(D, N.NONE))
    state = topology(first, second, members=members, dead="c")
    assert requests.refusal(state, second) == (
        "node node-c: expected no other request that has not ended, found request 4 (replace); "
        "WAIT FOR REQUEST 4, or ALTER CLUSTER CANCEL REQUEST 4"
    )
    assert requests.refusal(state, first) is None, "it was asked for first"
    assert steps_of(decided(state)) == [(D, N.REPLACING), "begun"]


def test_a_refused_node_has_left_for_ever():
    features = frozenset({"cdc", "tablets"})
    members = (member(A, features=features), member(B, features=features | {"x"}), member(D, N.NONE))
    state = topology(request(K.JOIN, D), members=members)
    assert steps_of(decided(state)) == [(D, N.LEFT), Outcome.REFUSED]
    ended = decided(state).updates[1]
    assert isinstance(ended, t.EndRequest)
    assert ended.message == (
        "node node-d: expected every feature that the cluster uses, found it without cdc, tablets; upgrade it"
    )


def test_a_node_of_an_older_release_is_refused():
    members = (member(A, release="0.10.0"), member(B, release="0.9.1"), member(D, N.NONE, release="0.9.0"))
    ended = decided(topology(request(K.JOIN, D), members=members)).updates[1]
    assert isinstance(ended, t.EndRequest)
    assert ended.message == (
        "node node-d: expected release 0.9.1 or newer, as the oldest node (node-b) has, found 0.9.0; upgrade it"
    )
    newer = (*members[:2], replace(members[2], release="0.10.3"))
    assert steps_of(decided(topology(request(K.JOIN, D), members=newer))) == [(D, N.BOOTSTRAPPING), "begun"]


def test_a_node_of_a_release_that_is_two_steps_newer_is_refused():
    members = (member(A, release="0.10.0"), member(B, release="0.9.1"), member(D, N.NONE, release="0.11.0"))
    state = topology(request(K.JOIN, D), members=members)
    ended = decided(state).updates[1]
    assert steps_of(decided(state)) == [(D, N.LEFT), Outcome.REFUSED]
    assert isinstance(ended, t.EndRequest)
    assert ended.message == (
        "node node-d: expected a release one step from 0.9.1, which node node-b has, at most, found 0.11.0; "
        "upgrade all nodes one step after the other"
    )


def test_c9_leave_is_refused_when_the_others_cannot_hold_the_replicas():
    state = topology(request(K.LEAVE), layouts=[layout("abc", "abc", replication=3)])
    assert refused(state) == (
        "node node-c: expected at least 3 other nodes that live, because orders has replication 3, "
        "found 2 of 3 left; add a node, or ALTER TABLE orders SET (replication = 2)"
    )
    without = topology(request(K.LEAVE), layouts=[layout("ab", "ab")])
    assert steps_of(decided(without)) == [(C, N.DECOMMISSIONING), "begun"]


def test_c9_the_last_node_cannot_leave():
    state = topology(request(K.LEAVE), members=(member(C),), layouts=[layout("c", replication=1)])
    assert refused(state) == ("node node-c: expected another node to take its tablets, found none; it is the last one")


def test_c9_remove_is_refused_when_the_others_cannot_hold_the_replicas():
    state = topology(request(K.REMOVE), dead="c", layouts=[layout("abc", replication=3)])
    assert "expected at least 3 other nodes that live, because orders has replication 3, found 2 of 3" in refused(state)
    ignoring = topology(request(K.REMOVE, ignore_nodes=[B]), dead="bc")
    assert "because orders has replication 2, found 1 of 3 left" in refused(ignoring)


def test_c9_remove_is_refused_when_rows_would_be_lost():
    state = topology(request(K.REMOVE), dead="c", layouts=[layout("ab", "c", "c", "bc", replication=1)])
    assert refused(state) == (
        "node node-c: expected a live copy of each of its 3 tablets, found none of 2 "
        "(the first is tablet 1 of orders); bring a node back that has one"
    )


@pytest.mark.parametrize("kind", [K.REMOVE, K.REPLACE])
def test_c9_a_dead_node_with_the_only_copy_of_an_empty_tablet_is_removed_or_replaced(kind: RequestKind):
    asked = request(kind) if kind is K.REMOVE else request(kind, D, replaced_id=C)
    members = (member(A), member(B), member(C), member(D, N.NONE))
    state = topology(asked, members=members, dead="cd", layouts=[layout("ab", "c", replication=1)])
    assert refused_at_all(state), "it may have rows"
    assert not refused_at_all(replace(state, empty=frozenset({(ORDERS, TabletId(1))})))


def refused_at_all(state: Topology) -> bool:
    return any(isinstance(one, t.EndRequest) for one in decided(state).updates)


def test_c9_remove_is_refused_when_the_only_copy_of_a_run_would_be_lost():
    """By the map the tablets have another replica, which missed the write."""
    state = replace(topology(request(K.REMOVE), dead="c", layouts=[layout("bc")], members=map(member, (A, B, C))),
                    unreached={C: {"orders": 3, "by_n": 1}})  # fmt: skip
    assert refused(state) == (
        "node node-c: expected a copy of each of its runs on a live node, found none of 4 (1 of by_n, 3 of orders); "
        "bring node-c back, or another node that has them"
    )
    running = request(K.REMOVE, state=RequestState.RUNNING)
    gone = topology(running, dead="c", members=(member(A), member(B), member(C, N.REMOVING)), layouts=[layout("ab")])
    assert steps_of(decided(gone)) == [(C, N.LEFT), RequestState.DONE]
    assert steps_of(decided(replace(gone, unreached={C: {"orders": 1}}))) == [(C, N.NORMAL), Outcome.WENT_BACK]


def test_a_resize_stops_no_request_of_a_node():
    resize = replace(request(K.RESIZE, state=RequestState.RUNNING, id=5, tablets=4), node=None, relation=ORDERS)
    cutting = replace(layout("ab", "bc"), resize=Resize(type=ResizeType.SPLIT, number=1, tablets=4, request=5))
    state = topology(resize, request(K.REMOVE), dead="c", layouts=[cutting])
    assert requests.waits_for(state, resize) == "the runs of 2 tablets of orders to be cut, the first of which is 0"
    assert requests.waits_for(state, state.requests[1]) is None
    assert steps_of(decided(state)) == [(C, N.REMOVING), "begun"]


def test_a_live_node_is_decommissioned_and_a_dead_one_removed():
    assert refused(topology(request(K.REMOVE))) == (
        "node node-c: expected a dead node to remove, found it alive; DECOMMISSION NODE 'node-c'"
    )
    assert refused(topology(request(K.LEAVE), dead="c")) == (
        "node node-c: expected it alive to be drained, found it down; REMOVE NODE is for a dead one"
    )


def test_only_dead_nodes_are_ignored():
    assert refused(topology(request(K.REMOVE, ignore_nodes=[B]), dead="c")) == (
        "node node-b: expected a dead node to ignore, found it alive"
    )
    assert refused(topology(request(K.REMOVE, ignore_nodes=["x"]), dead="c")).startswith("node x: expected a node")


def test_what_cannot_be_replaced():
    def said(dead: str, replaced: NodeId = C, **new: object) -> str:
        members = (member(A), member(B), member(C), member(D, N.NONE, **new))
        ended = decided(topology(request(K.REPLACE, D, replaced_id=replaced), members=members, dead=dead)).updates[-1]
        assert isinstance(ended, t.EndRequest)
        assert ended.message is not None
        return ended.message

    assert said("") == "node node-c: expected a dead node to replace, found it alive; DECOMMISSION it"
    assert said("c", NodeId("x")).startswith("node x: expected a node of the cluster")
    assert said("c", datacenter="dc2") == ("node node-d: expected it in datacenter dc1 of node-c, found it in dc2")
    assert said("bc").startswith("node node-c: expected a live copy of each of its 1 tablets, found none of 1")


def test_what_cannot_be_rebuilt():
    assert refused(topology(request(K.REBUILD), dead="c")) == (
        "node node-c: expected it alive to be rebuilt, found it down; start its process"
    )
    assert refused(topology(request(K.REBUILD, source="dc9"))) == (
        "node node-c: expected a live node in datacenter dc9 to copy from, found none"
    )
