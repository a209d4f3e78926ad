"""What happens to tasks when tablets move.

Theory of operation. At the start of an operation the tasks of its tablets are aborted, so that no worker commits for a
replica that is being left; they stay in the catalog as the memory of what is to be done. At its end each is replaced
by a task with a new id in the new place, or, where the operation failed, in the old one. Both are part of the
operation's own commits. How far a tablet is covered belongs to view and tokens, not to the task, so nothing is read
twice.

Only tasks of the tablet that is named are touched: another tablet that leaves the same shard keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ebla.base.ids import RelationId, TaskId
from ebla.build.state import State
from ebla.model import changes as c
from ebla.model.tablets import TokenRange
from ebla.model.tasks import Replica, Task

NewId = Callable[[], TaskId]


def _of(state: State, base: RelationId, tokens: TokenRange, replica: Replica) -> list[Task]:
    return [task for task in state.tasks.values() if (task.base, task.tokens, task.replica) == (base, tokens, replica)]


def _replaced(old: Iterable[Task], new: Iterable[Task]) -> tuple[c.Update, ...]:
    removed = frozenset(task.id for task in old)
    return (c.RemoveTasks(tasks=removed), c.CreateTasks(tasks=tuple(new))) if removed else ()


def leave(state: State, base: RelationId, tokens: TokenRange, source: Replica) -> tuple[c.Update, ...]:
    """A tablet begins to leave a replica."""
    tasks = frozenset(task.id for task in _of(state, base, tokens, source) if not task.aborted)
    return (c.AbortTasks(tasks=tasks),) if tasks else ()


def arrive(
    state: State, base: RelationId, tokens: TokenRange, source: Replica, target: Replica, new_id: NewId
) -> tuple[c.Update, ...]:
    """It has arrived: its tasks go on there. Tasks that were created meanwhile for the old place move as well."""
    tasks = _of(state, base, tokens, source)
    return _replaced(tasks, [task.again(new_id(), replica=target) for task in tasks])


def stay(state: State, base: RelationId, tokens: TokenRange, source: Replica, new_id: NewId) -> tuple[c.Update, ...]:
    """It failed: the aborted tasks go on where they were."""
    tasks = [task for task in _of(state, base, tokens, source) if task.aborted]
    return _replaced(tasks, [task.again(new_id()) for task in tasks])
