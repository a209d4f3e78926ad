"""How requirements are checked and updates are written, inside one database transaction.

Nothing here decides. A requirement or an update is a value of `ebla.model.changes`; each family of them has a module,
with one case for each value.
"""

from __future__ import annotations

from typing import assert_never

from sqlalchemy import Connection

from ebla.base.ids import RelationId, Version
from ebla.catalog import building, ddl, handlers, indexing, memory, runs, sessions, topology
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.lifecycle.index import Permission


def check(connection: Connection, requirement: c.Requirement, now: int) -> None:
    if isinstance(requirement, c.ExclusiveVersionIs):
        found = memory.counters(connection)["exclusive_version"]
        if found != requirement.version:
            raise ConflictError(
                f"schema and topology: expected version {requirement.version}, found {found}; reload and retry"
            )
    elif isinstance(requirement, c.SchemaWithinOne | c.PlacementIs):
        ddl.check(connection, requirement)
    elif isinstance(requirement, c.RunRequirement):
        runs.check(connection, requirement)
    elif isinstance(requirement, c.SessionRequirement):
        sessions.check(connection, requirement, now)
    elif isinstance(requirement, c.TasksOpen | c.SegmentsBegin | c.NothingLeftToBuild):
        building.check(connection, requirement)
    elif isinstance(requirement, c.IndexesFollow | c.IndexIs):
        indexing.check(connection, requirement)
    else:
        assert_never(requirement)


def apply(
    connection: Connection, change: c.Update, version: Version, now: int, created: RelationId | None = None
) -> RelationId | None:
    """Write one update at this version; returns the identifier of a relation that was created.

    `created` is the relation that the same commit has created before.
    """
    if isinstance(change, c.CreateRelation):
        return ddl.create(connection, change, version)
    if isinstance(change, c.RelationUpdate):
        ddl.alter(connection, change, version)
    elif isinstance(change, c.RunUpdate):
        runs.apply(connection, change, version)
    elif isinstance(change, c.SessionUpdate):
        sessions.apply(connection, change, version, now)
    elif isinstance(change, c.HandlerUpdate):
        handlers.apply(connection, change)
    elif isinstance(change, c.BuildingUpdate):
        building.apply(connection, change, version, created)
    elif isinstance(change, c.CreateIndex):
        indexing.create(connection, change, version, created)
    elif isinstance(change, c.SetIndexState):
        indexing.advance(connection, change, version)
        if change.state is Permission.ABSENT:
            ddl.alter(connection, c.DropRelation(relation=change.index), version)
    elif isinstance(change, c.PutNode):
        topology.put(connection, change, now)
    else:
        assert_never(change)
    return None
