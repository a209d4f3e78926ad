"""Statements about tablets and their replicas, carried out. A request is answered in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import pyarrow as pa
from sqlalchemy import Connection

from ebla.api.statements import answers
from ebla.base.ids import TabletId
from ebla.catalog import reads
from ebla.errors import UsageError
from ebla.model.relation import Kind, Relation
from ebla.model.tablets import token_range
from ebla.model.tasks import Replica
from ebla.model.topology import RequestKind, Topology
from ebla.spark.result import Result
from ebla.sql import cluster_statements as cs
from ebla.topology import tablets
from ebla.topology.handshake import find_member
from ebla.topology.requests import name_of
from ebla.values import types

if TYPE_CHECKING:
    from ebla.api.database import Database

TABLETS = {
    "relation": "string",
    "tablet": "bigint",
    "replicas": "string",
    "stage": "string",
    "token_min": "bigint",
    "token_max": "bigint",
}
TRANSITIONS = {
    "relation": "string",
    "tablet": "bigint",
    "kind": "string",
    "stage": "string",
    "leaving": "string",
    "pending": "string",
    "waits_for": "string",
    "failure": "string",
    "request": "bigint",
    "since_version": "bigint",
}


def run(database: Database, statement: cs.TabletStatement) -> Result:
    context, handshake = database.context, database.background.membership.handshake
    with context.catalog.reading() as connection:
        state = handshake.topology(connection)
        match statement:
            case cs.ShowTablets(table=name):
                return Result(table=tablets_of(connection, state, name), spark=lambda: context.spark)
            case cs.ShowTransitions():
                return Result(table=transitions(state), spark=lambda: context.spark)
            case cs.MoveTablet(table=name):
                relation = _placed(reads.relation(connection, name))
            case _:
                assert_never(statement)
    ends = {"source": find_member(state, statement.source).id, "target": find_member(state, statement.target).id}
    asked = handshake.ask_of(RequestKind.MOVE, relation.id, {"tablet": statement.tablet, **ends})
    return answers.row(context.sessions, request=asked)


def set_replication(database: Database, name: str, wanted: object) -> Result:
    """Ask for another number of copies."""
    context = database.context
    with context.catalog.reading() as connection:
        relation = _placed(reads.relation(connection, name))
    least = relation.options.get("min_copies")
    if type(wanted) is not int:
        raise UsageError(f"replication: expected a whole number from 1, found {wanted!r}")
    if isinstance(least, int) and wanted < least:
        raise UsageError(f"{relation.name}: expected a replication of at least {least}, its min_copies, found {wanted}")
    asked = database.background.membership.handshake.ask_of(
        RequestKind.REPLICATION, relation.id, {"replication": wanted}
    )
    return answers.row(context.sessions, request=asked)


def _placed(relation: Relation) -> Relation:
    """A relation that has places of its own: an index lies where its base lies."""
    if relation.kind is Kind.INDEX:
        raise UsageError(f"{relation.name}: expected a table or a view, found an index, which lies where its base lies")
    return relation


def tablets_of(connection: Connection, state: Topology, name: str | None) -> pa.Table:
    only = None if name is None else _placed(reads.relation(connection, name)).id
    found = []
    for layout in sorted(state.layouts.values(), key=lambda layout: layout.name):
        for tablet in map(TabletId, range(layout.tablets) if only in (None, layout.relation) else ()):
            tokens, moving = token_range(tablet, layout.tablets), state.transitions.get((layout.relation, tablet))
            found.append(
                {
                    "relation": layout.name,
                    "tablet": tablet,
                    "replicas": ", ".join(name_of(state, replica.host) for replica in layout.replicas[tablet]),
                    "stage": None if moving is None else moving.stage.value,
                    "token_min": tokens.first,
                    "token_max": tokens.last,
                }
            )
    return types.table_of(TABLETS, found)


def transitions(state: Topology) -> pa.Table:
    found = [
        {
            "relation": state.layouts[one.tablet[0]].name if one.tablet[0] in state.layouts else str(one.tablet[0]),
            "tablet": one.tablet[1],
            "kind": one.kind.value,
            "stage": one.stage.value,
            "leaving": _place(state, one.leaving, one.pending),
            "pending": _place(state, one.pending, one.leaving),
            "waits_for": tablets.waits_for(state, one),
            "failure": one.failure,
            "request": one.request,
            "since_version": one.since,
        }
        for one in state.transitions.values()
    ]
    return types.table_of(TRANSITIONS, found)


def _place(state: Topology, replica: Replica | None, other: Replica | None) -> str | None:
    """A replica by the name of its node; with its shard, where the other one is on the same node."""
    if replica is None:
        return None
    within = other is not None and other.host == replica.host
    return f"{name_of(state, replica.host)} shard {replica.shard}" if within else name_of(state, replica.host)
