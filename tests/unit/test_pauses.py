"""Pauses behind transitions that went back: they grow, they end, and a move that goes well ends them at once."""

from __future__ import annotations

from dataclasses import replace

from ebla.base.backoff import Backoff
from ebla.base.ids import NodeId, RelationId, TabletId
from ebla.model import topology_changes as t
from ebla.model.lifecycle.tablet import Stage
from ebla.model.tasks import Replica
from ebla.model.topology import Tablet, Transition, TransitionKind
from ebla.topology.balancer import plan
from ebla.topology.pauses import Pauses
from support.topologies import NOW, layout, member, start, topology

ORDERS = RelationId(1)
FIRST, SECOND = (ORDERS, TabletId(0)), (ORDERS, TabletId(1))
B = NodeId("b")
BACKOFF = Backoff(first=1.0, most=8.0)


def moving(tablet: Tablet, pending: NodeId | None = B) -> dict[Tablet, Transition]:
    return {
        tablet: Transition(
            tablet=tablet,
            kind=TransitionKind.MIGRATION,
            stage=Stage.STREAMING,
            leaving=Replica(NodeId("a"), 0),
            pending=None if pending is None else Replica(pending, 0),
            session=None,
            request=None,
            begun=NOW,
            since=NOW,
        )
    }


def end(pauses: Pauses, now_s: float, stage: Stage, tablet: Tablet = FIRST, pending: NodeId | None = B) -> None:
    pauses.note(moving(tablet, pending), [t.EndTransition(tablet=tablet, stage=stage)], now_s)


def test_a_node_rests_for_longer_each_time_that_a_tablet_went_back_from_it() -> None:
    pauses = Pauses(BACKOFF)
    now_s, found = 100.0, []
    for _ in range(6):
        end(pauses, now_s, Stage.REVERT_MIGRATION)
        rests_s = next(s for s in range(1, 20) if not pauses.at(now_s + s))
        assert pauses.at(now_s + rests_s - 0.5) == {FIRST: {B}}
        found.append(rests_s)
        now_s += rests_s
    assert found == [1, 2, 4, 8, 8, 8]


def test_each_tablet_and_node_rests_by_itself() -> None:
    pauses = Pauses(BACKOFF)
    end(pauses, 0, Stage.REVERT_MIGRATION)
    end(pauses, 0, Stage.REVERT_MIGRATION, pending=None)
    end(pauses, 0.5, Stage.REVERT_MIGRATION, SECOND)
    assert pauses.at(0.9) == {FIRST: {B, None}, SECOND: {B}}
    assert pauses.at(1.2) == {SECOND: {B}}


def test_a_move_that_went_well_or_was_long_ago_is_forgotten() -> None:
    pauses = Pauses(BACKOFF)
    for stage in (Stage.REVERT_MIGRATION, Stage.REVERT_MIGRATION, Stage.CLEANUP, Stage.REVERT_MIGRATION):
        end(pauses, 0, stage)
    assert pauses.at(1) == {}, "the first pause again"
    end(pauses, 1, Stage.REVERT_MIGRATION)
    assert pauses.at(2.9)
    assert pauses.at(1 + 2 + 8) == {}
    end(pauses, 20, Stage.REVERT_MIGRATION)
    assert pauses.at(21) == {}


def test_steps_on_the_way_are_no_end() -> None:
    pauses = Pauses(BACKOFF)
    back = t.AdvanceTransition(tablet=FIRST, stage=Stage.STREAMING, to=Stage.CLEANUP_TARGET, failure="full")
    pauses.note(moving(FIRST), [back], 0)
    pauses.note({}, [t.EndTransition(tablet=FIRST, stage=Stage.REVERT_MIGRATION)], 0)
    assert pauses.at(0) == {}


def test_a_disk_that_stays_full_is_tried_a_few_times_an_hour() -> None:
    """A node is to take a second copy of each tablet, and cannot."""
    state, pauses, tries = topology([member("a"), member("b")], layout([["a"]] * 2, replication=2)), Pauses(), 0
    for now_s in range(3600):
        moves = plan(replace(state, paused=pauses.at(now_s))).moves
        tries += len(moves)
        ended = [t.EndTransition(tablet=move.tablet, stage=Stage.REVERT_MIGRATION) for move in moves]
        pauses.note(start(state, moves).transitions, ended, now_s)
    assert 2 * 15 < tries < 2 * 25
