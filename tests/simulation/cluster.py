"""A seeded world in which the cluster changes its shape while views are built and everything fails.

Beyond the world of building: processes with the production services of the topology, nodes that come, go, die and lose
their disks, requests, writers whose runs are files on nodes, and readers who find every acknowledged write in them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from ebla.base.ids import NodeId, RelationId, RunId, Token, TransactionId, Version
from ebla.base.settings import Settings
from ebla.build.state import State
from ebla.catalog import memory, processes, reads, resizes, rows, topology
from ebla.catalog import relations as relation_rows
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.errors import ConflictError, EblaError, StorageError, UsageError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.copies import tablets_with_rows
from ebla.model.lifecycle.node import NodeState, is_member, may_hold
from ebla.model.lifecycle.tablet import Stage
from ebla.model.relation import FOREVER, Kind, Relation
from ebla.model.scopes import of_relation
from ebla.model.snapshot import Snapshot
from ebla.model.tablets import tablet_of
from ebla.model.topology import FEATURES, LEASE, Member, RequestKind, Tablet, Topology, copies_max, receiving
from ebla.relations.copies import all_missing
from ebla.tables.new_table import place
from ebla.topology import coordinator, loader
from ebla.topology.admission import Candidate
from ebla.topology.load import outcome
from simulation import disks as d
from simulation.faults import MS, SECOND
from simulation.hosts import CLUSTER, Died, Host, leads
from simulation.model import WORDS, Base, Catalog, invariant, token
from simulation.processes import Node
from simulation.world import KEYS, World, run_in

FAULTS_US = 10 * SECOND
HEALED_US = 600 * SECOND
QUIET_US = 5 * SECOND
STATEMENTS_US = 700 * MS
STATEMENT_US = 60 * MS
"""How often a statement changes a table, and how long after what it was made from it is committed."""
STAGE = (t.AdvanceTransition, t.FailTransition)
"""What moves the stage of one tablet and nothing else."""
NODES_MAX = 6
Script = Generator[int, None, None]
"""What a client does: it waits for so long at each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Mean times between what happens to a cluster."""

    request_us: int
    disk_us: int
    pause_us: int
    lose_us: int
    lost_answer: float
    slow_commit: float


class ClusterCatalog(Catalog):
    """The catalog of a cluster: what it says of tablets is what is so."""

    def __init__(self, world: Cluster) -> None:
        super().__init__(lambda: world.now)
        self.world = world
        self.has_guards = True
        self._placed = -1

    def watch(self, decision: c.Decision) -> Any:
        committed = super().watch(decision)
        self.world.check_steps(decision)

        def then(version: Version) -> None:
            self.follow_map()
            committed(version)
            if decision.exclusive and not all(isinstance(one, STAGE) for one in decision.updates):
                self.world.reshaped = version
            self.world.check_readable()

        return then

    def follow_map(self, *, anew: bool = False) -> None:
        """Bases lie where the map says, if it has changed."""
        moved = self.tables.moves[s.tablets] + self.tables.moves[s.relations]
        if moved == self._placed and not anew:
            return
        self._placed = moved
        for base in self.bases.values():
            row = rows.one(self.tables, s.relations, relation_id=base.id)
            assert row is not None
            base.tablets = row.tablets
            base.placement = relation_rows.first_replicas(self.tables, base.id)

    def flip(self, base: Base, number: int, requires: Iterable[c.Requirement]) -> None:
        world, (_, staged) = self.world, base.staged[number]
        relation = reads.relation_by_id(self.tables, base.id)
        assert relation is not None
        try:
            runs = d.write_level0(world, relation, world.new_transaction(), staged)
        except StorageError as error:
            raise ConflictError(str(error)) from error
        self.commit((c.AddRuns(runs=tuple(runs)),), requires)
        self.count("staged runs")
        self.put_staged(base, number)


class Cluster(World):
    catalog: ClusterCatalog
    steps_max = 100_000

    def populate(self) -> None:
        self.catalog = ClusterCatalog(self)
        chance = self.chance
        every = lambda least_s: int(least_s * SECOND * chance.choice([1, 2, 4]))  # noqa: E731
        self.rates = Rates(
            request_us=every(0.4),
            disk_us=every(2.5),
            pause_us=every(2.0),
            lose_us=every(4.0),
            lost_answer=chance.choice([0.0, 0.02, 0.08]),
            slow_commit=chance.choice([0.0, 0.05, 0.2]),
        )
        self.settings = self.new_settings()
        self.disks: dict[NodeId, d.Disk] = {}
        self.hosts: dict[NodeId, Host] = {}
        self.effects: dict[TransactionId, Any] = {}
        """What a commit of a transaction means, by its number."""
        self.racks = chance.choice([1, 2, 3])
        self.is_over = False
        self.reshaped = Version(0)
        """The last exclusive commit that did more than to move stages of tablets."""
        self.statements = 0
        self.wrong: list[tuple[str, str]] = []
        self._moved = -1
        for _ in range(chance.choice([2, 3, 3, 4])):
            member = self.new_member(NodeState.NORMAL)
            self.catalog.commit((t.AddNode(node=member),))
        for node in list(self.disks):
            self.start(node)

    def new_settings(self) -> Settings:
        return Settings.model_validate(
            {
                "leader_lease_s": 1.5,
                "transaction_lease_s": 3.0,
                "barrier_grace_s": 2.0,
                "repair_period_s": 2.0,
                "tablet_bytes_target": self.chance.choice([3_000, 20_000, 10**9]),
            }
        )

    # ---- nodes ------------------------------------------------------------------------------------------

    def new_member(self, state: NodeState, replaced: NodeId | None = None) -> Member:
        name = f"n{len(self.disks):02d}"
        node = NodeId(name)
        self.disks[node] = d.Disk(node=node)
        self.nodes[node] = Node(self, node)
        self.nodes[node].up = False
        return Member(
            id=node,
            name=name,
            root=f"root {name}",
            rack=f"rack{len(self.disks) % self.racks}",
            shards=2,
            state=state,
            release="1.0",
            features=FEATURES,
            replaced=replaced,
        )

    def start(self, node: NodeId) -> Host:
        host = self.hosts[node] = Host(self, node)
        self.nodes[node].up = True
        host.start()
        return host

    def members(self) -> dict[NodeId, Member]:
        return topology.members(self.catalog.tables)

    def living(self) -> list[Host]:
        return [host for _, host in sorted(self.hosts.items()) if host.alive]

    def roots(self) -> dict[NodeId, d.Disk]:
        """Of the nodes that may hold replicas."""
        return {node: self.disks[node] for node, member in self.members().items() if may_hold(member.state)}

    def kill(self, node: NodeId) -> None:
        self.hosts[node].alive = False
        self.nodes[node].crash()

    def crash_host(self) -> None:
        """A process dies, perhaps its machine too, and is started again."""
        if not self.living():
            return
        node = self.chance.choice(self.living()).node
        self.kill(node)
        self.catalog.count("processes died")
        if self.chance.random() < 0.3:
            self.disks[node].up = False
        self.after(self.chance.randint(1, 6_000) * MS, partial(self.come_back, node))

    def come_back(self, node: NodeId) -> None:
        disk, member = self.disks[node], self.members().get(node)
        if disk.lost or self.hosts[node].alive:
            return
        disk.up = True
        if member is not None and is_member(member.state):  # a join that was interrupted begins anew
            self.start(node)

    def pause_host(self) -> None:
        """A process stands still, often the leader: it renews nothing, and goes on with what it had begun."""
        if self.living():
            leader, half = self.leader(), self.chance.random() < 0.5
            host = self.chance.choice([one for one in self.living() if half and one.holder == leader] or self.living())
            host.paused_until = self.now + self.chance.randint(100, 5_000) * MS

    def trouble_disk(self) -> None:
        """A disk is full or not reached for a while."""
        disk = self.chance.choice([disk for _, disk in sorted(self.disks.items())])
        if disk.lost or not disk.up or disk.full:
            return
        if self.chance.random() < 0.5:
            disk.full = True
            self.after(self.chance.randint(1, 5_000) * MS, lambda: setattr(disk, "full", False))
        else:
            disk.up = False
            self.after(self.chance.randint(1, 5_000) * MS, lambda: setattr(disk, "up", not disk.lost))

    def lose_disk(self) -> None:
        """A machine is gone for ever, where no acknowledged row is on it alone."""
        members = self.members()
        away = [n for n, disk in self.disks.items() if disk.lost and n in members and is_member(members[n].state)]
        mine = [n for n, m in sorted(members.items()) if is_member(m.state) and not self.disks[n].lost]
        if away or len(mine) < 2 or not self.settled_members():
            return
        node = self.chance.choice(mine)
        found = rows.find(self.catalog.tables, s.runs)
        elsewhere = {row.run_id for row in found if row.host_id != node and not self.disks[row.host_id].lost}
        if any(row.host_id == node and row.run_id not in elsewhere for row in found) or self.is_alone(node):
            return
        disk = self.disks[node]
        disk.up, disk.lost = False, True
        disk.files.clear()
        if self.hosts[node].alive:
            self.kill(node)
        self.catalog.count("disks lost")

    def is_alone(self, node: NodeId) -> bool:
        """Whether a node has the only replica of a tablet that a writer may write to, be it an empty one, or will have
        it. Views have no files here: their tablets are empty."""
        state, bases = self.topology(), self.catalog.bases
        sets = [replicas for base in bases for replicas in state.layouts[base].replicas]
        for (relation, tablet), one in state.transitions.items():
            if relation in bases:
                sets.append(outcome(state.layouts[relation].replicas[tablet], one))
        return any({replica.host for replica in one} == {node} for one in sets)

    def settled_members(self) -> bool:
        return all(m.state in (NodeState.NORMAL, NodeState.LEFT) for m in self.members().values())

    def retire(self) -> None:
        """Processes of nodes that have left end."""
        for node, member in self.members().items():
            if member.state is NodeState.LEFT and node in self.hosts and self.hosts[node].alive:
                self.kill(node)

    # ---- time -------------------------------------------------------------------------------------------

    def commit_us(self) -> int:
        slow = not self.healed and self.chance.random() < self.rates.slow_commit
        return self.chance.randint(1, 2_500 if slow else 60) * MS

    def copy_us(self) -> int:
        slow = not self.healed and self.chance.random() < self.faults.slow
        return self.chance.randint(5, 2_500 if slow else 100) * MS

    def is_lost(self) -> bool:
        return not self.healed and self.chance.random() < self.rates.lost_answer

    def spawn(self, script: Script) -> None:
        def go_on() -> None:
            with contextlib.suppress(StopIteration, Died):
                self.after(next(script), go_on)

        go_on()

    # ---- commits ----------------------------------------------------------------------------------------

    def new_transaction(self) -> TransactionId:
        number = TransactionId(memory.advance(self.catalog.tables, "transaction"))
        self.catalog.tables.keep()
        return number

    def committed(self, decision: c.Decision, version: Version) -> None:
        """A process has committed something."""
        for name, found in self.wrong:
            invariant(name, False, found)
        invariant("INV-TOPO-1", leads(self, decision), f"an old leader committed: {decision.reason}")
        for update in decision.updates:
            match update:
                case t.BeginTransition():
                    self.catalog.count("transitions begun")
                case t.EndTransition(stage=stage):
                    self.catalog.count(f"transitions ended by {stage}")
                case t.EndRequest(request=request, state=state):
                    kind = rows.one(self.catalog.tables, s.topology_requests, id=request).kind  # type: ignore[union-attr]
                    self.catalog.count(f"{kind} {state}")
                case c.SetTabletMap():
                    self.catalog.count("resizes")
                case c.AddCopies():
                    self.catalog.count("copies committed")
                case c.AddRuns(runs=runs):
                    for run in runs:
                        self.check_acknowledged(run)
        if decision.transaction is not None and decision.transaction in self.effects:
            self.effects.pop(decision.transaction)(version)

    def check_steps(self, decision: c.Decision) -> None:
        """Before a commit, which may yet be refused: whether transitions go on as they must."""
        tables = self.catalog.tables
        moving = topology.transitions(tables)
        self.wrong = []
        for update in decision.updates:
            if isinstance(update, t.BeginTransition) and update.tablet in moving:
                self.wrong.append(("INV-TOPO-7", f"tablet {update.tablet} is in transition and begins another"))
        row = None if decision.transaction is None else rows.one(
            tables, s.transactions, transaction_id=decision.transaction
        )  # fmt: skip
        session = None if row is None else row.session_id
        if session is not None and rows.one(tables, s.sessions, session_id=session, closed_version=None) is None:
            self.wrong.append(("INV-TOPO-10", f"a commit of session {session}, which is closed: {decision.reason}"))

    def foresee(self, decision: c.Decision) -> list[tuple[str, str]]:
        """When a step is decided: what is wrong with it, should it be committed."""
        moving, wrong = topology.transitions(self.catalog.tables), []
        for update in decision.updates:
            match update:
                case t.AdvanceTransition(to=Stage.CLEANUP_TARGET):
                    continue
                case t.AdvanceTransition(tablet=tablet) | t.EndTransition(tablet=tablet) if tablet in moving:
                    since = moving[tablet].since
                    for found in self.unaware(tablet[0], since):
                        wrong.append(("INV-TOPO-8", f"tablet {tablet} goes on before {found} knows version {since}"))
        return wrong

    def unaware(self, relation: RelationId, since: Version) -> Iterator[str]:
        """Those at work who began before a stage and do not know of it."""
        tables = self.catalog.tables
        began = reads.committed_at(tables, [since]).get(since, self.now)
        members, leader = self.members(), self.leader()
        for process in processes.alive(tables, self.now):
            found = (members.get(node) for node in process.hosts)
            follows = any(member is not None and is_member(member.state) for member in found)
            if process.holder != leader and follows and process.started_at < began and process.seen < since:
                yield f"process {process.holder}"
        for row in tx.in_the_way(tables, {relation}, self.now):
            if row.began_under < since:
                yield f"transaction {row.transaction}"

    def leader(self) -> str | None:
        return tx.leader(self.catalog.tables, LEASE, self.now)

    def check_readable(self) -> None:
        """Of each run, a node has it that its tablets are read from."""
        tables = self.catalog.tables
        moved = tables.moves[s.tablet_transitions] + tables.moves[s.tablets]
        if moved == self._moved:
            return
        self._moved = moved
        for base in self.catalog.bases:
            relation = reads.relation_by_id(tables, base)
            assert relation is not None
            live = rows.find(tables, s.runs, relation_id=base, end_version=FOREVER)
            for run in reads.merge_replicas(live, relation.tablets):
                for tablet in tablets_with_rows(relation, run):
                    nodes = relation.reads_from(tablet)
                    there = any(node in nodes for node in run.nodes)
                    invariant("INV-TOPO-3", there, f"run {run.id} is on {run.nodes}, tablet {tablet} read from {nodes}")

    def check_acknowledged(self, run: Any) -> None:
        """A run that was committed is on enough of the nodes that its tablets are read from."""
        relation = reads.relation_by_id(self.catalog.tables, run.relation)
        if relation is None:
            return
        keys = next(disk.files[run.path][1] for disk in self.disks.values() if run.path in disk.files)
        for tablet in {tablet_of(Token(token(key)), relation.tablets) for key in keys}:
            nodes = relation.reads_from(tablet)
            copies = [n for n in nodes if n in run.nodes]
            enough = len(copies) >= min(relation.min_copies, len(nodes))
            invariant("INV-TOPO-2", enough, f"run {run.id} is on {copies} of {nodes} of tablet {tablet}")

    def state(self) -> State:
        """As processes see each other: alive are those whose leases hold."""
        alive = frozenset(processes.seen(processes.alive(self.catalog.tables, self.now)))
        if self._seen is None or self._seen[:2] != (self.catalog.changed, alive):
            self._seen = (self.catalog.changed, alive, self.catalog.state(alive))
        return self._seen[2]

    # ---- writers and readers ----------------------------------------------------------------------------

    def create_base(self, *, tablets: int, rows: int) -> None:
        self.relations += 1
        base = Base(id=RelationId(self.relations), tablets=tablets, placement={})
        self.catalog.commit((self._new_relation(Kind.TABLE, base),))
        self.catalog.bases[base.id] = base
        self.catalog.follow_map(anew=True)
        values = {key: self.chance.randrange(30) for key in range(rows)}
        relation = reads.relation_by_id(self.catalog.tables, base.id)
        assert relation is not None
        runs = d.write_level0(self, relation, self.new_transaction(), values)
        version = self.catalog.commit((c.AddRuns(runs=tuple(runs)),))
        for key, value in values.items():
            base.rows.write(key, value, version)

    def _new_relation(self, kind: Kind, base: Base) -> c.CreateRelation:
        members = list(self.members().values())
        most, _ = copies_max(receiving(members))
        replication = self.chance.randint(1, min(3, most))
        if kind is Kind.INDEX:
            found = reads.relation_by_id(self.catalog.tables, base.id)
            assert found is not None
            placement, replication = found.placement, found.replication
        else:
            up = [n for n, disk in self.disks.items() if disk.up]
            placement = place(members, up, base.tablets, replication)
        return c.CreateRelation(
            number=RelationId(self.relations),
            name=f"relation {self.relations}",
            kind=kind,
            tablets=base.tablets,
            replication=replication,
            columns=(),
            placement=placement,
            comment=None,
            options={},
            reads=() if kind is Kind.TABLE else (base.id,),
        )

    def begin_write(self) -> None:
        if self.living():
            self.spawn(self.write(self.chance.choice(self.living())))

    def write(self, host: Host) -> Script:
        """A transaction writes its files, waits, and commits; its client hears of it, or not."""
        chance, base = self.chance, self.chance.choice(list(self.catalog.bases.values()))
        keys = chance.sample(range(KEYS), chance.randint(1, 3))
        values = {key: None if chance.random() < 0.3 else chance.randrange(30) for key in keys}
        known = {index.id: index.state for index in self.catalog.indexes.values()}
        number = self.number()
        slow = not self.healed and chance.random() < self.faults.slow / 3
        relation, transaction = host.begin(f"relation {base.id}", "write")
        self.transactions[number] = None
        try:
            with host.kept_alive(transaction):
                yield chance.randint(1, 6_000 if slow else 1_000) * MS
                yield from self._end_write(host, base, relation, transaction, values, known, number)
        except EblaError as error:
            self.catalog.count(f"writes refused: {type(error).__name__}")
        finally:
            self.transactions.pop(number, None)
            if host.alive and chance.random() < 0.9:
                tx.abort(host.catalog, transaction)

    def _end_write(
        self,
        host: Host,
        base: Base,
        relation: Relation,
        transaction: TransactionId,
        values: d.Rows,
        known: Any,
        number: int,
    ) -> Script:
        host.require_alive()
        runs = d.write_level0(self, relation, transaction, values)
        yield self.commit_us()

        def apply(version: Version) -> None:
            for key, value in values.items():
                self.catalog.put_row(base, key, value, known)

        decision = c.Decision(
            reason="write",
            relation=relation.id,
            transaction=transaction,
            requires=(
                c.TransactionOpen(transaction=transaction),
                c.SchemaWithinOne(relation=relation.id, schema_version=relation.schema_version),
            ),
            updates=(c.AddRuns(runs=tuple(runs)), c.EndTransaction(transaction=transaction)),
        )
        if number not in self.transactions:
            return
        self.effects[transaction] = apply
        try:
            if host.alive:
                host.catalog.commit_now(decision)
                self.catalog.count("writes acknowledged")
            else:
                host.catalog.arrive(decision)
        finally:
            self.effects.pop(transaction, None)

    def snapshot(self, host: Host, relation: Relation) -> Snapshot:
        return host.catalog.read(lambda connection: reads.snapshot(connection, relation))

    def contents(self, snapshot: Snapshot) -> dict[RunId, d.Rows]:
        """The rows of each run, from a node that readers may use; `StorageError`: a run is not reached."""
        found = {}
        for run in (*snapshot.level1, *snapshot.level0):
            disks = [self.disks[node] for node in run.nodes if self.disks[node].up]
            files = [disk.files[run.path] for disk in disks if run.path in disk.files]
            if not files:
                raise StorageError(f"{run.path}: expected a copy on one of {run.nodes}, found none")
            found[run.id] = files[0][1]
        return found

    def merged(self, snapshot: Snapshot) -> dict[int, int]:
        return d.merged(snapshot, self.contents(snapshot))

    def begin_read(self) -> None:
        if self.living():
            self.spawn(self.read(self.chance.choice(self.living())))

    def read(self, host: Host) -> Script:
        """A reader takes a snapshot, and later the files of it."""
        base = self.chance.choice(list(self.catalog.bases.values()))
        with contextlib.suppress(EblaError):
            relation = host.catalog.read(lambda connection: reads.relation(connection, f"relation {base.id}"))
            snapshot = self.snapshot(host, relation)
            yield self.chance.randint(1, 1_500) * MS
            try:
                found = self.merged(snapshot)
            except StorageError:  # replicas may have moved: a reader looks again
                host.require_alive()
                now = host.catalog.read(lambda connection: reads.relation(connection, relation.name))
                snapshot = self.snapshot(host, now)
                found = self.check_reached(snapshot)
            self.check_read(base, snapshot, found)

    def check_reached(self, snapshot: Snapshot) -> dict[int, int]:
        """A run that is not reached is on nodes alone that are away."""
        for run in (*snapshot.level1, *snapshot.level0):
            for node in run.nodes:
                there = not self.disks[node].up or run.path in self.disks[node].files
                invariant("INV-TOPO-3", there, f"{run.path} is not on {node}, which the manifest names")
        return self.merged(snapshot)

    def check_read(self, base: Base, snapshot: Snapshot, found: dict[int, int]) -> None:
        values = ((key, base.rows.at(key, snapshot.version)) for key in base.rows.keys())  # noqa: SIM118
        expected = {key: value for key, value in values if value is not None}
        self.catalog.count("reads")
        invariant("INV-TOPO-4", found == expected, f"relation {base.id} at {snapshot.version}: expected {expected}, "
                  f"found {found}")  # fmt: skip

    # ---- upkeep -----------------------------------------------------------------------------------------

    def compact(self) -> None:
        if self.living():
            host, base = self.chance.choice(self.living()), self.chance.choice(list(self.catalog.bases.values()))
            relation = reads.relation_by_id(self.catalog.tables, base.id)
            with contextlib.suppress(EblaError, Died):
                host.cutter.fold(relation)  # type: ignore[arg-type]

    def sweep(self) -> None:
        if self.living():
            self.chance.choice(self.living()).sweep()

    # ---- requests ---------------------------------------------------------------------------------------

    def ask(self) -> None:
        """An operator asks for something, possible or not."""
        if not self.living():
            return
        host = self.chance.choice(self.living())
        what = self.chance.choice(
            [self.ask_join, self.ask_leave, self.ask_dead, self.ask_rebuild, self.ask_move, self.ask_replication,
             self.ask_resize, self.ask_generation, self.ask_cancel, self.ask_balancing]
        )  # fmt: skip
        self.attempt(partial(what, host))

    def attempt(self, what: Any) -> None:
        try:
            what()
        except UsageError:
            self.catalog.count("requests refused at once")
        except (EblaError, Died):
            self.catalog.count("requests that met an error")

    def ask_join(self, host: Host, replaced: NodeId | None = None) -> None:
        members = sum(is_member(m.state) for m in self.members().values()) - (replaced is not None)
        if members >= NODES_MAX or len(self.disks) >= 12:
            return
        member = self.new_member(NodeState.NONE, replaced)
        process = self.start(member.id)
        candidate = Candidate(node=member, holder=process.holder, cluster=CLUSTER)
        try:
            host.handshake.admit(candidate)
        except (EblaError, Died):  # whether it has written the request is not known: another process is asked
            self.catalog.count("joins that were asked for again")
            process.handshake.admit(candidate)

    def ask_leave(self, host: Host) -> None:
        host.handshake.ask(RequestKind.LEAVE, self.chance.choice(sorted(self.members())), {})

    def ask_dead(self, host: Host) -> None:
        """Remove or replace a node that is dead, or seems so."""
        members = {n: m for n, m in sorted(self.members().items()) if is_member(m.state)}
        dead = [n for n in members if self.disks[n].lost] or [n for n in members if not self.hosts[n].alive]
        if not dead:
            return
        node = self.chance.choice(dead)
        if self.chance.random() < 0.5:
            self.ask_join(host, replaced=node)
        else:
            host.handshake.ask(RequestKind.REMOVE, node, {})

    def ask_rebuild(self, host: Host) -> None:
        """Some files of a node are gone."""
        node = self.chance.choice(sorted(n for n, m in self.members().items() if is_member(m.state)))
        host.handshake.ask(RequestKind.REBUILD, node, {})

    def ask_move(self, host: Host) -> None:
        base = self.chance.choice(list(self.catalog.bases.values()))
        nodes = sorted(n for n, m in self.members().items() if is_member(m.state))
        tablet = self.chance.choice(list(base.placement))
        given = {"tablet": tablet, "source": base.placement[tablet].host, "target": self.chance.choice(nodes)}
        host.handshake.ask_of(RequestKind.MOVE, base.id, given)

    def ask_replication(self, host: Host) -> None:
        relation = self.chance.choice([*self.catalog.bases, *self.catalog.views])
        host.handshake.ask_of(RequestKind.REPLICATION, relation, {"replication": self.chance.randint(1, 3)})

    def ask_resize(self, host: Host) -> None:
        relation = self.chance.choice([*self.catalog.bases, *self.catalog.views])
        host.handshake.resize(f"relation {relation}", self.chance.choice([1, 2, 4, 8]))
        if self.chance.random() < 0.3:  # and for something that waits for it
            self.attempt(partial(self.chance.choice([self.ask_move, self.ask_replication]), host))

    def ask_generation(self, host: Host) -> None:
        """New generations of change streams, of a relation or of all."""
        found = [f"relation {one}" for one in (*self.catalog.bases, *self.catalog.views)]
        host.handshake.renew(self.chance.choice([None, *found]))

    def ask_cancel(self, host: Host) -> None:
        found = topology.open_requests(self.catalog.tables)
        if found:
            host.handshake.cancel(self.chance.choice(found).id)

    def ask_balancing(self, host: Host) -> None:
        host.handshake.balance(self.chance.random() < 0.7)

    def begin_statement(self) -> None:
        """A statement changes a table in turn; it is made from the table as it is now."""
        self.statements += 1
        found = list(self.catalog.bases)
        at = Version(memory.counters(cast(Any, self.catalog.tables))["exclusive_version"])
        stages = {place: one.since for place, one in topology.transitions(self.catalog.tables).items()}
        end = partial(self.end_statement, found[self.statements % len(found)], at, stages)
        self.after(STATEMENT_US, end)
        if not self.healed:
            self.after(STATEMENTS_US, self.begin_statement)

    def end_statement(self, relation: RelationId, at: Version, stages: dict[Tablet, Version]) -> None:
        guard = c.ExclusiveVersionIs(version=at, scopes=frozenset({of_relation(relation)}))
        try:
            self.catalog.commit((c.SetRelationComment(relation=relation, comment=f"at {at}"),), (guard,))
        except ConflictError as error:
            invariant("INV-TOPO-11", self.reshaped > at, f"a statement met stages of tablets alone: {error}")
            return
        moved = topology.transitions(self.catalog.tables)
        stepped = any(one in stages and moved[one].since > stages[one] for one in moved if one[0] == relation)
        self.catalog.count("statements beside a stage" if stepped else "statements")

    # ---- the run ----------------------------------------------------------------------------------------

    def run(self) -> None:
        faults, rates = self.faults, self.rates
        for number in range(self.chance.choice([1, 1, 2])):
            self.create_base(tablets=self.chance.choice([1, 2, 4]), rows=self.chance.choice([0, 3, KEYS]))
            if number == 0 or self.chance.random() < 0.5:
                self.create_view()
        for word in range(WORDS):
            self.catalog.words.write(word, word, self.catalog.version)
        self.every(500 * MS, self.wake_processes, also_healed=True)
        self.every(faults.write_us * 3, self.begin_write)
        self.every(faults.write_us * 4, self.begin_read)
        self.every(faults.write_us * 16, self.change_word)
        self.every(2 * SECOND, self.compact)
        self.every(3 * SECOND, self.sweep)
        self.every(300 * MS, self.retire, also_healed=True)
        self.every(faults.crash_us, self.crash_host)
        self.every(rates.pause_us, self.pause_host)
        self.every(rates.disk_us, self.trouble_disk)
        self.every(rates.lose_us, self.lose_disk)
        self.every(rates.request_us, self.ask)
        self.after(STATEMENTS_US, self.begin_statement)  # by no chance, which all else goes by
        self.every(faults.view_us * 2, self.create_view)
        self.every(faults.view_us * 4, self.create_index)
        self.every(faults.view_us * 6, self.drop_view)
        self.every(faults.view_us * 4, self.stage)
        self.every(faults.pause_us, self.alter_rate)
        self.every(300 * MS, self.begin_epochs, also_healed=True)
        self.every(200 * MS, self.step_indexes, also_healed=True)
        self.every(400 * MS, self.look, also_healed=True)
        self.every(500 * MS, self.operate, also_healed=True)
        self.every(500 * MS, self.look_settled, also_healed=True)
        self.at(FAULTS_US, self.heal)  # on time, also where processes always wait for each other
        self.run_until(FAULTS_US)
        for _ in range(2):  # and it stays so
            self.is_over = False
            # Something that waited while it was settled may have asked for more since.
            self.run_until(self.now + HEALED_US, lambda: self.is_over and self.is_settled())
            invariant("INV-TOPO-9", self.is_settled(), self.what_is_left())
            self.run_until(self.now + QUIET_US)
        self.check_end()

    def look(self) -> None:
        for node in self.nodes.values():
            node.look()

    def wake_processes(self) -> None:
        for host in self.living():
            host.wake()

    def heal(self) -> None:
        self.healed = True
        members = self.members()
        for node, disk in self.disks.items():
            disk.full = False
            disk.up = not disk.lost
            if disk.lost or node not in members or not is_member(members[node].state):
                continue
            self.hosts[node].paused_until = 0
            if not self.hosts[node].alive:
                self.start(node)
        for view in self.catalog.builds:
            self.catalog.commit((c.AlterBuild(view=view, rows_per_minute=None, chunk_rows=None),))
        self.attempt(lambda: self.living()[0].handshake.balance(True))

    def operate(self) -> None:
        """When all is healed, dead nodes are replaced or removed, and there are enough others."""
        if not self.healed or not self.living():
            return
        host, members = self.living()[0], self.members()
        found = topology.open_requests(self.catalog.tables)
        open_of = {request.node for request in found if request.node is not None}
        dead = [n for n, m in sorted(members.items()) if self.disks[n].lost and is_member(m.state) and n not in open_of]
        wanted = max((row.replication for row in rows.find(self.catalog.tables, s.relations)), default=1)
        alive = [m for m in receiving(members.values()) if not self.disks[m.id].lost]
        if len(alive) < wanted and not open_of:
            self.attempt(lambda: self.ask_join(host))
        elif dead and self.chance.random() < 0.5:
            self.attempt(lambda: self.ask_join(host, replaced=dead[0]))
        elif dead:
            self.attempt(lambda: host.handshake.ask(RequestKind.REMOVE, dead[0], {}))

    def look_settled(self) -> None:
        self.is_over = self.healed and self.is_settled()

    def topology(self) -> Topology:
        return loader.load(self.catalog.tables, self.now)

    def is_settled(self) -> bool:
        return not self.left()

    def left(self) -> str:
        """What is left over."""
        tables, found = self.catalog.tables, self.topology_left()
        if found:
            return found
        if not super().is_settled():
            return super().what_is_left()
        if all_missing(tables):  # type: ignore[arg-type]
            return "copies are missing"
        if (decision := coordinator.step(self.topology(), self.settings.tablet_bytes_target)) is not None:
            return f"the coordinator is not done: {decision.reason}"
        return ""

    def topology_left(self) -> str:
        tables = self.catalog.tables
        for what, those in {
            "members without a disk": [
                n for n, m in self.members().items() if self.disks[n].lost and is_member(m.state)
            ],
            "requests": topology.open_requests(tables),
            "transitions": list(topology.transitions(tables).values()),
            "sessions": rows.find(tables, s.sessions, closed_version=None),
            "transactions": rows.find(tables, s.transactions, state="open", expires_at=rows.Above(self.now)),
            "resizes": [one for one in resizes.all_resizes(tables).values() if one.type != "none"],
        }.items():
            if those:
                return f"{what} {those}"
        return ""

    def what_is_left(self) -> str:
        return self.left()

    def check_end(self) -> None:
        self.catalog.check(everything=True)
        for host in self.living():
            for base in self.catalog.bases.values():
                relation = reads.relation_by_id(self.catalog.tables, base.id)
                assert relation is not None
                snapshot = self.snapshot(host, relation)
                self.check_read(base, snapshot, self.check_reached(snapshot))
        self.living()[0].sweep()
        for node, disk in self.disks.items():
            named = reads.named_paths(self.catalog.tables, node)
            if disk.up:
                invariant("INV-TOPO-5", set(disk.files) == named, f"{node} has {set(disk.files) ^ named} wrongly")
        self.check_copies()
        members = self.members()
        for layout in self.topology().layouts.values():
            for replicas in layout.replicas:
                hosts = {replica.host for replica in replicas}
                sound = len(hosts) == len(replicas) == layout.replication
                sound = sound and all(members[host].state is NodeState.NORMAL for host in hosts)
                invariant("INV-TOPO-6", sound, f"{layout.name} of replication {layout.replication} is on {replicas}")

    def check_copies(self) -> None:
        """The manifest names no copies that no replica needs."""
        tables = self.catalog.tables
        for base in self.catalog.bases:
            relation = reads.relation_by_id(tables, base)
            assert relation is not None
            for run in reads.merge_replicas(rows.find(tables, s.runs, relation_id=base), relation.tablets):
                wanted = {node for tablet in tablets_with_rows(relation, run) for node in relation.placement[tablet]}
                stray = set(run.nodes) - wanted
                invariant("INV-TOPO-5", not stray, f"run {run.id} is on {run.nodes}, its tablets are on {wanted}")


def run(seed: int) -> Cluster:
    return run_in(Cluster(seed), "cluster")
