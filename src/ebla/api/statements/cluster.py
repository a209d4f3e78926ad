"""Statements about the cluster, carried out. A request is answered in the background; its statement returns at once."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa
from sqlalchemy import Connection

from ebla.api.statements import answers, lives, tablets
from ebla.base.ids import NodeId, TabletId
from ebla.catalog import processes
from ebla.catalog import topology as stored
from ebla.errors import UsageError
from ebla.model.topology import RequestKind, Topology
from ebla.spark.result import Result, named_like
from ebla.sql import cluster_statements as cs
from ebla.topology import requests
from ebla.topology.handshake import find_member
from ebla.values import types

if TYPE_CHECKING:
    from ebla.api.database import Database

NODES = {
    "name": "string",
    "state": "string",
    "alive": "boolean",
    "datacenter": "string",
    "rack": "string",
    "shards": "bigint",
    "tablets": "bigint",
    "storage_root": "string",
    "disk_free": "bigint",
    "disk_total": "bigint",
    "load_1m": "double",
    "cores": "bigint",
    "release": "string",
    "seen_version": "bigint",
    "request": "bigint",
    "host_id": "string",
}
REQUESTS = {
    "id": "bigint",
    "kind": "string",
    "node": "string",
    "state": "string",
    "waits_for": "string",
    "result": "string",
    "message": "string",
    "requested_at": "timestamp",
    "ended_at": "timestamp",
}


def run(database: Database, statement: cs.ClusterStatement) -> Result:
    if isinstance(statement, cs.TabletStatement):
        return tablets.run(database, statement)
    if isinstance(statement, cs.LifeStatement):
        return _life(database, statement)
    context, handshake = database.context, database.background.membership.handshake
    match statement:
        case cs.SetTableOptions(table=table, options=options):
            if set(options) == {"replication"}:
                return tablets.set_replication(database, table, options["replication"])
            return answers.row(context.sessions, request=handshake.resize(table, _tablets(table, options)))
        case cs.AlterNode(action=action, node=node):
            parameters: dict[str, object] = {}
            if statement.ignored:
                with context.catalog.reading() as connection:
                    state = handshake.topology(connection)
                parameters["ignore_nodes"] = [find_member(state, name).id for name in statement.ignored]
            if statement.source is not None:
                parameters["source"] = statement.source
            return answers.row(context.sessions, request=handshake.ask(RequestKind(action), node, parameters))
        case cs.NewGeneration(table=name):
            return answers.row(context.sessions, request=handshake.renew(name))
        case cs.CancelRequest(request=request):
            handshake.cancel(request)
            return answers.row(context.sessions, request=request)
        case cs.SetBalancing(on=on):
            handshake.balance(on)
            return answers.columns(context.sessions, {})
        case cs.WaitForRequest(request=request):
            result = handshake.wait(request)
            return answers.columns(context.sessions, {"request": pa.array([request], pa.int64()), "result": [result]})
        case cs.ShowNodes(like=like):
            with context.catalog.reading() as connection:
                found = nodes(connection, handshake.topology(connection))
            return Result(table=named_like(found, like), spark=lambda: context.spark)
        case cs.ShowRequests():
            with context.catalog.reading() as connection:
                asked = requests_of(connection, handshake.topology(connection))
            return Result(table=asked, spark=lambda: context.spark)
        case _:
            assert_never(statement)


def _life(database: Database, statement: cs.LifeStatement) -> Result:
    context = database.context
    with context.catalog.reading() as connection:
        state = database.background.membership.handshake.topology(connection)
        match statement:
            case cs.ExplainTablet(table=name, tablet=number):
                return lives.of_tablet(connection, state, name, TabletId(number))
            case cs.ExplainNode(node=name):
                return lives.of_node(state, find_member(state, name))
            case cs.ExplainTask(task=identifier):
                return lives.of_task(connection, state, identifier, context.catalog.clock())
            case _:
                assert_never(statement)


def _tablets(table: str, options: Mapping[str, object]) -> int:
    unknown = sorted(options.keys() - {"tablets", "replication"})
    if unknown:
        raise UsageError(f"ALTER TABLE {table}: expected the option tablets or replication, found {unknown[0]}")
    if "replication" in options:
        raise UsageError(
            f"ALTER TABLE {table}: expected tablets or replication, found both; each is a request of its own, "
            f"with its own answer: ask for the one, then for the other"
        )
    tablets = options["tablets"]
    if not isinstance(tablets, int) or isinstance(tablets, bool):
        raise UsageError(f"ALTER TABLE {table}: expected a number of tablets, found {tablets!r}")
    return tablets


def nodes(connection: Connection, state: Topology) -> pa.Table:
    """Every node that the topology has heard of, by name; of one that is alive also its machine."""
    machines = processes.machines(connection, state.holders)
    held = Counter(
        replica.host for layout in state.layouts.values() for replicas in layout.replicas for replica in replicas
    )
    open_requests = {request.node: request.id for request in state.requests}
    found = [
        {
            "name": member.name,
            "state": member.state.value,
            "alive": member.id in state.alive,
            "datacenter": member.datacenter,
            "rack": member.rack,
            "shards": member.shards,
            "tablets": held[member.id],
            "storage_root": member.root,
            **_machine(machines.get(member.id, processes.UNKNOWN), member.id),
            "release": member.release,
            "seen_version": state.seen.get(member.id),
            "request": open_requests.get(member.id),
            "host_id": member.id,
        }
        for member in sorted(state.members.values(), key=lambda member: (member.name, member.id))
    ]
    return types.table_of(NODES, found)


def _machine(machine: processes.Machine, node: NodeId) -> dict[str, object]:
    disk = machine.disks.get(node)
    return {
        "disk_free": None if disk is None else disk.free,
        "disk_total": None if disk is None else disk.total,
        "load_1m": machine.load_1m,
        "cores": machine.cores,
    }


def requests_of(connection: Connection, state: Topology) -> pa.Table:
    """Every request, the newest first; of one that has not ended, what it waits for."""
    waiting = {request.id: requests.waits_for(state, request) for request in state.requests}
    found = [
        {
            "id": row.id,
            "kind": row.kind,
            "node": None if row.host_id is None else requests.name_of(state, row.host_id),
            "state": row.state,
            "waits_for": waiting.get(row.id),
            "result": row.result,
            "message": row.message,
            "requested_at": _time(row.requested_at),
            "ended_at": _time(row.ended_at),
        }
        for row in reversed(stored.answers(connection))
    ]
    return types.table_of(REQUESTS, found)


def _time(microseconds: int | None) -> dt.datetime | None:
    return None if microseconds is None else dt.datetime.fromtimestamp(microseconds / 1e6, dt.UTC)
