"""Requests as small machines: each is refused, begun, goes on, or ends, by pure functions of the topology.

Theory of operation. A request is queued in the catalog and answered by the coordinator, the oldest first. `refusal`
says why it is impossible, with the numbers; it is asked when a statement queues the request, so that a mistake changes
nothing, and again when its turn comes, because the topology may have changed. A request that has begun goes on to its
end or goes back to where it began; it is not cancelled.

- `join`: the node is `none` until the coordinator has checked what the joining process cannot check itself (features,
  release). Then it is `bootstrapping` until every live node has seen it.
- `leave`: the node is `decommissioning`; the balancer drains it. It has left when no replica is on it. If it dies, what
  it had is made from the others; if it alone has a tablet, it is `normal` again, as where too few nodes are left.
- `remove`: as `leave`, of a dead node: its replicas are made elsewhere from the others.
- `replace`: the node is `replacing`; every replica of the dead node is made on it. Then the dead one has left.
- `rebuild`: the node is `rebuilding` until it has every file that the manifest says and another node has.

A `join` is answered while another request goes on: it moves nothing, and a node that cannot be drained may need it.
All others wait for their turn and until no tablet is in transition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ebla.base.ids import NodeId, TabletId
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import NodeState, is_member
from ebla.model.scopes import TOPOLOGY
from ebla.model.topology import (
    BESIDE,
    Layout,
    Member,
    Outcome,
    Request,
    RequestKind,
    RequestState,
    ResizeType,
    Tablet,
    Topology,
    is_next_to,
    is_together,
)
from ebla.topology import barrier

K, N = RequestKind, NodeState

OF_NODES = frozenset({K.JOIN, K.LEAVE, K.REPLACE, K.REMOVE, K.REBUILD})
"""The kinds of requests that are about a node."""


# ---- the next step --------------------------------------------------------------------------------------


def next_step(topology: Topology) -> c.Decision | None:
    """The next step of any request of a node; `None`: all of them wait."""
    mine = [request for request in topology.requests if request.kind in OF_NODES]
    for request in mine:
        if request.state is RequestState.RUNNING and (step := _go_on(topology, request)) is not None:
            return step
    is_busy = bool(topology.transitions) or any(r.state is RequestState.RUNNING for r in mine)
    for request in mine:
        if request.state is RequestState.QUEUED and (request.kind is K.JOIN or not is_busy):
            return _begin(topology, request)
    return None


def waits_for(topology: Topology, request: Request) -> str | None:
    """What a request waits for, in words; `None`: the coordinator."""
    if request.state is RequestState.RUNNING:
        return _progress(topology, request)
    ahead = (OF_NODES if request.kind in OF_NODES else frozenset(K)) - BESIDE
    ahead = frozenset({request.kind}) - {K.JOIN} if request.kind in BESIDE else ahead
    before = next((r for r in topology.requests if r.id < request.id and r.kind in ahead), None)
    if before is not None:
        return f"request {before.id} ({before.kind})"
    if request.kind not in BESIDE and topology.transitions:
        return f"{len(topology.transitions)} tablets in transition"
    return None


def tablets_left(topology: Topology, request: Request) -> int | None:
    """How many tablets a request has still to move; `None`: that cannot be counted."""
    if request.kind in (K.LEAVE, K.REMOVE, K.REPLACE) and request.node is not None:
        node = replaced_by(request) if request.kind is K.REPLACE else request.node
        return sum(1 for _ in held_by(topology, node))
    layout = None if request.relation is None else topology.layouts.get(request.relation)
    if request.kind is K.REPLICATION and layout is not None:
        wanted = replication_of(request)
        return sum(len(replicas) != wanted for replicas in layout.replicas)
    return None


def replication_of(request: Request) -> int:
    """The number of copies that a request asks for."""
    return int(str(request.parameters["replication"]))


def replication_before(layout: Layout, request: Request) -> int:
    """The number of copies that a relation had before a request that goes on."""
    return int(str(request.parameters.get("before", min(map(len, layout.replicas)))))


def _begin(topology: Topology, request: Request) -> c.Decision:
    assert request.node is not None
    wrong = refusal(topology, request)
    name = name_of(topology, request.node)
    if wrong is not None:
        gone = (t.SetNodeState(node=request.node, state=N.LEFT),) if _has_asked(topology, request) else ()
        ended = t.EndRequest(request=request.id, state=RequestState.FAILED, code=Outcome.REFUSED, message=wrong)
        return _decision(f"refuse {request.kind} of {name}", *gone, ended)
    begun = t.BeginRequest(request=request.id)
    after = BEGUN[request.kind]
    return _decision(f"begin {request.kind} of {name}", t.SetNodeState(node=request.node, state=after), begun)


BEGUN = {
    K.JOIN: N.BOOTSTRAPPING,
    K.REPLACE: N.REPLACING,
    K.LEAVE: N.DECOMMISSIONING,
    K.REMOVE: N.REMOVING,
    K.REBUILD: N.REBUILDING,
}
"""The state of a request's node once the request has begun."""


