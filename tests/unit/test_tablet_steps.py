"""The steps of tablets in transition and their barrier, as values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebla.base.ids import NodeId, RelationId, TabletId, TransactionId, Version
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import NodeState
from ebla.model.lifecycle.tablet import LIFE, Replicas, Stage, reads_from, requires_of, writes_to
from ebla.model.relation import Move
from ebla.model.scopes import TOPOLOGY, of_relation
from ebla.model.tasks import Replica
from ebla.model.topology import Layout, Member, Topology, Transition, TransitionKind
from ebla.topology import barrier, coordinator, tablets

A, B, C = map(NodeId, "abc")
ORDERS = RelationId(1)
SINCE = Version(10)
S = Stage
BACK = frozenset({S.ALLOW_WRITE_BOTH_READ_OLD, S.WRITE_BOTH_READ_OLD, S.STREAMING})


def moving(stage: Stage, tablet: int = 0) -> Transition:
    return Transition(
        tablet=(ORDERS, TabletId(tablet)),
        kind=TransitionKind.MIGRATION,
        stage=stage,
        leaving=Replica(A, 0),
        pending=Replica(C, 0),
        session="s" if stage is S.STREAMING else None,
        request=None,
        begun=Version(5),
        since=SINCE,
    )


def topology(*found: Transition, seen: int = SINCE) -> Topology:
    """Two tablets on the nodes a and b, one or both on the way from a to c, with nothing left to copy."""
    members = {n: Member(id=n, name=n, root=f"/{n}", state=NodeState.NORMAL) for n in (A, B, C)}
    replicas = ((Replica(A, 0), Replica(B, 0)),) * 2
    orders = Layout(relation=ORDERS, name="orders", replication=2, min_copies=1, replicas=replicas, bytes=(1, 1))
    return Topology(
        version=SINCE,
        members=members,
        alive=frozenset(members),
        seen=dict.fromkeys(members, Version(seen)),
        layouts={ORDERS: orders},
        transitions={one.tablet: one for one in found},
        requests=(),
        lacking={one.tablet: 0 for one in found if one.stage is S.STREAMING},
    )


@pytest.mark.parametrize("stage", Stage)
def test_a_stage_goes_on_behind_its_barrier_and_not_before(stage: Stage):
    one = moving(stage)
    for waits in (
        topology(one, seen=SINCE - 1),
        replace(topology(one), oldest_open=Version(SINCE - 1)),
    ):
        assert tablets.next_step(waits) is None
    decision = coordinator.step(replace(topology(one), oldest_open=SINCE))
    assert decision is not None
    assert decision.guards == {TOPOLOGY, of_relation(ORDERS)}
    (step,) = decision.updates
    assert isinstance(step, t.AdvanceTransition | t.EndTransition)
    assert step.stage is stage
    assert LIFE.allows(stage, step.to if isinstance(step, t.AdvanceTransition) else None)
    assert isinstance(step, t.EndTransition) == (stage in (S.CLEANUP, S.REVERT_MIGRATION))


def test_readers_go_over_when_nothing_is_left_to_copy():
    one = moving(S.STREAMING)
    waits = replace(topology(one), lacking={one.tablet: 3})
    assert tablets.next_step(waits) is None
    assert tablets.waits_for(waits, one) == "3 copies"
    assert tablets.step_of(topology(one), one) == t.AdvanceTransition(
        tablet=one.tablet, stage=S.STREAMING, to=S.WRITE_BOTH_READ_NEW
    )


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("target", "node c, which the tablet comes to, is down"),
        ("sources", "no live node has the tablet"),
        ("copying", "the disk is full"),
    ],
)
def test_c2_a_dead_node_takes_a_transition_back_until_readers_have_gone_over(stage: Stage, what: str, why: str):
    one = moving(stage)
    if what == "copying":
        one = replace(one, failure=why)
    found = replace(topology(one), alive=frozenset({"target": {A, B}, "sources": {C}, "copying": {A, B, C}}[what]))
    step = tablets.step_of(found, one)
    back = t.AdvanceTransition(tablet=one.tablet, stage=stage, to=S.CLEANUP_TARGET, failure=why)
    assert (step == back) == (stage in BACK)
    assert step is not None


def test_one_source_of_several_may_die():
    one = moving(S.STREAMING)
    assert tablets.step_of(replace(topology(one), alive=frozenset({B, C})), one) == t.AdvanceTransition(
        tablet=one.tablet, stage=S.STREAMING, to=S.WRITE_BOTH_READ_NEW
    )


def test_tablets_go_on_together_and_those_with_copies_by_themselves():
    both = moving(S.ALLOW_WRITE_BOTH_READ_OLD), moving(S.USE_NEW, 1)
    decision = tablets.next_step(topology(*both))
    assert decision is not None
    assert len(decision.updates) == 2
    assert decision.reason == (
        "tablet 0 of orders: allow_write_both_read_old -> write_both_read_old; tablet 1 of orders: use_new -> cleanup"
    )
    copied = tablets.next_step(topology(moving(S.STREAMING), moving(S.STREAMING, 1)))
    assert copied is not None
    assert len(copied.updates) == 1


def test_the_barrier_waits_for_members_that_live():
    found = topology(moving(S.USE_NEW), seen=SINCE - 1)
    assert barrier.blind(found, SINCE) == [A, B, C]
    assert tablets.waits_for(found, moving(S.USE_NEW)) == "node a to see its stage"
    assert barrier.blind(replace(found, alive=frozenset({B})), SINCE) == [B]
    left = {A: replace(found.members[A], state=NodeState.LEFT)}
    assert barrier.blind(replace(found, members={**found.members, **left}), SINCE) == [B, C]
    old = replace(topology(moving(S.USE_NEW)), oldest_open=Version(9))
    assert tablets.waits_for(old, moving(S.USE_NEW)) == "a transaction that began before version 10"


def test_a_transaction_that_keeps_a_barrier_waiting_is_aborted_after_a_while():
    found = [barrier.Open(TransactionId(1), Version(9)), barrier.Open(TransactionId(2), SINCE)]
    assert barrier.late(found, SINCE, stepped_at=100, now=109, grace_us=10) == []
    assert barrier.late(found, SINCE, stepped_at=100, now=110, grace_us=10) == [1]


def test_no_step_changes_readers_and_writers_at_once():
    """A read and a write that were planned one stage apart still meet in a node."""
    for step in LIFE.steps:
        changed = [which(step.before) is not which(step.after) for which in (reads_from, writes_to)]
        assert not all(changed) or step.after is None, step
    for stage in Stage:
        wide = {Replicas.BOTH: {Replicas.OLD, Replicas.NEW, Replicas.BOTH}}
        assert requires_of(stage) in wide.get(writes_to(stage), {writes_to(stage)}), stage


@pytest.mark.parametrize(
    ("leaving", "pending", "after"),
    [(A, C, (C, B)), (B, C, (A, C)), (None, C, (A, B, C)), (A, None, (B,)), (C, A, (A, B))],
)
def test_the_new_replicas_of_a_move(leaving: NodeId | None, pending: NodeId | None, after: tuple[NodeId, ...]):
    assert Move(S.STREAMING, leaving, pending).after((A, B)) == after
