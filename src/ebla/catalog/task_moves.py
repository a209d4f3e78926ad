"""Tasks of building that move with the tablet whose rows they read (`ebla.model.task_moves` decides which)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from ebla.base.ids import RelationId, TaskId, Version
from ebla.catalog import build_tasks
from ebla.catalog.rows import Change, State
from ebla.model import changes as c
from ebla.model import task_moves as moves
from ebla.model.tablets import TokenRange
from ebla.model.tasks import Replica, Task


def leave(state: State, base: RelationId, tokens: TokenRange, source: Replica, version: Version) -> tuple[Change, ...]:
    """The transition begins: the tasks of the replica that the tablet leaves are aborted."""
    return _changes(state, moves.leave(_tasks(state, base), tokens, source), version)


def stay(state: State, base: RelationId, tokens: TokenRange, source: Replica, version: Version) -> tuple[Change, ...]:
    """The transition went back: the aborted tasks go on where they were."""
    return _changes(state, moves.stay(_tasks(state, base), tokens, source, _new_id(version)), version)


def arrive(
    state: State, base: RelationId, tokens: TokenRange, source: Replica, target: Replica, version: Version
) -> tuple[Change, ...]:
    """The transition has ended: the tasks go on at a replica that the tablet has now."""
    return _changes(state, moves.arrive(_tasks(state, base), tokens, source, target, _new_id(version)), version)


def _changes(state: State, updates: Iterable[c.BuildingUpdate], version: Version) -> tuple[Change, ...]:
    return tuple(change for update in updates for change in build_tasks.changes(state, update, version, None))


def _tasks(state: State, base: RelationId) -> list[Task]:
    return [task for task in build_tasks.tasks(state) if task.base == base]


def _new_id(version: Version) -> moves.NewId:
    return lambda task: TaskId(str(uuid.uuid5(uuid.NAMESPACE_OID, f"{task.id} {version}")))
