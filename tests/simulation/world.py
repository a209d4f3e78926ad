"""A seeded world in which views are built while everything fails: first for safety, then healed, for convergence.

The coordinators and workers are the production code. Time, network, catalog and engine are simulated, so a seed gives
the same run every time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass

from ebla.build import moves, segments
from ebla.build.coordinator import Answered, CallFailed, Coordinator, Event, Limits, TermRefused
from ebla.build.model import Build, Replica, Task, TaskKind
from ebla.build.segments import Segment
from ebla.build.state import State
from ebla.build.states import Permission, backfill_level, forward
from ebla.build.worker import Effect, Refuse, Reply, Start, Stop, Worker
from ebla.catalog import changes as c
from ebla.errors import ConflictError, StaleTermError
from ebla.ids import NodeId, RelationId, TabletId, TaskId, Term, Version
from simulation.model import WORDS, Base, Catalog, Index, Row, View, invariant, text

MS = 1_000
SECOND = 1_000 * MS
FAULTS_US = 12 * SECOND
HEALED_US = 60 * SECOND
KEYS = 12
SHARDS = 2

LIMITS = Limits(answer_us=2 * SECOND, backoff_us_max=3 * SECOND, tablets_max=2, tasks_max=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often things go wrong, each a probability, or a mean time between two events."""

    lose: float
    repeat: float
    slow: float
    call_fails: float
    task_fails: float
    stale_read: float
    late_commit: float
    leader_us: int
    crash_us: int
    move_us: int
    view_us: int
    write_us: int
    pause_us: int

    @classmethod
    def of(cls, chance: random.Random) -> Faults:
        def rate(most: float) -> float:
            return chance.choice([0.0, most / 4, most])

        def every(least_s: float) -> int:
            return int(least_s * SECOND * chance.choice([1, 2, 4]))

        return cls(
            lose=rate(0.3),
            repeat=rate(0.3),
            slow=rate(0.3),
            call_fails=rate(0.2),
            task_fails=rate(0.1),
            stale_read=rate(0.5),
            late_commit=rate(0.5),
            leader_us=every(1.5),
            crash_us=every(1.5),
            move_us=every(1.0),
            view_us=every(1.0),
            write_us=every(0.08),
            pause_us=every(4.0),
        )


