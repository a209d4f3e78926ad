"""Processes of a cluster: the production services of topology and building, on a model of time, threads and files.

Each lane of services is what a thread is in a process: it waits for its commits and its files while the others go on.
A process that has died does nothing more, at whichever line it was; a commit that was under way may still arrive.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection

from ebla.base.activities import Activities
from ebla.base.backoff import Backoff
from ebla.base.ids import NodeId, TabletId, TransactionId, Version
from ebla.base.services import Scheduler
from ebla.base.services import _Lane as Lane
from ebla.build.loop import Loop, Ports
from ebla.build.state import State
from ebla.build.trouble import Failures
from ebla.catalog import resizes, rows
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.catalog.leadership import Leadership
from ebla.catalog.processes import Role
from ebla.catalog.store import NO_NODE
from ebla.errors import CatalogUnavailableError, EblaError, StaleTermError
from ebla.model import changes as c
from ebla.model.relation import Relation
from ebla.model.snapshot import BEGINNING, Snapshot
from ebla.model.tablets import tablets_over, token_range
from ebla.node.presence import Presence
from ebla.node.repairer import Repairer
from ebla.tables.context import Context
from ebla.tables.cutting import crossing
from ebla.tables.fold import plan_fold
from ebla.tables.leases import Leases
from ebla.tables.sweep import sweep
from ebla.topology.handshake import Handshake
from ebla.topology.segregation import Segregation
from ebla.topology.service import Coordination
from simulation.disks import Copies, Disk, write_level1
from simulation.faults import MS, SECOND
from simulation.processes import LIMITS, Calls, NoSettlement, Store, built, walk
from support.tables import MemoryCatalog

if TYPE_CHECKING:
    from simulation.cluster import Cluster


SIZES_S = 3.0
"""How often a process looks at sizes: often enough for several looks in one run."""
PAUSES_S = Backoff(0.05, 1.0)
"""Behind a transition that went back: short enough for several tries in one run."""

CLUSTER = "simulated"


class Died(BaseException):
    """The process is gone: nothing of what it was doing goes on."""


class ProcessCatalog(MemoryCatalog):
    """The catalog as one process reaches it. Commits take time; answers are lost."""

    def __init__(self, host: Host) -> None:
        super().__init__(lambda: host.world.now)
        self.host = host
        self.world = host.world
        self.tables = host.world.catalog.tables
        self._is_under_way = False
        self._foreseen: tuple[object, list[tuple[str, str]]] = (None, [])
        """The updates that were decided last, and what is wrong with them."""

    def cluster_id(self) -> str:
        return CLUSTER

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        self.host.require_alive()
        yield cast(Any, self.tables)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection]:
        if not self._is_under_way:
            self.host.require_alive()
        with self.tables.changing():
            yield cast(Any, self.tables)

    def commit(self, decision: c.Decision, *, node: NodeId = NO_NODE) -> c.CommitRecord:
        world = self.world
        try:
            self.host.wait(world.commit_us())
        except Died:
            self.arrive(decision)
            raise
        return self.commit_now(decision, node=node)

    def decide(
        self, make: Callable[[Connection, Version], c.Decision | None], *, node: NodeId = NO_NODE, attempts: int = 5
    ) -> c.CommitRecord | None:
        def watched(connection: Connection, at: Version) -> c.Decision | None:
            decision = make(connection, at)
            if decision is not None:
                self._foreseen = decision.updates, self.world.foresee(decision)
            return decision

        return super().decide(watched, node=node, attempts=attempts)

    def commit_now(self, decision: c.Decision, *, node: NodeId = NO_NODE) -> c.CommitRecord:
        if self.world.is_lost():
            raise CatalogUnavailableError("expected an answer, found none")
        committed = super().commit(decision, node=node)
        if self.world.is_lost():
            raise CatalogUnavailableError("expected an answer, found none; whether the commit happened is not known")
        return committed

    def arrive(self, decision: c.Decision) -> None:
        """A commit of a process that has died was under way."""
        world = self.world
        if world.healed or world.chance.random() >= world.faults.late_commit:
            return
        self._is_under_way = True
        with contextlib.suppress(EblaError):
            super().commit(decision)
            world.catalog.count("late commits")
        self._is_under_way = False

    def _settle(self, decide: Callable[[Connection], c.Decision | None], node: NodeId) -> c.CommitRecord | None:
        seen: list[tuple[c.Decision, Callable[[Version], None]]] = []

        def watched(connection: Connection) -> c.Decision | None:
            decision = decide(connection)
            if decision is not None:
                seen[:] = [(decision, self.world.catalog.watch(decision))]
                if self._foreseen[0] is decision.updates:
                    self.world.wrong += self._foreseen[1]
            return decision

        committed = super()._settle(watched, node)
        if committed is not None:
            for decision, then in seen:
                then(committed.version)
                self.world.committed(decision, committed.version)
        return committed


class Lanes(Scheduler):
    """The services of one process. A lane that waits is on the stack, and the others go on above it."""

    def __init__(self, host: Host) -> None:
        super().__init__(lambda: host.world.now / SECOND, threads=False)
        self._host = host
        self._busy: set[str] = set()
        self._planned_us = math.inf

    def _go(self, lane: Lane) -> None:
        super()._go(lane)
        self._plan(self._host.world.now + MS)

    def _plan(self, time_us: float) -> None:
        world = self._host.world
        if time_us < self._planned_us or self._planned_us <= world.now:
            self._planned_us = time_us
            world.at(max(math.ceil(time_us), world.now + 1), self.run)

    def run(self) -> None:
        """Every step that is due, of lanes that do not wait for anything."""
        host, world = self._host, self._host.world
        if not host.alive:
            return
        if host.paused_until > world.now:
            world.at(host.paused_until, self.run)
            return
        if self._planned_us <= world.now:
            self._planned_us = math.inf
        with contextlib.suppress(Died):
            for lane in list(self._lanes.values()):
                if lane.name not in self._busy:
                    self._run_lane(lane)
            free = (lane for lane in self._lanes.values() if lane.name not in self._busy)
            next_s = min((entry.next_s for lane in free for entry in lane.entries), default=math.inf)
            if next_s < math.inf:
                self._plan(max(next_s * SECOND, world.now + 1))

    def _run_lane(self, lane: Lane) -> None:
        self._busy.add(lane.name)
        try:
            while (entry := self._due(lane)) is not None:
                self._step(entry)
                self._host.require_alive()
        finally:
            self._busy.discard(lane.name)


class Later:
    """What threads are to a process: work that goes on beside its services."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def begin(self, work: Callable[[], None]) -> None:
        world = self._host.world

        def begun() -> None:
            if self._host.alive:
                with contextlib.suppress(Died):
                    work()

        world.after(world.chance.randint(1, 30) * MS, begun)

    def close(self) -> None: ...