def _go_on(topology: Topology, request: Request) -> c.Decision | None:
    assert request.node is not None
    match request.kind:
        case K.JOIN:
            return _end_join(topology, request, request.node)
        case K.REPLACE:
            return _end_replacement(topology, request, request.node)
        case K.LEAVE | K.REMOVE:
            return _end_drain(topology, request, request.node)
        case K.REBUILD:
            return _end_rebuild(topology, request, request.node)
        case _:
            return None


def _end_join(topology: Topology, request: Request, node: NodeId) -> c.Decision | None:
    name = name_of(topology, node)
    if node not in topology.alive and request.holder in topology.holders:
        return None
    if node not in topology.alive and any(_touches(topology, node)):
        return None  # what comes to it goes back first
    if node not in topology.alive:
        gone = f"node {name}: expected its process to stay alive, found it gone"
        if held := sum(1 for _ in held_by(topology, node)):  # they are not to be left behind
            said = f"{gone}, with {held} tablets; start it again, or REMOVE NODE '{name}'"
            return _back(request, node, N.NORMAL, said)
        return _back(request, node, N.LEFT, gone)
    if request.begun is None or barrier.blind(topology, request.begun):
        return None
    return _done(request, f"node {name} joined", t.SetNodeState(node=node, state=N.NORMAL))


def _end_replacement(topology: Topology, request: Request, node: NodeId) -> c.Decision | None:
    name, dead = name_of(topology, node), replaced_by(request)
    if any(of.request == request.id for of in topology.transitions.values()):
        return None
    left = sum(1 for _ in held_by(topology, dead))
    if not left:
        settled = (t.SetNodeState(node=node, state=N.NORMAL), t.SetNodeState(node=dead, state=N.LEFT))
        return _done(request, f"node {name} replaced {name_of(topology, dead)}", *settled)
    if not {node, request.holder} & (topology.alive | topology.holders) and not any(held_by(topology, node)):
        return _back(request, node, N.LEFT, f"node {name}: expected its process to stay alive, found it gone")
    return None


def _end_drain(topology: Topology, request: Request, node: NodeId) -> c.Decision | None:
    if any(held_by(topology, node)) or any(_touches(topology, node)):
        wrong = cannot_drain(topology, request)
        if wrong is None or any(_touches(topology, node)):
            return None
        return _back(request, node, N.NORMAL, wrong)
    if (wrong := _refuse_unreached(topology, topology.members[node])) is not None:
        return _back(request, node, N.NORMAL, wrong)
    done = "left" if request.kind is K.LEAVE else "was removed"
    return _done(request, f"node {name_of(topology, node)} {done}", t.SetNodeState(node=node, state=N.LEFT))


def _end_rebuild(topology: Topology, request: Request, node: NodeId) -> c.Decision | None:
    name = name_of(topology, node)
    if request.id not in topology.rebuilt:
        return None
    found = topology.rebuilt[request.id]
    if found.lacks:
        return _back(request, node, N.NORMAL, f"node {name}: expected it to have all of its copies, found it without "
                     f"{found.lacks} ({found.reason}); CHECK TABLE names them")  # fmt: skip
    return _done(request, f"node {name} has all of its copies", t.SetNodeState(node=node, state=N.NORMAL))


