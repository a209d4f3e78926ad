"""Nodes and requests in the catalog: what commits change of them, what they refuse, and how they read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebla.base.ids import NodeId, RelationId, RunId, TabletId, Version
from ebla.catalog import layouts, processes, rows, topology
from ebla.catalog import schema as s
from ebla.catalog.processes import Role
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError, UnknownNameError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import NodeState
from ebla.model.lifecycle.tablet import Stage
from ebla.model.tasks import Replica
from ebla.model.topology import Outcome, Request, RequestKind, RequestState, TransitionKind
from ebla.topology import loader
from support.catalogs import NODE, SECOND_US, Clock, add, commit, create, create_index, dump, exclusively, member, run

IN_MEMORY = True

NODE2 = NodeId("node2")


def queue(catalog: Catalog, kind: RequestKind, node: NodeId | None = NODE, **parameters: object) -> int:
    return exclusively(catalog, t.AddRequest(kind=kind, holder="test", node=node, parameters=parameters)).version


def test_nodes_read_back_and_walk_through_their_states(catalog: Catalog):
    joining = replace(
        member(NODE2, datacenter="dc2", rack="r2", shards=4, release="0.2.0", features=frozenset({"cdc"})),
        state=NodeState.NONE,
        address="http://host:1",
    )
    added = exclusively(catalog, t.AddNode(node=joining)).version
    with catalog.reading() as connection:
        assert topology.members(connection) == {NODE: member(NODE), NODE2: joining}
        assert topology.version(connection) == added
    exclusively(catalog, t.SetNodeState(node=NODE2, state=NodeState.BOOTSTRAPPING))
    moved = exclusively(catalog, t.SetNodeState(node=NODE2, state=NodeState.LEFT)).version
    before = dump(catalog)
    with pytest.raises(ConflictError, match="node node2: expected a state before normal, found left"):
        exclusively(catalog, t.SetNodeState(node=NODE2, state=NodeState.NORMAL))
    with pytest.raises(ConflictError, match="expected a host id of its own, found node2 left"):
        exclusively(catalog, t.AddNode(node=joining))
    with pytest.raises(UnknownNameError, match="node node3: expected a node of the cluster"):
        exclusively(catalog, t.SetNodeState(node=NodeId("node3"), state=NodeState.NORMAL))
    assert dump(catalog) == before
    with catalog.reading() as connection:
        assert topology.version(connection) == moved


def test_a_cluster_is_named_once(catalog: Catalog):
    exclusively(catalog, t.NameCluster(name="shop"))
    for name in ("shop", "store"):
        with pytest.raises(ConflictError, match=f"cluster {name}: expected a catalog whose cluster has no name, found"):
            exclusively(catalog, t.NameCluster(name=name))
    assert catalog.read(topology.cluster_name) == "shop"


def test_a_node_that_has_the_only_copy_of_a_run_does_not_leave(catalog: Catalog):
    exclusively(catalog, t.AddNode(node=member(NODE2)))
    target = create(catalog, "orders", nodes=(NODE, NODE2))
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE2,), (NODE2,))))
    add(catalog, run(target.id, id="only", nodes=(NODE2,)))
    with catalog.reading() as connection:
        assert layouts.unreached_runs(connection, [NODE2], [NODE]) == {NODE2: {"orders": 1}}
        assert layouts.unreached_runs(connection, [NODE], [NODE2]) == {}
    exclusively(catalog, t.SetNodeState(node=NODE2, state=NodeState.REMOVING))
    with pytest.raises(ConflictError, match="copy of each of its 1 runs on another node, found none of 1"):
        exclusively(catalog, t.SetNodeState(node=NODE2, state=NodeState.LEFT))
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE,), (NODE,))))
    commit(catalog, c.AddCopies(relation=target.id, copies=((RunId("only"), NODE),)))
    exclusively(catalog, t.SetNodeState(node=NODE2, state=NodeState.LEFT))


def test_a_node_with_a_replica_does_not_leave_be_it_an_empty_one(catalog: Catalog):
    exclusively(catalog, t.AddNode(node=replace(member(NODE2), state=NodeState.BOOTSTRAPPING)))
    target = create(catalog, "orders", nodes=(NODE, NODE2))
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE,), (NODE2,))))
    with pytest.raises(ConflictError, match=r"node2: expected no tablet on it, found 1 \(the first is tablet 1 of"):
        exclusively(catalog, t.SetNodeState(node=NODE2, state=NodeState.LEFT))
    exclusively(catalog, c.DropRelation(relation=target.id))
    exclusively(catalog, t.SetNodeState(node=NODE2, state=NodeState.LEFT))


def test_tablets_are_empty_that_no_live_node_has_and_that_have_no_run_nor_an_index_of_them(catalog: Catalog):
    exclusively(catalog, t.AddNode(node=member(NODE2)))
    orders, other = create(catalog, "orders", nodes=[NODE2]), create(catalog, "other", nodes=[NODE, NODE2])
    index = create_index(catalog, orders)

    def empty(*alive: NodeId) -> set[int]:
        with catalog.reading() as connection:
            placed = layouts.layouts(connection).values()
            found = layouts.empty_tablets(connection, placed, alive)
        return {tablet for relation, tablet in found if relation == orders.id}

    assert empty(NODE) == {0, 1}
    assert empty(NODE, NODE2) == set(), "a live node has them"
    add(catalog, run(other.id, nodes=[NODE, NODE2]))
    assert empty(NODE) == {0, 1}
    add(catalog, run(orders.id, tablet=0, nodes=[NODE2]))
    assert empty(NODE) == {1}
    add(catalog, run(index, tablet=1))
    assert empty(NODE) == set()


def test_a_request_is_queued_begins_ends_and_stays_readable(catalog: Catalog, clock: Clock):
    number = queue(catalog, RequestKind.REMOVE, ignore_nodes=[NODE2])
    queued = Request(
        id=number,
        kind=RequestKind.REMOVE,
        state=RequestState.QUEUED,
        node=NODE,
        parameters={"ignore_nodes": [NODE2]},
        holder="test",
    )
    with catalog.reading() as connection:
        assert topology.open_requests(connection) == (queued,)
        row = rows.one(connection, s.topology, host_id=NODE)
        assert row is not None
        assert (row.topology_request, row.ignore_nodes) == ("remove", '["node2"]')
    begun = exclusively(catalog, t.BeginRequest(request=number)).version
    with catalog.reading() as connection:
        assert topology.open_requests(connection) == (replace(queued, state=RequestState.RUNNING, begun=begun),)
    clock.advance(SECOND_US)
    ended = exclusively(catalog, t.EndRequest(request=number, state=RequestState.DONE, result="it left")).version
    with catalog.reading() as connection:
        assert topology.open_requests(connection) == ()
        row = topology.answer(connection, number)
        node = rows.one(connection, s.topology, host_id=NODE)
        assert row is not None
        assert node is not None
    assert (row.state, row.result, row.begun_version, row.ended_version) == ("done", "it left", begun, ended)
    assert row.ended_at == row.requested_at + SECOND_US
    assert (node.topology_request, node.ignore_nodes) == (None, None)


def test_a_request_ends_once_and_one_that_has_begun_is_not_cancelled(catalog: Catalog):
    cancelled = {"state": RequestState.CANCELLED, "code": Outcome.CANCELLED, "message": "no more"}
    first, second = queue(catalog, RequestKind.LEAVE), queue(catalog, RequestKind.NEW_CDC_GENERATION, None)
    exclusively(catalog, t.EndRequest(request=first, **cancelled))  # type: ignore[arg-type]
    exclusively(catalog, t.BeginRequest(request=second))
    with catalog.reading() as connection:
        state = rows.one(connection, s.topology_state)
        assert state is not None
        assert state.global_topology_request == "new_cdc_generation"
    before = dump(catalog)
    with pytest.raises(ConflictError, match=f"request {first}: expected it queued or running, found it cancelled"):
        exclusively(catalog, t.EndRequest(request=first, state=RequestState.DONE))
    with pytest.raises(ConflictError, match="expected it not to have begun, found it running"):
        exclusively(catalog, t.EndRequest(request=second, **cancelled))  # type: ignore[arg-type]
    with pytest.raises(ConflictError, match=f"request {second}: expected it queued, found it running"):
        exclusively(catalog, t.BeginRequest(request=second))
    with pytest.raises(ConflictError, match="request 999: expected it queued or running, found none of this id"):
        exclusively(catalog, t.EndRequest(request=999, state=RequestState.DONE))
    assert dump(catalog) == before
    exclusively(catalog, t.EndRequest(request=second, state=RequestState.DONE))
    with catalog.reading() as connection:
        state = rows.one(connection, s.topology_state)
        assert state is not None
        assert state.global_topology_request is None


def test_balancing_is_turned_off_and_on(catalog: Catalog):
    for on in (False, True):
        exclusively(catalog, t.SetBalancing(on=on))
        with catalog.reading() as connection:
            assert topology.is_balancing(connection) is on


def test_tablets_and_those_in_transition_read_as_the_coordinator_wants_them(catalog: Catalog):
    target = create(catalog, "orders", nodes=(NODE, NODE2))
    row = {
        "relation_id": target.id,
        "tablet_id": 1,
        "kind": "rebuild",
        "stage": "streaming",
        "pending_host": "node3",
        "pending_shard": 2,
        "begun_version": 7,
        "stage_version": 9,
    }
    with catalog.writing() as connection:
        rows.write(connection, rows.insert(s.tablet_transitions, [row]))
    with catalog.reading() as connection:
        found = loader.load(connection, catalog.clock(), own=[NODE])
    [layout] = found.layouts.values()
    assert (layout.name, layout.replication, layout.tablets) == ("orders", 2, 2)
    assert layout.replicas[0] == (Replica(NODE, 0), Replica(NODE2, 0))
    moving = found.transitions[RelationId(target.id), TabletId(1)]
    assert (moving.kind, moving.stage, moving.leaving) == (TransitionKind.REBUILD, Stage.STREAMING, None)
    assert moving.pending == Replica(NodeId("node3"), 2)
    assert found.alive == {NODE}
    assert found.seen == {NODE: found.version}


@pytest.mark.database
def test_a_node_lives_as_long_as_a_process_of_it_and_has_seen_what_all_of_them_have(catalog: Catalog, clock: Clock):
    def report(holder: str, seen: int, *hosts: NodeId) -> None:
        processes.report(
            catalog, holder=holder, node=NODE, host="h", pid=1, role=Role.PYTHON, maintains=False, doing=(),
            lease_us=10 * SECOND_US, hosts=hosts, seen=Version(seen),
        )  # fmt: skip

    report("p", 7, NODE, NODE2)
    clock.advance(5 * SECOND_US)
    report("q", 5, NODE)
    with catalog.reading() as connection:
        assert processes.seen(processes.alive(connection, clock())) == {NODE: 5, NODE2: 7}
        assert loader.load(connection, clock()).alive == {NODE, NODE2}
    clock.advance(6 * SECOND_US)
    with catalog.reading() as connection:
        assert processes.seen(processes.alive(connection, clock())) == {NODE: 5}
    version = queue(catalog, RequestKind.LEAVE)
    report("q", version - 1, NODE)
    with catalog.reading() as connection:
        found = loader.load(connection, clock(), holder="p", own=[NODE, NODE2])
    assert found.seen == {NODE: version - 1, NODE2: version}, "a process speaks for itself alone"
