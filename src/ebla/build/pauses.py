"""What the coordinator leaves alone for a while: replicas and tasks after an error, tasks by the rate of their builds.

Theory of operation. A call that fails makes its replica wait, a task that fails waits itself, so that it cannot hold up
the others of its batch. Both wait twice as long each time, up to a cap. A task that gave way waits as long as its
worker said, unless the rate of its build is altered meanwhile. Where the catalog says when a relation in trouble is
tried again, that counts: users see it, and a new leader keeps to it. All pauses may be lost: then something is tried
too early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ebla.base.backoff import Backoff
from ebla.base.ids import RelationId, TaskId
from ebla.build.state import State
from ebla.model.tasks import Replica, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedTask:
    failures: int
    until_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _PacedTask:
    """A task that gave way."""

    until_us: int
    rate: int | None
    """The rate of the build at that time: with another rate the task need not wait."""


class Pauses:
    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._replicas: dict[Replica, _FailedTask] = {}
        self._tasks: dict[TaskId, _FailedTask] = {}
        self._paced: dict[TaskId, _PacedTask] = {}

    # ---- what happens -----------------------------------------------------------------------------------

    def call_failed(self, replica: Replica, now_us: int) -> None:
        self._replicas[replica] = self._longer(self._replicas.get(replica), now_us)

    def was_busy(self, replica: Replica, now_us: int) -> None:
        """A worker answered that none of the tasks runs."""
        self._replicas[replica] = _FailedTask(failures=0, until_us=now_us + int(self._backoff.first))

    def answered(self, replica: Replica) -> None:
        self._replicas.pop(replica, None)

    def task_failed(self, task: TaskId, now_us: int) -> None:
        self._tasks[task] = self._longer(self._tasks.get(task), now_us)

    def finished(self, task: TaskId) -> None:
        self._tasks.pop(task, None)

    def gave_way(self, task: TaskId, until_us: int, rate: int | None) -> None:
        self._paced[task] = _PacedTask(until_us=until_us, rate=rate)

    def called(self, tasks: Iterable[TaskId]) -> None:
        for task in tasks:
            self._paced.pop(task, None)

    def forget_what_is_gone(self, state: State) -> None:
        for task in [t for t in self._tasks if not state.is_open(t)]:
            del self._tasks[task]
        for task, paced in list(self._paced.items()):
            if not state.is_open(task) or state.rate_of(state.tasks[task]) != paced.rate:
                del self._paced[task]
        for replica in [r for r in self._replicas if r.host not in state.alive]:
            del self._replicas[replica]  # it starts afresh when it comes back

    def _longer(self, before: _FailedTask | None, now_us: int) -> _FailedTask:
        failures = 1 if before is None else before.failures + 1
        return _FailedTask(failures=failures, until_us=now_us + int(self._backoff.after(failures)))

    # ---- questions --------------------------------------------------------------------------------------

    def holds(self, replica: Replica, now_us: int) -> bool:
        """Whether the replica waits."""
        return _waits(self._replicas.get(replica), now_us)

    def may_work(self, state: State, task: Task, now_us: int) -> bool:
        """Whether the task waits neither by the rate of its build nor after an error.

        The catalog knows best how long after an error: users see it, and may ask for it now.
        """
        if state.is_paused(task) or _waits(self._paced.get(task.id), now_us):
            return False
        again_us = state.tried_at_us(task)
        if again_us is not None:
            return now_us >= again_us
        return not _waits(self._tasks.get(task.id), now_us)

    def has_paced(self, state: State, base: RelationId) -> bool:
        """Whether a task of the base waits by the rate of its build alone."""
        return any(
            task_id in self._paced and not state.is_paused(task)
            for _, by_tablet in state.replicas(base)
            for group in by_tablet.values()
            for task_id, task in group.items()
        )

    def ends_us(self) -> Iterator[int]:
        """When each pause ends."""
        for pauses in (self._replicas, self._tasks, self._paced):
            yield from (pause.until_us for pause in pauses.values())


def _waits(pause: _FailedTask | _PacedTask | None, now_us: int) -> bool:
    return pause is not None and now_us < pause.until_us
