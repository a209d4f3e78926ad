"""Processes and nodes: the production loop and worker between faults; they crash and err."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ebla.base.ids import NodeId, RelationId, TaskId
from ebla.base.services import Scheduler
from ebla.build.coordinator import Call, CallFailed, Event, Limits, TermRefused, WorkerAnswer
from ebla.build.loop import Loop, Ports
from ebla.build.state import State
from ebla.build.trouble import Failures
from ebla.build.worker import Effect, Refuse, Reply, Start, Stop, Worker
from ebla.catalog.transactions import Lease
from ebla.errors import ConflictError, StaleTermError
from ebla.model import changes as c
from ebla.model.tasks import LEASE, Replica, Task
from simulation import engine
from simulation.faults import MS, SECOND
from simulation.model import invariant

if TYPE_CHECKING:
    from simulation.world import World

LIMITS = Limits(answer_us=2 * SECOND, backoff_us_max=3 * SECOND, tablets_max=2, tasks_max=4)
LEASE_US = 3 * SECOND
STATES_KEPT = 3


class Process:
    """One process that builds: the production loop, which leads now and then, or wrongly believes that it does."""

    def __init__(self, world: World, holder: str) -> None:
        self.world = world
        self.holder = holder
        self.alive = True
        self.busy = False
        self.services = Scheduler(lambda: world.now / SECOND, threads=False)
        self.loop = Loop(
            holder,
            Ports(
                services=self.services,
                leases=Leases(world, holder),
                store=Store(world),
                nodes=Calls(self),
                settlement=NoSettlement(),
                failures=Failures(self.services.notify),
                clock_us=lambda: world.now,
                maintains=lambda: True,
                walk=walk,
                built=built,
            ),
            LIMITS,
        )

    def wake(self) -> None:
        self.services.wake(self.loop.name)
        self.run()

    def run(self) -> None:
        """Every step that is due. What comes in the middle of one is looked at in the next."""
        if self.busy or not self.alive:
            return
        self.busy = True
        self.services.run_due()
        self.busy = False
        if self.services.next_s < math.inf:
            self.world.at(max(math.ceil(self.services.next_s * SECOND), self.world.now + 1), self.run)


class Leases:
    """Leases in the simulated catalog. A process asks again when a third of its lease is over."""

    def __init__(self, world: World, holder: str) -> None:
        self.world = world
        self.holder = holder
        self.mine: Lease | None = None

    def held(self, name: str) -> Lease | None:
        return self.mine

    def take(self, name: str) -> Lease | None:
        world, catalog = self.world, self.world.catalog
        if self.mine is not None and self.mine.expires_at - world.now > LEASE_US * 2 // 3:
            return self.mine
        free = world.now >= world.leased_until
        if not free and catalog.holder != self.holder:
            self.mine = None
            return None
        if free:
            catalog.lead(self.holder)
        world.leased_until = world.now + LEASE_US
        self.mine = Lease(name=LEASE, holder=self.holder, term=catalog.term, expires_at=world.leased_until)
        return self.mine

    def lost(self, name: str) -> None:
        self.mine = None

    def give_back(self, name: str) -> None:
        catalog = self.world.catalog
        if self.mine is not None and (self.mine.holder, self.mine.term) == (catalog.holder, catalog.term):
            self.world.leased_until = 0
        self.mine = None


class Store:
    """The simulated catalog, read late now and then, and slow to commit."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: deque[State] = deque(maxlen=STATES_KEPT)

    def load(self) -> State:
        world = self.world
        if not world.healed and self.seen and world.chance.random() < world.faults.stale_read:
            return world.chance.choice(self.seen)
        self.seen.append(world.state())
        return self.seen[-1]

    def commit(self, decision: c.Decision) -> None:
        world = self.world
        # One seed in five has commits that take seconds: more races are lost, and fewer begin.
        slow = world.seed % 5 == 1 and not world.healed and world.chance.random() < world.faults.slow
        world.go_on(world.chance.randint(1, 2_000 if slow else 100) * MS)
        try:
            world.catalog.commit(decision.updates, decision.requires)
        except StaleTermError:
            world.catalog.count("old leaders refused")
            raise
        finally:
            self.seen.clear()
        named = [(one.holder, one.term) for one in decision.requires if isinstance(one, c.TermIs)]
        newest = (world.catalog.holder, world.catalog.term)
        invariant("INV-BUILD-6", named == [newest], "an old leader spoke")

    def forgive(self, state: State) -> bool:
        return False


