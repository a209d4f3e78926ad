"""Nodes and requests: the rules by which commits change them, and how they are read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from ebla.base.ids import NodeId, RelationId, TabletId, Version
from ebla.catalog import cdc, memory, resizes, rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Change, State
from ebla.errors import ConflictError, NodeConflictError, UnknownNameError
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import LIFE, NodeState, is_member
from ebla.model.lifecycle.tablet import Stage
from ebla.model.tasks import Replica
from ebla.model.topology import (
    Member,
    Request,
    RequestKind,
    RequestState,
    Tablet,
    Transition,
    TransitionKind,
)

KEY = "topology"
"""The key of every row of the topology."""

COMMIT_CDC_GENERATION = "commit_cdc_generation"
"""The state of the topology while a generation of change streams was announced and is not committed."""

ANNOUNCING = frozenset({RequestKind.NEW_CDC_GENERATION.value, RequestKind.JOIN.value})
"""The kinds of requests that begin generations at their end, and have announced them since they began."""

OPEN = frozenset({RequestState.QUEUED.value, RequestState.RUNNING.value})
"""The states of requests that have not ended."""

CLUSTER_NAME = "cluster_name"
"""The key of the name in `meta`."""


# ---- changes --------------------------------------------------------------------------------------------


def changes(state: State, update: t.Unreported, version: Version, now: int) -> tuple[Change, ...]:
    """What an update of the topology changes; its version is the commit's from then on."""
    return (*_changes(state, update, version, now), new_version(version))


def new_version(version: Version, **also: object) -> Change:
    """The topology has changed at this version; `also`: and these columns of what holds for the cluster as a whole."""
    return rows.update(s.topology_state, {"topology_version": version, **also}, key=KEY)


def _changes(state: State, update: t.Unreported, version: Version, now: int) -> tuple[Change, ...]:
    match update:
        case t.NameCluster(name=name):
            return (_name(state, name),)
        case t.AddNode(node=node):
            return (_add(state, node, now),)
        case t.SetNodeBuild(node=number):
            _node(state, number)
            build = {"release_version": update.release, "features": _features(update.features)}
            build |= {} if update.address is None else {"address": update.address}
            return (rows.update(s.topology, build, key=KEY, host_id=number),)
        case t.SetNodeState(node=number, state=after):
            row = _node(state, number)
            LIFE.step(NodeState(row.node_state), after, row.name)
            if after is NodeState.LEFT:
                _refuse_loss(state, number, row.name)
            comes = (row.node_state, after) == (NodeState.BOOTSTRAPPING, NodeState.NORMAL)
            return (
                rows.update(s.topology, {"node_state": after.value}, key=KEY, host_id=number),
                *(cdc.after_join(state, _running_join(state, number), version, now) if comes else ()),
            )
        case t.AddRequest():
            return _queue(update, version, now)
        case t.BeginRequest(request=number, parameters=more):
            request = _require_open(state, number, RequestState.QUEUED)
            begun: dict[str, object] = {"state": RequestState.RUNNING.value, "begun_version": version}
            begun |= {"parameters": json.dumps({**json.loads(request.parameters), **more})} if more else {}
            goes_on = (request, *_running(state))
            return (rows.update(s.topology_requests, begun, id=number), new_version(version, **_middle(state, goes_on)))
        case t.EndRequest():
            return _end(state, update, version, now)
        case t.SetBalancing(on=on):
            return (new_version(version, balancing=on),)
        case t.PublishGenerations():
            return cdc.publish()
        case t.BeginGenerations(request=number, relation=relation):
            return cdc.after_request(state, number, relation, version, now)
        case t.SetResize():
            return resizes.changes(state, update)
        case _:
            assert_never(update)


def _middle(state: State, goes_on: Sequence[Any]) -> dict[str, object]:
    """What the topology as a whole is in the middle of while requests go on: the first that is about no node, and the
    first that announces generations. A node that joins does so from when it is bootstrapping until it is normal."""
    announces = next((one for one in goes_on if one.kind in ANNOUNCING), None)
    coming: list[str] = []
    if announces is not None:
        relation = None if announces.relation_id is None else RelationId(announces.relation_id)
        coming = list(cdc.announcement(state, announces.id, relation).values())
    return {
        "transition_state": None if announces is None else COMMIT_CDC_GENERATION,
        "new_cdc_generation_data_uuid": coming[-1] if coming else None,
        "global_topology_request": next((one.kind for one in goes_on if one.host_id is None), None),
    }


def _running(state: State, but: int | None = None) -> list[Any]:
    """The requests that go on, the oldest first."""
    found = rows.find(state, s.topology_requests, "id", state=RequestState.RUNNING.value)
    return [row for row in found if row.id != but]


