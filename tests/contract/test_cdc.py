"""Generations of change streams: they begin with a map or a node, follow each other, and are published later."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import cdc, rows, topology
from ebla.catalog import schema as s
from ebla.catalog.cdc import Stream
from ebla.catalog.store import Catalog
from ebla.errors import UnknownNameError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import NodeState
from ebla.model.tablets import ALL, TokenRange, joined, token_range, token_ranges
from ebla.model.topology import Outcome, RequestKind, RequestState
from ebla.topology import coordinator, loader
from support.catalogs import NOON_US, commit, create, create_index, exclusively, member


def generations(catalog: Catalog, relation: RelationId) -> list[Any]:
    with catalog.reading() as connection:
        return list(rows.find(connection, s.cdc_generations, "begin_version", relation_id=relation))


def streams(catalog: Catalog, relation: RelationId, generation: str) -> dict[str, TokenRange]:
    with catalog.reading() as connection:
        found = rows.find(connection, s.cdc_streams, "token_min", relation_id=relation, generation_id=generation)
        return {row.stream_id: TokenRange(row.token_min, row.token_max) for row in found}


def stream(catalog: Catalog, relation: RelationId, number: int, generation: int = -1) -> Stream:
    names = list(streams(catalog, relation, generations(catalog, relation)[generation].generation_id))
    with catalog.reading() as connection:
        return cdc.stream(connection, relation, "orders", names[number])


def state_of(catalog: Catalog) -> Any:
    with catalog.reading() as connection:
        return rows.one(connection, s.topology_state)


def resize(catalog: Catalog, relation: RelationId, tablets: int) -> Version:
    return exclusively(catalog, c.SetTabletMap(relation=relation, tablets=tablets)).version


def test_a_generation_that_was_asked_for_is_announced_seen_committed_and_published(catalog: Catalog) -> None:
    """The topology says what it is in the middle of, and the generation is the one that was announced."""
    orders, _ = create(catalog, "orders", tablets=2), create(catalog, "other")
    asked = t.AddRequest(kind=RequestKind.NEW_CDC_GENERATION, holder="h", relation=orders.id)
    request = exclusively(catalog, asked).version
    assert step(catalog) == f"announce generations of request {request}"
    middle = state_of(catalog)
    assert (middle.transition_state, middle.global_topology_request) == ("commit_cdc_generation", "new_cdc_generation")
    assert step(catalog, seen=Version(request)) is None, "the node has not seen it"
    assert len(generations(catalog, orders.id)) == 1
    assert step(catalog) == "new generations of change streams of orders"
    assert generations(catalog, orders.id)[-1].generation_id == middle.new_cdc_generation_data_uuid
    after = state_of(catalog)
    assert after.current_cdc_generation_uuid == middle.new_cdc_generation_data_uuid
    assert (after.transition_state, after.global_topology_request, after.new_cdc_generation_data_uuid) == (None,) * 3
    assert json.loads(after.unpublished_cdc_generations) == [middle.new_cdc_generation_data_uuid]
    with catalog.reading() as connection:
        answer = topology.answer(connection, request)
    assert answer is not None
    assert (answer.state, answer.result) == ("done", "new generations of change streams of orders")
    assert step(catalog) == "publish 1 generations of change streams"
    assert step(catalog) is None


def test_a_generation_of_all_is_one_for_each_table_and_view(catalog: Catalog) -> None:
    orders, other = create(catalog, "orders", tablets=2), create(catalog, "other")
    exclusively(catalog, t.AddRequest(kind=RequestKind.NEW_CDC_GENERATION, holder="h"))
    assert [step(catalog), step(catalog)][1] == "new generations of change streams of 2 tables and views"
    assert [len(generations(catalog, one.id)) for one in (orders, other)] == [2, 2]


def ask_to_join(catalog: Catalog, name: str) -> Version:
    coming = member(name, state=NodeState.NONE)
    asked = t.AddRequest(kind=RequestKind.JOIN, holder="h", node=coming.id)
    return exclusively(catalog, t.AddNode(node=coming), asked).version


def test_a_node_that_joins_announces_the_generations_that_it_begins(catalog: Catalog) -> None:
    orders, other = create(catalog, "orders", tablets=2), create(catalog, "other")
    request = ask_to_join(catalog, "coming")
    assert state_of(catalog).transition_state is None, "it may be refused"
    assert step(catalog) == "begin join of coming"
    middle = state_of(catalog)
    assert (middle.transition_state, middle.global_topology_request) == ("commit_cdc_generation", None)
    assert step(catalog, seen=Version(request)) is None, "the node has not seen it"
    assert step(catalog) == f"end request {request}: node coming joined"
    assert [len(generations(catalog, one.id)) for one in (orders, other)] == [2, 2]
    begun = [generations(catalog, one.id)[-1].generation_id for one in (orders, other)]
    after = state_of(catalog)
    assert middle.new_cdc_generation_data_uuid == after.current_cdc_generation_uuid == begun[-1]
    assert json.loads(after.unpublished_cdc_generations) == begun
    assert (after.transition_state, after.new_cdc_generation_data_uuid) == (None, None)


def test_a_join_that_goes_back_leaves_what_another_request_announces(catalog: Catalog) -> None:
    orders = create(catalog, "orders")
    joining = ask_to_join(catalog, "coming")
    step(catalog)
    asked = t.AddRequest(kind=RequestKind.NEW_CDC_GENERATION, holder="h", relation=orders.id)
    request = exclusively(catalog, asked).version
    exclusively(catalog, t.BeginRequest(request=request))
    gone = t.EndRequest(request=joining, state=RequestState.FAILED, code=Outcome.WENT_BACK, message="its process died")
    exclusively(catalog, t.SetNodeState(node=member("coming").id, state=NodeState.LEFT), gone)
    middle = state_of(catalog)
    assert (middle.transition_state, middle.global_topology_request) == ("commit_cdc_generation", "new_cdc_generation")
    assert step(catalog) == "new generations of change streams of orders"
    after = state_of(catalog)
    assert after.current_cdc_generation_uuid == middle.new_cdc_generation_data_uuid
    assert (after.transition_state, after.global_topology_request) == (None, None)


def test_a_generation_of_a_table_that_was_dropped_meanwhile_ends_with_the_reason(catalog: Catalog) -> None:
    orders = create(catalog, "orders")
    asked = t.AddRequest(kind=RequestKind.NEW_CDC_GENERATION, holder="h", relation=orders.id)
    request = exclusively(catalog, asked).version
    step(catalog)
    exclusively(catalog, c.DropRelation(relation=orders.id))
    step(catalog)
    with catalog.reading() as connection:
        answer = topology.answer(connection, request)
    assert answer is not None
    assert (answer.state, answer.code) == ("failed", "went_back")
    assert state_of(catalog).transition_state is None


def step(catalog: Catalog, seen: Version | None = None) -> str | None:
    """Let the coordinator take its next step: the reason. `seen`: the version that every node follows."""
    with catalog.reading() as connection:
        state = loader.load(connection, NOON_US)
    nodes = frozenset(state.members)
    follows = dict.fromkeys(nodes, state.version if seen is None else seen)
    decision = coordinator.step(replace(state, alive=nodes, seen=follows))
    if decision is None:
        return None
    commit(catalog, *decision.updates)
    return decision.reason


def test_a_table_begins_with_a_stream_for_each_tablet(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=4)
    (first,) = generations(catalog, target.id)
    assert (first.begin_version, first.published) == (target.created_version, True)
    found = streams(catalog, target.id, first.generation_id)
    assert list(found.values()) == token_ranges(4)
    index = create_index(catalog, target)
    assert generations(catalog, index) == [], "an index has no changes of its own"


def test_a_map_begins_a_generation_that_is_published_when_nothing_waits(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    split = resize(catalog, target.id, 4)
    first, second = generations(catalog, target.id)
    assert (first.published, second.published, second.begin_version) == (True, False, split)
    assert joined(streams(catalog, target.id, second.generation_id).values()) == [ALL]
    now = state_of(catalog)
    assert now.current_cdc_generation_uuid == second.generation_id
    assert json.loads(now.unpublished_cdc_generations) == [second.generation_id]
    with catalog.reading() as connection:
        decision = coordinator.step(loader.load(connection, NOON_US))
    assert decision is not None
    assert decision.updates == (t.PublishGenerations(),)
    exclusively(catalog, *decision.updates)
    assert all(one.published for one in generations(catalog, target.id))
    assert state_of(catalog).unpublished_cdc_generations is None
    with catalog.reading() as connection:
        assert coordinator.step(loader.load(connection, NOON_US)) is None


def test_the_streams_of_generations_follow_each_other_without_a_gap(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    split = resize(catalog, target.id, 4)
    merged = resize(catalog, target.id, 2)
    one, two, three = (stream(catalog, target.id, 1, generation) for generation in range(3))
    assert (one.begun, one.ended) == (target.created_version, split)
    assert (two.begun, two.ended, two.tokens) == (split, merged, token_range(1, 4))
    assert (three.begun, three.ended) == (merged, None)
    last = Version(merged + 5)
    parts = [found.within(Version(0), last) for found in (one, two, three)]
    assert parts == [(target.created_version - 1, split - 1), (split - 1, merged - 1), (merged - 1, last)]
    assert two.within(merged, last) == (merged, merged), "nothing of it"
    with catalog.reading() as connection, pytest.raises(UnknownNameError, match="orders: expected one of its change"):
        cdc.stream(connection, target.id, "orders", "nothing")


def test_a_node_that_comes_begins_generations(catalog: Catalog) -> None:
    target, other = create(catalog, "orders", tablets=2), create(catalog, "customers", tablets=1)
    node = NodeId("late")
    exclusively(catalog, t.AddNode(node=member("late", state=NodeState.NONE)))
    exclusively(catalog, t.SetNodeState(node=node, state=NodeState.BOOTSTRAPPING))
    assert len(generations(catalog, target.id)) == 1
    joined_at = exclusively(catalog, t.SetNodeState(node=node, state=NodeState.NORMAL)).version
    for relation in (target.id, other.id):
        assert generations(catalog, relation)[-1].begin_version == joined_at
    assert len(json.loads(state_of(catalog).unpublished_cdc_generations)) == 2


def test_what_the_horizon_has_passed_is_forgotten(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    split = resize(catalog, target.id, 4)
    merged = resize(catalog, target.id, 2)
    commit(catalog, c.SetHorizon(relation=target.id, horizon=split))
    assert [one.begin_version for one in generations(catalog, target.id)] == [split, merged]
    commit(catalog, c.SetHorizon(relation=target.id, horizon=merged))
    (last,) = generations(catalog, target.id)
    with catalog.reading() as connection:
        assert rows.values(connection, s.cdc_streams.c.generation_id) == {last.generation_id}


@pytest.mark.database
def test_a_catalog_of_the_release_before_gets_a_generation_for_each_map(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    split = resize(catalog, target.id, 4)
    before = [(one.begin_version, one.generation_id) for one in generations(catalog, target.id)]
    with catalog.writing() as connection:
        for table in ("cdc_streams", "cdc_generations"):
            connection.execute(text(f"DELETE FROM {table}"))
        connection.execute(text("DELETE FROM migrations WHERE number >= 19"))
    again = Catalog.open(catalog.where, create=False)
    found = generations(again, target.id)
    assert [(one.begin_version, one.generation_id) for one in found] == before
    assert list(streams(again, target.id, found[-1].generation_id).values()) == token_ranges(4)
    assert all(one.published for one in found)
    assert found[-1].begin_version == split
    again.close()
