"""Tasks, segments and what is built: the rules of their requirements and updates, and their reads.

An aborted task has no way back: the one update that writes `aborted` after a task was created sets it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never

from ebla.base import lazy
from ebla.base.ids import NodeId, RelationId, TabletId, TaskId, Version
from ebla.catalog import rows, view_states
from ebla.catalog import schema as s
from ebla.catalog.rows import Change, State
from ebla.errors import ConflictError
from ebla.model.chunks import Covered, cut_at
from ebla.model.lifecycle.task import TaskState, is_open
from ebla.model.segments import Segment, Segments
from ebla.model.tablets import TokenRange, number_of, token_ranges
from ebla.model.task_maps import in_map
from ebla.model.tasks import Build, Replica, Task, TaskKind

if TYPE_CHECKING:
    from ebla.model import changes as c
else:
    c = lazy.Module("ebla.model.changes")

PROCESSING_BASE = "view_building_processing_base"
"""The row of `meta` with the base that is being processed; there is none while nothing is."""

_PACE = ("rows_per_minute", "chunk_rows", "concurrency", "on_hold")
"""How fast a view is built, as columns and as fields of `Build` and `AlterBuild`."""

_tasks = s.view_building_tasks
_segments = s.view_building_segments


# ---- requirements ---------------------------------------------------------------------------------------


def require_building(state: State, requirement: c.TasksOpen | c.SegmentsBegin | c.NothingLeftToBuild) -> None:
    match requirement:
        case c.TasksOpen(tasks=tasks):
            stored = rows.find(state, _tasks, id=tasks)
            found = {row.id: TaskState.ABORTED if row.aborted else TaskState.CREATED for row in stored}
            for task in sorted(tasks):
                is_now = found.get(task, TaskState.GONE)
                if not is_open(is_now):
                    raise ConflictError(f"task {task}: expected open, found {is_now}; nothing of it was written")
        case c.SegmentsBegin(view=view, tokens=tokens, segments=expected, exactly=exactly):
            covered = segments_of(state, view, tokens)
            if (covered if exactly else covered[: len(expected)]) != expected:
                raise ConflictError(
                    f"view {view} {tokens}: expected it covered by {_text(expected)}, found {_text(covered)}; "
                    "another worker or epoch came first: read again"
                )
        case c.NothingLeftToBuild(view=view):
            left = rows.values(state, _tasks.c.id, view_id=view)
            if left:
                raise ConflictError(f"view {view}: expected no task left, found {len(left)}")
            if rows.one(state, s.view_builds, view_id=view) is None:
                raise ConflictError(f"view {view}: expected one that is being built, found it built or dropped")
        case _:
            assert_never(requirement)


def _text(segments: Segments[str]) -> str:
    return ", ".join(f"({s.up_to or 'the end'}, {s.since})" for s in segments) or "nothing"


# ---- updates --------------------------------------------------------------------------------------------


def changes(state: State, update: c.BuildingUpdate, version: Version, created: RelationId | None) -> tuple[Change, ...]:
    match update:
        case c.CreateBuild():
            return _create_build(update, version, created)
        case c.AlterBuild(view=view):
            pace = {name: getattr(update, name) for name in _PACE}
            return (rows.update(s.view_builds, pace, view_id=view),)
        case c.CreateTasks(tasks=tasks):
            return (_insert_tasks(tasks, version),)
        case c.AbortTasks(tasks=ids):
            return (rows.update(_tasks, {"aborted": True}, id=ids),)
        case c.FinishTasks(tasks=ids):
            return (rows.delete(_tasks, id=ids, aborted=False),)
        case c.RemoveTasks(tasks=ids):
            return (rows.delete(_tasks, id=ids),)
        case c.CoverSegment(view=view, tokens=tokens, segment=segment):
            last = rows.greatest(state, _segments.c.ordinal, view_id=view, **_key(tokens))
            return (_insert_segments(view, tokens, (segment,), 0 if last is None else last + 1),)
        case c.ReplaceSegments():
            return _replace_segments(state, update)
        case c.ForgetSegments(view=view):
            return (rows.delete(_segments, view_id=view),)
        case c.SetViewState():
            return (view_states.advance(state, update, version),)
        case c.MarkBuilt(view=view):
            built = rows.insert(s.built_views, [{"view_id": view, "built_version": version}])
            return (*view_states.ready(state, view, version), *_forget_view(view), built)
        case c.SetProcessingBase(base=None):
            return (rows.delete(s.meta, key=PROCESSING_BASE),)
        case c.SetProcessingBase(base=base):
            return (rows.put(s.meta, key=PROCESSING_BASE, value=str(base)),)
        case _:
            assert_never(update)


def _create_build(new: c.CreateBuild, version: Version, created: RelationId | None) -> tuple[Change, ...]:
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
    return rows.insert(s.view_builds, [row]), _insert_tasks(tasks, version)


def _insert_tasks(tasks: Iterable[Task], version: Version) -> Change:
    return rows.insert(
        _tasks,
        [
            {
                "key": "view_building",
                "id": task.id,
                "type": task.kind.value,
                "aborted": task.aborted,
                "base_id": task.base,
                "view_id": task.view,
                "base_tablet_id": number_of(task.tokens),
                **_key(task.tokens),
                "host_id": task.replica.host,
                "shard": task.replica.shard,
                "created_version": task.created or version,
            }
            for task in tasks
        ],
    )


def _replace_segments(state: State, new: c.ReplaceSegments) -> tuple[Change, ...]:
    """Ordinals only need an order: the new ones take the places of the old, of which there were at least as many."""
    found = rows.find(state, _segments, "ordinal", view_id=new.view, **_key(new.tokens))
    ordinals = [row.ordinal for row in found[: new.seen]]
    if not len(new.segments) <= len(ordinals) == new.seen:
        raise ConflictError(f"view {new.view} {new.tokens}: expected {new.seen} segments, found {len(ordinals)}")
    if not ordinals:
        return ()
    replaced = rows.AtMost(ordinals[-1])
    return (
        rows.delete(_segments, view_id=new.view, ordinal=replaced, **_key(new.tokens)),
        _insert_segments(new.view, new.tokens, new.segments, ordinals[0]),
    )


def resize(
    state: State, base: RelationId, placement: Sequence[Sequence[Replica]], version: Version
) -> tuple[Change, ...]:
    """What views cover of a base, cut where its new tablets are, and the tasks of these."""
    tablets = len(placement)
    old = [_task(row) for row in rows.find(state, _tasks, "created_version", "token_min", "id", base_id=base)]
    changed: list[Change] = []
    if old:
        new_tasks = in_map(old, placement, lambda task, tablet: _next_id(task, tablet, version))
        changed = [rows.delete(_tasks, id=frozenset(task.id for task in old)), _insert_tasks(new_tasks, version)]
    for view in rows.values(state, s.view_builds.c.view_id, base_id=base):
        before = segments(state, view)
        after = cut_at(before, token_ranges(tablets))
        changed += [rows.delete(_segments, view_id=view, **_key(tokens)) for tokens in before.keys() - after.keys()]
        new = sorted(after.keys() - before.keys())
        changed += [_insert_segments(view, tokens, after[tokens], 0) for tokens in new]
    return tuple(changed)


def _next_id(task: Task, tablet: TabletId, version: Version) -> TaskId:
    """Of the task that goes on with another in a tablet of the map that begins at this version."""
    return TaskId(str(uuid.uuid5(uuid.NAMESPACE_OID, f"{task.id} {tablet} {version}")))


def _key(tokens: TokenRange) -> dict[str, int]:
    return {"token_min": tokens.first, "token_max": tokens.last}


def _insert_segments(view: RelationId, tokens: TokenRange, segments: Segments[str], first: int) -> Change:
    return rows.insert(
        _segments,
        [
            {
                "view_id": view,
                **_key(tokens),
                "ordinal": ordinal,
                "up_to": segment.up_to,
                "since_version": segment.since,
                "row_count": segment.rows,
            }
            for ordinal, segment in enumerate(segments, start=first)
        ],
    )


def _forget_view(view: RelationId) -> tuple[Change, ...]:
    return rows.delete(_segments, view_id=view), rows.delete(s.view_builds, view_id=view)


def forget(relation: RelationId) -> tuple[Change, ...]:
    """A relation is dropped, be it a view, an index or a base: nothing of its building stays."""
    return (
        rows.delete(_tasks, view_id=relation),
        rows.delete(_tasks, base_id=relation),
        *_forget_view(relation),
        view_states.forget(relation),
        rows.delete(s.built_views, view_id=relation),
        rows.delete(s.meta, key=PROCESSING_BASE, value=str(relation)),
    )


# ---- reads ----------------------------------------------------------------------------------------------


def tasks(state: State) -> list[Task]:
    """All unfinished tasks, in the order of their turns."""
    return [_task(row) for row in rows.find(state, _tasks, "created_version", "token_min", "id")]


def tasks_of(state: State, view: RelationId) -> list[Task]:
    """The unfinished tasks of one view."""
    return [_task(row) for row in rows.find(state, _tasks, "token_min", view_id=view)]


def _task(row: Any) -> Task:
    return Task(
        id=TaskId(row.id),
        kind=TaskKind(row.type),
        base=RelationId(row.base_id),
        view=None if row.view_id is None else RelationId(row.view_id),
        tokens=TokenRange(row.token_min, row.token_max),
        replica=Replica(NodeId(row.host_id), row.shard),
        aborted=bool(row.aborted),
        created=Version(row.created_version),
    )


def builds(state: State) -> dict[RelationId, Build]:
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
        for r in rows.find(state, s.view_builds, "created_version")
    }


def built(state: State) -> dict[RelationId, Version]:
    return {RelationId(r.view_id): Version(r.built_version) for r in rows.find(state, s.built_views)}


def processing_base(state: State) -> RelationId | None:
    row = rows.one(state, s.meta, key=PROCESSING_BASE)
    return None if row is None else RelationId(int(row.value))


def segments(state: State, view: RelationId) -> Covered:
    """What a view covers of its base, in the order of tokens."""
    found: dict[TokenRange, list[Segment[str]]] = {}
    for r in rows.find(state, _segments, "token_min", "ordinal", view_id=view):
        found.setdefault(TokenRange(r.token_min, r.token_max), []).append(_segment(r))
    return {tokens: tuple(covered) for tokens, covered in found.items()}


def segments_of(state: State, view: RelationId, tokens: TokenRange) -> Segments[str]:
    return tuple(map(_segment, rows.find(state, _segments, "ordinal", view_id=view, **_key(tokens))))


def spans(state: State) -> dict[RelationId, tuple[Version, Version]]:
    """The oldest and the newest version among the segments of each view."""
    found = rows.extremes(state, _segments.c.since_version, by=(_segments.c.view_id,))
    return {RelationId(view): (Version(oldest), Version(newest)) for (view,), (oldest, newest) in found.items()}


def _segment(row: Any) -> Segment[str]:
    return Segment(up_to=row.up_to, since=Version(row.since_version), rows=row.row_count)