class Roots:
    """The storage roots of nodes as one process opens them."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def files(self) -> Copies:
        return Copies(self._host)

    def owner(self, location: str) -> None:
        """No process sees the marker of another one's disk."""

    def own(self, node: NodeId) -> None:
        """Disks of the simulation have no size to tell of."""

    def of(self, locations: Collection[NodeId]) -> dict[NodeId, Disk]:
        disks = self._host.world.disks
        return {node: disks[node] for node in locations}


class Host:
    """One process, which one node lives with."""

    maintains = True

    def __init__(self, world: Cluster, node: NodeId) -> None:
        self.world = world
        self.node = node
        self.holder = f"p{world.number()}"
        self.alive = True
        self.paused_until = 0
        self.settings = world.settings
        self.services: Scheduler = Lanes(self)
        self.catalog = ProcessCatalog(self)
        self.leadership = Leadership(self.catalog, self.holder, self.settings.leader_lease_s, self.services)
        self.leases = Leases(self.catalog, self.settings.transaction_lease_s, self.services)
        self.activities = Activities()
        self.nodes = Roots(self)
        self.cutter = Cutter(self)
        self.segregation = Segregation(self, own=self.living, cutter=self.cutter)
        saw = lambda: self.services.wake(Presence.name, Segregation.name)  # noqa: E731
        self.coordination = Coordination(
            self, own=self.living, saw=saw, threads=lambda name, count: Later(self), sizes_s=SIZES_S
        )
        self.coordination.pauses.backoff = PAUSES_S
        self.repairer = Repairer(self)
        as_context = cast(Context, self)
        self.presence = Presence(as_context, Role.RUN, self.coordination, cast(Any, NoJobs()))
        self.handshake = Handshake(as_context, self.coordination)
        self.loop = self._loop()

    def _loop(self) -> Loop:
        return Loop(
            self.holder,
            Ports(
                services=self.services,
                leases=self.leadership,
                store=HostStore(self),
                nodes=Calls(self),
                settlement=NoSettlement(),
                failures=Failures(self.services.notify),
                clock_us=lambda: self.world.now,
                maintains=lambda: True,
                walk=walk,
                built=built,
            ),
            LIMITS,
        )

    def start(self) -> None:
        self.presence.appear()
        self.presence.start()
        self.coordination.start()
        self.repairer.start()

    def wake(self) -> None:
        if self.alive:
            self.services.wake(self.loop.name)

    def run(self) -> None:
        cast(Lanes, self.services).run()

    def living(self) -> frozenset[NodeId]:
        return frozenset({self.node}) if self.world.disks[self.node].up else frozenset()

    # ---- time and death ---------------------------------------------------------------------------------

    def require_alive(self) -> None:
        if not self.alive:
            raise Died

    def wait(self, us: int) -> None:
        """Time passes in the middle of what this process does."""
        self.require_alive()
        self.world.go_on(us)
        if self.alive and self.paused_until > self.world.now:
            self.world.go_on(self.paused_until - self.world.now)
        self.require_alive()

    # ---- what the services ask of a process -------------------------------------------------------------

    def at_work(self, what: str) -> contextlib.AbstractContextManager[None]:
        return self.activities.doing(what)

    def kept_alive(self, transaction: TransactionId) -> contextlib.AbstractContextManager[None]:
        return self.leases.renewed(transaction)

    def begin(self, name: str, reason: str, work: c.WorkKind = c.WorkKind.WRITE) -> tuple[Relation, TransactionId]:
        relation, transaction, _ = tx.begin_on(
            self.catalog,
            name,
            lambda connection, relation: None,
            node=self.node,
            holder=self.holder,
            reason=reason,
            lease_us=self.leases.lease_us,
            work=work,
        )
        return relation, transaction.id

    def sweep(self) -> None:
        """Remove files that no commit names."""
        with contextlib.suppress(Died, EblaError):
            tx.reap(self.catalog)
            removed, _, _ = sweep(self.catalog, cast(Any, self.nodes))
            self.world.catalog.counts["files swept"] += removed


