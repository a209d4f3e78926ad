"""What the simulated world is made of: a catalog in memory, and relations as dictionaries.

A base has integer keys, spread over its tablets. A view shows `(value, word)` for every row of its base whose value is
not a multiple of its `hidden`, where `word` comes from a dictionary table by `value % 3`: a join and a filter. So rows
come, change and go by changes of either table. An index has an entry `(value, key)` for every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from sqlalchemy import Table

from ebla.base.ids import NodeId, RelationId, TabletId, TaskId, Term, Version
from ebla.build.state import Span, State
from ebla.catalog import build_tasks, index_states, memory, rows
from ebla.catalog import schema as s
from ebla.catalog.apply import carry_out
from ebla.model import changes as c
from ebla.model.chunks import Covered, covers, position_of
from ebla.model.lifecycle.index import Permission, backfill_level, may_read, writer_deletes, writer_inserts
from ebla.model.relation import FOREVER
from ebla.model.segments import covering
from ebla.model.tablets import TokenRange, token_ranges
from ebla.model.tasks import LEASE, Build, Replica, Task
from support.tables import Tables

Found = TypeVar("Found")
Row = tuple[int, int]
Rows = Mapping[int, Row | None]
Places = dict[tuple[RelationId | None, TokenRange], list[TaskId]]
WORDS = 3
OF_SCHEMA = c.CreateRelation | c.CreateIndex | c.SetIndexState
BUILDING = (s.view_building_tasks, s.view_building_segments, s.view_builds, s.built_views, s.relations)


class Violation(BaseException):
    """An invariant does not hold. Nothing that handles errors takes it."""


def invariant(name: str, holds: bool, found: str) -> None:
    if not holds:
        raise Violation(f"{name}: {found}")


def token(key: int) -> int:
    return key * 0x9E3779B97F4A7C15 % 2**64 - 2**63


def position(key: int) -> str:
    """A key as the catalog keeps it."""
    return position_of(token(key))


class History:
    """Values by key, at every version."""

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[Version, int | None]]] = {}

    def write(self, key: int, value: int | None, version: Version) -> None:
        self._of.setdefault(key, []).append((version, value))

    def at(self, key: int, version: Version) -> int | None:
        for when, value in reversed(self._of.get(key, ())):
            if when <= version:
                return value
        return None

    def keys(self) -> Iterable[int]:
        return self._of

    def changed(self, key: int, version: Version) -> Version:
        """When the key last changed, up to a version."""
        for when, _ in reversed(self._of.get(key, ())):
            if when <= version:
                return when
        return Version(0)


@dataclass(kw_only=True)
class Base:
    id: RelationId
    tablets: int
    placement: dict[TabletId, Replica]
    rows: History = field(default_factory=History)
    staged: dict[int, tuple[TokenRange, dict[int, int]]] = field(default_factory=dict)
    """Staged runs by number: tokens and rows."""
    moving: dict[TabletId, Replica] = field(default_factory=dict)

    def keys(self, tokens: TokenRange) -> list[int]:
        """In the order of tokens."""
        found = (k for k in self.rows.keys() if tokens.first <= token(k) <= tokens.last)  # noqa: SIM118
        return sorted(found, key=token)

    def staged_in(self, tokens: TokenRange) -> list[int]:
        """Staged runs with some tokens, oldest first."""
        return sorted(number for number, (other, _) in self.staged.items() if tokens.overlaps(other))


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
    """The catalog's own rules, on dictionaries; beside it what relations hold, and what must be true of both."""

    def __init__(self, clock: Callable[[], int] = lambda: 0) -> None:
        self.clock = clock
        self.has_guards = False
        """Whether commits of the schema are exclusive: others decide from it."""
        self.tables = Tables()
        self.version = Version(1)
        memory.put(self.tables, "version", self.version)
        self.tables.keep()
        self.bases: dict[RelationId, Base] = {}
        self.words = History()
        self.views: dict[RelationId, View] = {}
        self.indexes: dict[RelationId, Index] = {}
        self.dropped: set[RelationId] = set()
        self.term = Term(0)
        self.holder = ""
        self.ever_aborted: set[TaskId] = set()
        self.ever_created: set[TaskId] = set()
        self.changed = 0
        self._suspects: set[RelationId] = set()
        """Views and indexes that a commit has touched since the last check. The past of a base never changes."""
        self.counts: Counter[str] = Counter()
        """What happened, so that a test can see that everything does."""
        self._read: dict[object, tuple[int, Any]] = {}
        """What was read of tables, with how often they had changed by then."""
        self._checked = 0

    def count(self, what: str) -> None:
        self.counts[what] += 1

    # ---- reads ------------------------------------------------------------------------------------------

    def _once(self, table: Table, key: object, read: Callable[[], Found]) -> Found:
        """What `read` returns, or has returned since the table last changed."""
        moved = self.tables.moves[table]
        if key not in self._read or self._read[key][0] != moved:
            self._read[key] = (moved, read())
        found: Found = self._read[key][1]
        return found

    @property
    def tasks(self) -> dict[TaskId, Task]:
        """In the order of their turns."""
        read = lambda: {task.id: task for task in build_tasks.tasks(self.tables)}  # noqa: E731
        return self._once(s.view_building_tasks, "tasks", read)

    @property
    def builds(self) -> dict[RelationId, Build]:
        return self._once(s.view_builds, "builds", lambda: build_tasks.builds(self.tables))

    @property
    def built(self) -> dict[RelationId, Version]:
        return self._once(s.built_views, "built", lambda: build_tasks.built(self.tables))

    @property
    def processing(self) -> RelationId | None:
        return build_tasks.processing_base(self.tables)

    def segments(self, view: RelationId) -> Covered:
        return self._once(s.view_building_segments, view, lambda: build_tasks.segments(self.tables, view))

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
        applied: dict[RelationId, Version | None] = {v.id: v.applied for v in self.views.values()}
        unmoved: dict[RelationId, c.Requirement] = {
            v.id: c.ProgressIs(name=str(v.id), value=str(v.applied)) for v in self.views.values()
        }
        states = index_states.all_states(self.tables)
        for one in states:
            unmoved[one.index] = c.IndexIs(
                index=one.index, state=one.state, since=one.since, read_version=one.read_version
            )
        return State.of(
            self.tasks.values(),
            builds=self.builds,
            spans={view: Span(*span) for view, span in build_tasks.spans(self.tables).items() if view in self.builds},
            applied=applied | dict.fromkeys(self.indexes, None),
            unmoved=unmoved,
            held=[one.index for one in states if backfill_level(one.state) is None],
            walking=[one.index for one in states if not may_read(one.state)],
            processing=self.processing,
            alive=alive,
        )

    # ---- commits ----------------------------------------------------------------------------------------

    def lead(self, holder: str) -> None:
        """A process takes the lease. Its term is new, also for the holder before."""
        self.holder, self.term = holder, Term(self.term + 1)
        self.tables.write(rows.put(s.leases, name=LEASE, holder=holder, term=self.term, expires_at=FOREVER))
        self.tables.keep()

    def commit(
        self,
        updates: Collection[c.Update],
        requires: Iterable[c.Requirement] = (),
        rows: Mapping[RelationId, Rows] | None = None,
    ) -> Version:
        decision = c.Decision(
            reason="simulated",
            updates=tuple(updates),
            requires=tuple(requires),
            exclusive=self.has_guards and any(isinstance(update, c.RelationUpdate | OF_SCHEMA) for update in updates),
        )
        watched = self.watch(decision)
        with self.tables.changing():
            version, _ = carry_out(self.tables, decision, self.clock())
        for view, changes in (rows or {}).items():
            into = self.views[view].rows
            self._suspects.add(view)
            for key, row in changes.items():
                if row is None:
                    into.pop(key, None)
                else:
                    into[key] = row
        watched(version)
        return version

    def watch(self, decision: c.Decision) -> Callable[[Version], None]:
        """Look at a commit: as things are before it, and, with what is returned, as they are behind it."""
        after = [note for update in decision.updates for note in self._expect(update)]

        def committed(version: Version) -> None:
            self.version = version
            self.changed += 1
            for note in after:
                note()

        return committed

    def _expect(self, update: c.Update) -> list[Callable[[], None]]:
        """What must be true of an update, as things are before it, to be looked at if its commit succeeds."""
        match update:
            case c.CreateBuild(tasks=tasks) | c.CreateTasks(tasks=tasks):
                return [lambda: self._created(tasks)]
            case c.AbortTasks(tasks=ids):
                return [lambda: self._aborted(ids)]
            case c.FinishTasks(tasks=ids):
                known = [self.tasks[task] for task in ids & self.tasks.keys()]
                done = {task.id: self._is_done(task) for task in known}
                return [lambda: self._finished(known, done)]
            case c.MarkBuilt(view=view):
                covered = self.segments(view)
                return [lambda: self._marked_built(view, covered)]
            case c.SetProgress(name=name, value=value):
                return [lambda: self._moved(RelationId(int(name)), Version(int(value)))]
            case c.SetIndexState(index=index):
                return [lambda: self._stepped(index)]
            case c.DropRelation(relation=relation):
                what = "drops of what was being built" if relation in self.builds else "drops"
                return [lambda: self._dropped(relation, what)]
            case c.SetTabletMap(relation=relation):
                before = {task.id for task in self.tasks.values() if task.base == relation}
                return [lambda: self._resized(relation, before)]
            case c.AlterBuild(view=view) | c.CoverSegment(view=view) | c.ReplaceSegments(view=view):
                return [lambda: self._suspects.add(view)]
            case _:
                return []

    def _resized(self, base: RelationId, before: Collection[TaskId]) -> None:
        self._suspects.update(view.id for view in self.views.values() if view.base.id == base)
        after = [task for task in self.tasks.values() if task.base == base]
        invariant("INV-BUILD-7", not {task.id for task in after} & set(before), "a task kept its id through a resize")
        self._created(after)

    def _created(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            invariant("INV-BUILD-7", task.id not in self.ever_created, f"id {task.id} is used again")
            self.ever_created.add(task.id)

    def _aborted(self, ids: Iterable[TaskId]) -> None:
        for task in self.tasks.keys() & ids:
            self.ever_aborted.add(task)
            self.count("tasks aborted")

    def _is_done(self, task: Task) -> bool:
        if task.view is None:
            base = self.bases[task.base]
            others = [t.tokens for t in self.tasks.values() if t.base == task.base and t.view is None and t != task]
            left = [base.staged[number][0] for number in base.staged_in(task.tokens)]
            return all(any(one.overlaps(run) for one in others) for run in left)
        return covers(self.segments(task.view), task.tokens)

    def _finished(self, tasks: Iterable[Task], done: Mapping[TaskId, bool]) -> None:
        for task in tasks:
            if task.aborted:
                self.count("finished tasks that were aborted")
            else:
                invariant("INV-BUILD-3", done[task.id], f"task {task.id} was removed as finished and is not done")
                self.count("tasks finished")

    def _marked_built(self, view: RelationId, covered: Covered) -> None:
        self._suspects.add(view)
        invariant("INV-BUILD-5", covers(covered), f"view {view} is built, {covered} is covered")
        if view in self.views:
            level = {s.since for found in covered.values() for s in found} == {self.views[view].applied}
            invariant("INV-BUILD-5", level, f"view {view} at {self.views[view].applied} has {covered}")
        self.count("views built" if view in self.views else "indexes built")

    def _moved(self, view: RelationId, applied: Version) -> None:
        self.views[view].applied = applied
        self._suspects.add(view)

    def _stepped(self, index: RelationId) -> None:
        found = index_states.of_index(self.tables, index)
        assert found is not None
        self.indexes[index].state = found.state
        self.indexes[index].read = found.read_version or Version(0)

    def _dropped(self, relation: RelationId, what: str) -> None:
        self.dropped.add(relation)
        self.count(what)
        self.views.pop(relation, None)
        self.indexes.pop(relation, None)

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

    def flip(self, base: Base, number: int, requires: Iterable[c.Requirement]) -> None:
        """Staged rows become visible, with the index entries, in one commit."""
        self.commit((), requires)
        self.count("staged runs")
        self.put_staged(base, number)

    def put_staged(self, base: Base, number: int) -> None:
        """A part of the newest commit."""
        known = {index.id: index.state for index in self.indexes.values()}
        _, rows = base.staged.pop(number)
        for key, value in rows.items():
            self.put_row(base, key, value, known)

    # ---- invariants -------------------------------------------------------------------------------------

    def check(self, *, everything: bool = False) -> None:
        suspects, self._suspects = self._suspects, set()
        for view in self.views.values():
            if everything or view.id in suspects:
                self._check_rows(view)
        for index in self.indexes.values():
            if may_read(index.state) and (everything or index.id in suspects):
                self._check_index(index)
        moved = sum(self.tables.moves[table] for table in BUILDING)
        if moved != self._checked or everything:
            self._checked = moved
            self._check_building()

    def _check_building(self) -> None:
        places: Places = {}
        for one in self.tasks.values():
            places.setdefault((one.view, one.tokens), []).append(one.id)
        for task in self.ever_aborted & self.tasks.keys():
            invariant("INV-BUILD-7", self.tasks[task].aborted, f"task {task} was aborted and is open")
        there = {*self.views, *self.built, *self.builds, *(view for view, _ in places)}
        left = self.dropped & {*there, *rows.values(self.tables, s.view_building_segments.c.view_id)}
        invariant("INV-BUILD-2", not left, f"of dropped relations {left} something is left")
        for view_id in self.builds:
            self._check_tasks(view_id, places)

    def _check_rows(self, view: View) -> None:
        covered = self.segments(view.id)
        built = view.id in self.built
        for key in view.base.rows.keys():  # noqa: SIM118
            if built:
                expected = self.row(view, key, view.applied)
            else:
                around = [found for tokens, found in covered.items() if tokens.first <= token(key) <= tokens.last]
                segment = covering(around[0], position(key)) if around else None
                expected = None if segment is None else self.row(view, key, segment.since)
            found = view.rows.get(key)
            if found != expected:
                raise Violation(f"INV-BUILD-1: view {view.id} key {key}: expected {expected}, found {found}")

    def _check_index(self, index: Index) -> None:
        now = ((index.base.rows.at(key, self.version), key) for key in index.base.rows.keys())  # noqa: SIM118
        expected = {(value, key) for value, key in now if value is not None}
        found = index.entries()
        invariant("INV-BUILD-1", found == expected, f"index {index.id}: {sorted(found ^ expected)} differ")

    def _check_tasks(self, view: RelationId, places: Places) -> None:
        base = (self.views.get(view) or self.indexes[view]).base
        covered = self.segments(view)
        tablets = token_ranges(base.tablets)
        known_places = {tokens for of, tokens in places if of == view}
        invariant("INV-BUILD-3", known_places <= {*tablets}, f"view {view} has tasks in {known_places}")
        for tablet in tablets:
            found = places.get((view, tablet), [])
            least = 0 if covers(covered, tablet) else 1
            invariant("INV-BUILD-3", least <= len(found) <= 1, f"view {view} {tablet} has tasks {found}")
        apart = all(one.last < other.first for one, other in pairwise(covered))
        inside = all(any(tablet.holds(tokens) for tablet in tablets) for tokens in covered)
        invariant("INV-BUILD-4", apart and inside, f"view {view} is covered in {list(covered)}")
        for tokens, segments in covered.items():
            ends = [s.up_to for s in segments]
            known = [e for e in ends if e is not None]
            sound = known == sorted(set(known)) and None not in ends[:-1]
            invariant("INV-BUILD-4", sound, f"view {view} {tokens} is covered twice: {ends}")
