"""The steps of tablets in transition and their barrier, as values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ebla.base.ids import NodeId, RelationId, TabletId, TransactionId, Version
from ebla.errors import TransactionClosedError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.barrier import Open, late
from ebla.model.lifecycle.node import NodeState
from ebla.model.lifecycle.tablet import LIFE, Replicas, Stage, reads_from, requires_of, writes_to
from ebla.model.relation import Move
from ebla.model.scopes import TOPOLOGY, of_tablet
from ebla.model.tasks import Replica
from ebla.model.topology import Layout, Member, Topology, Transition, TransitionKind
from ebla.storage.copying import CopyResult
from ebla.topology import barrier, coordinator, migration, tablets

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
    assert decision.guards == {TOPOLOGY, of_tablet(ORDERS, TabletId(0))}
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


def test_a_replica_is_kept_where_a_dead_node_would_stay_that_lacks_copies():
    one = replace(moving(S.STREAMING), pending=None)
    found = replace(topology(one), lacking={one.tablet: 2}, alive=frozenset({A, C}))
    why = "node b, which the tablet stays on, is down, and copies are missing"
    back = t.AdvanceTransition(tablet=one.tablet, stage=S.STREAMING, to=S.CLEANUP_TARGET, failure=why)
    assert tablets.step_of(found, one) == back
    assert tablets.step_of(replace(found, alive=frozenset({A, B})), one) is None, "they are copied"


@pytest.mark.parametrize("stage", Stage)
def test_an_empty_tablet_that_no_live_node_has_is_made_anew(stage: Stage):
    one = replace(moving(stage), kind=TransitionKind.REBUILD)
    dead = replace(topology(one), alive=frozenset({C}))
    went_back = isinstance(step := tablets.step_of(dead, one), t.AdvanceTransition) and step.failure is not None
    assert went_back == (stage in BACK)
    assert tablets.step_of(replace(dead, empty=frozenset({one.tablet})), one) == tablets.step_of(topology(one), one)


@pytest.mark.parametrize("stage", Stage)
def test_a_live_replica_is_not_given_up_for_one_whose_node_is_down(stage: Stage):
    one = replace(moving(stage), pending=None)
    why = "node b, which the tablet stays on, is down, and the replica it loses lives"
    back = t.AdvanceTransition(tablet=one.tablet, stage=stage, to=S.CLEANUP_TARGET, failure=why)
    step = tablets.step_of(replace(topology(one), alive=frozenset({A, C})), one)
    assert (step == back) == (stage in BACK)
    dead_leaves = tablets.step_of(replace(topology(one), alive=frozenset({B, C})), one)
    assert dead_leaves == tablets.step_of(topology(one), one), "the dead one is given up"


@pytest.mark.parametrize(("result", "news"), [(CopyResult(), 0), (CopyResult(made=1), 1)])
def test_the_leader_looks_again_at_once_only_where_copies_were_made(
    monkeypatch: pytest.MonkeyPatch, result: CopyResult, news: int
):
    class Here:
        def begin(self, work):
            work()

    monkeypatch.setattr(migration, "stream", lambda *_: result)
    one, calls = replace(moving(S.STREAMING), session="s"), []
    migration.Migration(None, Here(), lambda: calls.append(1)).act(  # type: ignore[arg-type]
        replace(topology(one), lacking={one.tablet: 2})
    )
    assert len(calls) == news


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ValueError("expected a number"), "ValueError: expected a number"),
        (TransactionClosedError("the session is closed"), None),
    ],
)
def test_an_error_that_no_copier_foresees_takes_the_transition_back(
    monkeypatch: pytest.MonkeyPatch, error: Exception, failure: str | None
):
    class Here:
        node, committed = NodeId("a"), list[c.Update]()

        @property
        def catalog(self):
            return self

        def begin(self, work):
            work()

        def decide(self, make, *, node):
            self.committed += make(None, Version(20)).updates

    def stream(*_):
        raise error

    monkeypatch.setattr(migration, "stream", stream)
    one, here, calls = replace(moving(S.STREAMING), session="s"), Here(), []
    state = replace(topology(one), lacking={one.tablet: 2})
    copies = migration.Migration(here, here, lambda: calls.append(1))  # type: ignore[arg-type]
    for _ in range(2):  # the second round finds nothing under way
        copies.act(state)
    noted = [t.FailTransition(tablet=one.tablet, stage=S.STREAMING, failure=failure)] if failure else []
    assert here.committed == noted * 2
    assert len(calls) == len(noted) * 2


def test_tablets_of_a_relation_that_come_to_one_node_are_copied_one_after_the_other(monkeypatch: pytest.MonkeyPatch):
    begun: list[Callable[[], None]] = []

    class Later:
        def begin(self, work):
            begun.append(work)

    sessions: list[str] = []

    def stream(host, tablet, session, is_over):
        sessions.append(session)
        return CopyResult()

    monkeypatch.setattr(migration, "stream", stream)
    both = [replace(moving(S.STREAMING, tablet), session=f"s{tablet}") for tablet in (0, 1)]
    state = replace(topology(*both), lacking={one.tablet: 2 for one in both})
    copies = migration.Migration(None, Later(), lambda: None)  # type: ignore[arg-type]
    copies.act(state)
    assert len(begun) == 1, "a run that spans both is copied once"
    begun.pop()()
    copies.act(replace(state, lacking={both[1].tablet: 1}))
    begun.pop()()
    assert sessions == ["s0", "s1"]


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
    found = [Open(TransactionId(1), Version(9)), Open(TransactionId(2), SINCE)]
    assert late(found, SINCE, stepped_us=100, now_us=109, grace_us=10) == []
    assert late(found, SINCE, stepped_us=100, now_us=110, grace_us=10) == [1]


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


class Counted(dict[NodeId, Member]):
    """Nodes that count how often all of them are looked at."""

    looks = 0

    def values(self):
        self.looks += 1
        return super().values()


def test_how_many_tablets_move_does_not_say_how_often_every_node_is_looked_at():
    """With 1,000 nodes and 1,000 transitions that is a million looks in a step."""
    looks = []
    for moves in (1, 2):
        found = topology(*(moving(S.USE_NEW, tablet) for tablet in range(moves)), seen=SINCE - 1)
        nodes = Counted(found.members)
        assert coordinator.step(replace(found, members=nodes)) is None
        looks.append(nodes.looks)
    assert looks[0] == looks[1]
