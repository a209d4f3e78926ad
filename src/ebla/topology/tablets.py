"""The next step of tablets in transition, as a pure function of the topology.

Which stages there are and what they mean says `ebla.model.lifecycle.tablet`. A stage is left when its barrier holds
(`ebla.topology.barrier`), the stage that copies when the pending replica lacks nothing. Up to there a transition goes
back where it cannot go on: no live node has what is to be copied, the node that it comes to is dead, or copying failed;
where a replica is given up, also if another one is dead and this one lives, or if copies are missing on the dead one.
Behind it readers use the new replicas, and it goes on: what a dead node lacks is made good by repair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ebla.base.ids import Version
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle.tablet import Stage, goes_back
from ebla.model.scopes import TOPOLOGY, of_tablet
from ebla.model.topology import Outcome, RequestKind, RequestState, Topology, Transition
from ebla.topology import barrier
from ebla.topology.requests import name_of

S = Stage

TOGETHER_MAX = 64
"""Tablets that go on in one commit."""

AFTER: Mapping[Stage, Stage | None] = {
    S.ALLOW_WRITE_BOTH_READ_OLD: S.WRITE_BOTH_READ_OLD,
    S.WRITE_BOTH_READ_OLD: S.STREAMING,
    S.STREAMING: S.WRITE_BOTH_READ_NEW,
    S.WRITE_BOTH_READ_NEW: S.USE_NEW,
    S.USE_NEW: S.CLEANUP,
    S.CLEANUP: None,
    S.CLEANUP_TARGET: S.REVERT_MIGRATION,
    S.REVERT_MIGRATION: None,
}
"""The stage behind each; `None`: the transition ends."""

CAN_GO_BACK = frozenset({S.ALLOW_WRITE_BOTH_READ_OLD, S.WRITE_BOTH_READ_OLD, S.STREAMING})


def next_step(topology: Topology) -> c.Decision | None:
    """The next step of all tablets that can go on; `None`: all of them wait.

    A tablet whose copies are complete goes on by itself: a write may come between, and then the others would wait.
    """
    passed = barrier.holds_up_to(topology) if topology.transitions else topology.version
    found = [(one, step) for one in topology.transitions.values() if (step := _step(topology, one, passed)) is not None]
    together = [(one, step) for one, step in found if one.stage is not S.STREAMING][:TOGETHER_MAX] or found[:1]
    if not together:
        return None
    said = "; ".join(_said(topology, one, step) for one, step in together[:3])
    more = f" and {len(together) - 3} more" if len(together) > 3 else ""
    return c.Decision(
        reason=f"{said}{more}",
        updates=(
            *(step for _, step in together),
            *(a for one, step in together for a in _answers(topology, one, step)),
        ),
        guards=frozenset({TOPOLOGY, *(of_tablet(*one.tablet) for one, _ in together)}),
    )


def step_of(topology: Topology, one: Transition) -> t.AdvanceTransition | t.EndTransition | None:
    """The next step of one tablet; `None`: it waits."""
    return _step(topology, one, barrier.holds_up_to(topology))


def _step(topology: Topology, one: Transition, passed: Version) -> t.AdvanceTransition | t.EndTransition | None:
    """`passed`: the newest step that all that is at work knows."""
    if one.stage in CAN_GO_BACK and (why := _obstacle(topology, one)) is not None:
        return t.AdvanceTransition(tablet=one.tablet, stage=one.stage, to=S.CLEANUP_TARGET, failure=why)
    if passed < one.since or (one.stage is S.STREAMING and topology.lacking.get(one.tablet, 1)):
        return None
    to = AFTER[one.stage]
    if to is None:
        return t.EndTransition(tablet=one.tablet, stage=one.stage)
    return t.AdvanceTransition(tablet=one.tablet, stage=one.stage, to=to)


def waits_for(topology: Topology, one: Transition) -> str:
    """What a tablet in transition waits for, in words."""
    if step_of(topology, one) is not None:
        return "the coordinator"
    if unseen := barrier.blind(topology, one.since):
        return f"node {name_of(topology, unseen[0])} to see its stage"
    if not barrier.holds(topology, one.since):
        return f"a transaction that began before version {one.since}"
    return f"{topology.lacking.get(one.tablet, 0)} copies"


def _obstacle(topology: Topology, one: Transition) -> str | None:
    if one.failure is not None:
        return one.failure
    if one.pending is not None and one.pending.host not in topology.alive:
        return f"node {name_of(topology, one.pending.host)}, which the tablet comes to, is down"
    layout = topology.layouts.get(one.tablet[0])
    replicas = () if layout is None else layout.replicas[one.tablet[1]]
    if not any(replica.host in topology.alive for replica in replicas) and one.tablet not in topology.empty:
        return "no live node has the tablet"
    stay = (host for host, _ in replicas if one.leaving is None or host != one.leaving.host)
    down = next((host for host in stay if host not in topology.alive), None)
    if one.pending is not None or down is None:
        return None
    if topology.lacking.get(one.tablet):
        return f"node {name_of(topology, down)}, which the tablet stays on, is down, and copies are missing"
    if one.leaving is not None and one.leaving.host in topology.alive:
        return f"node {name_of(topology, down)}, which the tablet stays on, is down, and the replica it loses lives"
    return None


def _answers(
    topology: Topology, one: Transition, step: t.AdvanceTransition | t.EndTransition
) -> Iterator[t.EndRequest]:
    """The answer to the request for one move, which ends with it."""
    asked = next((request for request in topology.requests if request.id == one.request), None)
    if isinstance(step, t.AdvanceTransition) or asked is None or asked.kind is not RequestKind.MOVE:
        return
    if goes_back(one.stage):
        yield t.EndRequest(
            request=asked.id, state=RequestState.FAILED, code=Outcome.WENT_BACK, message=f"it went back: {one.failure}"
        )
    else:
        yield t.EndRequest(request=asked.id, state=RequestState.DONE, result=f"tablet {one.tablet[1]} has moved")


def _said(topology: Topology, one: Transition, step: t.AdvanceTransition | t.EndTransition) -> str:
    layout = topology.layouts.get(one.tablet[0])
    to = step.to if isinstance(step, t.AdvanceTransition) else "end"
    name = one.tablet[0] if layout is None else layout.name
    return f"tablet {one.tablet[1]} of {name}: {one.stage} -> {to}"
