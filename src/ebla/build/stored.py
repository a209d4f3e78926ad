"""The coordinator's state as the catalog keeps it; the first tasks of a view or index, and those of staged runs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select

from ebla.build.model import Replica, Task, TaskKind
from ebla.build.staging import Arrival, Destination, ViewStage, destination
from ebla.build.state import Span, State
from ebla.build.states import Permission
from ebla.catalog import building, indexing, reads, troubles
from ebla.catalog import changes as c
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.catalog.apply import called
from ebla.catalog.troubles import Activity
from ebla.ids import NodeId, RelationId, TabletId, TaskId, Version
from ebla.indexes.steps import Standing, not_yet
from ebla.storage.model import Kind, Relation
from ebla.views.definition import Position, progress_name

NO_RELATION = RelationId(0)
"""The base of a view whose query names no table."""


def load(connection: Connection, alive: Iterable[NodeId], unchecked: Iterable[RelationId] = ()) -> State:
    """All of it, in one consistent read. Which nodes are alive, and what is checked already, is not in the catalog."""
    builds = building.builds(connection)
    tasks = building.tasks(connection)
    spans = {v: Span(*span) for v, span in building.spans(connection).items()}
    processing = building.processing_base(connection)
    stored = positions(connection, builds)
    standing = standings(connection)
    unmoved: dict[RelationId, c.Requirement] = {one.index: one.unmoved for one in standing}
    for view, reached in stored.items():
        if reached is not None:
            unmoved[view] = c.ProgressIs(name=progress_name(view), value=reached.text)
    unread = {view: build.base for view, build in builds.items() if view not in spans and build.base != processing}
    concerned = {*builds, *(build.base for build in builds.values()), *(task.base for task in tasks)}
    open_of = {task.view for task in tasks if task.view is not None}
    return State.of(
        tasks,
        builds=builds,
        spans=spans,
        applied={v: None if p is None else p.applied_version for v, p in stored.items()},
        unmoved=unmoved,
        processing=processing,
        alive=alive,
        held=held(connection, stored) | not_yet(standing, unread, open_of),
        walking=[one.index for one in standing],
        unchecked=unchecked,
        retry_us={
            t.relation: t.retry_at
            for t in troubles.everything(connection)
            if t.work is Activity.BUILD and t.retry_at is not None
        },
        names={relation: called(connection, relation) for relation in concerned},
    )


def standings(connection: Connection, base: RelationId | None = None) -> list[Standing]:
    """Indexes that are on their way somewhere, of all bases or of one, and who keeps each from its next step."""
    states = indexing.all_states(connection) if base is None else indexing.of_base(connection, base)
    moving = [one for one in states if one.state not in (Permission.ABSENT, Permission.READ_WRITE_AND_DELETE)]
    began = reads.committed_at(connection, [one.since for one in moving]) if moving else {}
    return [
        Standing(
            index=one.index,
            base=one.base,
            state=one.state,
            since=one.since,
            read_version=one.read_version,
            began_us=began.get(one.since, 0),
            blockers=tuple(w.transaction for w in tx.begun_before(connection, one.base, one.since)),
        )
        for one in moving
    ]


def held(connection: Connection, views: Mapping[RelationId, Reached | None]) -> set[RelationId]:
    """Views that wait: for a view that they read and that is not built, or for somebody who mends what failed."""
    waiting = {view for view, reached in views.items() if reached is not None and reached.failed}
    options = connection.execute(
        select(s.relations.c.relation_id, s.relations.c.options).where(s.relations.c.relation_id.in_(list(views)))
    )
    for view, text in options:
        inputs = json.loads(text).get("inputs", [])
        if any(RelationId(i) in views for i in inputs):
            waiting.add(RelationId(view))
    return waiting


def mended(connection: Connection, builds: Iterable[RelationId]) -> list[RelationId]:
    """Views whose build failed on a row, and one of whose inputs was written to since."""
    found = []
    for view, reached in positions(connection, builds).items():
        if reached is None or not reached.failed or reached.tried is None:
            continue
        text = connection.execute(select(s.relations.c.options).where(s.relations.c.relation_id == view)).scalar()
        inputs = [RelationId(i) for i in json.loads(text or "{}").get("inputs", [])]
        if any(reads.first_write_after(connection, number, reached.tried) is not None for number in inputs):
            found.append(view)
    return found


def first_tasks(connection: Connection, base: Relation | None, node: NodeId, *, together: bool) -> tuple[Task, ...]:
    """The tasks that build a new view or index: one for each tablet of its base, on its first replica.

    A view that is not driven by its base has all of them in one place (`together`): it stands at one version, so that
    two workers would only be in each other's way.
    """
    places = {TabletId(0): Replica(node, 0)} if base is None else _places(connection, base)
    first = next(iter(places.values()))
    return tuple(
        Task(
            id=TaskId(str(uuid.uuid4())),
            kind=TaskKind.BUILD_RANGE,
            base=NO_RELATION if base is None else base.id,
            view=NO_RELATION,
            tablet=tablet,
            replica=first if together else replica,
        )
        for tablet, replica in places.items()
    )


def _places(connection: Connection, base: Relation) -> dict[TabletId, Replica]:
    """The first replica of each tablet."""
    rows = connection.execute(
        select(s.tablets.c.tablet_id, s.tablets.c.host_id, s.tablets.c.shard)
        .where(s.tablets.c.relation_id == base.id)
        .order_by(s.tablets.c.tablet_id, s.tablets.c.ordinal.desc())
    )
    return {TabletId(r.tablet_id): Replica(NodeId(r.host_id), r.shard) for r in rows}


def staging_tasks(connection: Connection, base: Relation, tablets: Iterable[TabletId]) -> tuple[Task, ...]:
    """The tasks that make staged runs visible: one for each tablet that has some."""
    places = _places(connection, base)
    return tuple(
        Task(
            id=TaskId(str(uuid.uuid4())),
            kind=TaskKind.PROCESS_STAGING,
            base=base.id,
            view=None,
            tablet=tablet,
            replica=places[tablet],
        )
        for tablet in sorted(set(tablets))
    )


def destination_of(connection: Connection, base: Relation, arrival: Arrival) -> Destination:
    """Where runs that arrive for a table go. Every table is the coordinator's."""
    return destination(view_stages(connection, base.id).values(), arrival)