class Caller(Protocol):
    """A process that calls nodes."""

    alive: bool

    @property
    def world(self) -> World: ...

    def run(self) -> None: ...


class Calls:
    """Calls to nodes over the simulated network."""

    def __init__(self, process: Caller) -> None:
        self.process = process
        self.world = process.world

    def send(self, call: Call, answered: Callable[[Event], None]) -> None:
        world, node = self.world, self.world.nodes[call.replica.host]

        def hear(event: Event) -> None:
            if self.process.alive:
                answered(event)
                self.process.run()

        if not self.process.alive:
            return
        if not world.healed and world.chance.random() < world.faults.call_fails:
            world.after(50 * MS, lambda: hear(CallFailed(replica=call.replica, error="no route")))
        if not node.up:
            world.after(50 * MS, lambda: hear(CallFailed(replica=call.replica, error="refused")))
            return
        world.network.send(lambda: node.called(hear, call))

    def observed(self, state: State) -> None:
        """Nodes look by themselves."""

    def let_go(self) -> None:
        """Nodes are other processes: they go on for the next leader."""

    def close(self) -> None: ...


class NoSettlement:
    """Epochs of this world bring views to one version."""

    def begin_round(self) -> None: ...

    def look(self, state: State, now_us: int) -> None: ...

    def forget(self) -> None: ...


@dataclass(frozen=True)
class Walked:
    moved: bool = False
    wait_us: int | None = None


def walk(requires: Sequence[c.Requirement]) -> Walked:
    """The world takes indexes from state to state."""
    return Walked()


def built(relations: Collection[RelationId]) -> None: ...


class Node:
    """A worker and its engine. A crash loses both; what it had begun to commit may still arrive."""

    def __init__(self, world: World, host: NodeId) -> None:
        self.world = world
        self.host = host
        self.up = True
        self.life = 0
        self.worker = Worker(host)
        self.batches: dict[int, dict[TaskId, Task]] = {}
        self.callers: dict[int, tuple[Callable[[Event], None], Replica]] = {}

    def crash(self) -> None:
        self.up = False
        self.life += 1
        self.worker = Worker(self.host)
        self.batches = {}
        self.callers = {}

    def called(self, hear: Callable[[Event], None], call: Call) -> None:
        if not self.up:
            return
        number = self.world.number()
        self.callers[number] = (hear, call.replica)
        self.carry_out(self.worker.called(number, call.term, call.replica.shard, call.ids, self.world.state()))

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
                    hear, replica = self.callers.pop(call)
                    event = WorkerAnswer(
                        replica=replica, finished=answer.finished, failed=answer.failed, waits_us=answer.waits_us
                    )
                    self.world.network.send(partial(hear, event))
                case Refuse(call=call, term=newer):
                    hear, _ = self.callers.pop(call)
                    self.world.catalog.count("old terms refused")
                    self.world.network.send(partial(hear, TermRefused(term=newer)))

    # ---- the engine -------------------------------------------------------------------------------------

    def work_later(self, shard: int) -> None:
        life, batch = self.life, self.batches[shard]
        self.world.after(self.world.chance.randint(5, 150) * MS, lambda: self.work(shard, life, batch))

    def work(self, shard: int, life: int, batch: dict[TaskId, Task]) -> None:
        """One chunk of one tablet: read now, commit later."""
        if life != self.life or self.batches.get(shard) is not batch or not batch:
            return
        world = self.world
        tokens = world.chance.choice(sorted({t.tokens for t in batch.values()}))
        tasks = [t for t in batch.values() if t.tokens == tokens]
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
