"""What keeps a build from going on, from catalog rows alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import assert_never

from sqlalchemy import Connection

from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import build_tasks, processes, reads, topology, troubles
from ebla.catalog import transactions as tx
from ebla.catalog.troubles import Activity
from ebla.model import barrier
from ebla.model.lifecycle.index import Permission
from ebla.model.progress import UNATTENDED, waiting_for
from ebla.model.relation import Relation
from ebla.model.tasks import LEASE, Build
from ebla.relations.indexes import Index
from ebla.relations.views import View


def is_attended(connection: Connection, now: int) -> bool:
    """Whether a process builds, or will as soon as it has looked."""
    if tx.leader(connection, LEASE, now) is not None:
        return True
    return any(process.maintains for process in processes.alive(connection, now))


def trouble(connection: Connection, number: RelationId, now: int, work: Activity = Activity.BUILD) -> str | None:
    """What went wrong with work that will be tried again."""
    found = troubles.find(connection, number, work)
    return None if found is None or found.final else troubles.obstacle(found, now)


def of_view(
    connection: Connection,
    view: View,
    build: Build,
    builds: Mapping[RelationId, Build],
    alive: Collection[NodeId] | None,
    *,
    attended: bool,
) -> str | None:
    for name in view.inputs:
        read = reads.find_relation(connection, name)
        if read is not None and read.id in builds:
            return f"the build of {read.name}"
    return of_tasks(connection, build, alive, attended=attended)


def of_tasks(connection: Connection, build: Build, alive: Collection[NodeId] | None, *, attended: bool) -> str | None:
    """What keeps the tasks of a build from beginning."""
    hosts = {task.replica.host for task in build_tasks.tasks_of(connection, build.view)}
    if not hosts:
        return None if attended else UNATTENDED
    down = [] if alive is None or hosts & set(alive) else _roots(connection, hosts)
    other: Relation | None = None
    processing = build_tasks.processing_base(connection)
    if processing is not None and processing != build.base:
        other = reads.relation_by_id(connection, processing)
    return waiting_for(
        paused=build.paused,
        other_base=None if other is None else other.name,
        roots_down=down,
        transactions=(),
        attended=attended,
    )


def _roots(connection: Connection, hosts: Collection[NodeId]) -> list[str]:
    nodes = topology.members(connection)
    return [f"storage root {nodes[host].root} of node {nodes[host].name}" for host in hosts if host in nodes]


def of_index(
    connection: Connection,
    index: Index,
    build: Build,
    alive: Collection[NodeId] | None,
    *,
    attended: bool,
) -> str | None:
    """What keeps an index from its next step, or its tasks from beginning."""
    since = index.stands.since
    match index.state:
        case Permission.ABSENT:
            return f"BUILD INDEXES ON {index.base.name}"
        case Permission.REMOVING_WRITES | Permission.REMOVING_DELETES:
            return f"its removal: {index.stands.message or 'it was dropped'}"
        case Permission.BACKFILLING:
            if build_tasks.tasks_of(connection, index.id) or not index.unique:
                return of_tasks(connection, build, alive, attended=attended)
            # Writers who may not have seen all entries: those from before the last tablet came.
            runs = reads.snapshot(connection, index.relation).level1
            since = max((run.begin_version for run in runs), default=Version(0))
        case Permission.DELETE_ONLY | Permission.WRITE_AND_DELETE | Permission.READ_WRITE_AND_DELETE:
            pass
        case _:
            assert_never(index.state)
    named = sorted(map(str, barrier.blockers(tx.in_the_way(connection, {index.base.id}, unnamed=False), since)))
    if named:
        return ", ".join(named)
    waiting = of_tasks(connection, build, alive, attended=attended)
    if index.state is Permission.BACKFILLING:
        return waiting
    return waiting or f"its next state, behind {index.state}"
