"""What child processes do to a catalog; see `support.processes`. Everything that matters is printed at once."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ebla.base.ids import NodeId, RelationId, RunId, TabletId, TransactionId, Version
from ebla.catalog import topology
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import DuplicateNameError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.access import PutGrant, PutUser, RemoveUser, Right, UserRole
from ebla.model.failure import Failure
from ebla.model.lifecycle.index import Permission
from ebla.model.lifecycle.node import NodeState
from ebla.model.lifecycle.tablet import Stage
from ebla.model.lifecycle.view import ViewState
from ebla.model.relation import Constraint, Kind, RunState
from ebla.model.tablets import token_range
from ebla.model.tasks import Build, Replica
from ebla.model.topology import RequestKind, RequestState, Resize, ResizeType, TransitionKind
from support.catalogs import (
    COLUMNS,
    NO_VIEW,
    NODE,
    Clock,
    add,
    column,
    commit,
    create,
    exclusively,
    member,
    new_relation,
    put_nodes,
    run,
    segment,
    task,
    task_ids,
)

OTHER = NodeId("node2")
STOPPED = RelationId(7)
BUILT, MOVING, AGAIN = (RelationId(n) for n in (91, 92, 93))
"""Views that are being built. That they are no relations changes nothing here."""
INDEX = RelationId(6)


def say(text: object) -> None:
    print(text, flush=True)


def wait_for(gate: str) -> None:
    """Spin until the file is there, so that several processes begin in the same instant."""
    while not os.path.exists(gate):
        pass


# ---- opening and deciding -------------------------------------------------------------------------------


def open_only(url: str, gate: str | None = None) -> None:
    if gate is not None:
        wait_for(gate)
    catalog = Catalog.open(url)
    say(catalog.version())
    catalog.close()


def create_relations(url: str, prefix: str, count: int, gate: str) -> None:
    """Create relations one after another, or say which name was taken."""
    catalog = Catalog.open(url)
    wait_for(gate)
    for number in range(count):
        name = f"{prefix}{number}"
        try:
            exclusively(catalog, new_relation(name), reason=f"create {name}")
        except DuplicateNameError:
            say(f"duplicate {name}")
        else:
            say(f"created {name}")
    catalog.close()


# ---- one commit with every kind of update ---------------------------------------------------------------


def prepare(catalog: Catalog) -> None:
    """The state that `every_update` starts from, the same in every catalog."""
    put_nodes(catalog, NODE, OTHER)
    orders = create(catalog, "orders", tablets=4)
    for name in ("dropped", "old_name", "truncated", "vacuumed"):
        target = create(catalog, name)
        add(catalog, run(target.id, id=f"{name}-1", tablet=0, level=1), run(target.id, id=f"{name}-2"))
    add(catalog, *(run(orders.id, id=f"orders-{n}", tablet=n % 4, tablets=4, level=n // 4) for n in range(8)))
    add(catalog, run(orders.id, id="staged", state=RunState.STAGING))
    commit(catalog, c.EndRuns(relation=RelationId(5), runs=frozenset({RunId("vacuumed-1")})))
    commit(catalog, c.OpenSession(session="copy", purpose="test"), c.SetProgress(name="view", value="1"))
    commit(
        catalog,
        c.PutHandler(name="old", settings="{}", should_run=False),
        c.LogDictionaryChanges(
            changes=(c.DictionaryChange(relation=orders.id, version=Version(8), key="[1]", columns=("*",)),)
        ),
    )
    for view, first in ((BUILT, 0), (MOVING, 2), (AGAIN, 4)):
        build = Build(view=view, base=orders.id)
        tasks = tuple(task(f"task-{first + n}", orders.id, view, tablet=n) for n in range(2))
        covered = c.CoverSegment(view=view, tokens=token_range(0, 2), segment=segment("[5]", 3))
        commit(catalog, c.CreateBuild(build=build, tasks=tasks), covered)
    commit(catalog, c.FinishTasks(tasks=task_ids("task-0", "task-1")))
    exclusively(catalog, new_relation("indexed", kind=Kind.INDEX), c.CreateIndex(base=orders.id))
    exclusively(catalog, c.SetIndexState(index=INDEX, state=Permission.WRITE_AND_DELETE))
    add(catalog, run(INDEX, id="entries"))
    exclusively(catalog, new_relation("stopped", kind=Kind.VIEW))
    for node in (NODE, OTHER):
        exclusively(catalog, t.AddRequest(kind=RequestKind.REBUILD, holder="test", node=node))
    tx.begin(catalog, orders, node=NODE, holder="test", reason="test", lease_us=60_000_000)


def every_update(catalog: Catalog) -> c.Decision:
    orders, dropped, renamed, truncated, vacuumed = (RelationId(n) for n in range(1, 6))
    return c.Decision(
        reason="everything at once",
        exclusive=True,
        requires=(c.TransactionOpen(transaction=TransactionId(1)), c.SessionOpen(session="copy")),
        updates=(
            new_relation("created", nodes=(NODE, OTHER)),
            c.AddRuns(runs=tuple(run(orders, id=f"new-{n}", nodes=(NODE, OTHER)) for n in range(3))),
            c.AddCopies(relation=orders, copies=((RunId("orders-5"), OTHER),)),
            c.EndRuns(relation=orders, runs=frozenset({RunId("orders-0"), RunId("orders-4")})),
            c.SetCutoff(relation=orders, tablets=(token_range(0, 2),), cutoff=Version(7)),
            c.SetRunState(runs=frozenset({RunId("staged")}), state=RunState.NORMAL),
            c.EndTransaction(transaction=TransactionId(1)),
            c.SetProgress(name="view", value="2"),
            c.DropRelation(relation=dropped),
            c.RenameRelation(relation=renamed, name="new_name"),
            c.SetRelationComment(relation=orders, comment="what was ordered"),
            c.SetColumns(relation=orders, columns=(*COLUMNS, column("note", "string"))),
            c.SetConstraints(relation=renamed, constraints=(Constraint(name="few", text="id < 9"),)),
            c.TruncateRelation(relation=truncated),
            c.SetHorizon(relation=vacuumed, horizon=catalog.version()),
            *_every_transition_update(truncated),
            t.SetResize(relation=vacuumed, resize=Resize(type=ResizeType.SPLIT, number=1, tablets=4)),
            t.ReportCut(relation=vacuumed, tablets=(TabletId(1),), host=NODE, number=1),
            t.PublishGenerations(),
            *_every_topology_update(catalog),
            c.SetPlacement(relation=orders, placement=((OTHER, NODE),) * 4),
            c.SetTabletMap(relation=renamed, tablets=1),
            c.OpenSession(session="another", purpose="test"),
            c.CloseSession(session="copy"),
            c.PutHandler(name="shop", settings="{}", should_run=True),
            c.RemoveHandler(name="old"),
            c.LogDictionaryChanges(
                changes=(c.DictionaryChange(relation=orders, version=Version(9), key="[1]", columns=("total",)),)
            ),
            c.ForgetDictionaryChanges(relation=orders, version=Version(8)),
            *_every_building_update(orders),
            PutUser(name="ada", role=UserRole.READER, token_digest="0"),
            PutGrant(user="ada", relation=orders, right=Right.WRITE),
            RemoveUser(name="bob"),
            c.CreateIndex(base=orders),
            c.SetIndexState(index=INDEX, state=Permission.BACKFILLING),
        ),
    )


def _every_topology_update(catalog: Catalog) -> tuple[c.Update, ...]:
    with catalog.reading() as connection:
        first, second = topology.open_requests(connection)
    return (
        t.NameCluster(name="shop"),
        t.AddNode(node=member("node3", rack="rack2")),
        t.SetNodeBuild(node=OTHER, release="9.9", features=frozenset({"new"}), address="http://other:7601"),
        t.SetNodeState(node=OTHER, state=NodeState.REBUILDING),
        t.AddRequest(kind=RequestKind.NEW_CDC_GENERATION, holder="test"),
        t.BeginRequest(request=second.id),
        t.BeginGenerations(request=second.id, relation=RelationId(1)),
        t.EndRequest(request=first.id, state=RequestState.DONE, result="it is rebuilt"),
        t.SetBalancing(on=False),
    )


def _every_transition_update(target: RelationId) -> tuple[c.Update, ...]:
    """A tablet begins to move, and goes back."""
    place = target, TabletId(0)
    back = (Stage.ALLOW_WRITE_BOTH_READ_OLD, Stage.CLEANUP_TARGET, Stage.REVERT_MIGRATION)
    leaving, pending = Replica(NODE, 0), Replica(OTHER, 0)
    return (
        t.BeginTransition(tablet=place, kind=TransitionKind.MIGRATION, leaving=leaving, pending=pending),
        t.FailTransition(tablet=place, stage=back[0], failure="the disk is full"),
        t.AdvanceTransition(tablet=place, stage=back[0], to=back[1]),
        t.AdvanceTransition(tablet=place, stage=back[1], to=back[2]),
        t.EndTransition(tablet=place, stage=back[2]),
        t.SetReplication(relation=target, replication=2),
    )


def _every_building_update(orders: RelationId) -> tuple[c.Update, ...]:
    zero = token_range(0, 2)
    return (
        c.CreateBuild(build=Build(view=NO_VIEW, base=orders), tasks=(task("new-0", orders),), of_created=True),
        c.AlterBuild(view=MOVING, rows_per_minute=60, chunk_rows=5),
        c.AbortTasks(tasks=task_ids("task-2")),
        c.RemoveTasks(tasks=task_ids("task-3")),
        c.CreateTasks(tasks=(task("task-3-again", orders, MOVING, tablet=1),)),
        c.FinishTasks(tasks=task_ids("task-2", "task-5")),
        c.CoverSegment(view=MOVING, tokens=zero, segment=segment("[7]", 4)),
        c.ReplaceSegments(view=MOVING, tokens=zero, seen=1, segments=(segment("[5]", 9),)),
        c.ForgetSegments(view=AGAIN),
        c.MarkBuilt(view=BUILT),
        c.SetViewState(view=STOPPED, state=ViewState.BUILD_FAILED, failure=Failure(code="E", message="a row", at=5)),
        c.SetProcessingBase(base=orders),
    )


def commit_everything(url: str) -> None:
    catalog = Catalog.open(url, clock=Clock())
    say(catalog.commit(every_update(catalog), node=NODE).version)
    catalog.close()


# ---- commits without end --------------------------------------------------------------------------------

RUNS_PER_COMMIT = 3


def commit_forever(url: str, name: str) -> None:
    """Print each version once it is committed. Each names its runs and its progress after its transaction."""
    catalog = Catalog.open(url)
    for _ in itertools.count():
        transaction = tx.begin(catalog, None, node=NODE, holder=name, reason="loop", lease_us=60_000_000)
        runs = tuple(run(RelationId(1), id=f"t{transaction.id}-{n}") for n in range(RUNS_PER_COMMIT))
        committed = catalog.commit(
            c.Decision(
                reason=str(transaction.id),
                transaction=transaction.id,
                requires=(c.TransactionOpen(transaction=transaction.id),),
                updates=(
                    c.AddRuns(runs=runs),
                    c.SetProgress(name="loop", value=str(transaction.id)),
                    c.EndTransaction(transaction=transaction.id),
                ),
            )
        )
        say(committed.version)


# ---- groups ---------------------------------------------------------------------------------------------

GROUP = 3


def together(catalog: Catalog, works: Sequence[Callable[[], object]]) -> list[object]:
    """Have changes wait for the catalog, one behind the other, and then go; an exception becomes a result."""

    def one(work: Callable[[], object]) -> object:
        try:
            return work()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        with catalog.writing():
            going = []
            for number, work in enumerate(works, start=1):
                going.append(pool.submit(one, work))
                while catalog.queue.waiting < number:
                    os.sched_yield()
        return [each.result() for each in going]


def commit_together(url: str) -> None:
    catalog = Catalog.open(url)
    decisions = [
        c.Decision(reason=f"write {n}", updates=(c.AddRuns(runs=(run(RelationId(1)),)),)) for n in range(GROUP)
    ]
    together(catalog, [partial(catalog.commit, decision) for decision in decisions])


# ---- leases ---------------------------------------------------------------------------------------------


def take_lease(url: str, holder: str, gate: str) -> None:
    catalog = Catalog.open(url)
    wait_for(gate)
    lease = tx.lead(catalog, "leader", holder, 60_000_000)
    say("none" if lease is None else lease.term)
    catalog.close()
