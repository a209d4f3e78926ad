"""Requests of tables and views, by pure functions of the topology: a tablet moves, or all get another number of copies.

- `move`: one transition. Its last step answers the request: the tablet has moved, or why it went back.
- `replication`: the relation has the number at once; the balancer makes and removes replicas, tablet by tablet. It is
  done when every tablet has as many. A node that is down may come back, so it is waited for. Two things end the wait: a
  newer request for another number, which takes its place at once, and nodes that leave: where fewer are left, dead ones
  included, than copies are wanted, it goes back to the number before.

They wait for their turn like the requests of nodes (`ebla.topology.requests`).
"""

from __future__ import annotations

from ebla.base.ids import NodeId, TabletId
from ebla.errors import UsageError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import may_receive
from ebla.model.relation import Kind, Relation
from ebla.model.scopes import TOPOLOGY, of_relation
from ebla.model.topology import (
    BESIDE,
    Layout,
    Outcome,
    Request,
    RequestKind,
    RequestState,
    Topology,
    TransitionKind,
    copies_max,
    receiving,
)
from ebla.topology.load import Load
from ebla.topology.requests import name_of, replication_before, replication_of

K = RequestKind

STREAMS = 2**31
"""A move that was asked for comes to a shard however busy it is."""

OF_RELATIONS = frozenset({K.MOVE, K.REPLICATION})


def next_step(topology: Topology) -> c.Decision | None:
    """The next step of any request of a relation; `None`: all of them wait."""
    mine = [request for request in topology.requests if request.kind in OF_RELATIONS]
    for request in mine:
        if request.state is RequestState.RUNNING and (step := _go_on(topology, request)) is not None:
            return step
    at_work = (request for request in topology.requests if request.kind not in BESIDE)
    if topology.transitions or any(request.state is RequestState.RUNNING for request in at_work):
        return None
    return _begin(topology, mine[0]) if mine and mine[0] == _oldest(topology) else None


def _oldest(topology: Topology) -> Request | None:
    return next((request for request in topology.requests if request.kind not in BESIDE), None)


def _begin(topology: Topology, request: Request) -> c.Decision:
    wrong = refusal(topology, request)
    if wrong is not None:
        ended = t.EndRequest(request=request.id, state=RequestState.FAILED, code=Outcome.REFUSED, message=wrong)
        return _decision(request, f"refuse request {request.id} ({request.kind})", ended)
    layout, reason = _layout(topology, request), f"begin request {request.id} ({request.kind})"
    if request.kind is K.REPLICATION:
        return _decision(request, reason, *_replicate(request, layout.replication))
    tablet, source, target = move_of(request)
    leaving = next(replica for replica in layout.replicas[tablet] if replica.host == source)
    moves = t.BeginTransition(
        tablet=(layout.relation, tablet),
        kind=TransitionKind.MIGRATION,
        leaving=leaving,
        pending=Load(topology, STREAMS).shard_for(target),
        request=request.id,
    )
    return _decision(request, reason, t.BeginRequest(request=request.id), moves)


def _replicate(request: Request, before: int) -> tuple[t.BeginRequest, t.SetReplication]:
    assert request.relation is not None, "a request of a relation names it"
    begun = t.BeginRequest(request=request.id, parameters={"before": before})
    return begun, t.SetReplication(relation=request.relation, replication=replication_of(request))


def _go_on(topology: Topology, request: Request) -> c.Decision | None:
    is_moving = any(one.request == request.id for one in topology.transitions.values())
    if request.relation not in topology.layouts or request.kind is K.MOVE:
        if is_moving:
            return None
        gone = "expected the relation to stay, found it dropped"
        ended = t.EndRequest(request=request.id, state=RequestState.FAILED, code=Outcome.WENT_BACK, message=gone)
        return _decision(request, f"end request {request.id}: {gone}", ended)
    layout, wanted = _layout(topology, request), replication_of(request)
    is_moving = is_moving or any(relation == layout.relation for relation, _ in topology.transitions)
    if not is_moving and all(len(replicas) == wanted for replicas in layout.replicas):
        result = f"{layout.name} has {wanted} copies of each tablet"
        ended = t.EndRequest(request=request.id, state=RequestState.DONE, result=result)
        return _decision(request, f"end request {request.id}: {result}", ended)
    newer = _newer(topology, request)
    if newer is not None:
        return _give_way(layout, request, newer)
    return None if is_moving else _go_back(topology, layout, request)


def _newer(topology: Topology, request: Request) -> Request | None:
    """A newer request for another number of copies of the same relation, if it is possible."""
    for one in topology.requests:
        is_same = (one.kind, one.relation, one.state) == (K.REPLICATION, request.relation, RequestState.QUEUED)
        if is_same and replication_of(one) != replication_of(request) and refusal(topology, one) is None:
            return one
    return None


