"""Which tasks are worked on now: the build coordinator.

Theory of operation. One leader runs this loop: read the state from the catalog, `step`, commit the updates under its
term, send the calls; on any event, or when `wake_us` comes, start over. Everything that must survive is in the catalog.
What the coordinator remembers (calls in flight, ids that workers called finished, when to try again) may be lost at any
moment; the next leader asks the workers anew. Events only say that something may have happened: every step looks at the
state, and an event about a task that is no longer there does nothing.

One base at a time, so that one scan serves all its views and indexes. The turn goes to the base of the oldest task that
can be done: not aborted, not paused, on a node that can be reached, waiting neither after an error nor by the rate of
its build. So one base at a time is worked on, and none holds up the others by waiting; a base that waits by rate keeps
its turn as long as no other can be done. A base that gets new views for ever does not keep others waiting, because its
new tasks are younger than theirs; a base whose nodes are all down is passed over, and returns to its turn when they
come back. Before the turn changes, what is in flight for the old base ends.

For each replica `(host, shard)` of the base one batch is in flight: all open tasks of one kind in up to `tablets_max`
tablets. Of a view with a `concurrency` no more tablets than that are in all batches together; where it is lowered, the
oldest stay. The worker answers as soon as some are finished; the coordinator asks again for the rest, until nothing is
left of the batch, then sends the next. A call without an answer is repeated, which is safe. Finished ids are
gathered, and removed in one commit 200 ms after the first; until the state shows that they are gone they stay
remembered.

Errors: a call that fails makes its replica wait, a task that fails waits itself (`ebla.build.pauses`). A worker that
has seen a newer term ends this reign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from ebla.base.backoff import Backoff
from ebla.base.ids import RelationId, TaskId, Term
from ebla.build.pauses import Pauses
from ebla.build.state import ByTablet, Room, State
from ebla.model import changes as c
from ebla.model.lifecycle.index import Permission
from ebla.model.lifecycle.task import LIFE, TaskState
from ebla.model.tasks import LEASE, Replica

MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    gather_us: int = 200 * MS
    """How long finished ids are gathered before they are removed in one commit."""
    answer_us: int = 10_000 * MS
    """A call that is not answered for this long is repeated."""
    backoff_us: int = 200 * MS
    backoff_us_max: int = 30_000 * MS
    poll_us: int = 1_000 * MS
    """The state is looked at this often even if no event comes."""
    tablets_max: int = 16
    """Tablets in one batch."""
    tasks_max: int = 1_024
    """Tasks in one batch; the first tablet is never cut, so that its views share the scan."""


# ---- events ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAnswer:
    """A worker's answer: which of the tasks that it was asked for are finished, and which failed, with the reason."""

    replica: Replica
    finished: frozenset[TaskId]
    failed: Mapping[TaskId, str] = field(default_factory=dict)
    waits_us: Mapping[TaskId, int] = field(default_factory=dict)
    """Tasks that gave way: they may not go on for this long, by the rate of their builds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed:
    """The call did not reach the worker, or the worker could not answer."""

    replica: Replica
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRefused:
    """A worker, or the catalog, has seen a newer leader."""

    term: Term


Event = WorkerAnswer | CallFailed | TermRefused


# ---- decisions ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`work_on_view_building_tasks(term, shard, ids)` on a host."""

    replica: Replica
    term: Term
    ids: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorStep:
    """What follows from a step. The updates are one commit; the calls may be sent whether it succeeds or not."""

    reason: str = ""
    requires: tuple[c.Requirement, ...] = ()
    updates: tuple[c.Update, ...] = ()
    exclusive: bool = False
    """Whether the updates change what writers have to know: an index can be read."""
    work: c.WorkKind | None = None
    calls: tuple[Call, ...] = ()
    resigned: bool = False
    """Another leader rules: this one must not be asked again."""
    wake_us: int = 0
    """When to step again even if nothing happens."""

    def commit(self) -> c.Decision | None:
        """What to commit, if anything."""
        if not self.updates:
            return None
        return c.Decision(
            reason=self.reason,
            requires=self.requires,
            updates=self.updates,
            exclusive=self.exclusive,
            work=self.work,
        )


@dataclass(slots=True)
class _Flight:
    """A batch that a worker was asked for."""

    base: RelationId
    ids: dict[TaskId, None]
    asked_us: int | None
    """When the worker was last called; `None`: it must be called again now."""


