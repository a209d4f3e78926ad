"""Everything that the coordinator decides on, read from the catalog, with the orders in which it asks.

Theory of operation. The state is what the catalog said at one moment, plus which nodes are alive. It is loaded whole
by the loop that runs the coordinator, and may then be kept up to date task by task (`put`, `remove`), because reading a
hundred thousand rows takes longer than deciding on them. The indexes inside follow the questions of a decision: which
bases have tasks, on which replicas, in which tablets. All are dictionaries in the order of turns (`created`, oldest
first), so the first entry that can be done is the one whose turn it is, and no question walks through all tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ebla.base.ids import NodeId, RelationId, TaskId, Version
from ebla.model.changes import Requirement
from ebla.model.lifecycle.task import TaskState, is_open
from ebla.model.tablets import TokenRange
from ebla.model.tasks import NOT_YET, Build, Replica, Task, TaskKind

ByTask = dict[TaskId, Task]
ByTablet = dict[tuple[TokenRange, TaskKind], ByTask]
ByReplica = dict[Replica, ByTablet]


class Span(NamedTuple):
    oldest: Version
    newest: Version


class Room:
    """How many more tablets of each view with a `concurrency` may be worked on; others have no bound."""

    def __init__(self, builds: Mapping[RelationId, Build]) -> None:
        self._left: dict[RelationId | None, int] = {
            view: build.concurrency for view, build in builds.items() if build.concurrency is not None
        }

    def has(self, task: Task) -> bool:
        return self._left.get(task.view, 1) > 0

    def take(self, task: Task) -> bool:
        """Whether there was room for one more."""
        if not self.has(task):
            return False
        if task.view in self._left:
            self._left[task.view] -= 1
        return True

    def __bool__(self) -> bool:
        return bool(self._left)


@dataclass(slots=True, kw_only=True)
class State:
    tasks: ByTask = field(default_factory=dict)
    bases: dict[RelationId, ByReplica] = field(default_factory=dict)
    """Tasks that are not aborted."""
    open_of: dict[RelationId, int] = field(default_factory=dict)
    """How many tasks each view has left, aborted ones included."""
    builds: Mapping[RelationId, Build] = field(default_factory=dict)
    """Views and indexes that are not built."""
    spans: Mapping[RelationId, Span] = field(default_factory=dict)
    """The oldest and the newest version among the segments of each view."""
    applied: Mapping[RelationId, Version | None] = field(default_factory=dict)
    """Up to where epochs have brought each view; `None` for an index, which its writers keep."""
    unmoved: Mapping[RelationId, Requirement] = field(default_factory=dict)
    """What holds as long as no epoch has moved a view, and no step an index, since the state was read."""
    held: frozenset[RelationId] = frozenset()
    """Views and indexes whose tasks cannot begin yet: an index before `BACKFILLING`."""
    walking: frozenset[RelationId] = frozenset()
    """Indexes on their way from one permission state to the next, be it to be read or to go."""
    unchecked: frozenset[RelationId] = frozenset()
    """Views and indexes whose rows were not compared with the base yet."""
    processing: RelationId | None = None
    alive: frozenset[NodeId] = frozenset()
    retry_us: Mapping[RelationId, int] = field(default_factory=dict)
    """When work for a relation that something went wrong with is tried again."""
    names: Mapping[RelationId, str] = field(default_factory=dict)
    """The names of relations that are built or read, for messages."""

    @classmethod
    def of(
        cls,
        tasks: Iterable[Task],
        *,
        builds: Mapping[RelationId, Build] | None = None,
        spans: Mapping[RelationId, Span] | None = None,
        applied: Mapping[RelationId, Version | None] | None = None,
        unmoved: Mapping[RelationId, Requirement] | None = None,
        held: Iterable[RelationId] = (),
        walking: Iterable[RelationId] = (),
        unchecked: Iterable[RelationId] = (),
        processing: RelationId | None = None,
        alive: Iterable[NodeId] = (),
        retry_us: Mapping[RelationId, int] | None = None,
        names: Mapping[RelationId, str] | None = None,
    ) -> State:
        """The state of tasks, which come in the order of their turns."""
        state = cls(
            builds=builds or {},
            spans=spans or {},
            applied=applied or {},
            unmoved=unmoved or {},
            held=frozenset(held),
            walking=frozenset(walking),
            unchecked=frozenset(unchecked),
            processing=processing,
            alive=frozenset(alive),
            retry_us=retry_us or {},
            names=names or {},
        )
        for task in tasks:
            state.put(task)
        return state

    def called(self, relation: RelationId) -> str:
        return self.names.get(relation, f"relation {relation}")

    def put(self, task: Task) -> None:
        """A task that is new, or that was aborted. New ones come in the order of their turns."""
        self.remove(task.id)
        self.tasks[task.id] = task
        if task.view is not None:
            self.open_of[task.view] = self.open_of.get(task.view, 0) + 1
        if not task.aborted:
            by_tablet = self.bases.setdefault(task.base, {}).setdefault(task.replica, {})
            by_tablet.setdefault((task.tokens, task.kind), {})[task.id] = task

    def remove(self, task_id: TaskId) -> None:
        task = self.tasks.pop(task_id, None)
        if task is None:
            return
        if task.view is not None:
            self.open_of[task.view] -= 1
            if self.open_of[task.view] == 0:
                del self.open_of[task.view]
        if task.aborted:
            return
        by_replica = self.bases[task.base]
        by_tablet = by_replica[task.replica]
        of_tablet = by_tablet[task.tokens, task.kind]
        del of_tablet[task_id]
        if not of_tablet:
            del by_tablet[task.tokens, task.kind]
        if not by_tablet:
            del by_replica[task.replica]
        if not by_replica:
            del self.bases[task.base]

    # ---- questions --------------------------------------------------------------------------------------

    def is_open(self, task_id: TaskId) -> bool:
        """Whether a chunk of the task may be committed."""
        return is_open(self.state_of(task_id))

    def state_of(self, task_id: TaskId) -> TaskState:
        """The state of a task that the catalog has."""
        task = self.tasks.get(task_id)
        return TaskState.GONE if task is None else task.state

    def replicas(self, base: RelationId) -> Iterator[tuple[Replica, ByTablet]]:
        """Where a base has tasks, on living nodes."""
        for replica, by_tablet in self.bases.get(base, {}).items():
            if replica.host in self.alive:
                yield replica, by_tablet

    def is_paused(self, task: Task) -> bool:
        """Whether its view's rate is 0, or its index is not to be filled yet."""
        if task.view is None:
            return False
        build = self.builds.get(task.view)
        return task.view in self.held or (build is not None and build.paused)

    def tried_at_us(self, task: Task) -> int | None:
        """When a task in trouble is tried again; `None` if it is in none."""
        return self.retry_us.get(task.base if task.view is None else task.view)

    def rate_of(self, task: Task) -> int | None:
        """Rows per minute that its build may read; `None`: no bound."""
        build = None if task.view is None else self.builds.get(task.view)
        return None if build is None else build.rate

    def readable(self) -> list[RelationId]:
        """Views and indexes that nothing is left to do for: no task, all segments where the epochs are, and checked."""
        return [
            view
            for view in self.builds
            if view not in self.open_of and view not in self.unchecked and view not in self.held and self.is_level(view)
        ]

    def is_level(self, view: RelationId) -> bool:
        """Whether all segments stand where the epochs are."""
        span = self.spans.get(view)
        if span is None:
            return False
        applied = self.applied.get(view, NOT_YET)
        return applied is None or span == Span(oldest=applied, newest=applied)
