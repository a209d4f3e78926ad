"""What happens to building tasks when a tablet moves.

Theory of operation. When a transition begins, the tasks of the tablet on the replica that it leaves are aborted: no
worker may commit for a replica that is being left. They stay in the catalog as the memory of what is to be done. At its
end each is replaced by a task with a new id in the new place, or, where it went back, in the old one. Both are part of
the transition's own commits. How far a tablet is covered belongs to view and tokens, not to the task, so nothing is
read twice.

Only tasks of the tablet that is named are touched: another tablet that leaves the same shard keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ebla.base.ids import TaskId
from ebla.model import changes as c
from ebla.model.tablets import TokenRange
from ebla.model.tasks import Replica, Task

NewId = Callable[[Task], TaskId]
"""The id of the task that takes a task's place."""


def leave(tasks: Iterable[Task], tokens: TokenRange, source: Replica) -> tuple[c.BuildingUpdate, ...]:
    """A tablet begins to leave a replica. `tasks` are all of its relation's."""
    left = frozenset(task.id for task in tasks if _is_of(task, tokens, source) and not task.aborted)
    return (c.AbortTasks(tasks=left),) if left else ()


def arrive(
    tasks: Iterable[Task], tokens: TokenRange, source: Replica, target: Replica, new_id: NewId
) -> tuple[c.BuildingUpdate, ...]:
    """The tablet has arrived: its tasks go on there, also those that were created meanwhile for the old place."""
    moved = [task for task in tasks if _is_of(task, tokens, source)]
    return replaced(moved, [task.again(new_id(task), replica=target) for task in moved])


def stay(tasks: Iterable[Task], tokens: TokenRange, source: Replica, new_id: NewId) -> tuple[c.BuildingUpdate, ...]:
    """The tablet went back: the aborted tasks go on where they were."""
    stopped = [task for task in tasks if _is_of(task, tokens, source) and task.aborted]
    return replaced(stopped, [task.again(new_id(task)) for task in stopped])


def _is_of(task: Task, tokens: TokenRange, replica: Replica) -> bool:
    return task.tokens == tokens and task.replica == replica


def replaced(old: Iterable[Task], new: Iterable[Task]) -> tuple[c.BuildingUpdate, ...]:
    """Tasks in the place of others."""
    removed = frozenset(task.id for task in old)
    return (c.RemoveTasks(tasks=removed), c.CreateTasks(tasks=tuple(new))) if removed else ()
