"""A batch of tasks that an engine works on, and what the catalog says about it.

Theory of operation. The tasks of a batch leave it one by one: finished, failed, put off, or stopped by the worker at
any time. The engine looks at the catalog before each chunk, because others change what is there to do.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ebla.base.ids import RelationId, TaskId, Version
from ebla.catalog import build_tasks, reads
from ebla.catalog.store import Catalog
from ebla.model.chunks import Covered, covers
from ebla.model.relation import Kind, Relation
from ebla.model.tasks import Build, Task


@dataclass(slots=True)
class Batch:
    """Tasks of one base and one kind. Those that are done or stopped leave it. Safe to use from several threads."""

    tasks: dict[TaskId, Task]
    conflicts: int = 0
    """Races lost in a row."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def left(self) -> dict[TaskId, Task]:
        with self._lock:
            return dict(self.tasks)

    def leave(self, ids: Iterable[TaskId]) -> None:
        with self._lock:
            for task_id in ids:
                self.tasks.pop(task_id, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """What the catalog says about a batch at one moment."""

    base: Relation | None
    builds: Mapping[RelationId, Build]
    kinds: Mapping[RelationId, Kind]
    names: Mapping[RelationId, str]
    covered: Mapping[RelationId, Covered]
    open: frozenset[TaskId]
    version: Version

    @classmethod
    def of(cls, catalog: Catalog, tasks: Mapping[TaskId, Task]) -> BatchState:
        views = sorted({task.view for task in tasks.values() if task.view is not None})
        base = next(iter(tasks.values())).base
        with catalog.reading() as connection:
            found = {v: reads.relation_by_id(connection, v) for v in views}
            return cls(
                base=reads.relation_by_id(connection, base),
                builds=build_tasks.builds(connection),
                kinds={v: r.kind for v, r in found.items() if r is not None},
                names={v: r.name for v, r in found.items() if r is not None},
                covered={v: build_tasks.segments(connection, v) for v in views},
                version=reads.current_version(connection),
                open=frozenset(t.id for t in build_tasks.tasks(connection) if t.id in tasks and not t.aborted),
            )

    def is_covered(self, task: Task) -> bool:
        """Whether nothing is left of a task that fills a relation."""
        return task.view is not None and covers(self.covered.get(task.view, {}), task.tokens)

    def called(self, relations: Collection[RelationId]) -> str:
        return ", ".join(self.names[relation] for relation in relations)
