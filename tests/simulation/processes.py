"""Leaders and nodes: thin runners around the production coordinator and worker, which crash and err."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ebla.base.ids import NodeId, TaskId, Term
from ebla.build.coordinator import Answered, Coordinator, Event, Limits, TermRefused
from ebla.build.state import State
from ebla.build.worker import Effect, Refuse, Reply, Start, Stop, Worker
from ebla.errors import ConflictError, StaleTermError
from ebla.model import changes as c
from ebla.model.tasks import Replica, Task
from simulation import engine
from simulation.faults import MS, SECOND
from simulation.model import invariant

if TYPE_CHECKING:
    from simulation.world import World

LIMITS = Limits(answer_us=2 * SECOND, backoff_us_max=3 * SECOND, tablets_max=2, tasks_max=4)


class Leader:
    """One process that believes that it leads, perhaps wrongly."""

    def __init__(self, world: World, holder: str, term: Term) -> None:
        self.world = world
        self.coordinator = Coordinator(holder, term, LIMITS)
        self.events: list[Event] = []
        self.busy = False
        self.alive = True
        self.seen: State | None = None
        self.round = 0

    def hear(self, event: Event) -> None:
        if self.alive:
            self.events.append(event)
            self.step()

    def step(self) -> None:
        if self.busy or not self.alive:
            return
        world = self.world
        fresh = world.healed or self.seen is None or world.chance.random() >= world.faults.stale_read
        if fresh or self.seen is None:
            self.seen = world.state()
        events, self.events = self.events, []
        decision = self.coordinator.step(self.seen, events, world.now)
        if decision.resigned:
            self.alive = False
            return
        for call in decision.calls:
            world.call(self, call.replica, call.term, call.ids)
        self.round += 1
        commit = decision.commit()
        if commit is None:
            here = self.round
            world.at(max(decision.wake_us, world.now + 1), lambda: self.step() if self.round == here else None)
        else:
            self.busy = True
            world.after(world.chance.randint(1, 100) * MS, lambda: self.commit(commit))

    def commit(self, decision: c.Decision) -> None:
        self.busy = False
        world = self.world
        try:
            world.catalog.commit(decision.updates, decision.requires)
            newest = (world.catalog.holder, world.catalog.term)
            invariant("INV-BUILD-6", newest == (self.coordinator.holder, self.coordinator.term), "an old leader spoke")
            self.seen = None
        except StaleTermError:
            self.events.append(TermRefused(term=world.catalog.term))
            world.catalog.count("old leaders refused")
        except ConflictError:
            self.seen = None
        self.step()


class Node:
    """A worker and its engine. A crash loses both; what it had begun to commit may still arrive."""

    def __init__(self, world: World, host: NodeId) -> None:
        self.world = world
        self.host = host
        self.up = True
        self.life = 0
        self.worker = Worker(host)
        self.batches: dict[int, dict[TaskId, Task]] = {}
        self.callers: dict[int, tuple[Leader, Replica]] = {}

    def crash(self) -> None:
        self.up = False
        self.life += 1
        self.worker = Worker(self.host)
        self.batches = {}
        self.callers = {}

    def called(self, leader: Leader, replica: Replica, term: Term, ids: tuple[TaskId, ...]) -> None:
        if not self.up:
            return
        number = self.world.number()
        self.callers[number] = (leader, replica)
        self.carry_out(self.worker.called(number, term, replica.shard, ids, self.world.state()))

    def look(self) -> None:
        if self.up:
            self.carry_out(self.worker.observed(self.world.state()))

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(shard=shard, tasks=tasks):
                    invariant("INV-BUILD-8", not self.batches.get(shard), f"{self.host}/{shard} has a batch already")
                    same = {(t.base, t.kind) for t in tasks}
                    invariant("INV-BUILD-8", len(same) == 1, f"{self.host}/{shard} has a mixed batch {same}")
                    self.batches[shard] = {t.id: t for t in tasks}
                    self.work_later(shard)
                case Stop(shard=shard, ids=ids):
                    for task in ids:
                        self.batches[shard].pop(task, None)
                case Reply(call=call, answer=answer):
                    leader, replica = self.callers.pop(call)
                    event = Answered(
                        replica=replica, finished=answer.finished, failed=answer.failed, waits_us=answer.waits_us
                    )
                    self.world.network.send(lambda leader=leader, event=event: leader.hear(event))  # type: ignore[misc]
                case Refuse(call=call, term=newer):
                    leader, _ = self.callers.pop(call)
                    self.world.catalog.count("old terms refused")
                    refused = TermRefused(term=newer)
                    self.world.network.send(lambda leader=leader, event=refused: leader.hear(event))  # type: ignore[misc]

    # ---- the engine -------------------------------------------------------------------------------------

    def work_later(self, shard: int) -> None:
        life, batch = self.life, self.batches[shard]
        self.world.after(self.world.chance.randint(5, 150) * MS, lambda: self.work(shard, life, batch))

    def work(self, shard: int, life: int, batch: dict[TaskId, Task]) -> None:
        """One chunk of one tablet: read now, commit later."""
        if life != self.life or self.batches.get(shard) is not batch or not batch:
            return
        world = self.world
        tablet = world.chance.choice(sorted({t.tablet for t in batch.values()}))
        tasks = [t for t in batch.values() if t.tablet == tablet]
        if not world.healed and world.chance.random() < world.faults.task_fails:
            failed = world.chance.choice(tasks)
            del batch[failed.id]
            self.carry_out(self.worker.failed(shard, {failed.id: "out of luck"}))
        elif not world.healed and world.chance.random() < world.faults.gives_way:
            put_off = {t.id: world.chance.randint(1, 2_000) * MS for t in tasks if t.view is not None}
            for task in put_off:
                del batch[task]
            world.catalog.count("tasks that gave way")
            self.carry_out(self.worker.gave_way(shard, put_off))
        else:
            commit = engine.chunk(world.catalog, tasks, world.chance)
            world.after(world.chance.randint(5, 200) * MS, lambda: self.land(shard, life, batch, tasks, commit))
            return
        if batch:
            self.work_later(shard)

    def land(
        self, shard: int, life: int, batch: dict[TaskId, Task], tasks: list[Task], commit: Callable[[], None]
    ) -> None:
        """The chunk's commit, be the node still there or not."""
        world = self.world
        gone = life != self.life
        if gone and world.chance.random() >= world.faults.late_commit:
            return
        try:
            commit()
        except ConflictError:
            world.catalog.count("chunks refused")
        if gone or self.batches.get(shard) is not batch:
            return
        done = [t.id for t in tasks if t.id in batch and engine.is_done(world.catalog, t)]
        for task in done:
            del batch[task]
        if done:
            self.carry_out(self.worker.finished(shard, done))
        if batch and self.batches.get(shard) is batch:
            self.work_later(shard)