class Coordinator:
    """One leader's reign. All that it knows besides the state may be lost without harm."""

    def __init__(self, holder: str, term: Term, limits: Limits | None = None) -> None:
        self.holder = holder
        self.term = term
        self.limits = limits or Limits()
        self.resigned = False
        self._flights: dict[Replica, _Flight] = {}
        self._finished: dict[TaskId, None] = {}
        self._gathering_us: int | None = None
        self._pauses = Pauses(Backoff(self.limits.backoff_us, self.limits.backoff_us_max))

    def step(self, state: State, events: Iterable[Event], now_us: int) -> CoordinatorStep:
        for event in events:
            self._take_in(event, state, now_us)
        if self.resigned:
            return CoordinatorStep(resigned=True)
        self._forget_what_is_gone(state)
        updates: list[c.Update] = []
        reasons: list[str] = []
        if finished := self._to_remove(now_us):
            updates.append(c.FinishTasks(tasks=finished))
            reasons.append(f"{len(finished)} building tasks finished")
        requires: list[c.Requirement] = [c.TermIs(lease=LEASE, holder=self.holder, term=self.term)]
        readable = state.readable()
        for view in readable:
            if view in state.walking:
                updates.append(c.SetIndexState(index=view, state=Permission.READ_WRITE_AND_DELETE))
            updates.append(c.MarkBuilt(view=view))
            requires.append(c.NothingLeftToBuild(view=view))
            # An epoch that began before the last chunk came would move the view on and leave that chunk behind.
            if view in state.unmoved:
                requires.append(state.unmoved[view])
            reasons.append(f"{state.called(view)} is built")
        base = self._turn(state, now_us)
        if base != state.processing:
            updates.append(c.SetProcessingBase(base=base))
            reasons.append("nothing is read for builds" if base is None else f"{state.called(base)} is read for builds")
        # Calls wait until the catalog says whose turn it is, so that every node sees the same base.
        calls = self._calls(state, base, now_us) if base is not None and base == state.processing else ()
        return CoordinatorStep(
            reason="; ".join(reasons),
            requires=tuple(requires) if updates else (),
            updates=tuple(updates),
            exclusive=any(view in state.walking for view in readable),
            work=c.WorkKind.BUILD if readable else None,
            calls=calls,
            wake_us=self._wake_us(state, now_us),
        )

    # ---- events -----------------------------------------------------------------------------------------

    def _take_in(self, event: Event, state: State, now_us: int) -> None:
        match event:
            case WorkerAnswer():
                self._answered(event, state, now_us)
            case CallFailed(replica=replica):
                self._flights.pop(replica, None)
                self._pauses.call_failed(replica, now_us)
            case TermRefused(term=term):
                self.resigned = self.resigned or term > self.term
            case _:
                assert_never(event)

    def _answered(self, answer: WorkerAnswer, state: State, now_us: int) -> None:
        self._pauses.answered(answer.replica)
        flight = self._flights.get(answer.replica)
        # An answer that comes late or twice is as true as the first: a finished task stays finished.
        for task_id in answer.finished:
            if LIFE.allows(self._state_of(state, task_id), TaskState.FINISHED):
                self._finished[task_id] = None
                if self._gathering_us is None:
                    self._gathering_us = now_us
            self._pauses.finished(task_id)
        for task_id in answer.failed:
            if flight is not None and task_id in flight.ids:  # not counted twice
                self._pauses.task_failed(task_id, now_us)
        if flight is None:
            return
        for task_id, wait_us in answer.waits_us.items():
            if task_id in flight.ids and state.is_open(task_id):
                self._pauses.gave_way(task_id, now_us + wait_us, state.rate_of(state.tasks[task_id]))
        settled = [t for t in flight.ids if t in answer.finished or t in answer.failed or t in answer.waits_us]
        for task_id in settled:
            del flight.ids[task_id]
        if settled:
            flight.asked_us = None
        elif not answer.finished and not answer.failed and not answer.waits_us:
            # Nothing of it runs: the worker is busy with other tasks, or sees an abort that this state does not show.
            del self._flights[answer.replica]
            self._pauses.was_busy(answer.replica, now_us)

    def _forget_what_is_gone(self, state: State) -> None:
        """The state rules: tasks that it does not have, or that were aborted, are forgotten."""
        for task_id in [t for t in self._finished if not state.is_open(t)]:
            del self._finished[task_id]
        if not self._finished:
            self._gathering_us = None
        self._pauses.forget_what_is_gone(state)
        for replica, flight in list(self._flights.items()):
            for task_id in [t for t in flight.ids if not state.is_open(t) or state.is_paused(state.tasks[t])]:
                del flight.ids[task_id]
            if not flight.ids or replica.host not in state.alive:
                del self._flights[replica]
        self._let_go_of_too_many(state)

    def _let_go_of_too_many(self, state: State) -> None:
        """A concurrency that was lowered holds at once: the oldest stay, and workers stop the others by themselves."""
        room = Room(state.builds)
        if not room:
            return
        for replica, flight in list(self._flights.items()):
            for task_id in [t for t in flight.ids if not room.take(state.tasks[t])]:
                del flight.ids[task_id]
            if not flight.ids:
                del self._flights[replica]

    def _to_remove(self, now_us: int) -> frozenset[TaskId]:
        if self._gathering_us is None or now_us < self._gathering_us + self.limits.gather_us:
            return frozenset()
        # They stay remembered until the state shows that they are gone: the commit may be lost.
        self._gathering_us = now_us
        return frozenset(self._finished)

    def _state_of(self, state: State, task_id: TaskId) -> TaskState:
        """What the catalog knows of a task, and what workers have answered."""
        stored = state.state_of(task_id)
        if stored is not TaskState.CREATED:
            return stored
        if task_id in self._finished:
            return TaskState.FINISHED
        flight = self._flights.get(state.tasks[task_id].replica)
        return TaskState.WORKING if flight is not None and task_id in flight.ids else stored

    # ---- whose turn it is -------------------------------------------------------------------------------

    def _turn(self, state: State, now_us: int) -> RelationId | None:
        if any(flight.base == state.processing for flight in self._flights.values()):
            return state.processing
        oldest = self._oldest(state, now_us)
        if oldest is None and state.processing is not None and self._pauses.has_paced(state, state.processing):
            return state.processing  # it will go on soon, and nothing else is to be done meanwhile
        return oldest

    def _oldest(self, state: State, now_us: int) -> RelationId | None:
        """The base of the oldest task that can be done, or that is done and not yet removed."""
        best: tuple[int, RelationId] | None = None
        for base in state.bases:
            created = self._oldest_of(state, base, now_us)
            if created is not None and (best is None or (created, base) < best):
                best = (created, base)
        return None if best is None else best[1]

    def _oldest_of(self, state: State, base: RelationId, now_us: int) -> int | None:
        found: int | None = None
        for replica, by_tablet in state.replicas(base):
            if self._pauses.holds(replica, now_us):
                continue
            tasks = (task for group in by_tablet.values() for task in group.values())
            first = next((task for task in tasks if self._pauses.may_work(state, task, now_us)), None)
            if first is not None and (found is None or first.created < found):
                found = first.created
        return found

    # ---- calls ------------------------------------------------------------------------------------------

    def _calls(self, state: State, base: RelationId, now_us: int) -> tuple[Call, ...]:
        calls = []
        more = self._oldest(state, now_us) in (base, None)  # else it is drained, and the turn changes
        room = Room(state.builds)
        if room:
            for flown in self._flights.values():
                for task_id in flown.ids:
                    room.take(state.tasks[task_id])
        for replica, by_tablet in state.replicas(base):
            flight = self._flights.get(replica)
            if flight is None:
                if not more or self._pauses.holds(replica, now_us):
                    continue
                ids = self._batch(state, by_tablet, now_us, room)
                if not ids:
                    continue
                flight = self._flights[replica] = _Flight(base=base, ids=ids, asked_us=None)
                self._pauses.called(ids)
            if flight.asked_us is None or now_us >= flight.asked_us + self.limits.answer_us:
                flight.asked_us = now_us
                calls.append(Call(replica=replica, term=self.term, ids=tuple(flight.ids)))
        return tuple(calls)

    def _batch(self, state: State, by_tablet: ByTablet, now_us: int, room: Room) -> dict[TaskId, None]:
        """The tasks of one kind in the next tablets of a replica, oldest first, as far as their views have room."""
        ids: dict[TaskId, None] = {}
        tablets = 0
        kind = None
        for (_, kind_here), group in by_tablet.items():
            if kind is not None and kind_here is not kind:
                continue
            idle = [t for t in group if LIFE.allows(self._state_of(state, t), TaskState.WORKING)]
            due = [t for t in idle if self._pauses.may_work(state, group[t], now_us)]
            if room:
                due = [t for t in due if room.has(group[t])]
            if not due:
                continue
            if kind is not None and len(ids) + len(due) > self.limits.tasks_max:
                break
            for task_id in due:
                room.take(group[task_id])
            kind = kind_here
            ids.update(dict.fromkeys(due))
            tablets += 1
            if tablets == self.limits.tablets_max:
                break
        return ids

    # ---- when to look again -----------------------------------------------------------------------------

    def _wake_us(self, state: State, now_us: int) -> int:
        """The next thing that will be due, and now and then in any case, because an event may be lost.

        What is due already and was not done now is waiting for the state to change; looking at once would not help.
        """
        times = [*self._pauses.ends_us()]
        times += [f.asked_us + self.limits.answer_us for f in self._flights.values() if f.asked_us is not None]
        times += state.retry_us.values()
        if self._gathering_us is not None:
            times.append(self._gathering_us + self.limits.gather_us)
        poll_us = now_us + self.limits.poll_us
        return min((t for t in times if now_us < t < poll_us), default=poll_us)
