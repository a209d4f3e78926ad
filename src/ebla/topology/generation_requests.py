"""Requests for new generations of change streams, by pure functions of the topology.

A generation is announced first: the topology says that it is about to be committed, and under which id. When every live
node has seen that, it is committed, and the request has ended. Nothing moves by it, so it waits for no tablet, and only
for requests of its own kind. It is published later, as every generation is.
"""

from __future__ import annotations

from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.scopes import TOPOLOGY, of_relation
from ebla.model.topology import Outcome, Request, RequestKind, RequestState, Topology
from ebla.topology import barrier

GENERATION = RequestKind.NEW_CDC_GENERATION


def next_step(topology: Topology) -> c.Decision | None:
    """The next step of the oldest of these requests; `None`: it waits, or there is none."""
    request = next((one for one in topology.requests if one.kind is GENERATION), None)
    if request is None:
        return None
    wrong = refusal(topology, request)
    if wrong is not None:
        code = Outcome.REFUSED if request.state is RequestState.QUEUED else Outcome.WENT_BACK
        ended = t.EndRequest(request=request.id, state=RequestState.FAILED, code=code, message=wrong)
        return _decision(request, f"end request {request.id}: {wrong}", ended)
    if request.state is RequestState.QUEUED:
        return _decision(request, f"announce generations of request {request.id}", t.BeginRequest(request=request.id))
    assert request.begun is not None, "a request that goes on has begun"
    if barrier.blind(topology, request.begun):
        return None
    result = f"new generations of change streams of {_subject(topology, request)}"
    done = t.EndRequest(request=request.id, state=RequestState.DONE, result=result)
    return _decision(request, result, t.BeginGenerations(request=request.id, relation=request.relation), done)


def refusal(topology: Topology, request: Request) -> str | None:
    """Why no generation can begin; `None`: it can."""
    if request.relation is not None and request.relation not in topology.layouts:
        return f"request {request.id}: expected a table or a view, found it dropped"
    return None


def _subject(topology: Topology, request: Request) -> str:
    if request.relation is None:
        return f"{len(topology.layouts)} tables and views"
    return topology.layouts[request.relation].name


def _decision(request: Request, reason: str, *updates: t.TopologyUpdate) -> c.Decision:
    own = () if request.relation is None else (of_relation(request.relation),)
    return c.Decision(reason=reason, updates=updates, guards=frozenset({TOPOLOGY, *own}))