def view_stages(connection: Connection, base: RelationId) -> dict[RelationId, ViewStage]:
    """How far each view that reads a table is. An index is none: whoever makes a row visible brings its entries."""
    builds, built, spans = building.builds(connection), building.built(connection), building.spans(connection)
    processing = building.processing_base(connection)
    views = select(s.relations.c.relation_id, s.relations.c.options).where(
        s.relations.c.kind == Kind.VIEW.value, s.relations.c.dropped_version.is_(None)
    )
    found: dict[RelationId, ViewStage] = {}
    for row in connection.execute(views):
        view = RelationId(row.relation_id)
        if base not in json.loads(row.options).get("inputs", []):
            continue
        if view in builds:
            begun = view in spans or processing == builds[view].base
            found[view] = ViewStage.STARTED if begun else ViewStage.NOT_STARTED
        else:
            found[view] = ViewStage.BUILT if view in built else ViewStage.NOT_STARTED
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How far epochs have brought a view, and the text that says so."""

    applied_version: Version
    text: str | None
    failed: bool = False
    tried: int | None = None
    """Of one that failed: up to which version of its inputs that was."""


def positions(connection: Connection, views: Iterable[RelationId]) -> dict[RelationId, Reached | None]:
    """Where each of these stands; `None` for an index, which its writers keep."""
    kinds = connection.execute(
        select(s.relations.c.relation_id, s.relations.c.kind).where(s.relations.c.relation_id.in_(list(views)))
    )
    nowhere = Reached(applied_version=Version(0), text=None)
    found = {RelationId(r.relation_id): None if r.kind == Kind.INDEX else nowhere for r in kinds}
    names = {progress_name(view): view for view, reached in found.items() if reached is not None}
    rows = connection.execute(select(s.progress).where(s.progress.c.name.in_(list(names))))
    for row in rows:
        position = Position.parse(row.value)
        failed = position.status == "failed"
        found[names[row.name]] = Reached(
            applied_version=position.applied_version,
            text=row.value,
            failed=failed,
            tried=min(position.tried.values(), default=None),
        )
    return found