def cancellation(request: Request) -> c.Decision:
    """What takes a request back that has not begun."""
    gone: tuple[t.TopologyUpdate, ...] = ()
    if request.kind in (K.JOIN, K.REPLACE) and request.node is not None:
        gone = (t.SetNodeState(node=request.node, state=N.LEFT),)
    said = f"request {request.id} was cancelled before it began"
    ended = t.EndRequest(request=request.id, state=RequestState.CANCELLED, code=Outcome.CANCELLED, message=said)
    return _decision(f"cancel request {request.id} ({request.kind})", *gone, ended)


def _done(request: Request, result: str, *updates: t.TopologyUpdate) -> c.Decision:
    ended = t.EndRequest(request=request.id, state=RequestState.DONE, result=result)
    return _decision(f"end request {request.id}: {result}", *updates, ended)


def _back(request: Request, node: NodeId, state: NodeState, why: str) -> c.Decision:
    ended = t.EndRequest(request=request.id, state=RequestState.FAILED, code=Outcome.WENT_BACK, message=why)
    return _decision(f"take request {request.id} back: {why}", t.SetNodeState(node=node, state=state), ended)


def _decision(reason: str, *updates: t.TopologyUpdate) -> c.Decision:
    return c.Decision(reason=reason, updates=updates, guards=frozenset({TOPOLOGY}))


# ---- refusals -------------------------------------------------------------------------------------------


def refusal(topology: Topology, request: Request) -> str | None:
    """Why a request cannot be begun, as `expected …, found …; do …`; `None`: it can."""
    assert request.node is not None, "a request of a node names it"
    node = topology.members.get(request.node)
    if node is None:
        return unknown(topology, request.node)
    other = next((r for r in topology.requests if node.id in subjects(r) and _is_before(r, request)), None)
    if other is not None:
        return (
            f"node {node.name}: expected no other request that has not ended, found request {other.id} ({other.kind}); "
            f"WAIT FOR REQUEST {other.id}, or ALTER CLUSTER CANCEL REQUEST {other.id}"
        )
    before = N.NONE if request.kind in (K.JOIN, K.REPLACE) else N.NORMAL
    if node.state is not before:
        return f"node {node.name}: expected it {before}, found it {node.state}; it cannot {request.kind}"
    match request.kind:
        case K.JOIN:
            return cannot_follow(topology, node)
        case K.REPLACE:
            return cannot_follow(topology, node) or _cannot_replace(topology, request, node)
        case K.LEAVE:
            return _cannot_leave(topology, node) or cannot_drain(topology, request)
        case K.REMOVE:
            return _cannot_remove(topology, node) or cannot_drain(topology, request)
        case K.REBUILD:
            return _cannot_rebuild(topology, request, node)
        case _:
            return None


def unknown(topology: Topology, said: str) -> str:
    names = ", ".join(sorted(m.name for m in topology.members.values() if is_member(m.state)))
    return f"node {said}: expected a node of the cluster, found none of this name; nodes are {names}"


def cannot_follow(topology: Topology, node: Member) -> str | None:
    """Why a node may not be a member: it lacks a feature that the others use, or its release is too old or too new."""
    others = [m for m in topology.members.values() if is_member(m.state) and m.id != node.id]
    if not others:
        return None
    used = frozenset.intersection(*(m.features for m in others))
    if missing := sorted(used - node.features):
        return (
            f"node {node.name}: expected every feature that the cluster uses, found it without {', '.join(missing)}; "
            "upgrade it"
        )
    oldest = min(others, key=lambda m: numbers(m.release))
    if numbers(node.release) < numbers(oldest.release):
        return (
            f"node {node.name}: expected release {oldest.release} or newer, as the oldest node ({oldest.name}) has, "
            f"found {node.release or 'none'}; upgrade it"
        )
    far = next((m for m in others if not is_next_to(node.release, m.release or node.release)), None)
    if far is not None:
        return (
            f"node {node.name}: expected a release one step from {far.release}, which node {far.name} has, at most, "
            f"found {node.release}; upgrade all nodes one step after the other"
        )
    return None


