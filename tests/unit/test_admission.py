"""What any process checks of a node that asks to join, as values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebla.base.ids import NodeId
from ebla.errors import NodeConflictError, UsageError
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import NodeState
from ebla.model.scopes import TOPOLOGY
from ebla.model.topology import Member, Request, RequestKind, RequestState
from ebla.topology import admission
from ebla.topology.admission import Candidate

NODE = Member(id=NodeId("id-2"), name="n2", root="/data/n2", state=NodeState.NONE, release="0.2.0")
ASKS = Candidate(node=NODE, holder="p2", cluster="c")


def request(number: int, state: RequestState, *, kind: RequestKind = RequestKind.JOIN, holder: str = "p2") -> Request:
    return Request(id=number, kind=kind, state=state, node=NODE.id, holder=holder)


def test_a_node_of_another_cluster_is_refused():
    admission.require_cluster("n2", "c", "c")
    with pytest.raises(
        UsageError, match=r"^node n2: expected a node of cluster c, found one of cluster d; give it the"
    ):
        admission.require_cluster("n2", "d", "c")


@pytest.mark.parametrize(("name", "own"), [("store", "cluster store"), (None, "a cluster without a name")])
def test_a_node_that_means_a_cluster_of_another_name_is_refused(name: str | None, own: str):
    admission.require_name(ASKS, name)
    meant = replace(ASKS, cluster_name="shop")
    admission.require_name(meant, "shop")
    with pytest.raises(
        UsageError, match=f"^node n2: expected a node that means {own}, found one that means cluster shop"
    ):
        admission.require_name(meant, name)


@pytest.mark.parametrize("owner", [None, {"cluster": "c", "node": "id-2", "name": "n2"}])
def test_a_root_that_is_marked_as_the_nodes_own_or_cannot_be_seen_is_let_in(owner: dict[str, str] | None):
    admission.require_root(ASKS, owner)


@pytest.mark.parametrize(("cluster", "whose"), [("c", "node id-1"), ("d", "another warehouse")])
def test_the_root_of_another_node_is_refused(cluster: str, whose: str):
    owner = {"cluster": cluster, "node": "id-1" if cluster == "c" else "id-2"}
    with pytest.raises(
        NodeConflictError, match=f"^node n2: expected a storage root of its own, found /data/n2 of {whose}$"
    ):
        admission.require_root(ASKS, owner)


@pytest.mark.parametrize("state", list(RequestState))
def test_what_a_process_asks_again_finds_its_request_however_that_ended(state: RequestState):
    left = replace(NODE, state=NodeState.LEFT)
    assert admission.written(ASKS, left, [request(7, state)]) == 7


@pytest.mark.parametrize("state", [RequestState.QUEUED, RequestState.RUNNING])
def test_two_processes_of_a_new_node_wait_for_one_request(state: RequestState):
    assert admission.written(ASKS, NODE, [request(7, state, holder="p3")]) == 7


def test_a_member_waits_for_nothing():
    member = replace(NODE, state=NodeState.NORMAL)
    assert admission.written(ASKS, member, []) is None
    assert admission.written(ASKS, member, [request(7, RequestState.DONE, holder="p3")]) is None


def test_requests_of_other_kinds_are_no_answer():
    member = replace(NODE, state=NodeState.NORMAL)
    others = [request(9, RequestState.RUNNING, kind=RequestKind.REBUILD)]
    assert admission.written(ASKS, member, others) is None
    assert admission.written(ASKS, member, [request(7, RequestState.DONE), *others]) == 7


@pytest.mark.parametrize("state", [RequestState.DONE, RequestState.FAILED, RequestState.CANCELLED])
def test_an_id_that_has_left_is_never_accepted_again(state: RequestState):
    left = replace(NODE, state=NodeState.LEFT)
    with pytest.raises(NodeConflictError, match=r"of node n2 .id-2., which left; its id is never accepted again"):
        admission.written(ASKS, left, [request(7, state, holder="a process before")])


def test_the_id_of_a_node_at_another_root_is_refused():
    member = replace(NODE, name="n1", root="/data/n1")
    with pytest.raises(
        NodeConflictError, match="expected a host id of its own, found id-2 of node n1 at /data/n1; begin"
    ):
        admission.written(ASKS, member, [request(7, RequestState.QUEUED)])


def test_a_node_is_written_with_its_request_in_one_guarded_commit():
    node, asked = admission.asking(ASKS).updates
    assert node == t.AddNode(node=NODE)
    assert asked == t.AddRequest(kind=RequestKind.JOIN, holder="p2", node=NODE.id)
    assert admission.asking(ASKS).guards == {TOPOLOGY}


def test_a_replacement_names_the_dead_node():
    candidate = replace(ASKS, node=replace(NODE, replaced=NodeId("id-1")))
    asked = admission.asking(candidate).updates[1]
    assert asked == t.AddRequest(
        kind=RequestKind.REPLACE, holder="p2", node=NODE.id, parameters={"replaced_id": NodeId("id-1")}
    )