def _running_join(state: State, node: NodeId) -> int | None:
    """The request by which a node joins."""
    return next((row.id for row in _running(state) if (row.host_id, row.kind) == (node, RequestKind.JOIN)), None)


def _name(state: State, name: str) -> Change:
    found = cluster_name(state)
    if found is not None:
        raise ConflictError(f"cluster {name}: expected a catalog whose cluster has no name, found {found}")
    return rows.insert(s.meta, [{"key": CLUSTER_NAME, "value": name}])


def _add(state: State, node: Member, now: int) -> Change:
    found = rows.one(state, s.topology, key=KEY, host_id=node.id)
    if found is not None:
        raise ConflictError(f"node {node.name}: expected a host id of its own, found {node.id} {found.node_state}")
    for other in _members(state).values():
        same_root = other.root == node.root and not node.has_local_root  # a path of another machine is another root
        if other.state is not NodeState.LEFT and (other.name == node.name or same_root):
            what = "name" if other.name == node.name else "storage root"
            raise NodeConflictError(
                f"node {node.name} at {node.root}: expected a {what} of its own, found node {other.name} "
                f"({other.id}) at {other.root}"
            )
    row = {
        "key": KEY,
        "host_id": node.id,
        "name": node.name,
        "datacenter": node.datacenter,
        "rack": node.rack,
        "shard_count": node.shards,
        "node_state": node.state.value,
        "storage_root": node.root,
        "release_version": node.release,
        "features": _features(node.features),
        "address": node.address,
        "replaced_id": node.replaced,
        "joined_at": now,
    }
    return rows.insert(s.topology, [row])


def _features(names: Iterable[str]) -> str:
    return json.dumps(sorted(names))


def _queue(update: t.AddRequest, version: Version, now: int) -> tuple[Change, ...]:
    begins = RequestState.QUEUED if update.result is None else RequestState.DONE
    row = {
        "id": version,
        "kind": update.kind.value,
        "state": begins.value,
        "host_id": update.node,
        "relation_id": update.relation,
        "parameters": json.dumps(dict(update.parameters)),
        "holder": update.holder,
        "requested_at": now,
        "begun_version": None if update.result is None else version,
        "ended_version": None if update.result is None else version,
        "ended_at": None if update.result is None else now,
        "result": update.result,
    }
    queued = rows.insert(s.topology_requests, [row])
    if update.node is None:
        return (queued,)
    ignored = update.parameters.get("ignore_nodes")
    on_node = {
        "topology_request": update.kind.value,
        "ignore_nodes": json.dumps(ignored) if ignored else None,
        "rebuild_option": update.parameters.get("source"),
    }
    return (queued, rows.update(s.topology, on_node, key=KEY, host_id=update.node))


def _end(state: State, update: t.EndRequest, version: Version, now: int) -> tuple[Change, ...]:
    row = _require_open(state, update.request)
    if update.state is RequestState.CANCELLED and row.state != RequestState.QUEUED:
        raise ConflictError(f"request {row.id}: expected it not to have begun, found it {row.state}; it goes on")
    ended = {
        "state": update.state.value,
        "ended_version": version,
        "ended_at": now,
        "result": update.result,
        "code": None if update.code is None else update.code.value,
        "message": update.message,
    }
    rest = new_version(version, **_middle(state, _running(state, but=row.id)))
    if row.host_id is None:
        return (rows.update(s.topology_requests, ended, id=row.id), rest)
    nothing = dict.fromkeys(("topology_request", "ignore_nodes", "rebuild_option"))
    cleared = rows.update(s.topology, nothing, key=KEY, host_id=row.host_id)
    return (rows.update(s.topology_requests, ended, id=row.id), cleared, rest)


def _node(state: State, node: NodeId) -> Any:
    row = rows.one(state, s.topology, key=KEY, host_id=node)
    if row is None:
        raise UnknownNameError(f"node {node}: expected a node of the cluster, found none of this id")
    return row


def _refuse_loss(state: State, node: NodeId, name: str) -> None:
    """A node may not leave while it has a run of a living relation that no other member has, or a replica of one."""
    living = rows.values(state, s.relations.c.relation_id, dropped_version=None)
    mine = rows.find(state, s.runs, host_id=node)
    others = frozenset(member.id for member in members(state).values() if is_member(member.state)) - {node}
    run_ids = frozenset(row.run_id for row in mine)
    reached = rows.values(state, s.runs.c.run_id, run_id=run_ids, host_id=others) if others and mine else set()
    lost = [row for row in mine if row.run_id not in reached and row.relation_id in living]
    if lost:
        raise ConflictError(
            f"node {name}: expected a copy of each of its {len(mine)} runs on another node, found none of {len(lost)} "
            f"(the first is {lost[0].path}); it cannot leave"
        )
    replicas = [row for row in rows.find(state, s.tablets, host_id=node) if row.relation_id in living]
    if replicas:
        raise ConflictError(
            f"node {name}: expected no tablet on it, found {len(replicas)} (the first is tablet "
            f"{replicas[0].tablet_id} of relation {replicas[0].relation_id}); it cannot leave"
        )


