"""When tablets are split and become one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebla.base.ids import NodeId, RelationId, TabletId, Version
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle.tablet import Stage
from ebla.model.tasks import Replica
from ebla.model.topology import (
    Layout,
    Outcome,
    Request,
    RequestKind,
    RequestState,
    Resize,
    ResizeType,
    Topology,
    Transition,
    TransitionKind,
)
from ebla.topology import coordinator
from ebla.topology.requests import waits_for
from ebla.topology.resize import Decide, Finalize, ask, decide, next_step, refusal, step
from support.topologies import layout, member, topology

TARGET = 1000
SPLIT, MERGE, NONE = ResizeType.SPLIT, ResizeType.MERGE, ResizeType.NONE
T = RelationId(1)


def table(tablets: int, size: int, *, type: ResizeType = NONE, number: int = 0, least: int = 0) -> Layout:
    resize = Resize(type=type, number=number, tablets=least)
    return layout([["a"]] * tablets, sizes=size, resize=resize)


def decided(one: Layout) -> ResizeType | None:
    found = decide(one, TARGET)
    return None if found is None else found.resize.type


def test_tablets_above_the_target_are_split() -> None:
    found = decide(table(4, 1001), TARGET)
    assert found is not None
    assert found.resize == Resize(type=SPLIT, number=1, tablets=4)
    assert found.reason == "tablets of 1,001 bytes on average, with a target of 1,000"
    assert decided(table(4, 1000)) is None


def test_tablets_well_below_half_of_the_target_become_one() -> None:
    assert decided(table(8, 374, least=2)) is MERGE
    assert decided(table(8, 376, least=2)) is None


def test_a_relation_keeps_the_tablets_that_it_was_created_with() -> None:
    assert decided(table(8, 0)) is None
    assert decided(table(8, 0, least=8)) is None
    assert decided(table(8, 0, least=4)) is MERGE


@pytest.mark.parametrize(("size", "stays"), [(1001, True), (900, True), (750, True), (749, False), (0, False)])
def test_a_split_that_would_be_undone_is_revoked(size: int, stays: bool) -> None:
    found = decide(table(4, size, type=SPLIT, number=3, least=4), TARGET)
    assert (found is None) is stays
    assert found is None or found.resize == Resize(type=NONE, number=3, tablets=4)


@pytest.mark.parametrize(("size", "now"), [(100, None), (500, None), (501, NONE), (1001, SPLIT)])
def test_a_merge_that_would_be_undone_is_revoked(size: int, now: ResizeType | None) -> None:
    assert decided(table(4, size, type=MERGE, number=3, least=2)) is now


def test_numbers_grow_with_each_decision() -> None:
    revoked = decide(table(4, 0, type=SPLIT, number=3, least=4), TARGET)
    assert revoked is not None
    again = decide(replace(table(4, 2000), resize=revoked.resize), TARGET)
    assert again is not None
    assert again.resize.number == 4


# ---- requests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(4, 32), (32, 4), (1, 2), (2, 1)])
def test_a_request_goes_to_its_number_by_doubling_or_halving(before: int, after: int) -> None:
    one = table(before, 10)
    asked = ask(one, after, 7, TARGET)
    assert isinstance(asked, Resize)
    one = replace(one, resize=asked)
    passed = []
    while (found := decide(one, TARGET)) is not None and found.resize.type is not NONE:
        one = finalized(replace(one, resize=found.resize))
        passed.append(one.tablets)
    factor = 2 if after > before else 0.5
    assert passed == [before * factor ** (n + 1) for n in range(len(passed))]
    assert passed[-1] == after
    assert found is None
    ended = replace(one.resize, request=None)
    assert decide(replace(one, resize=ended), TARGET) is None, "what was asked for is not undone"


def finalized(one: Layout) -> Layout:
    """As the commit leaves it."""
    tablets = one.tablets * 2 if one.resize.type is SPLIT else one.tablets // 2
    size = sum(one.bytes) // tablets
    return layout([["a"]] * tablets, sizes=size, resize=replace(one.resize, type=NONE))


@pytest.mark.parametrize("tablets", [0, -2, 3, 2**21])
def test_a_number_that_is_no_power_of_two_is_refused(tablets: int) -> None:
    assert ask(table(4, 10), tablets, 1, TARGET) == (
        f"expected a power of two from 1 to 1048576 tablets, found {tablets}"
    )


def test_too_few_tablets_for_the_bytes_are_refused() -> None:
    assert ask(table(8, 900), 4, 1, TARGET) == (
        "expected tablets of 1,000 bytes at most on average, found 7,200 bytes for 4 tablets, which would be split "
        "again; ask for 8 or more, or raise tablet_bytes_target"
    )


def asked_of(one: Layout | None, tablets: int, state: RequestState = RequestState.QUEUED) -> Topology:
    request = Request(id=7, kind=RequestKind.RESIZE, state=state, relation=T, parameters={"tablets": tablets})
    layouts = () if one is None else (one,)
    return replace(topology([member("a")], *layouts), requests=(request,))


def updates(state: Topology) -> tuple[object, ...]:
    decision = step(state, TARGET)
    return () if decision is None else decision.updates


def test_a_request_begins_goes_on_and_ends_with_its_answer() -> None:
    begun = Resize(tablets=8, request=7)
    assert updates(asked_of(table(2, 10), 8)) == (t.BeginRequest(request=7), t.SetResize(relation=T, resize=begun))
    running = asked_of(replace(table(2, 10), resize=begun), 8, RequestState.RUNNING)
    split = replace(begun, type=SPLIT, number=1)
    assert updates(running) == (t.SetResize(relation=T, resize=split),)
    ready = asked_of(cut(replace(table(2, 10), resize=split), 1), 8, RequestState.RUNNING)
    assert updates(ready) == (c.SetTabletMap(relation=T, tablets=4),)
    done = asked_of(replace(table(8, 10), resize=replace(begun, number=2)), 8, RequestState.RUNNING)
    result = t.EndRequest(request=7, state=RequestState.DONE, result="t1 has 8 tablets")
    assert updates(done) == (t.SetResize(relation=T, resize=Resize(number=2, tablets=8)), result)


def test_a_request_that_is_impossible_by_its_turn_ends_with_the_reason() -> None:
    (refused,) = updates(asked_of(table(8, 900), 4))
    assert isinstance(refused, t.EndRequest)
    assert (refused.state, refused.code) == (RequestState.FAILED, Outcome.REFUSED)
    (dropped,) = updates(asked_of(None, 4))
    assert isinstance(dropped, t.EndRequest)
    assert dropped.message == "expected relation 1 to be there, found it dropped"


def test_why_a_number_cannot_be_asked_for() -> None:
    one = table(4, 10)
    assert refusal(topology([], one), T, "t1", 8, TARGET) is None
    assert (
        refusal(topology([], one), T, "t1", 6, TARGET)
        == "t1: expected a power of two from 1 to 1048576 tablets, found 6"
    )
    assert refusal(asked_of(one, 8), T, "t1", 8, TARGET) == (
        "t1: expected no resize of it that has not ended, found request 7; wait for it"
    )
    assert refusal(topology([], one), RelationId(2), "i", 8, TARGET) == (
        "i: expected a table or a view, found an index, whose tablets are those of its base"
    )


# ---- finalization ---------------------------------------------------------------------------------------


def cut(one: Layout, number: int) -> Layout:
    return replace(
        one,
        reported={
            (TabletId(tablet), replica.host): number
            for tablet, replicas in enumerate(one.replicas)
            for replica in replicas
        },
    )


def test_a_resize_is_finalized_when_every_replica_has_reported_its_number() -> None:
    nodes = [member("a"), member("b")]
    one = layout([["a", "b"]] * 2, sizes=2000, resize=Resize(type=SPLIT, number=5, tablets=2))
    assert next_step(topology(nodes, one), TARGET) is None
    assert next_step(topology(nodes, cut(one, 4)), TARGET) is None
    missing = replace(cut(one, 5), reported={**cut(one, 5).reported, (TabletId(1), NodeId("b")): 4})
    assert next_step(topology(nodes, missing), TARGET) is None
    assert next_step(topology(nodes, cut(one, 5)), TARGET) == Finalize(relation=T, tablets=4, number=5)


def test_a_dead_node_stops_no_resize_and_a_tablet_of_dead_nodes_does() -> None:
    one = layout([["a", "b"]] * 2, sizes=2000, resize=Resize(type=SPLIT, number=5, tablets=2))
    one = replace(one, reported={(TabletId(tablet), NodeId("a")): 5 for tablet in range(2)})
    state = topology([member("a"), member("b")], one)
    assert next_step(state, TARGET) is None
    assert one.uncut(state.alive) == [0, 1]
    alone = replace(state, alive=frozenset({NodeId("a")}))
    assert next_step(alone, TARGET) == Finalize(relation=T, tablets=4, number=5)
    assert next_step(replace(state, alive=frozenset()), TARGET) is None


def test_a_resize_waits_for_the_transitions_of_its_tablets() -> None:
    nodes = [member("a"), member("b")]
    one = cut(layout([["a"]] * 2, sizes=2000, resize=Resize(type=SPLIT, number=5, tablets=2)), 5)

    def moving(relation: int) -> Transition:
        return Transition(
            tablet=(RelationId(relation), TabletId(0)),
            kind=TransitionKind.MIGRATION,
            stage=Stage.STREAMING,
            leaving=Replica(NodeId("a"), 0),
            pending=Replica(NodeId("b"), 0),
            session="s",
            request=None,
            begun=Version(1),
            since=Version(1),
        )

    assert next_step(topology(nodes, one, transitions=[moving(1)]), TARGET) is None
    assert isinstance(next_step(topology(nodes, one, transitions=[moving(2)]), TARGET), Finalize)


def test_tablets_that_are_apart_do_not_become_one() -> None:
    nodes = [member("a"), member("b")]
    apart = cut(layout([["a"], ["b"]], sizes=1, resize=Resize(type=MERGE, number=1, tablets=1)), 1)
    assert next_step(topology(nodes, apart), TARGET) is None
    together = cut(layout([["b"], ["b"]], sizes=1, resize=Resize(type=MERGE, number=1, tablets=1)), 1)
    assert next_step(topology(nodes, together), TARGET) == Finalize(relation=T, tablets=1, number=1)


def test_no_merge_waits_for_balancing_that_is_off() -> None:
    """Its tablets would not be brought together, so it is revoked, and decided again when balancing is on."""
    nodes = [member("a"), member("b")]
    apart = layout([["a"], ["b"]], sizes=1, resize=Resize(type=MERGE, number=1, tablets=1))
    state = topology(nodes, apart, balancing=False)
    found = next_step(state, TARGET)
    assert isinstance(found, Decide)
    assert (found.resize, found.reason) == (
        Resize(type=NONE, number=1, tablets=1),
        "balancing is off: tablets that become one are not brought together",
    )
    revoked = replace(state, layouts={T: replace(apart, resize=found.resize)})
    assert next_step(revoked, TARGET) is None
    again = next_step(replace(revoked, balancing=True), TARGET)
    assert isinstance(again, Decide)
    assert again.resize == Resize(type=MERGE, number=2, tablets=1)
    together = cut(replace(apart, replicas=(apart.replicas[0],) * 2), 1)
    assert isinstance(next_step(topology(nodes, together, balancing=False), TARGET), Finalize)
    asked = replace(apart, resize=replace(apart.resize, request=3))
    assert next_step(topology(nodes, asked, balancing=False), TARGET) is None


def test_tablets_of_a_merge_that_was_asked_for_are_brought_together() -> None:
    asked = Request(id=3, kind=RequestKind.RESIZE, state=RequestState.RUNNING, relation=T, parameters={"tablets": 1})
    apart = layout([["a"], ["b"]], sizes=1, resize=Resize(type=MERGE, number=1, tablets=1, request=3))
    state = replace(topology([member("a"), member("b")], apart), requests=(asked,))
    found = coordinator.step(state, TARGET)
    assert found is not None
    assert [type(update) for update in found.updates] == [t.BeginTransition]
    assert coordinator.step(replace(state, balancing=False), TARGET) == found, "it was asked for"
    assert (
        waits_for(replace(state, layouts={T: cut(apart, 1)}), asked)
        == "1 pairs of tablets of t1 to lie on the same nodes"
    )


def test_a_request_that_waits_for_a_merge_does_not_keep_its_tablets_apart() -> None:
    asked = Request(id=3, kind=RequestKind.RESIZE, state=RequestState.RUNNING, relation=T, parameters={"tablets": 1})
    move = {"tablet": 0, "source": "a", "target": "b"}
    behind = Request(id=4, kind=RequestKind.MOVE, state=RequestState.QUEUED, relation=T, parameters=move)
    apart = layout([["a"], ["b"]], sizes=1, resize=Resize(type=MERGE, number=1, tablets=1, request=3))
    state = replace(topology([member("a"), member("b")], apart), requests=(asked, behind))
    found = coordinator.step(state, TARGET)
    assert found is not None
    assert [type(update) for update in found.updates] == [t.BeginTransition]
    before = replace(state, requests=(replace(behind, id=2, state=RequestState.RUNNING), asked))
    assert coordinator._leaves_free(before, before.requests[0]) is False


def test_one_step_at_a_time_finalizations_first() -> None:
    large = replace(table(2, 5000), relation=RelationId(9))
    done = cut(table(2, 2000, type=SPLIT, number=1, least=2), 1)
    state = topology([member("a")], large, done)
    assert next_step(state, TARGET) == Finalize(relation=T, tablets=4, number=1)
    found = next_step(topology([member("a")], large), TARGET)
    assert isinstance(found, Decide)
    assert found.relation == 9