def numbers(release: str) -> tuple[int, ...]:
    """The parts of a release, to compare them by; what is no number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in release.split(".")) if release else ()


def _cannot_replace(topology: Topology, request: Request, node: Member) -> str | None:
    dead = topology.members.get(replaced_by(request))
    if dead is None:
        return unknown(topology, str(replaced_by(request)))
    if dead.state is not N.NORMAL:
        return f"node {dead.name}: expected it {N.NORMAL}, found it {dead.state}; it cannot be replaced"
    if dead.id in topology.alive:
        return f"node {dead.name}: expected a dead node to replace, found it alive; DECOMMISSION it"
    if dead.datacenter != node.datacenter:
        return (
            f"node {node.name}: expected it in datacenter {dead.datacenter} of {dead.name}, "
            f"found it in {node.datacenter}"
        )
    return _lost(topology, dead, _ignored_nodes(request))


def _cannot_leave(topology: Topology, node: Member) -> str | None:
    if node.id not in topology.alive:
        return f"node {node.name}: expected it alive to be drained, found it down; REMOVE NODE is for a dead one"
    if not _others(topology, node.id):
        return f"node {node.name}: expected another node to take its tablets, found none; it is the last one"
    return None


def _cannot_remove(topology: Topology, node: Member) -> str | None:
    if node.id in topology.alive:
        return f"node {node.name}: expected a dead node to remove, found it alive; DECOMMISSION NODE '{node.name}'"
    return None


def _cannot_rebuild(topology: Topology, request: Request, node: Member) -> str | None:
    if node.id not in topology.alive:
        return f"node {node.name}: expected it alive to be rebuilt, found it down; start its process"
    source = request.parameters.get("source")
    sources = [m for m in _others(topology, node.id) if source is None or m.datacenter == source]
    if not sources:
        where = "" if source is None else f" in datacenter {source}"
        return f"node {node.name}: expected a live node{where} to copy from, found none"
    return None


def cannot_drain(topology: Topology, request: Request) -> str | None:
    """Why the replicas of a node that goes cannot be made elsewhere: too few nodes are left, or no source is."""
    assert request.node is not None
    node, ignored = topology.members[request.node], _ignored_nodes(request)
    if not ignored <= topology.members.keys():
        return unknown(topology, sorted(ignored - topology.members.keys())[0])
    if awake := sorted(name_of(topology, one) for one in ignored & topology.alive):
        return f"node {awake[0]}: expected a dead node to ignore, found it alive"
    rest = [m for m in _others(topology, node.id) if m.id not in ignored]
    for layout in topology.layouts.values():
        if layout.replication > len(rest) and next(_on(layout, node.id), None) is not None:
            all_of = sum(1 for m in topology.members.values() if is_member(m.state))
            return (
                f"node {node.name}: expected at least {layout.replication} other nodes that live, because "
                f"{layout.name} has replication {layout.replication}, found {len(rest)} of {all_of} left; "
                f"add a node, or ALTER TABLE {layout.name} SET (replication = {len(rest)})"
            )
    return None if node.id in topology.alive else _lost(topology, node, ignored)


def _lost(topology: Topology, node: Member, ignored: Collection[NodeId]) -> str | None:
    """Of a dead node: which of its tablets no live node has, where rows may be lost with them."""
    without = [
        (layout, tablet)
        for layout in topology.layouts.values()
        for tablet in _on(layout, node.id)
        if (layout.relation, tablet) not in topology.empty
        and not any(r.host in topology.alive and r.host not in ignored for r in layout.replicas[tablet])
    ]
    if not without:
        return _refuse_unreached(topology, node)
    layout, tablet = without[0]
    held = sum(1 for _ in held_by(topology, node.id))
    return (
        f"node {node.name}: expected a live copy of each of its {held} tablets, found none of {len(without)} "
        f"(the first is tablet {tablet} of {layout.name}); bring a node back that has one"
    )


def _refuse_unreached(topology: Topology, node: Member) -> str | None:
    """Of a dead node: how many of its runs no live node has, though its tablets may have other replicas."""
    found = topology.unreached.get(node.id, {})
    if not found:
        return None
    what = ", ".join(f"{count} of {name}" for name, count in sorted(found.items()))
    return (
        f"node {node.name}: expected a copy of each of its runs on a live node, found none of {sum(found.values())} "
        f"({what}); bring {node.name} back, or another node that has them"
    )


# ---- what the topology says -----------------------------------------------------------------------------


def name_of(topology: Topology, node: NodeId) -> str:
    found = topology.members.get(node)
    return str(node) if found is None else found.name


def replaced_by(request: Request) -> NodeId:
    return NodeId(str(request.parameters["replaced_id"]))


def subjects(request: Request) -> tuple[NodeId, ...]:
    """The nodes whose states a request changes: a replacement is about the dead node, too."""
    own = () if request.node is None else (request.node,)
    return (*own, replaced_by(request)) if request.kind is K.REPLACE else own


def held_by(topology: Topology, node: NodeId) -> Iterator[Tablet]:
    """The tablets of which a node has a replica by the map."""
    for layout in topology.layouts.values():
        for tablet in _on(layout, node):
            yield layout.relation, tablet


def _on(layout: Layout, node: NodeId) -> Iterator[TabletId]:
    for tablet, replicas in enumerate(layout.replicas):
        if any(replica.host == node for replica in replicas):
            yield TabletId(tablet)


def _touches(topology: Topology, node: NodeId) -> Iterator[Tablet]:
    """The tablets in transition from or to a node."""
    for tablet, transition in topology.transitions.items():
        ends = (transition.leaving, transition.pending)
        if any(replica is not None and replica.host == node for replica in ends):
            yield tablet


def _is_before(one: Request, request: Request) -> bool:
    """Whether one of two requests was asked for first; what is only being asked for (0) comes last."""
    return request.id == 0 or one.id < request.id


def _others(topology: Topology, node: NodeId) -> list[Member]:
    return [m for m in topology.receivers() if m.id != node]


def _ignored_nodes(request: Request) -> frozenset[NodeId]:
    found = request.parameters.get("ignore_nodes") or ()
    assert isinstance(found, list | tuple)
    return frozenset(map(NodeId, found))


def _has_asked(topology: Topology, request: Request) -> bool:
    """Whether the request is that of a node that is no member yet."""
    node = None if request.node is None else topology.members.get(request.node)
    return node is not None and node.state is N.NONE


def _resize_progress(topology: Topology, request: Request) -> str | None:
    layout = None if request.relation is None else topology.layouts.get(request.relation)
    if layout is None or layout.resize.type is ResizeType.NONE:
        return None
    if uncut := layout.uncut(topology.alive):
        return f"the runs of {len(uncut)} tablets of {layout.name} to be cut, the first of which is {uncut[0]}"
    if moving := sum(1 for relation, _ in topology.transitions if relation == layout.relation):
        return f"{moving} tablets of {layout.name} in transition"
    apart = sum(1 for one, other in layout.pairs() if not is_together(one, other))
    merges = layout.resize.type is ResizeType.MERGE and apart
    return f"{apart} pairs of tablets of {layout.name} to lie on the same nodes" if merges else None


def _copies_progress(topology: Topology, request: Request) -> str | None:
    left, live = tablets_left(topology, request), len(topology.receivers())
    layout = None if request.relation is None else topology.layouts.get(request.relation)
    if layout is None or not left:
        return None
    wanted, before = replication_of(request), replication_before(layout, request)
    if wanted <= live:
        return f"{left} tablets of {layout.name} to have {wanted} copies"
    return (
        f"{wanted - live} more live nodes, for {left} tablets of {layout.name}; "
        f"ALTER TABLE {layout.name} SET (replication = {max(1, min(before, live))}) takes its place"
    )


def _progress(topology: Topology, request: Request) -> str | None:
    if request.kind is K.RESIZE:
        return _resize_progress(topology, request)
    if request.kind is K.REPLICATION and not topology.transitions:
        return _copies_progress(topology, request)
    if request.kind is K.NEW_CDC_GENERATION:
        return "every live node to see it"
    if request.node is None:
        return f"{len(topology.transitions)} tablets in transition" if topology.transitions else None
    match request.kind:
        case K.LEAVE | K.REMOVE:
            return (
                f"{sum(1 for _ in held_by(topology, request.node))} tablets on node {name_of(topology, request.node)}"
            )
        case K.REPLACE:
            dead = replaced_by(request)
            return f"{sum(1 for _ in held_by(topology, dead))} tablets on node {name_of(topology, dead)}"
        case K.REBUILD:
            return f"the files of node {name_of(topology, request.node)}"
        case _:
            return "every live node to see it"