def _require_open(state: State, request: int, *wanted: RequestState) -> Any:
    """The row of a request that has not ended."""
    row = rows.one(state, s.topology_requests, id=request)
    states = frozenset(wanted) or OPEN
    if row is None or row.state not in states:
        found = "none of this id" if row is None else f"it {row.state}"
        raise ConflictError(f"request {request}: expected it {' or '.join(sorted(states))}, found {found}")
    return row


# ---- reads ----------------------------------------------------------------------------------------------


def members(state: State) -> dict[NodeId, Member]:
    """Every node that the topology has heard of, those that left too, in the order of their names."""
    return dict(memory.remembered(state, "nodes", lambda: _members(state)))


def _members(state: State) -> dict[NodeId, Member]:
    return {
        NodeId(row.host_id): Member(
            id=NodeId(row.host_id),
            name=row.host_id if row.name is None else row.name,
            root=row.storage_root,
            datacenter=row.datacenter,
            rack=row.rack,
            shards=row.shard_count,
            state=NodeState(row.node_state),
            release=row.release_version,
            features=frozenset(json.loads(row.features or "[]")),
            address=row.address,
            replaced=None if row.replaced_id is None else NodeId(row.replaced_id),
        )
        for row in rows.find(state, s.topology, "name", "host_id")
    }


def host_id(state: State, name: str) -> NodeId:
    """The host id of the node of a name that has not left; a name that no such node has stands for itself."""
    same = [member.id for member in members(state).values() if member.name == name and member.state != NodeState.LEFT]
    return min(same, default=NodeId(name))


def cluster_name(state: State) -> str | None:
    """What the founder called the cluster."""
    row = rows.one(state, s.meta, key=CLUSTER_NAME)
    return None if row is None else str(row.value)


def version(state: State) -> Version:
    """The last commit that changed the topology."""
    row = rows.one(state, s.topology_state, key=KEY)
    return Version(0 if row is None else row.topology_version)


def is_balancing(state: State) -> bool:
    row = rows.one(state, s.topology_state, key=KEY)
    return row is None or bool(row.balancing)


def transitions(state: State) -> dict[Tablet, Transition]:
    """The tablets that move or are rebuilt."""
    found = {}
    for row in rows.find(state, s.tablet_transitions, "relation_id", "tablet_id"):
        tablet = RelationId(row.relation_id), TabletId(row.tablet_id)
        found[tablet] = Transition(
            tablet=tablet,
            kind=TransitionKind(row.kind),
            stage=Stage(row.stage),
            leaving=_replica(row.leaving_host, row.leaving_shard),
            pending=_replica(row.pending_host, row.pending_shard),
            session=row.session_id,
            request=row.request_id,
            begun=Version(row.begun_version),
            since=Version(row.stage_version),
            failure=row.failure,
        )
    return found


def _replica(host: str | None, shard: int) -> Replica | None:
    return None if host is None else Replica(NodeId(host), shard)


def open_requests(state: State) -> tuple[Request, ...]:
    """The requests that have not ended, the oldest first."""
    return tuple(_request(row) for row in rows.find(state, s.topology_requests, "id", state=OPEN))


def requests_of(state: State, node: NodeId) -> tuple[Request, ...]:
    """The requests about a node, those that have ended too, the oldest first."""
    return tuple(_request(row) for row in rows.find(state, s.topology_requests, "id", host_id=node))


def _request(row: Any) -> Request:
    parameters: Mapping[str, object] = json.loads(row.parameters)
    return Request(
        id=row.id,
        kind=RequestKind(row.kind),
        state=RequestState(row.state),
        node=None if row.host_id is None else NodeId(row.host_id),
        relation=None if row.relation_id is None else RelationId(row.relation_id),
        parameters=parameters,
        begun=None if row.begun_version is None else Version(row.begun_version),
        holder=row.holder,
    )


def answers(state: State) -> Sequence[Any]:
    """The rows of all requests, the oldest first."""
    return rows.find(state, s.topology_requests, "id")


def answer(state: State, request: int) -> Any | None:
    """The row of a request, whether it has ended or not."""
    return rows.one(state, s.topology_requests, id=request)