class Network:
    """Messages are lost, repeated, late and out of order."""

    def __init__(self, world: World) -> None:
        self.world = world

    def send(self, deliver: Callable[[], None]) -> None:
        world, faults = self.world, self.world.faults
        if world.healed:
            world.after(world.chance.randint(1, 5) * MS, deliver)
            return
        for _ in range(2 if world.chance.random() < faults.repeat else 1):
            if world.chance.random() >= faults.lose:
                slow = world.chance.random() < faults.slow
                world.after(world.chance.randint(1, 4_000 if slow else 50) * MS, deliver)


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
                    event = Answered(replica=replica, finished=answer.finished, failed=answer.failed)
                    self.world.network.send(lambda leader=leader, event=event: leader.hear(event))  # type: ignore[misc]
                case Refuse(call=call, term=newer):
                    leader, _ = self.callers.pop(call)
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
        else:
            commit = world.chunk(tasks)
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
            pass
        if gone or self.batches.get(shard) is not batch:
            return
        done = [t.id for t in tasks if t.id in batch and world.is_done(t)]
        for task in done:
            del batch[task]
        if done:
            self.carry_out(self.worker.finished(shard, done))
        if batch and self.batches.get(shard) is batch:
            self.work_later(shard)


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.faults = Faults.of(self.chance)
        self.now = 0
        self.healed = False
        self.catalog = Catalog()
        self.network = Network(self)
        self.nodes = {NodeId(n): Node(self, NodeId(n)) for n in ("a", "b", "c")[: self.chance.choice([1, 2, 3])]}
        self.leaders: list[Leader] = []
        self.transactions: dict[int, None] = {}
        self.relations = 0
        self._numbers = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._known: tuple[int, frozenset[NodeId], State] | None = None
        self.steps = 0

    # ---- time -------------------------------------------------------------------------------------------

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (time_us, self.number(), action))

    def after(self, us: int, action: Callable[[], None]) -> None:
        self.at(self.now + us, action)

    def every(self, mean_us: int, action: Callable[[], None], *, also_healed: bool = False) -> None:
        def again() -> None:
            if self.healed and not also_healed:
                return
            action()
            self.after(self.chance.randint(1, 2 * mean_us), again)

        self.after(self.chance.randint(1, 2 * mean_us), again)

    def run_until(self, time_us: int, done: Callable[[], bool] = lambda: False) -> None:
        while self._queue and self._queue[0][0] <= time_us and not done():
            self.now, _, action = heapq.heappop(self._queue)
            before = self.catalog.changed
            action()
            self.steps += 1
            if self.catalog.changed != before:
                self.catalog.check()

    # ---- the run ----------------------------------------------------------------------------------------

    def run(self) -> None:
        faults = self.faults
        for number in range(self.chance.choice([1, 1, 2])):
            self.create_base(tablets=self.chance.choice([1, 2, 4]), rows=self.chance.choice([0, 3, KEYS]))
            if number == 0 or self.chance.random() < 0.5:
                self.create_view()
        for word in range(WORDS):
            self.catalog.words.write(word, word, self.catalog.version)
        self.elect()
        self.every(faults.write_us, self.begin_write)
        self.every(faults.write_us * 8, self.change_word)
        self.every(faults.leader_us, self.elect)
        self.every(faults.leader_us, self.crash_leader)
        self.every(faults.crash_us, self.crash_node)
        self.every(faults.move_us, self.begin_move)
        self.every(faults.view_us, self.create_view)
        self.every(faults.view_us * 2, self.create_index)
        self.every(faults.view_us * 3, self.drop_view)
        self.every(faults.view_us * 2, self.stage)
        self.every(faults.pause_us, self.alter_rate)
        self.every(300 * MS, self.begin_epochs, also_healed=True)
        self.every(200 * MS, self.step_indexes, also_healed=True)
        for node in self.nodes.values():
            self.every(400 * MS, node.look, also_healed=True)
        self.run_until(FAULTS_US)
        self.heal()
        self.run_until(self.now + HEALED_US, self.is_settled)
        invariant("INV-BUILD-9", self.is_settled(), self.what_is_left())
        self.catalog.check(everything=True)

    def heal(self) -> None:
        self.healed = True
        for node in self.nodes.values():
            node.up = True
        for view in self.catalog.builds:
            self.catalog.commit((c.AlterBuild(view=view, rows_per_minute=None, chunk_rows=None),))
        if not any(leader.alive and leader.coordinator.term == self.catalog.term for leader in self.leaders):
            self.elect()

    def is_settled(self) -> bool:
        catalog = self.catalog
        quiet = not catalog.tasks and not catalog.builds and not any(b.moving for b in catalog.bases.values())
        views = all(v.id in catalog.built and self.is_current(v) for v in catalog.views.values())
        return quiet and views and not self.transactions and catalog.processing is None

    def is_current(self, view: View) -> bool:
        newest = self.catalog.version
        keys = list(view.base.rows.keys())
        expected = {k: row for k in keys if (row := self.catalog.row(view, k, newest)) is not None}
        return view.rows == expected

    def what_is_left(self) -> str:
        catalog = self.catalog
        return f"tasks {list(catalog.tasks.values())}, builds {list(catalog.builds)}, base {catalog.processing}"

    def state(self) -> State:
        alive = frozenset(host for host, node in self.nodes.items() if node.up)
        if self._known is None or self._known[:2] != (self.catalog.changed, alive):
            self._known = (self.catalog.changed, alive, self.catalog.state(alive))
        return self._known[2]

    # ---- leaders and nodes ------------------------------------------------------------------------------

    def elect(self) -> None:
        """Somebody takes the lease. Whoever had it does not know yet."""
        self.catalog.term = Term(self.catalog.term + 1)
        self.catalog.holder = self.chance.choice(["x", "y"])
        leader = Leader(self, self.catalog.holder, self.catalog.term)
        self.leaders = [*[one for one in self.leaders if one.alive][-3:], leader]
        leader.step()

    def crash_leader(self) -> None:
        self.chance.choice(self.leaders).alive = False

    def crash_node(self) -> None:
        node = self.nodes[self.chance.choice(sorted(self.nodes))]
        if node.up:
            node.crash()
            self.after(self.chance.randint(1, 3_000) * MS, lambda: setattr(node, "up", True))

    def call(self, leader: Leader, replica: Replica, term: Term, ids: tuple[TaskId, ...]) -> None:
        node = self.nodes[replica.host]
        if not self.healed and self.chance.random() < self.faults.call_fails:
            self.after(50 * MS, lambda: leader.hear(CallFailed(replica=replica, error="no route")))
        if not node.up:
            self.after(50 * MS, lambda: leader.hear(CallFailed(replica=replica, error="refused")))
            return
        self.network.send(lambda: node.called(leader, replica, term, ids))

    # ---- what users do ----------------------------------------------------------------------------------

    def begin_write(self) -> None:
        """A transaction knows the indexes as they were when it began."""
        base = self.chance.choice(list(self.catalog.bases.values()))
        key = self.chance.randrange(KEYS)
        value = None if self.chance.random() < 0.3 else self.chance.randrange(30)
        known = {index.id: index.state for index in self.catalog.indexes.values()}
        number = self.number()
        self.transactions[number] = None

        def commit() -> None:
            if number in self.transactions:
                del self.transactions[number]
                self.catalog.write(base, key, value, known)

        self.after(self.chance.randint(1, 300) * MS, commit)

    def change_word(self) -> None:
        version = self.catalog.commit(())
        word = self.chance.choice([None, self.chance.randrange(100), self.chance.randrange(100)])
        self.catalog.words.write(self.chance.randrange(WORDS), word, version)

    def new_task(self) -> TaskId:
        return TaskId(f"t{self.number():06d}")

    def create_base(self, *, tablets: int, rows: int) -> None:
        self.relations += 1
        hosts = sorted(self.nodes)
        place = {TabletId(t): Replica(self.chance.choice(hosts), self.chance.randrange(SHARDS)) for t in range(tablets)}
        base = Base(id=RelationId(self.relations), tablets=tablets, placement=place)
        for key in range(rows):
            base.rows.write(key, self.chance.randrange(30), self.catalog.version)
        self.catalog.bases[base.id] = base

    def _begin_build(self, relation: RelationId, base: Base) -> None:
        tasks = tuple(
            Task(
                id=self.new_task(),
                kind=TaskKind.BUILD_RANGE,
                base=base.id,
                view=relation,
                tablet=tablet,
                replica=replica,
            )
            for tablet, replica in base.placement.items()
        )
        self.catalog.commit((c.CreateBuild(build=Build(view=relation, base=base.id), tasks=tasks),))

    def create_view(self) -> None:
        if len(self.catalog.views) >= 3:
            return
        self.relations += 1
        base = self.chance.choice(list(self.catalog.bases.values()))
        view = View(id=RelationId(self.relations), base=base, hidden=self.chance.choice([2, 3, 31]))
        self.catalog.views[view.id] = view
        self._begin_build(view.id, base)

    def create_index(self) -> None:
        if len(self.catalog.indexes) >= 2:
            return
        self.relations += 1
        base = self.chance.choice(list(self.catalog.bases.values()))
        index = Index(id=RelationId(self.relations), base=base, stepped=self.number())
        self.catalog.indexes[index.id] = index
        self._begin_build(index.id, base)

    def drop_view(self) -> None:
        relations = sorted([*self.catalog.views, *self.catalog.indexes])
        if relations:
            self.catalog.commit((c.DropRelation(relation=self.chance.choice(relations)),))

    def alter_rate(self) -> None:
        if self.catalog.builds:
            view = self.chance.choice(sorted(self.catalog.builds))
            rate = self.chance.choice([0, None])
            self.catalog.commit((c.AlterBuild(view=view, rows_per_minute=rate, chunk_rows=None),))

    def stage(self) -> None:
        """A run arrives outside a write: invisible until its task has made it visible, with the entries of indexes."""
        base = self.chance.choice(list(self.catalog.bases.values()))
        tablet = self.chance.choice(list(base.placement))
        task = Task(
            id=self.new_task(),
            kind=TaskKind.PROCESS_STAGING,
            base=base.id,
            view=None,
            tablet=tablet,
            replica=base.placement[tablet],
        )
        keys = [k for k in range(KEYS) if base.tablet(k) == tablet]
        base.staged[task.id] = {k: self.chance.randrange(30) for k in keys[:2]}
        self.catalog.commit((c.CreateTasks(tasks=(task,)),))

    # ---- the topology -----------------------------------------------------------------------------------

    def begin_move(self) -> None:
        base = self.chance.choice(list(self.catalog.bases.values()))
        tablet = self.chance.choice(list(base.placement))
        if tablet in base.moving:
            return
        source = base.placement[tablet]
        target = Replica(self.chance.choice(sorted(self.nodes)), self.chance.randrange(SHARDS))
        base.moving[tablet] = target
        self.catalog.commit(moves.leave(self.state(), base.id, tablet, source))
        self.after(self.chance.randint(50, 2_000) * MS, lambda: self.end_move(base, tablet, source, target))

    def end_move(self, base: Base, tablet: TabletId, source: Replica, target: Replica) -> None:
        def new_id() -> TaskId:
            made = self.new_task()
            return made

        state = self.state()
        staged = {t.id: t for t in state.tasks.values() if t.base == base.id and t.id in base.staged}
        if self.chance.random() < 0.3:
            updates = moves.stay(state, base.id, tablet, source, new_id)
        else:
            updates = moves.arrive(state, base.id, tablet, source, target, new_id)
            base.placement[tablet] = target
        del base.moving[tablet]
        self.catalog.commit(updates)
        self._restage(base, staged, updates)

    def _restage(self, base: Base, staged: dict[TaskId, Task], updates: tuple[c.Update, ...]) -> None:
        """A staged run belongs to its tablet, so the tasks in the place of the old ones find it."""
        for update in updates:
            if isinstance(update, c.RemoveTasks):
                gone = sorted(t for t in update.tasks if t in staged)
            elif isinstance(update, c.CreateTasks):
                new = [t for t in update.tasks if t.kind is TaskKind.PROCESS_STAGING]
                old = [staged[t] for t in gone]
                for before in old:
                    after = next(t for t in new if t.created == before.created and t.id not in base.staged)
                    base.staged[after.id] = base.staged.pop(before.id)

    # ---- epochs and indexes -----------------------------------------------------------------------------

    def begin_epochs(self) -> None:
        for view in list(self.catalog.views.values()):
            commit = self.epoch(view)
            self.after(self.chance.randint(5, 300) * MS, commit)

    def epoch(self, view: View) -> Callable[[], None]:
        """Read now, commit later: other epochs of the view, chunks and drops may come first."""
        catalog = self.catalog
        at = catalog.version
        if at == view.applied or (view.id in catalog.built and self.is_current(view) and self.healed):
            return lambda: None
        rows: dict[int, Row | None] = {}
        requires: list[c.Requirement] = [c.ProgressIs(name=str(view.id), value=str(view.applied))]
        updates: list[c.Update] = [c.SetProgress(name=str(view.id), value=str(at))]
        built = view.id in catalog.built
        whole: segments.Segments[str] = (Segment(up_to=None, since=view.applied),)
        for number in range(view.base.tablets):
            tablet = TabletId(number)
            seen = whole if built else catalog.covered(view.id, tablet)
            for key in view.base.keys(tablet):
                if segments.applies(seen, text(key), catalog.touched(view, key, at)):
                    rows[key] = catalog.row(view, key, at)
            if not built and seen:
                requires.append(c.SegmentsBegin(view=view.id, tablet=tablet, segments=seen))
                after = segments.advance(seen, at)
                updates.append(c.ReplaceSegments(view=view.id, tablet=tablet, seen=len(seen), segments=after))

        def commit() -> None:
            if view.id not in catalog.views or (view.id in catalog.built) != built:
                return
            try:
                catalog.commit(updates, requires, {view.id: rows})
            except ConflictError:
                pass

        return commit

    def step_indexes(self) -> None:
        """Permission states, each step behind a barrier: old transactions are waited for, and now and then aborted."""
        for index in self.catalog.indexes.values():
            if index.state not in (Permission.DELETE_ONLY, Permission.WRITE_AND_DELETE):
                continue
            old = [number for number in self.transactions if number < index.stepped]
            if old and self.chance.random() < 0.2:
                for number in old:
                    del self.transactions[number]
                old = []
            if not old:
                index.state = forward(index.state) or index.state
                index.stepped = self.number()
                index.read = self.catalog.version
                self.catalog.commit(())

    # ---- the engine's chunks ----------------------------------------------------------------------------

    def is_done(self, task: Task) -> bool:
        if task.view is None:
            return task.id not in self.catalog.bases[task.base].staged
        return segments.is_covered(self.catalog.covered(task.view, task.tablet))

    def chunk(self, tasks: list[Task]) -> Callable[[], None]:
        """One scan of a tablet for all its views and indexes: read now; the result is one commit."""
        if tasks[0].view is None:
            return lambda: self._process_staging(tasks)
        catalog = self.catalog
        base = catalog.bases[tasks[0].base]
        requires: list[c.Requirement] = []
        updates: list[c.Update] = []
        rows: dict[RelationId, dict[int, Row | None]] = {}
        entries: dict[RelationId, set[tuple[int, int]]] = {}
        many = self.chance.randint(1, 3)
        for task in tasks:
            relation = task.view
            if relation is None or (relation not in catalog.views and relation not in catalog.indexes):
                continue
            before = catalog.covered(relation, task.tablet)
            if segments.is_covered(before):
                continue
            index = catalog.indexes.get(relation)
            at = catalog.version if index is None else index.read
            position = segments.position(before)
            ahead = [k for k in base.keys(task.tablet) if position is None or text(k) > position]
            # Keys that are not there at this version do not count: long runs of tombstones are no obstacle.
            there = [k for k in ahead if base.rows.at(k, at) is not None]
            up_to = text(there[many - 1]) if len(there) > many else None
            taken = there[:many] if up_to is not None else there
            if index is None:
                view = catalog.views[relation]
                rows[relation] = {k: catalog.row(view, k, at) for k in taken}
            else:
                entries[relation] = {(value, k) for k in taken if (value := base.rows.at(k, at)) is not None}
            requires.append(c.TasksOpen(tasks=frozenset([task.id])))
            requires.append(c.SegmentsBegin(view=relation, tablet=task.tablet, segments=before, exactly=True))
            segment = Segment(up_to=up_to, since=at, rows=len(taken))
            segments.cover(before, segment)
            updates.append(c.CoverSegment(view=relation, tablet=task.tablet, segment=segment))

        def commit() -> None:
            if updates:
                catalog.commit(updates, requires, rows)
            for relation, found in entries.items():
                invariant("INV-BUILD-4", backfill_level(catalog.indexes[relation].state) == 1, "backfill too early")
                catalog.indexes[relation].level1 |= found

        return commit

    def _process_staging(self, tasks: list[Task]) -> None:
        catalog = self.catalog
        for task in tasks:
            base = catalog.bases[task.base]
            if task.id in base.staged:
                catalog.commit((), (c.TasksOpen(tasks=frozenset([task.id])),))
                known = {index.id: index.state for index in catalog.indexes.values()}
                for key, value in base.staged.pop(task.id).items():
                    catalog.put_row(base, key, value, known)


def run(seed: int) -> World:
    """Run a seed; a failure says how to see it again."""
    world = World(seed)
    try:
        world.run()
    except Exception as error:
        raise AssertionError(
            f"seed {seed} at {world.now / SECOND:.3f} s, step {world.steps}: {error}\n"
            f"faults: {asdict(world.faults)}\n"
            f"again: PYTHONPATH=src:tests python -m simulation --seed {seed}"
        ) from error
    return world


__all__ = ["Version", "World", "run"]
