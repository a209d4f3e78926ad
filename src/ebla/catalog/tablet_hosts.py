"""On which nodes tablets lie, for a picture of them: a few statements over the catalog, answered by sums and names.

`layouts` also knows sizes, shards and resizes, which deciding needs and drawing does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from ebla.catalog import schema as s
from ebla.model.lifecycle.node import NodeState
from ebla.model.relation import Kind


def nodes(connection: Connection) -> Sequence[Any]:
    """The nodes that have not left, by name, each with the runs on its disk."""
    of, run = s.topology.c, s.runs.c
    sums = select(run.host_id, func.count().label("runs"), func.sum(run.bytes).label("bytes"))
    disk = sums.group_by(run.host_id).subquery()
    columns = (of.host_id, of.name, of.node_state, disk.c.runs, disk.c.bytes)
    present = select(*columns).outerjoin_from(s.topology, disk, disk.c.host_id == of.host_id)
    return connection.execute(present.where(of.node_state != NodeState.LEFT.value).order_by(of.name, of.host_id)).all()


def hosts(connection: Connection) -> dict[str, list[list[str]]]:
    """Of each living table and view, in the order of their creation, the nodes of each tablet."""
    of, placed = s.relations.c, s.tablets.c
    columns = (of.name, of.tablets, placed.tablet_id, placed.host_id)
    living = select(*columns).join_from(s.relations, s.tablets, placed.relation_id == of.relation_id)
    living = living.where(of.dropped_version.is_(None), of.kind.in_((Kind.TABLE.value, Kind.VIEW.value)))
    found: dict[str, list[list[str]]] = {}
    for name, tablets, tablet, host in connection.execute(
        living.order_by(of.relation_id, placed.tablet_id, placed.ordinal)
    ):
        if name not in found:
            found[name] = [[] for _ in range(tablets)]
        found[name][tablet].append(host)
    return found


def are_moving(connection: Connection) -> bool:
    """Whether any tablet is in a transition."""
    return connection.execute(select(s.tablet_transitions.c.tablet_id).limit(1)).first() is not None