def _give_way(layout: Layout, request: Request, newer: Request) -> c.Decision:
    """The newer one goes on from where this one is. Both in one commit: the number belongs to a request at any time."""
    why = f"request {newer.id} asks for {replication_of(newer)} copies of {layout.name} and takes its place"
    ended = t.EndRequest(request=request.id, state=RequestState.FAILED, code=Outcome.SUPERSEDED, message=why)
    begun = _replicate(newer, replication_before(layout, request))
    return _decision(request, f"end request {request.id}: {why}", ended, *begun)


def _go_back(topology: Topology, layout: Layout, request: Request) -> c.Decision | None:
    """Back to the number before, if copies are wanted that the nodes could not hold if they all lived."""
    wanted, before = replication_of(request), replication_before(layout, request)
    nodes = len(receiving(topology.members.values()))
    if wanted <= max(nodes, before):
        return None
    why = (
        f"{layout.name}: expected at least {wanted} nodes that take replicas, dead ones included, found {nodes}; "
        f"its replication is {before} again"
    )
    ended = t.EndRequest(request=request.id, state=RequestState.FAILED, code=Outcome.WENT_BACK, message=why)
    number = t.SetReplication(relation=layout.relation, replication=before)
    return _decision(request, f"take request {request.id} back: {why}", ended, number)


def _decision(request: Request, reason: str, *updates: t.TopologyUpdate | t.TransitionUpdate) -> c.Decision:
    own = () if request.relation is None else (of_relation(request.relation),)
    return c.Decision(reason=reason, updates=updates, guards=frozenset({TOPOLOGY, *own}))


# ---- refusals -------------------------------------------------------------------------------------------


def refusal(topology: Topology, request: Request) -> str | None:
    """Why a request cannot be begun, as `expected …, found …; do …`; `None`: it can."""
    if request.relation not in topology.layouts:
        return f"request {request.id}: expected a table or a view, found it dropped"
    return _cannot_move(topology, request) if request.kind is K.MOVE else _cannot_replicate(topology, request)


def _cannot_replicate(topology: Topology, request: Request) -> str | None:
    layout, wanted = _layout(topology, request), replication_of(request)
    most, what = copies_max(topology.receivers())
    if wanted < 1:
        return f"{layout.name}: expected a replication from 1, found {wanted}"
    if wanted > most and wanted > layout.replication:
        live = "live nodes that take replicas" if what == "nodes" else "racks with live nodes that take replicas"
        return (
            f"{layout.name}: expected a replication of at most {most}, the number of {live}, "
            f"found {wanted}; add {what} first"
        )
    return None


def _cannot_move(topology: Topology, request: Request) -> str | None:
    layout, (tablet, source, target) = _layout(topology, request), move_of(request)
    if not 0 <= tablet < layout.tablets:
        return f"{layout.name}: expected a tablet from 0 to {layout.tablets - 1}, found {tablet}"
    what, hosts = f"tablet {tablet} of {layout.name}", [replica.host for replica in layout.replicas[tablet]]
    moving = topology.transitions.get((layout.relation, tablet))
    if moving is not None:
        return f"{what}: expected it not to move, found it in stage {moving.stage}; wait until it has ended"
    if source not in hosts:
        have = ", ".join(name_of(topology, host) for host in hosts)
        return f"{what}: expected a replica on node {name_of(topology, source)}, found replicas on {have}"
    if target in hosts:
        return f"{what}: expected no replica on node {name_of(topology, target)}, found one"
    member = topology.members.get(target)
    if member is None or member not in topology.receivers():
        down, leaves = target not in topology.alive, member is not None and may_receive(member.state)
        state = "none" if member is None else "it down" if down else f"it {'replaced' if leaves else member.state}"
        return f"{what}: expected a live node that takes replicas, found node {name_of(topology, target)}, {state}"
    return None


def move_of(request: Request) -> tuple[TabletId, NodeId, NodeId]:
    """The tablet, and the nodes that it leaves and comes to."""
    given = request.parameters
    return TabletId(int(str(given["tablet"]))), NodeId(str(given["source"])), NodeId(str(given["target"]))


def _layout(topology: Topology, request: Request) -> Layout:
    assert request.relation is not None, "a request of a relation names it"
    return topology.layouts[request.relation]


def renewal(relation: Relation | None, holder: str) -> c.Decision:
    """Ask for new generations of change streams, of a table or a view or of all."""
    if relation is not None and relation.kind is Kind.INDEX:
        raise UsageError(f"{relation.name}: expected a table or a view, found an index, which has no streams")
    number, kind = None if relation is None else relation.id, RequestKind.NEW_CDC_GENERATION
    asked = t.AddRequest(kind=kind, holder=holder, relation=number)
    own = () if number is None else (of_relation(number),)
    return c.Decision(reason=f"ask for {kind}", updates=(asked,), guards=frozenset({TOPOLOGY, *own}))
