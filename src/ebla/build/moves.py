"""What happens to tasks when tablets move, split or merge.

Theory of operation. At the start of an operation the tasks of its tablets are aborted, so that no worker commits for a
replica that is being left; they stay in the catalog as the memory of what is to be done. At its end each is replaced
by a task with a new id in the new place, or, where the operation failed, in the old one. Both are part of the
operation's own commits. How far a tablet is covered belongs to view and tablet, not to the task, so nothing is read
twice.

Only tasks of the tablet that is named are touched: another tablet that leaves the same shard keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ebla.base.ids import RelationId, TabletId, TaskId
from ebla.build.state import State
from ebla.model import changes as c
from ebla.model.tasks import Replica, Task, TaskKind

NewId = Callable[[], TaskId]


def _of(state: State, base: RelationId, tablet: TabletId | None, replica: Replica | None) -> list[Task]:
    return [
        task
        for task in state.tasks.values()
        if task.base == base
        and (tablet is None or task.tablet == tablet)
        and (replica is None or task.replica == replica)
    ]


def _replaced(old: Iterable[Task], new: Iterable[Task]) -> tuple[c.Update, ...]:
    removed = frozenset(task.id for task in old)
    return (c.RemoveTasks(tasks=removed), c.CreateTasks(tasks=tuple(new))) if removed else ()


# ---- migration ------------------------------------------------------------------------------------------


def leave(state: State, base: RelationId, tablet: TabletId, source: Replica) -> tuple[c.Update, ...]:
    """A tablet begins to leave a replica."""
    tasks = frozenset(task.id for task in _of(state, base, tablet, source) if not task.aborted)
    return (c.AbortTasks(tasks=tasks),) if tasks else ()


def arrive(
    state: State, base: RelationId, tablet: TabletId, source: Replica, target: Replica, new_id: NewId
) -> tuple[c.Update, ...]:
    """It has arrived: its tasks go on there. Tasks that were created meanwhile for the old place move as well."""
    tasks = _of(state, base, tablet, source)
    return _replaced(tasks, [task.again(new_id(), replica=target) for task in tasks])


def stay(state: State, base: RelationId, tablet: TabletId, source: Replica, new_id: NewId) -> tuple[c.Update, ...]:
    """It failed: the aborted tasks go on where they were."""
    tasks = [task for task in _of(state, base, tablet, source) if task.aborted]
    return _replaced(tasks, [task.again(new_id()) for task in tasks])


# ---- resize ---------------------------------------------------------------------------------------------


def before_resize(state: State, base: RelationId) -> tuple[c.Update, ...]:
    tasks = frozenset(task.id for task in _of(state, base, None, None) if not task.aborted)
    return (c.AbortTasks(tasks=tasks),) if tasks else ()


def after_split(state: State, base: RelationId, new_id: NewId) -> tuple[c.Update, ...]:
    """Tablet n has become 2n and 2n+1."""
    tasks = _of(state, base, None, None)
    halves = [t.again(new_id(), tablet=TabletId(2 * t.tablet + half)) for t in tasks for half in (0, 1)]
    return _replaced(tasks, halves)


def after_merge(state: State, base: RelationId, new_id: NewId) -> tuple[c.Update, ...]:
    """Tablets 2n and 2n+1 have become n: two tasks of one view become one."""
    tasks = _of(state, base, None, None)
    merged: dict[tuple[RelationId | None, TaskKind, TabletId], Task] = {}
    for task in tasks:
        place = (task.view, task.kind, TabletId(task.tablet // 2))
        if place not in merged:
            merged[place] = task.again(new_id(), tablet=place[2])
    return _replaced(tasks, merged.values())


def after_failed_resize(state: State, base: RelationId, new_id: NewId) -> tuple[c.Update, ...]:
    tasks = [task for task in _of(state, base, None, None) if task.aborted]
    return _replaced(tasks, [task.again(new_id()) for task in tasks])
