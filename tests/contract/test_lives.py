"""`EXPLAIN` of a tablet, a node and a task, in each of their states: what it says is the table of the life."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from ebla.api.statements import lives
from ebla.base.ids import NodeId, TabletId, Version
from ebla.catalog.store import Catalog
from ebla.errors import UnknownNameError, UsageError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle import node as node_life
from ebla.model.lifecycle import tablet as tablet_life
from ebla.model.lifecycle import task as task_life
from ebla.model.lifecycle.node import NodeState
from ebla.model.lifecycle.steps import Lifecycle
from ebla.model.lifecycle.tablet import Stage
from ebla.model.lifecycle.task import TaskState
from ebla.model.tasks import Build, Replica
from ebla.model.topology import RequestKind, Topology, TransitionKind
from ebla.spark.result import Result
from ebla.topology import loader
from support.catalogs import commit, create, create_index, exclusively, member, put_nodes, task, task_ids

IN_MEMORY = True
NOW = 0


def told(found: Result) -> tuple[list[str], dict[str, Any], str]:
    plan, value, drawn = found.one()
    return plan.splitlines(), json.loads(value), drawn


def is_drawn_from(life: Lifecycle[Any], state: Any, found: Result) -> None:
    """Each step that leads on from the state, and no other; and the whole life."""
    lines, value, drawn = told(found)
    ways = [line.removeprefix("    ") for line in lines if line.startswith("    ")]
    assert ways == life.ways(state)
    assert value["state"] == json.loads(json.dumps(life.value(state)))
    assert drawn.splitlines() == ["stateDiagram-v2", *life.diagram()]


@pytest.mark.parametrize("stage", [None, *Stage])
def test_a_tablet_says_its_stage_and_what_leads_on(catalog: Catalog, stage: Stage | None):
    put_nodes(catalog, "b")
    orders = create(catalog, "orders")
    place = orders.id, TabletId(1)
    back = (Stage.ALLOW_WRITE_BOTH_READ_OLD, Stage.CLEANUP_TARGET, Stage.REVERT_MIGRATION)
    way = back if stage in back else tuple(one for one in Stage if one not in back[1:])
    if stage is not None:
        begun = Replica(NodeId("node1"), 0), Replica(NodeId("b"), 0)
        exclusively(
            catalog,
            t.BeginTransition(tablet=place, kind=TransitionKind.MIGRATION, leaving=begun[0], pending=begun[1]),
        )
        for before, after in pairwise(way[: way.index(stage) + 1]):
            exclusively(catalog, t.AdvanceTransition(tablet=place, stage=before, to=after))
    found = explained(catalog, "orders", 1)
    is_drawn_from(tablet_life.LIFE, stage, found)
    lines, value, _ = told(found)
    assert lines[0] == "tablet 1 of orders on node1"
    if stage is None:
        assert lines[1] == "  state: none; no transition; there is one set of replicas"
        return
    rights = tablet_life.RIGHTS[stage]
    assert lines[1].startswith(f"  state: {stage}; reads of {rights.reads}, writes to {rights.writes}, commits with ")
    assert value["waits_for"]
    assert f"  waits for: {value['waits_for']}" in lines


def explained(catalog: Catalog, name: str, tablet: int) -> Result:
    with catalog.reading() as connection:
        return lives.of_tablet(connection, loader.load(connection, NOW), name, TabletId(tablet))


def test_what_is_no_tablet_is_refused(catalog: Catalog):
    orders = create(catalog, "orders")
    create_index(catalog, orders)
    with pytest.raises(UsageError, match="orders: expected a tablet from 0 to 1, found 2"):
        explained(catalog, "orders", 2)
    with pytest.raises(UsageError, match="by_total: expected a table or a view, found an index"):
        explained(catalog, "by_total", 0)
    with pytest.raises(UnknownNameError):
        explained(catalog, "nothing", 0)


@pytest.mark.parametrize("state", NodeState)
def test_a_node_says_its_state_and_what_leads_on(state: NodeState):
    topology = Topology(
        version=Version(1),
        members={NodeId("b"): member("b", state=state)},
        alive=frozenset(),
        seen={},
        layouts={},
        transitions={},
        requests=(),
    )
    found = lives.of_node(topology, topology.members[NodeId("b")])
    is_drawn_from(node_life.LIFE, state, found)
    lines, value, _ = told(found)
    assert lines[0] == "node b is down root /data/b"
    rights = node_life.RIGHTS[state]
    assert ("replicas may come to it" in value["permits"]) == rights.may_receive
    assert (value["permits"] == "nothing is on it") == (not any(rights))


def test_a_node_says_what_its_request_waits_for(catalog: Catalog):
    put_nodes(catalog, "b")
    commit(catalog, t.AddRequest(kind=RequestKind.REMOVE, holder="h", node=NodeId("b")))
    with catalog.reading() as connection:
        state = loader.load(connection, NOW)
        lines, value, _ = told(lives.of_node(state, state.members[NodeId("b")]))
    assert value["waits_for"]
    assert lines[-1] == f"  waits for: {value['waits_for']}"


@pytest.mark.parametrize("state", [TaskState.CREATED, TaskState.ABORTED])
def test_a_task_says_its_state_and_what_leads_on(catalog: Catalog, state: TaskState):
    orders = create(catalog, "orders")
    index = create_index(catalog, orders)
    build = Build(view=index, base=orders.id, rows_per_minute=0)
    commit(catalog, c.CreateBuild(build=build, tasks=(task("a", orders.id, index),)))
    if state is TaskState.ABORTED:
        commit(catalog, c.AbortTasks(tasks=task_ids("a")))
    found = told_of(catalog, "a")
    is_drawn_from(task_life.LIFE, state, found)
    lines, value, _ = told(found)
    assert lines[0] == "task a kind build_range of by_total on node1"
    assert value["permits"] == ("its chunks are committed" if state is TaskState.CREATED else "its chunks are refused")
    assert value["waits_for"], "the build is paused"
    commit(catalog, c.RemoveTasks(tasks=task_ids("a")))
    with pytest.raises(UnknownNameError, match="task a: expected one that is not done, found none"):
        told_of(catalog, "a")


def test_a_task_of_staged_runs_is_of_its_base(catalog: Catalog):
    orders = create(catalog, "orders")
    commit(catalog, c.CreateTasks(tasks=(task("s", orders.id, None),)))
    lines, _, _ = told(told_of(catalog, "s"))
    assert lines[0] == "task s kind process_staging of orders on node1"


def told_of(catalog: Catalog, name: str) -> Result:
    with catalog.reading() as connection:
        return lives.of_task(connection, loader.load(connection, NOW), name, NOW)
