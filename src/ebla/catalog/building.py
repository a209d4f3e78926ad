"""Tasks, segments and what is built, as the catalog keeps them: checked, written and read inside one transaction.

Nothing here decides. An aborted task has no way back: the one statement that writes `aborted` after a task was created
sets it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, exists, func, insert, or_, select, update

from ebla.base import lazy
from ebla.base.ids import NodeId, RelationId, TabletId, TaskId, Version
from ebla.catalog import schema as s
from ebla.errors import ConflictError
from ebla.model.lifecycle.task import TaskState, is_open
from ebla.model.segments import Segment, Segments
from ebla.model.tasks import Build, Replica, Task, TaskKind

if TYPE_CHECKING:
    from ebla.model import changes as c
else:
    c = lazy.Module("ebla.model.changes")

PROCESSING_BASE = "view_building_processing_base"
"""The row of `meta` with the base that is being processed; there is none while nothing is."""

CHUNK = 500

_PACE = ("rows_per_minute", "chunk_rows", "concurrency", "on_hold")
"""How fast a view is built, as columns and as fields of `Build` and `AlterBuild`."""

_tasks = s.view_building_tasks
_segments = s.view_building_segments


def _parts(tasks: Iterable[TaskId]) -> Iterable[ColumnElement[bool]]:
    ordered = sorted(tasks)
    return (_tasks.c.id.in_(ordered[i : i + CHUNK]) for i in range(0, len(ordered), CHUNK))


# ---- requirements ---------------------------------------------------------------------------------------


def check(connection: Connection, requirement: c.TasksOpen | c.SegmentsBegin | c.NothingLeftToBuild) -> None:
    match requirement:
        case c.TasksOpen(tasks=tasks):
            _check_open(connection, tasks)
        case c.SegmentsBegin(view=view, tablet=tablet, segments=expected, exactly=exactly):
            found = segments_of_tablet(connection, view, tablet)
            if (found if exactly else found[: len(expected)]) != expected:
                raise ConflictError(
                    f"view {view} tablet {tablet}: expected it covered by {_text(expected)}, found {_text(found)}; "
                    "another worker or epoch came first: read again"
                )
        case c.NothingLeftToBuild(view=view):
            count = connection.execute(select(func.count()).where(_tasks.c.view_id == view)).scalar_one()
            if count:
                raise ConflictError(f"view {view}: expected no task left, found {count}")
            if not connection.execute(select(exists().where(s.view_builds.c.view_id == view))).scalar():
                raise ConflictError(f"view {view}: expected one that is being built, found it built or dropped")
        case _:
            assert_never(requirement)


def _check_open(connection: Connection, tasks: frozenset[TaskId]) -> None:
    found: dict[TaskId, TaskState] = {}
    for part in _parts(tasks):
        rows = connection.execute(select(_tasks.c.id, _tasks.c.aborted).where(part))
        found.update({TaskId(r.id): TaskState.ABORTED if r.aborted else TaskState.CREATED for r in rows})
    for task in sorted(tasks):
        state = found.get(task, TaskState.GONE)
        if not is_open(state):
            raise ConflictError(f"task {task}: expected open, found {state}; nothing of it was written")


def _text(segments: Segments[str]) -> str:
    return ", ".join(f"({s.up_to or 'the end'}, {s.since})" for s in segments) or "nothing"


# ---- updates --------------------------------------------------------------------------------------------


def apply(connection: Connection, change: c.BuildingUpdate, version: Version, created: RelationId | None) -> None:
    match change:
        case c.CreateBuild():
            _create_build(connection, change, version, created)
        case c.AlterBuild(view=view):
            pace = {name: getattr(change, name) for name in _PACE}
            connection.execute(update(s.view_builds).where(s.view_builds.c.view_id == view).values(pace))
        case c.CreateTasks(tasks=tasks):
            _insert_tasks(connection, tasks, version)
        case c.AbortTasks(tasks=ids):
            for part in _parts(ids):
                connection.execute(update(_tasks).where(part).values(aborted=True))
        case c.FinishTasks(tasks=ids):
            for part in _parts(ids):
                connection.execute(delete(_tasks).where(part, _tasks.c.aborted.is_(False)))
        case c.RemoveTasks(tasks=ids):
            for part in _parts(ids):
                connection.execute(delete(_tasks).where(part))
        case c.CoverSegment(view=view, tablet=tablet, segment=segment):
            last = select(func.max(_segments.c.ordinal)).where(_of(view, tablet))
            ordinal = connection.execute(last).scalar()
            _insert_segments(connection, view, tablet, (segment,), 0 if ordinal is None else ordinal + 1)
        case c.ReplaceSegments():
            _replace_segments(connection, change)
        case c.ForgetSegments(view=view):
            connection.execute(delete(_segments).where(_segments.c.view_id == view))
        case c.MarkBuilt(view=view):
            _forget_view(connection, view)
            connection.execute(insert(s.built_views), {"view_id": view, "built_version": version})
        case c.SetProcessingBase(base=base):
            connection.execute(delete(s.meta).where(s.meta.c.key == PROCESSING_BASE))
            if base is not None:
                connection.execute(insert(s.meta), {"key": PROCESSING_BASE, "value": str(base)})
        case _:
            assert_never(change)


def _create_build(connection: Connection, new: c.CreateBuild, version: Version, created: RelationId | None) -> None:
    build, tasks = new.build, new.tasks
    if new.of_created:
        if created is None:
            raise ValueError("expected a relation that this commit has created, found none")
        build = replace(build, view=created)
        tasks = tuple(replace(task, view=created) for task in tasks)
    row = {
        "view_id": build.view,
        "base_id": build.base,
        "created_version": version,
        **{name: getattr(build, name) for name in _PACE},
    }
    connection.execute(insert(s.view_builds), row)
    _insert_tasks(connection, tasks, version)


def _insert_tasks(connection: Connection, tasks: Iterable[Task], version: Version) -> None:
    rows = [
        {
            "key": "view_building",
            "id": task.id,
            "type": task.kind.value,
            "aborted": task.aborted,
            "base_id": task.base,
            "view_id": task.view,
            "base_tablet_id": task.tablet,
            "host_id": task.replica.host,
            "shard": task.replica.shard,
            "created_version": task.created or version,
        }
        for task in tasks
    ]
    if rows:
        connection.execute(insert(_tasks), rows)


def _replace_segments(connection: Connection, change: c.ReplaceSegments) -> None:
    """Ordinals only need an order: the new ones take the places of the old, of which there were at least as many."""
    of = _of(change.view, change.tablet)
    seen = select(_segments.c.ordinal).where(of).order_by(_segments.c.ordinal).limit(change.seen)
    ordinals = list(connection.execute(seen).scalars())
    if not len(change.segments) <= len(ordinals) == change.seen:
        raise ConflictError(
            f"view {change.view} tablet {change.tablet}: expected {change.seen} segments, found {len(ordinals)}"
        )
    if ordinals:
        connection.execute(delete(_segments).where(of, _segments.c.ordinal <= ordinals[-1]))
        _insert_segments(connection, change.view, change.tablet, change.segments, ordinals[0])


def _insert_segments(
    connection: Connection, view: RelationId, tablet: TabletId, segments: Segments[str], first: int
) -> None:
    rows = [
        {
            "view_id": view,
            "base_tablet_id": tablet,
            "ordinal": ordinal,
            "up_to": segment.up_to,
            "since_version": segment.since,
            "row_count": segment.rows,
        }
        for ordinal, segment in enumerate(segments, start=first)
    ]
    if rows:
        connection.execute(insert(_segments), rows)


def _of(view: RelationId, tablet: TabletId) -> ColumnElement[bool]:
    return and_(_segments.c.view_id == view, _segments.c.base_tablet_id == tablet)


def _forget_view(connection: Connection, view: RelationId) -> None:
    connection.execute(delete(_segments).where(_segments.c.view_id == view))
    connection.execute(delete(s.view_builds).where(s.view_builds.c.view_id == view))


def forget(connection: Connection, relation: RelationId) -> None:
    """A relation is dropped, be it a view, an index or a base: nothing of its building stays."""
    connection.execute(delete(_tasks).where(or_(_tasks.c.view_id == relation, _tasks.c.base_id == relation)))
    _forget_view(connection, relation)
    connection.execute(delete(s.built_views).where(s.built_views.c.view_id == relation))
    base = and_(s.meta.c.key == PROCESSING_BASE, s.meta.c.value == str(relation))
    connection.execute(delete(s.meta).where(base))


# ---- reads ----------------------------------------------------------------------------------------------


def tasks(connection: Connection) -> list[Task]:
    """All unfinished tasks, in the order of their turns."""
    rows = connection.execute(select(_tasks).order_by(_tasks.c.created_version, _tasks.c.base_tablet_id, _tasks.c.id))
    return [_task(row) for row in rows]


def tasks_of(connection: Connection, view: RelationId) -> list[Task]:
    """The unfinished tasks of one view."""
    rows = connection.execute(select(_tasks).where(_tasks.c.view_id == view).order_by(_tasks.c.base_tablet_id))
    return [_task(row) for row in rows]


def _task(row: Row[Any]) -> Task:
    return Task(
        id=TaskId(row.id),
        kind=TaskKind(row.type),
        base=RelationId(row.base_id),
        view=None if row.view_id is None else RelationId(row.view_id),
        tablet=TabletId(row.base_tablet_id),
        replica=Replica(NodeId(row.host_id), row.shard),
        aborted=bool(row.aborted),
        created=Version(row.created_version),
    )


def builds(connection: Connection) -> dict[RelationId, Build]:
    rows = connection.execute(select(s.view_builds).order_by(s.view_builds.c.created_version))
    return {
        RelationId(r.view_id): Build(
            view=RelationId(r.view_id),
            base=RelationId(r.base_id),
            rows_per_minute=r.rows_per_minute,
            chunk_rows=r.chunk_rows,
            concurrency=r.concurrency,
            on_hold=bool(r.on_hold),
            created=Version(r.created_version),
        )
        for r in rows
    }


def built(connection: Connection) -> dict[RelationId, Version]:
    return {RelationId(r.view_id): Version(r.built_version) for r in connection.execute(select(s.built_views))}


def processing_base(connection: Connection) -> RelationId | None:
    value = connection.execute(select(s.meta.c.value).where(s.meta.c.key == PROCESSING_BASE)).scalar()
    return None if value is None else RelationId(int(value))


def segments(connection: Connection, view: RelationId) -> dict[TabletId, Segments[str]]:
    """What a view covers, by tablet."""
    query = select(_segments).where(_segments.c.view_id == view)
    found: dict[TabletId, list[Segment[str]]] = {}
    for r in connection.execute(query.order_by(_segments.c.base_tablet_id, _segments.c.ordinal)):
        found.setdefault(TabletId(r.base_tablet_id), []).append(_segment(r))
    return {tablet: tuple(covered) for tablet, covered in found.items()}


def segments_of_tablet(connection: Connection, view: RelationId, tablet: TabletId) -> Segments[str]:
    rows = connection.execute(select(_segments).where(_of(view, tablet)).order_by(_segments.c.ordinal))
    return tuple(_segment(r) for r in rows)


def spans(connection: Connection) -> dict[RelationId, tuple[Version, Version]]:
    """The oldest and the newest version among the segments of each view."""
    since = _segments.c.since_version
    rows = connection.execute(
        select(_segments.c.view_id, func.min(since), func.max(since)).group_by(_segments.c.view_id)
    )
    return {RelationId(view): (Version(oldest), Version(newest)) for view, oldest, newest in rows}


def _segment(row: Row[Any]) -> Segment[str]:
    return Segment(up_to=row.up_to, since=Version(row.since_version), rows=row.row_count)
