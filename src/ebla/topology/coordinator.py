"""What the topology does next: one step, decided from one state.

Theory of operation. The coordinator is a pure function: a `Topology` in, one decision out. The leader commits it under
its term, guarded by what it was made from (`ebla.topology.service`). Nothing is kept between two steps, so any leader
goes on where the last one ended, and a step that was lost is decided again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ebla.base.settings import TABLET_BYTES
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.scopes import TOPOLOGY, of_tablets
from ebla.model.topology import BESIDE, Request, RequestKind, RequestState, Topology
from ebla.topology import balancer, generation_requests, relation_requests, requests, resize, tablets

GENERATION = RequestKind.NEW_CDC_GENERATION


def step(topology: Topology, tablet_bytes_target: int = TABLET_BYTES) -> c.Decision | None:
    """The next decision; `None`: nothing is to be done before something changes."""
    return (
        tablets.next_step(topology)
        or generation_requests.next_step(topology)
        or requests.next_step(topology)
        or relation_requests.next_step(topology)
        or _begin_moves(topology)
        or resize.step(topology, tablet_bytes_target)
        or _publication(topology)
        or _spread(topology)
    )


def _begin_moves(topology: Topology) -> c.Decision | None:
    """Begin to make the replicas that a request needs."""
    at_work = (request for request in topology.requests if request.state is RequestState.RUNNING)
    running = next((request for request in at_work if request.kind not in (RequestKind.RESIZE, *BESIDE)), None)
    return None if running is None else _beginning(balancer.plan(topology, only_due=True).moves, running.id)


def _spread(topology: Topology) -> c.Decision | None:
    """Spread bytes over nodes and tablets over shards, and bring tablets together that become one, where nothing is
    asked for but resizes: any other request lets the transitions that go on end first."""
    is_free = all(_leaves_free(topology, request) for request in topology.requests)
    return _beginning(balancer.plan(topology).moves if is_free else (), None)


def _leaves_free(topology: Topology, request: Request) -> bool:
    """Whether the balancer may move tablets while this request is open: it is a resize, it asks for a generation of
    streams, or it waits for a resize, which may itself wait until the balancer has brought tablets together."""
    waits = request.kind in relation_requests.OF_RELATIONS and request.state is RequestState.QUEUED
    resizes = (one for one in topology.requests if one.kind is RequestKind.RESIZE)
    before = any(one.state is RequestState.RUNNING or one.id < request.id for one in resizes)
    return request.kind in (RequestKind.RESIZE, GENERATION) or (waits and before)


def _beginning(moves: Sequence[balancer.Move], request: int | None) -> c.Decision | None:
    if not moves:
        return None
    begun = [
        t.BeginTransition(tablet=one.tablet, kind=one.kind, leaving=one.leaving, pending=one.pending, request=request)
        for one in moves
    ]
    return c.Decision(
        reason=f"begin {len(moves)} moves: {moves[0].reason}",
        updates=tuple(begun),
        guards=frozenset({TOPOLOGY, *(of_tablets(one.tablet[0]) for one in moves)}),
    )


def _publication(topology: Topology) -> c.Decision | None:
    """Generations of change streams are published when nothing else is to be done, and nothing waits for it."""
    if not topology.unpublished:
        return None
    reason = f"publish {len(topology.unpublished)} generations of change streams"
    return c.Decision(reason=reason, updates=(t.PublishGenerations(),), guards=frozenset({TOPOLOGY}))
