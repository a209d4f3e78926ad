"""What the simulated world is made of: a catalog in memory, and relations as dictionaries.

A base has integer keys, spread over its tablets. A view shows `(value, word)` for every row of its base whose value is
not a multiple of its `hidden`, where `word` comes from a dictionary table by `value % 3`: a join and a filter. So rows
come, change and go by changes of either table. An index has an entry `(value, key)` for every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ebla.base.ids import NodeId, RelationId, TabletId, TaskId, Term, Version
from ebla.build.state import Span, State
from ebla.errors import ConflictError, StaleTermError
from ebla.model import changes as c
from ebla.model.lifecycle.index import Permission, backfill_level, may_read, writer_deletes, writer_inserts
from ebla.model.segments import Segment, Segments, covering, is_covered
from ebla.model.tasks import Build, Replica, Task

Row = tuple[int, int]
Rows = Mapping[int, Row | None]
WORDS = 3


class Violation(AssertionError):
    """An invariant does not hold."""


def invariant(name: str, holds: bool, found: str) -> None:
    if not holds:
        raise Violation(f"{name}: {found}")


def text(key: int) -> str:
    """A key as the catalog keeps it; texts sort as their keys do."""
    return f"{key:04d}"


class History:
    """Values by key, at every version."""

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[Version, int | None]]] = {}

    def write(self, key: int, value: int | None, version: Version) -> None:
        self._of.setdefault(key, []).append((version, value))

    def at(self, key: int, version: Version) -> int | None:
        return next((value for when, value in reversed(self._of.get(key, ())) if when <= version), None)

    def keys(self) -> Iterable[int]:
        return self._of

    def changed(self, key: int, version: Version) -> Version:
        """When the key last changed, up to a version."""
        return next((when for when, _ in reversed(self._of.get(key, ())) if when <= version), Version(0))


@dataclass(kw_only=True)
class Base:
    id: RelationId
    tablets: int
    placement: dict[TabletId, Replica]
    rows: History = field(default_factory=History)
    staged: dict[TaskId, dict[int, int]] = field(default_factory=dict)
    """Rows of staged runs, by the task that must process them."""
    moving: dict[TabletId, Replica] = field(default_factory=dict)

    def tablet(self, key: int) -> TabletId:
        return TabletId(key % self.tablets)

    def keys(self, tablet: TabletId) -> list[int]:
        return sorted(k for k in self.rows.keys() if self.tablet(k) == tablet)  # noqa: SIM118


@dataclass(kw_only=True)
class View:
    id: RelationId
    base: Base
    hidden: int
    rows: dict[int, Row] = field(default_factory=dict)
    applied: Version = Version(0)  # noqa: RUF009


@dataclass(kw_only=True)
class Index:
    """Entries by row key: level 1 comes from the backfill, level 0 from writers; `None` is a tombstone."""

    id: RelationId
    base: Base
    state: Permission = Permission.DELETE_ONLY
    stepped: int = 0
    """Transactions that began before this one may not know the state."""
    read: Version = Version(0)  # noqa: RUF009
    level1: set[tuple[int, int]] = field(default_factory=set)
    level0: dict[tuple[int, int], bool] = field(default_factory=dict)

    def entries(self) -> set[tuple[int, int]]:
        above = {entry for entry, there in self.level0.items() if there}
        return above | {entry for entry in self.level1 if entry not in self.level0}


class Catalog:
    """The catalog's rules for building, as `ebla.catalog.building` has them, on dictionaries."""

    def __init__(self) -> None:
        self.version = Version(1)
        self.bases: dict[RelationId, Base] = {}
        self.words = History()
        self.views: dict[RelationId, View] = {}
        self.indexes: dict[RelationId, Index] = {}
        self.dropped: set[RelationId] = set()
        self.tasks: dict[TaskId, Task] = {}
        self.builds: dict[RelationId, Build] = {}
        self.segments: dict[tuple[RelationId, TabletId], list[Segment[str]]] = {}
        self.built: dict[RelationId, Version] = {}
        self.processing: RelationId | None = None
        self.term = Term(0)
        self.holder = ""
        self.ever_aborted: set[TaskId] = set()
        self.ever_created: set[TaskId] = set()
        self.changed = 0
        self._suspects: set[RelationId] = set()
        """Views and indexes that a commit has touched since the last check. The past of a base never changes."""
        self.counts: Counter[str] = Counter()
        """What happened, so that a test can see that everything does."""
        self._tasks_moved = False

    def count(self, what: str) -> None:
        self.counts[what] += 1

    # ---- reads ------------------------------------------------------------------------------------------

    def covered(self, view: RelationId, tablet: TabletId) -> Segments[str]:
        return tuple(self.segments.get((view, tablet), ()))

    def row(self, view: View, key: int, version: Version) -> Row | None:
        """What the view's query gives for a key of its base at a version."""
        value = view.base.rows.at(key, version)
        word = None if value is None else self.words.at(value % WORDS, version)
        return None if value is None or word is None or value % view.hidden == 0 else (value, word)

    def touched(self, view: View, key: int, version: Version) -> Version:
        """When a change last touched the view's row of a key, directly or through the dictionary."""
        value = view.base.rows.at(key, version)
        own = view.base.rows.changed(key, version)
        return own if value is None else max(own, self.words.changed(value % WORDS, version))

    def state(self, alive: Iterable[NodeId]) -> State:
        spans = {}
        for view in self.builds:
            since = [s.since for (v, _), covered in self.segments.items() if v == view for s in covered]
            if since:
                spans[view] = Span(oldest=min(since), newest=max(since))
        applied: dict[RelationId, Version | None] = {v.id: v.applied for v in self.views.values()}
        held = [i.id for i in self.indexes.values() if backfill_level(i.state) is None]
        return State.of(
            sorted(self.tasks.values(), key=lambda t: (t.created, t.tablet, t.id)),
            builds=dict(self.builds),
            spans=spans,
            applied=applied | dict.fromkeys(self.indexes, None),
            unmoved={v.id: c.ProgressIs(name=str(v.id), value=str(v.applied)) for v in self.views.values()},
            held=held,
            processing=self.processing,
            alive=alive,
        )

    # ---- commits ----------------------------------------------------------------------------------------

    def commit(
        self,
        updates: Iterable[c.Update],
        requires: Iterable[c.Requirement] = (),
        rows: Mapping[RelationId, Rows] | None = None,
    ) -> Version:
        for requirement in requires:
            self._check(requirement)
        self.version = Version(self.version + 1)
        self.changed += 1
        for view, changes in (rows or {}).items():
            into = self.views[view].rows
            self._suspects.add(view)
            for key, row in changes.items():
                if row is None:
                    into.pop(key, None)
                else:
                    into[key] = row
        for update in updates:
            self._apply(update)
        return self.version

    def _check(self, requirement: c.Requirement) -> None:
        match requirement:
            case c.TermIs(holder=holder, term=term):
                if (holder, term) != (self.holder, self.term):
                    raise StaleTermError(f"expected term {term}, found {self.term}")
            case c.TasksOpen(tasks=tasks):
                for task in tasks:
                    if task not in self.tasks or self.tasks[task].aborted:
                        raise ConflictError(f"task {task} is not open")
            case c.SegmentsBegin(view=view, tablet=tablet, segments=expected, exactly=exactly):
                found = self.covered(view, tablet)
                if (found if exactly else found[: len(expected)]) != expected:
                    raise ConflictError(f"view {view} tablet {tablet}: segments have changed")
            case c.NothingLeftToBuild(view=view):
                if any(task.view == view for task in self.tasks.values()):
                    raise ConflictError(f"view {view} has tasks")
                if view not in self.builds:
                    raise ConflictError(f"view {view} is not being built")
            case c.ProgressIs(name=name, value=value):
                found_view = self.views.get(RelationId(int(name)))
                if found_view is None or str(found_view.applied) != value:
                    raise ConflictError(f"view {name} was changed")
            case _:
                raise NotImplementedError(requirement)

    def _apply(self, update: c.Update) -> None:
        self._tasks_moved = True
        self._suspects |= {getattr(update, "view", None) or RelationId(0)}
        match update:
            case c.CreateBuild(build=build, tasks=tasks):
                self.builds[build.view] = replace(build, created=self.version)
                self._create(tasks)
            case c.AlterBuild(view=view, rows_per_minute=rate, concurrency=most, on_hold=on_hold):
                if view in self.builds:
                    altered = replace(self.builds[view], rows_per_minute=rate, concurrency=most, on_hold=on_hold)
                    self.builds[view] = altered
            case c.CreateTasks(tasks=tasks):
                self._create(tasks)
            case c.AbortTasks(tasks=ids):
                for task in ids & self.tasks.keys():
                    self.tasks[task] = replace(self.tasks[task], aborted=True)
                    self.ever_aborted.add(task)
                    self.count("tasks aborted")
            case c.FinishTasks(tasks=ids):
                for task in ids & self.tasks.keys():
                    if not self.tasks[task].aborted:
                        self._finish(self.tasks.pop(task))
                        self.count("tasks finished")
                    else:
                        self.count("finished tasks that were aborted")
            case c.RemoveTasks(tasks=ids):
                for task in ids:
                    self.tasks.pop(task, None)
            case c.CoverSegment(view=view, tablet=tablet, segment=segment):
                self.segments.setdefault((view, tablet), []).append(segment)
            case c.ReplaceSegments(view=view, tablet=tablet, seen=seen, segments=segments):
                self.segments[view, tablet][:seen] = segments
            case c.MarkBuilt(view=view):
                self._mark_built(view)
            case c.SetProcessingBase(base=base):
                self.processing = base
            case c.SetProgress(name=name, value=value):
                self.views[RelationId(int(name))].applied = Version(int(value))
                self._suspects.add(RelationId(int(name)))
            case c.DropRelation(relation=relation):
                self._drop(relation)
            case _:
                raise NotImplementedError(update)

    def _create(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            invariant("INV-BUILD-7", task.id not in self.ever_created, f"id {task.id} is used again")
            self.ever_created.add(task.id)
            self.tasks[task.id] = replace(task, created=task.created or self.version)

    def _finish(self, task: Task) -> None:
        if task.view is None:
            done = task.id not in self.bases[task.base].staged
        else:
            done = is_covered(self.covered(task.view, task.tablet))
        invariant("INV-BUILD-3", done, f"task {task.id} was removed as finished and is not done")

    def _mark_built(self, view: RelationId) -> None:
        base = (self.views.get(view) or self.indexes[view]).base
        for tablet in range(base.tablets):
            found = self.covered(view, TabletId(tablet))
            invariant("INV-BUILD-5", is_covered(found), f"view {view} is built, tablet {tablet} has {found}")
            if view in self.views:
                level = {s.since for s in found} == {self.views[view].applied}
                invariant("INV-BUILD-5", level, f"view {view} at {self.views[view].applied} has {found}")
        if view in self.indexes:
            self.indexes[view].state = Permission.READ_WRITE_AND_DELETE
        self._forget(view)
        self.built[view] = self.version
        self.count("views built" if view in self.views else "indexes built")

    def _forget(self, view: RelationId) -> None:
        self.builds.pop(view, None)
        for place in [p for p in self.segments if p[0] == view]:
            del self.segments[place]

    def _drop(self, relation: RelationId) -> None:
        self.dropped.add(relation)
        self.count("drops of what was being built" if relation in self.builds else "drops")
        self._forget(relation)
        self.built.pop(relation, None)
        self.views.pop(relation, None)
        self.indexes.pop(relation, None)
        for task in [t for t in self.tasks.values() if t.view == relation]:
            del self.tasks[task.id]

    # ---- writers ----------------------------------------------------------------------------------------

    def write(self, base: Base, key: int, value: int | None, permissions: Mapping[RelationId, Permission]) -> None:
        """One row changes, with the index entries that the writer knows of, in one commit."""
        self.commit(())
        self.put_row(base, key, value, permissions)

    def put_row(self, base: Base, key: int, value: int | None, permissions: Mapping[RelationId, Permission]) -> None:
        """A part of the newest commit."""
        before = base.rows.at(key, self.version)
        base.rows.write(key, value, self.version)
        for index in self.indexes.values():
            if index.base is not base:
                continue
            self._suspects.add(index.id)
            state = permissions.get(index.id, Permission.ABSENT)
            if before is not None and before != value and writer_deletes(state):
                index.level0[before, key] = False
            if value is not None and writer_inserts(state):
                index.level0[value, key] = True

    # ---- invariants -------------------------------------------------------------------------------------

    def check(self, *, everything: bool = False) -> None:
        suspects, self._suspects = self._suspects, set()
        for view in self.views.values():
            if everything or view.id in suspects:
                self._check_rows(view)
        for index in self.indexes.values():
            if may_read(index.state) and (everything or index.id in suspects):
                self._check_index(index)
        if self._tasks_moved or everything:
            self._tasks_moved = False
            self._check_building()

    def _check_building(self) -> None:
        for view_id in self.builds:
            self._check_tasks(view_id)
        for task in self.ever_aborted & self.tasks.keys():
            invariant("INV-BUILD-7", self.tasks[task].aborted, f"task {task} was aborted and is open")
        for relation in self.dropped:
            left = [str(t.id) for t in self.tasks.values() if t.view == relation]
            left += [str(place) for place in self.segments if place[0] == relation]
            gone = relation not in self.views and relation not in self.built and relation not in self.builds
            invariant("INV-BUILD-2", gone and not left, f"dropped relation {relation} left {left}")

    def _check_rows(self, view: View) -> None:
        covered = {TabletId(t): self.covered(view.id, TabletId(t)) for t in range(view.base.tablets)}
        for key in view.base.rows.keys():  # noqa: SIM118
            if view.id in self.built:
                expected = self.row(view, key, view.applied)
            else:
                segment = covering(covered[view.base.tablet(key)], text(key))
                expected = None if segment is None else self.row(view, key, segment.since)
            found = view.rows.get(key)
            invariant("INV-BUILD-1", found == expected, f"view {view.id} key {key}: expected {expected}, found {found}")

    def _check_index(self, index: Index) -> None:
        now = ((index.base.rows.at(key, self.version), key) for key in index.base.rows.keys())  # noqa: SIM118
        expected = {(value, key) for value, key in now if value is not None}
        found = index.entries()
        invariant("INV-BUILD-1", found == expected, f"index {index.id}: {sorted(found ^ expected)} differ")

    def _check_tasks(self, view: RelationId) -> None:
        base = (self.views.get(view) or self.indexes[view]).base
        for number in range(base.tablets):
            tablet = TabletId(number)
            found = [t.id for t in self.tasks.values() if t.view == view and t.tablet == tablet]
            least = 0 if is_covered(self.covered(view, tablet)) else 1
            invariant("INV-BUILD-3", least <= len(found) <= 1, f"view {view} tablet {tablet} has tasks {found}")
            ends = [s.up_to for s in self.covered(view, tablet)]
            known = [e for e in ends if e is not None]
            sound = known == sorted(set(known)) and None not in ends[:-1]
            invariant("INV-BUILD-4", sound, f"view {view} tablet {tablet} is covered twice: {ends}")