class NoJobs:
    """The jobs of a process: none."""

    runner = None
    lease_us = 0


class HostStore(Store):
    """The catalog, as the building loop of one process uses it."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.world)
        self.host = host

    def load(self) -> State:
        self.host.require_alive()
        return super().load()

    def commit(self, decision: c.Decision) -> None:
        world = self.world
        try:
            self.host.catalog.commit(decision, node=self.host.node)
        except StaleTermError:
            world.catalog.count("old leaders refused")
            raise
        finally:
            self.seen.clear()


class Cutter:
    """A model of cutting and folding runs. What it requires of a commit is what the real one must require."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def cut(self, relation: Relation, tablets: Collection[TabletId]) -> int:
        coming = self._host.catalog.read(lambda connection: resizes.coming_tablets(connection, relation.id))
        if coming is None:
            return 0
        with self._transaction(relation) as (now, transaction):
            snapshot = self._host.world.snapshot(self._host, now)
            chosen = crossing((run for run in snapshot.level1 if run.tablet in tablets), coming)
            if not chosen:
                return 0
            after, contents = now.in_map(coming), self._contents(snapshot)
            new, first = [], 0
            for run in chosen:
                parts = tablets_over(run.tokens, coming)
                new += write_level1(self._host.world, after, transaction, contents[run.id], parts, first)
                first += len(parts)
            self._host.wait(self._host.world.chance.randint(1, 300) * MS)
            ids = frozenset(run.id for run in chosen)
            self._commit(transaction, now, ids, (c.AddRuns(runs=tuple(new)),))
            self._host.world.catalog.count("runs cut")
        return len(chosen)

    def fold(self, relation: Relation) -> int:
        with self._transaction(relation) as (now, transaction):
            snapshot = self._host.world.snapshot(self._host, now)
            if not snapshot.level0 and not snapshot.folded:
                return 0
            coming = self._host.catalog.read(lambda connection: resizes.coming_tablets(connection, now.id))
            fold = plan_fold(snapshot, set(snapshot.tablets), snapshot.version)
            after, rows_ = now.in_map(coming or now.tablets), self._host.world.merged(snapshot)
            parts = [t for one in snapshot.tokens_of(fold.rewritten) for t in tablets_over(one, after.tablets)]
            new = write_level1(self._host.world, after, transaction, rows_, parts, 0)
            self._host.wait(self._host.world.chance.randint(1, 300) * MS)
            tablets = (*fold.rewritten, *fold.settled)
            places = tuple(token_range(tablet, now.tablets) for tablet in tablets)
            before = {place: snapshot.cutoffs.get(t, BEGINNING) for place, t in zip(places, tablets, strict=True)}
            self._commit(
                transaction,
                now,
                fold.ended_level0 | fold.ended_level1,
                (
                    *((c.AddRuns(runs=tuple(new)),) if new else ()),
                    c.SetCutoff(relation=now.id, tablets=places, cutoff=snapshot.version),
                ),
                c.CutoffsAre(relation=now.id, cutoffs=before),
            )
            self._host.world.catalog.count("folds")
        return len(fold.ended_level0)

    @contextlib.contextmanager
    def _transaction(self, relation: Relation) -> Iterator[tuple[Relation, TransactionId]]:
        now, transaction = self._host.begin(relation.name, f"compact {relation.name}", c.WorkKind.COMPACTION)
        try:
            with self._host.kept_alive(transaction):
                yield now, transaction
        finally:
            if self._host.alive:
                tx.abort(self._host.catalog, transaction)

    def _contents(self, snapshot: Snapshot) -> Any:
        return self._host.world.contents(snapshot)

    def _commit(
        self,
        transaction: TransactionId,
        relation: Relation,
        ended: frozenset[Any],
        updates: tuple[c.Update, ...],
        *requires: c.Requirement,
    ) -> None:
        decision = c.Decision(
            reason=f"compact {relation.name}",
            work=c.WorkKind.COMPACTION,
            relation=relation.id,
            transaction=transaction,
            requires=(
                c.TransactionOpen(transaction=transaction),
                c.SchemaWithinOne(relation=relation.id, schema_version=relation.schema_version),
                c.RunsLive(relation=relation.id, runs=ended),
                *requires,
            ),
            updates=(c.EndRuns(relation=relation.id, runs=ended), *updates, c.EndTransaction(transaction=transaction)),
        )
        self._host.catalog.commit(decision, node=self._host.node)


def leads(world: Cluster, decision: c.Decision) -> bool:
    """Whether a decision of a leader is that of the present one."""
    for one in decision.requires:
        if isinstance(one, c.TermIs):
            row = rows.one(world.catalog.tables, s.leases, name=one.lease)
            return row is not None and (row.holder, row.term) == (one.holder, one.term)
    return True
