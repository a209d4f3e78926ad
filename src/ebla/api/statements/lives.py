"""`EXPLAIN` of a tablet, a node or a task: where it stands in its life, and what leads on.

Drawn from the table of the life.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection

from ebla.api.statements import answers
from ebla.base.ids import TabletId
from ebla.catalog import build_tasks, reads
from ebla.errors import UnknownNameError, UsageError
from ebla.model.lifecycle import node, tablet, task
from ebla.model.lifecycle.steps import Lifecycle
from ebla.model.topology import Member, Topology
from ebla.relations import build_obstacles
from ebla.spark.result import Result
from ebla.topology import requests, tablets


def of_tablet(connection: Connection, state: Topology, name: str, number: TabletId) -> Result:
    relation = reads.relation(connection, name)
    layout = state.layouts.get(relation.id)
    if layout is None:
        raise UsageError(f"{name}: expected a table or a view, found an index, which lies where its base lies")
    if number >= layout.tablets:
        raise UsageError(f"{name}: expected a tablet from 0 to {layout.tablets - 1}, found {number}")
    nodes = [requests.name_of(state, replica.host) for replica in layout.replicas[number]]
    thing = {"tablet": number, "of": layout.name, "on": ", ".join(nodes)}
    moving = state.transitions.get((relation.id, number))
    if moving is None:
        return _explained(thing, tablet.LIFE, None, "no transition; there is one set of replicas")
    rights = tablet.RIGHTS[moving.stage]
    permits = f"reads of {rights.reads}, writes to {rights.writes}, commits with enough copies of {rights.requires}"
    waits = tablets.waits_for(state, moving)
    return _explained(thing, tablet.LIFE, moving.stage, permits, waits_for=waits, failure=moving.failure)


def of_node(state: Topology, member: Member) -> Result:
    rights = node.RIGHTS[member.state]
    words = ("the barrier waits for it", "replicas may be on it", "replicas may come to it")
    permits = ", ".join(word for word, is_so in zip(words, rights, strict=True) if is_so) or "nothing is on it"
    asked = next((request for request in state.requests if request.node == member.id), None)
    waits = None if asked is None else requests.waits_for(state, asked) or "the coordinator"
    thing = {"node": member.name, "is": "alive" if member.id in state.alive else "down", "root": member.root}
    return _explained(thing, node.LIFE, member.state, permits, waits_for=waits)


def of_task(connection: Connection, state: Topology, identifier: str, now: int) -> Result:
    found = next((one for one in build_tasks.tasks(connection) if one.id == identifier), None)
    if found is None:
        raise UnknownNameError(
            f"task {identifier}: expected one that is not done, found none; system.view_building_tasks lists them"
        )
    build = None if found.view is None else build_tasks.builds(connection).get(found.view)
    attended = build_obstacles.is_attended(connection, now)
    waits = None if build is None else build_obstacles.of_tasks(connection, build, state.alive, attended=attended)
    relation = reads.relation_by_id(connection, found.base if found.view is None else found.view)
    thing = {"task": found.id, "kind": found.kind, "of": None if relation is None else relation.name}
    thing |= {"on": requests.name_of(state, found.replica.host)}
    permits = "its chunks are committed" if task.is_open(found.state) else "its chunks are refused"
    return _explained(thing, task.LIFE, found.state, permits, waits_for=waits)


def _explained(
    thing: Mapping[str, object], life: Lifecycle[Any], state: StrEnum | None, permits: str, **more: str | None
) -> Result:
    """`thing`: what it is, and where; `more`: what keeps it from its next step."""
    words = [f"{key} {said}" for key, said in thing.items() if said is not None]
    lines = [
        " ".join(words),
        f"  state: {state or 'none'}; {permits}",
        *(f"    {way}" for way in life.ways(state)),
        *(f"  {key.replace('_', ' ')}: {said}" for key, said in more.items() if said is not None),
    ]
    value = {**thing, "permits": permits, "state": life.value(state), **more}
    return answers.explained(lines, value, life.diagram())
