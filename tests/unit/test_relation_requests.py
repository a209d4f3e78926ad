"""Requests of tables as values: a tablet that moves, another number of copies, and how they are answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebla.base.ids import NodeId, RelationId, TabletId, Version
from ebla.errors import UsageError
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import NodeState
from ebla.model.lifecycle.tablet import Stage
from ebla.model.tasks import Replica
from ebla.model.topology import (
    Layout,
    Member,
    Outcome,
    Request,
    RequestKind,
    RequestState,
    Topology,
    Transition,
    TransitionKind,
)
from ebla.sql import cluster_statements as cs
from ebla.sql.parse import parse
from ebla.tables.new_table import place
from ebla.topology import coordinator, relation_requests, requests

A, B, C = map(NodeId, "abc")
ORDERS = RelationId(1)
MOVE = Request(
    id=9,
    kind=RequestKind.MOVE,
    state=RequestState.QUEUED,
    relation=ORDERS,
    parameters={"tablet": 0, "source": A, "target": C},
)
COPIES = replace(MOVE, kind=RequestKind.REPLICATION, parameters={"replication": 2})


def topology(*asked: Request, replication: int = 1, moving: Transition | None = None) -> Topology:
    """Two tablets on node a; three nodes."""
    members = {n: Member(id=n, name=n, root=f"/{n}", state=NodeState.NORMAL) for n in (A, B, C)}
    orders = Layout(
        relation=ORDERS,
        name="orders",
        replication=replication,
        min_copies=1,
        replicas=((Replica(A, 0),),) * 2,
        bytes=(1, 1),
    )
    return Topology(
        version=Version(20),
        members=members,
        alive=frozenset(members),
        seen=dict.fromkeys(members, Version(20)),
        layouts={ORDERS: orders},
        transitions={} if moving is None else {moving.tablet: moving},
        requests=asked,
    )


def transition(stage: Stage, failure: str | None = None) -> Transition:
    return Transition(
        tablet=(ORDERS, TabletId(0)),
        kind=TransitionKind.MIGRATION,
        stage=stage,
        leaving=Replica(A, 0),
        pending=Replica(C, 0),
        session=None,
        request=MOVE.id,
        begun=Version(10),
        since=Version(11),
        failure=failure,
    )


def test_a_move_begins_with_its_request_and_answers_it():
    begun = coordinator.step(topology(MOVE))
    assert begun is not None
    assert begun.updates == (
        t.BeginRequest(request=9),
        t.BeginTransition(
            tablet=(ORDERS, TabletId(0)),
            kind=TransitionKind.MIGRATION,
            leaving=Replica(A, 0),
            pending=Replica(C, 0),
            request=9,
        ),
    )
    running = replace(MOVE, state=RequestState.RUNNING)
    done = coordinator.step(topology(running, moving=transition(Stage.CLEANUP)))
    assert done is not None
    assert done.updates[1] == t.EndRequest(request=9, state=RequestState.DONE, result="tablet 0 has moved")
    back = coordinator.step(topology(running, moving=transition(Stage.REVERT_MIGRATION, "the disk is full")))
    assert back is not None
    assert back.updates[1] == t.EndRequest(
        request=9, state=RequestState.FAILED, code=Outcome.WENT_BACK, message="it went back: the disk is full"
    )


def test_copies_are_made_by_the_balancer_until_every_tablet_has_enough():
    begun = coordinator.step(topology(COPIES))
    assert begun is not None
    assert begun.updates == (
        t.BeginRequest(request=9, parameters={"before": 1}),
        t.SetReplication(relation=ORDERS, replication=2),
    )
    running = replace(COPIES, state=RequestState.RUNNING)
    moves = coordinator.step(topology(running, replication=2))
    assert moves is not None
    assert [(one.leaving, one.request) for one in moves.updates if isinstance(one, t.BeginTransition)] == [
        (None, 9)
    ] * 2
    found = topology(running, replication=2)
    both = replace(found.layouts[ORDERS], replicas=((Replica(A, 0), Replica(B, 0)),) * 2)
    done = coordinator.step(replace(found, layouts={ORDERS: both}))
    assert done is not None
    assert done.updates == (
        t.EndRequest(request=9, state=RequestState.DONE, result="orders has 2 copies of each tablet"),
    )


def stuck(*queued: Request, left: str = "") -> Topology:
    """Three copies are wanted where there were two, and a node is dead; `left`: a node that is there no more."""
    running = replace(COPIES, state=RequestState.RUNNING, parameters={"replication": 3, "before": 2})
    state = topology(running, *queued, replication=3)
    both = replace(state.layouts[ORDERS], replicas=((Replica(A, 0), Replica(B, 0)),) * 2)
    members = {n: replace(m, state=NodeState.LEFT) if n == left else m for n, m in state.members.items()}
    return replace(state, layouts={ORDERS: both}, members=members, alive=frozenset({A, B}))


def test_copies_wait_for_a_node_that_is_down_and_say_so():
    state = stuck()
    assert coordinator.step(state) is None
    assert requests.waits_for(state, state.requests[0]) == (
        "1 more live nodes, for 2 tablets of orders; ALTER TABLE orders SET (replication = 2) takes its place"
    )
    back = replace(state, alive=frozenset(state.members), balancing=False)
    assert requests.waits_for(back, back.requests[0]) == "2 tablets of orders to have 3 copies"
    assert coordinator.step(back) is not None


def test_a_newer_request_for_another_number_of_copies_takes_the_place_of_one_that_goes_on():
    moved, newer = replace(MOVE, id=10), replace(COPIES, id=11)
    state = stuck(moved, newer)
    decision = coordinator.step(state)
    assert decision is not None
    why = "request 11 asks for 2 copies of orders and takes its place"
    assert decision.updates == (
        t.EndRequest(request=9, state=RequestState.FAILED, code=Outcome.SUPERSEDED, message=why),
        t.BeginRequest(request=11, parameters={"before": 2}),
        t.SetReplication(relation=ORDERS, replication=2),
    )
    moving = replace(transition(Stage.STREAMING), request=9)
    still = replace(state, transitions={moving.tablet: moving}, seen={}, lacking={moving.tablet: 1})
    assert relation_requests.next_step(still) == decision, "it waits for no tablet"


@pytest.mark.parametrize(
    "newer",
    [
        replace(COPIES, id=11, parameters={"replication": 3}),
        replace(COPIES, id=11, parameters={"replication": 4}),
        replace(COPIES, id=11, relation=RelationId(2)),
    ],
    ids=["the same number", "an impossible one", "another table"],
)
def test_no_other_request_takes_the_place_of_one_for_copies(newer: Request):
    state = stuck(newer)
    assert coordinator.step(state) is None
    assert requests.waits_for(state, newer) == "request 9 (replication)"


def test_more_copies_than_nodes_that_have_not_left_go_back_to_the_number_before():
    state = stuck(left=C)
    decision = coordinator.step(state)
    assert decision is not None
    why = (
        "orders: expected at least 3 nodes that take replicas, dead ones included, found 2; its replication is 2 again"
    )
    assert decision.updates == (
        t.EndRequest(request=9, state=RequestState.FAILED, code=Outcome.WENT_BACK, message=why),
        t.SetReplication(relation=ORDERS, replication=2),
    )
    moving = replace(transition(Stage.STREAMING), request=9)
    still = replace(state, transitions={moving.tablet: moving}, seen={}, lacking={moving.tablet: 1})
    assert relation_requests.next_step(still) is None, "a tablet in transition settles first"


def test_fewer_copies_go_on_however_few_nodes_are_left():
    state = stuck(left=C)
    fewer = replace(state.requests[0], parameters={"replication": 2, "before": 3})
    many = replace(state.layouts[ORDERS], replicas=((Replica(A, 0), Replica(B, 0), Replica(C, 0)),) * 2)
    step = relation_requests.next_step(replace(state, requests=(fewer,), layouts={ORDERS: many}))
    assert step is None


def test_a_request_waits_for_its_turn():
    first = replace(MOVE, id=8, state=RequestState.RUNNING)
    moving = replace(transition(Stage.CLEANUP), request=8)
    assert relation_requests.next_step(topology(first, COPIES, moving=moving)) is None
    assert relation_requests.next_step(topology(MOVE, moving=moving)) is None


def test_a_table_that_is_dropped_ends_its_requests():
    for request in (replace(MOVE, state=RequestState.RUNNING), replace(COPIES, state=RequestState.RUNNING)):
        ended = coordinator.step(replace(topology(request), layouts={}))
        assert ended is not None
        (answer,) = ended.updates
        assert isinstance(answer, t.EndRequest)
        assert answer.state is RequestState.FAILED
    assert "dropped" in str(relation_requests.refusal(replace(topology(MOVE), layouts={}), MOVE))


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        (MOVE, None),
        (replace(MOVE, parameters={"tablet": 2, "source": A, "target": C}), "expected a tablet from 0 to 1, found 2"),
        (replace(MOVE, parameters={"tablet": 0, "source": B, "target": C}), "on node b, found replicas on a"),
        (replace(MOVE, parameters={"tablet": 0, "source": A, "target": A}), "expected no replica on node a, found one"),
        (COPIES, None),
        (replace(COPIES, parameters={"replication": 4}), "of at most 3, the number of live nodes"),
        (replace(COPIES, parameters={"replication": 0}), "from 1, found 0"),
    ],
)
def test_refusals(asked: Request, wrong: str | None):
    found = relation_requests.refusal(topology(), asked)
    assert (found is None) if wrong is None else (wrong in str(found))


def test_more_copies_than_racks_are_refused_with_the_numbers():
    state = topology()
    racked = {n: replace(m, rack=f"r{n == A}") for n, m in state.members.items()}
    asked = replace(COPIES, parameters={"replication": 3})
    found = relation_requests.refusal(replace(state, members=racked), asked)
    assert "of at most 2, the number of racks with live nodes that take replicas, found 3; add racks first" in str(
        found
    )
    with pytest.raises(UsageError, match=r"at most the number of racks .2., found 3; add racks first"):
        place(list(racked.values()), list(racked), 4, 3)


def test_a_move_to_a_dead_node_is_refused():
    down = replace(topology(), alive=frozenset({A, B}))
    assert "found node c, it down" in str(relation_requests.refusal(down, MOVE))
    moving = topology(moving=transition(Stage.STREAMING))
    assert "expected it not to move, found it in stage streaming" in str(relation_requests.refusal(moving, MOVE))


def test_statements():
    moved = cs.MoveTablet(tablet=3, table="orders", source="a", target="b")
    assert parse("MOVE TABLET 3 OF orders FROM 'a' TO b") == moved
    assert parse("ALTER TABLE orders SET (replication = 3)") == cs.SetTableOptions(
        table="orders", options={"replication": 3}
    )
    assert parse("SHOW TABLETS") == cs.ShowTablets()
    assert parse("SHOW TABLETS OF orders") == cs.ShowTablets(table="orders")
    assert parse("SHOW TRANSITIONS") == cs.ShowTransitions()


def test_a_node_that_is_being_replaced_gets_no_new_replica() -> None:
    """Its successor could get the same tablet, and the tablet would have no node left to go to."""
    members = {
        A: Member(id=A, name=A, root="/a", state=NodeState.NORMAL),
        B: Member(id=B, name=B, root="/b", state=NodeState.NORMAL),
        C: Member(id=C, name=C, root="/c", state=NodeState.REPLACING, replaced=B),
    }
    assert place(list(members.values()), [A, B, C], tablets=2, replication=2) == ((A, C), (C, A))
    with pytest.raises(UsageError, match="number of nodes"):
        place(list(members.values()), [A, B, C], tablets=1, replication=3)
    found = replace(topology(), members=members)
    assert [m.id for m in found.receivers()] == [A, C]
    to_b = replace(MOVE, parameters={"tablet": 0, "source": A, "target": B})
    assert "node b, it replaced" in str(relation_requests.refusal(found, to_b))
