"""Small values to fill a catalog with, a clock that stands still, and a dump to compare whole catalogs by."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from ebla.base.ids import NodeId, RelationId, RunId, TabletId, TaskId, TransactionId, Version
from ebla.catalog import reads, rows, schema
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.model.relation import SPANS_TABLETS, Column, Kind, Relation, Run, RunSource, RunState
from ebla.model.segments import Segment
from ebla.model.snapshot import Snapshot
from ebla.model.tablets import ALL, token_range
from ebla.model.tasks import Replica, Task, TaskKind
from ebla.model.topology import Member
from ebla.model.topology_changes import AddNode

NODE = NodeId("node1")
NO_VIEW = RelationId(0)
"""The view of tasks that are created together with it."""
SECOND_US = 1_000_000
NOON_US = 1_800_000_000 * SECOND_US
"""Where a test's clock starts."""

Dump = dict[str, list[tuple[Any, ...]]]


class Clock:
    """A clock that moves only when told to."""

    def __init__(self, now_us: int = NOON_US) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        return self.now_us

    def advance(self, us: int) -> None:
        self.now_us += us


def dump(catalog: Catalog, *, without: Iterable[str] = ()) -> Dump:
    """Every row of every table, in an order that does not depend on the database; without ids made by chance.

    Which processes are alive is left out: their rows come and go with time, whatever is asked of the catalog.
    """
    with catalog.reading() as connection:
        return {
            table.name: sorted((_steady(row) for row in rows.find(connection, table)), key=repr)
            for table in schema.metadata.sorted_tables
            if table.name not in {schema.processes.name, *without}
        }


def _steady(row: Any) -> tuple[Any, ...]:
    return tuple(value for name, value in row._asdict().items() if name != schema.history.c.commit_id.name)


# ---- values ---------------------------------------------------------------------------------------------


def column(name: str, type_: str = "bigint", *, key: int | None = None, physical: str | None = None) -> Column:
    return Column(name=name, physical=physical or name, type=type_, nullable=key is None, key_position=key)


COLUMNS = (column("id", key=0), column("total", "decimal(12,2)"))


def new_relation(
    name: str,
    *,
    tablets: int = 2,
    nodes: Sequence[NodeId] = (NODE,),
    columns: tuple[Column, ...] = COLUMNS,
    kind: Kind = Kind.TABLE,
) -> c.CreateRelation:
    return c.CreateRelation(
        name=name,
        kind=kind,
        tablets=tablets,
        replication=len(nodes),
        columns=columns,
        placement=(tuple(nodes),) * tablets,
        comment=None,
        options={},
    )


_numbers = itertools.count(1)


def run(
    relation: RelationId,
    *,
    tablet: int = SPANS_TABLETS,
    tablets: int = 2,
    level: int = 0,
    id: str | None = None,
    nodes: Sequence[NodeId] = (NODE,),
    rows: int = 10,
    state: RunState = RunState.NORMAL,
    source: RunSource = RunSource.WRITE,
) -> Run:
    name = id or f"run{next(_numbers)}"
    tokens = ALL if tablet == SPANS_TABLETS else token_range(tablet, tablets)
    return Run(
        id=RunId(name),
        relation=relation,
        level=level,
        tablet=TabletId(tablet),
        token_min=tokens.first,
        token_max=tokens.last,
        rows=rows,
        tombstones=0,
        bytes=100 * rows,
        path=f"r{relation}/{name}.parquet",
        nodes=tuple(nodes),
        transaction=TransactionId(1),
        schema_version=1,
        key_min="[1]",
        key_max="[9]",
        state=state,
        source=source,
    )


def task(id: str, base: RelationId, view: RelationId | None = NO_VIEW, *, tablet: int = 0) -> Task:
    """A building task on the first shard; of `process_staging` where there is no view."""
    return Task(
        id=TaskId(id),
        kind=TaskKind.PROCESS_STAGING if view is None else TaskKind.BUILD_RANGE,
        base=base,
        view=view,
        tokens=token_range(tablet, 2),
        replica=Replica(NODE, 0),
    )


def member(name: str, **given: Any) -> Member:
    return Member(id=NodeId(name), name=name, root=f"/data/{name}", **given)


def task_ids(*names: str) -> frozenset[TaskId]:
    return frozenset(map(TaskId, names))


def segment(up_to: str | None, since: int, rows: int = 1) -> Segment[str]:
    return Segment(up_to=up_to, since=Version(since), rows=rows)


# ---- commits --------------------------------------------------------------------------------------------


def commit(catalog: Catalog, *updates: c.Update, reason: str = "test") -> c.CommitRecord:
    return catalog.commit(c.Decision(reason=reason, updates=updates))


def exclusively(catalog: Catalog, *updates: c.Update, reason: str = "test") -> c.CommitRecord:
    """A schema or topology commit, as `Catalog.decide` makes them."""
    committed = catalog.decide(lambda connection, at: c.Decision(reason=reason, updates=updates))
    assert committed is not None
    return committed


def create(catalog: Catalog, name: str, *, tablets: int = 2, nodes: Sequence[NodeId] = (NODE,)) -> Relation:
    exclusively(catalog, new_relation(name, tablets=tablets, nodes=nodes), reason=f"create {name}")
    return relation(catalog, name)


def create_index(catalog: Catalog, base: Relation, name: str = "by_total") -> RelationId:
    made = exclusively(catalog, new_relation(name, kind=Kind.INDEX), c.CreateIndex(base=base.id))
    assert made.relation is not None
    return made.relation


def put_nodes(catalog: Catalog, *names: str) -> None:
    exclusively(catalog, *(AddNode(node=member(n)) for n in names))


def add(catalog: Catalog, *runs: Run, bulk: bool = False) -> Version:
    return commit(catalog, c.AddRuns(runs=runs, level1_if_empty=bulk)).version


@contextmanager
def statements(catalog: Catalog, *, of_this_thread: bool = False) -> Iterator[list[str]]:
    """The statements that are sent to the database meanwhile, without those that begin a transaction.

    An open database looks at the topology each second, in a thread of its own.
    """
    sent, here = list[str](), threading.get_ident()

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN") and (not of_this_thread or threading.get_ident() == here):
            sent.append(statement)

    event.listen(catalog.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(catalog.engine, "before_cursor_execute", note)


# ---- reads ----------------------------------------------------------------------------------------------


def relation(catalog: Catalog, name: str, version: int | None = None) -> Relation:
    with catalog.reading() as connection:
        return reads.relation(connection, name, version=None if version is None else Version(version))


def snapshot(
    catalog: Catalog, target: Relation, version: int | None = None, tablets: Sequence[int] | None = None
) -> Snapshot:
    """The relation is read again, so that its horizon is the present one."""
    with catalog.reading() as connection:
        return reads.snapshot(
            connection,
            reads.relation_by_id(connection, target.id) or target,
            None if version is None else Version(version),
            None if tablets is None else [token_range(t, target.tablets) for t in tablets],
        )


def visible(catalog: Catalog, target: Relation, version: int | None = None) -> set[str]:
    found = snapshot(catalog, target, version)
    return {r.id for r in (*found.level0, *found.level1)}
