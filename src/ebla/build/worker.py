"""What a node does when it is asked to work on tasks.

Theory of operation. The worker of a node has one batch at a time on each shard. It is asked with
`work_on_view_building_tasks(term, shard, ids)`, any number of times:

- A call with an older term than the newest one seen is refused.
- On an idle shard, the open tasks among the ids become the batch and the engine is started.
- On a busy shard the call is attached: it waits for the batch that runs, whichever call asked for it.
- It is answered as soon as some of its ids are finished, have failed or gave way, or when none of them runs any more.

Finished ids are remembered until the catalog no longer has the task; so a leader whose predecessor lost the answer
gets it at once. A restart forgets them, and then the engine finds the position at the end and finishes at once too. A
failure is reported once: asking again is how the task is tried again. So is a wait: a task that may not go on yet, by
the rate of its build, leaves the batch and says for how long, so that the shard is free for others.

The worker looks at the catalog itself. A task that was aborted, that is gone or paused, or that is one too many on this
node for its view's `concurrency`, is stopped, whatever any leader says. Stopping is only fast; what makes it safe is
that the engine's commits require that their tasks are open.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ebla.base.ids import NodeId, TaskId, Term
from ebla.build.state import Room, State
from ebla.model.tasks import Replica, Task

CallId = int
"""Which of the calls that wait is answered; given by the node that receives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    finished: frozenset[TaskId]
    failed: Mapping[TaskId, str] = field(default_factory=dict)
    waits_us: Mapping[TaskId, int] = field(default_factory=dict)
    """Tasks that may not go on for this long, by the rate of their builds."""


# ---- effects --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Let the engine work on a batch: tasks of one base and one kind."""

    shard: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Let the engine leave these tasks of the batch alone; their next commit would be refused."""

    shard: int
    ids: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    call: CallId
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """The caller's term is older than this one."""

    call: CallId
    term: Term


Effect = Start | Stop | Reply | Refuse


@dataclass(slots=True)
class _Shard:
    batch: dict[TaskId, Task] = field(default_factory=dict)
    finished: dict[TaskId, None] = field(default_factory=dict)
    failed: dict[TaskId, str] = field(default_factory=dict)
    waits_us: dict[TaskId, int] = field(default_factory=dict)
    waiting: dict[CallId, frozenset[TaskId]] = field(default_factory=dict)


class Worker:
    """One node's worker since the node started."""

    def __init__(self, host: NodeId) -> None:
        self.host = host
        self.term = Term(0)
        self._shards: dict[int, _Shard] = {}

    def running(self, shard: int) -> tuple[TaskId, ...]:
        return tuple(self._shards[shard].batch) if shard in self._shards else ()

    def called(self, call: CallId, term: Term, shard: int, ids: Collection[TaskId], state: State) -> list[Effect]:
        """A leader asks. `state` was read after the call came, so it has every task that the leader knows of."""
        if term < self.term:
            return [Refuse(call=call, term=self.term)]
        self.term = term
        effects = self.observed(state)
        here = self._shards.setdefault(shard, _Shard())
        for task_id in ids:
            here.failed.pop(task_id, None)
            here.waits_us.pop(task_id, None)
        if not here.batch:
            tasks = self._batch(here, shard, ids, state)
            here.batch = {task.id: task for task in tasks}
            if tasks:
                effects.append(Start(shard=shard, tasks=tasks))
        here.waiting[call] = frozenset(ids)
        return effects + self._replies(here)

    def _batch(self, here: _Shard, shard: int, ids: Collection[TaskId], state: State) -> tuple[Task, ...]:
        """What is to be done among the ids: on this shard, and of one base and kind, so that one scan serves all."""
        replica = Replica(self.host, shard)
        tasks = [state.tasks[i] for i in ids if i not in here.finished and self._may(i, state)]
        tasks = [task for task in tasks if task.replica == replica]
        return tuple(t for t in tasks if (t.base, t.kind) == (tasks[0].base, tasks[0].kind))

    @staticmethod
    def _may(task_id: TaskId, state: State) -> bool:
        return state.is_open(task_id) and not state.is_paused(state.tasks[task_id])

    def finished(self, shard: int, ids: Collection[TaskId]) -> list[Effect]:
        """The engine has done some tasks of the batch. What it says about tasks that were stopped is too late."""
        here = self._shards.setdefault(shard, _Shard())
        for task_id in ids:
            if here.batch.pop(task_id, None) is not None:
                here.finished[task_id] = None
        return self._replies(here)

    def failed(self, shard: int, errors: Mapping[TaskId, str]) -> list[Effect]:
        """The engine gave up on some tasks; the others of the batch go on."""
        here = self._shards.setdefault(shard, _Shard())
        for task_id, error in errors.items():
            if here.batch.pop(task_id, None) is not None:
                here.failed[task_id] = error
        return self._replies(here)

    def gave_way(self, shard: int, waits_us: Mapping[TaskId, int]) -> list[Effect]:
        """The engine put some tasks of the batch off: their builds have a rate."""
        here = self._shards.setdefault(shard, _Shard())
        for task_id, wait_us in waits_us.items():
            if here.batch.pop(task_id, None) is not None:
                here.waits_us[task_id] = wait_us
        return self._replies(here)

    def let_go(self) -> list[Effect]:
        """Stop all batches: another process leads, and does what is left."""
        effects: list[Effect] = []
        for shard, here in self._shards.items():
            if here.batch:
                effects.append(Stop(shard=shard, ids=tuple(here.batch)))
            here.batch.clear()
            effects += self._replies(here)
        return effects

    def observed(self, state: State) -> list[Effect]:
        """The catalog may have changed: stop what must not go on, forget what no call will ask for again."""
        effects: list[Effect] = []
        room = Room(state.builds)
        for shard, here in self._shards.items():
            stopped = tuple(t for t in here.batch if not (self._may(t, state) and room.take(state.tasks[t])))
            for task_id in stopped:
                del here.batch[task_id]
            if stopped:
                effects.append(Stop(shard=shard, ids=stopped))
            for memory in (here.finished, here.failed, here.waits_us):
                for task_id in [t for t in memory if t not in state.tasks]:
                    del memory[task_id]
            effects += self._replies(here)
        return effects

    @staticmethod
    def _replies(here: _Shard) -> list[Effect]:
        replies: list[Effect] = []
        for call, ids in list(here.waiting.items()):
            finished = frozenset(t for t in ids if t in here.finished)
            failed = {t: here.failed[t] for t in ids if t in here.failed}
            waits_us = {t: here.waits_us[t] for t in ids if t in here.waits_us}
            if finished or failed or waits_us or not here.batch:
                del here.waiting[call]
                answer = Answer(finished=finished, failed=failed, waits_us=waits_us)
                replies.append(Reply(call=call, answer=answer))
        return replies
