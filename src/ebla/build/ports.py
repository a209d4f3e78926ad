"""Where effects attach. The coordinator and the worker only return values; whoever runs them carries these out.

The same decisions run in a unit test, in a simulation, in one process and on a cluster: only what stands behind these
protocols differs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from ebla.base.ids import NodeId, RelationId, TaskId, Term, Version
from ebla.build.coordinator import Decision
from ebla.build.state import State
from ebla.build.worker import Answer
from ebla.model.relation import Relation
from ebla.model.tasks import Task

if TYPE_CHECKING:
    from ebla.tables.chunk_scan import Reading, Scan


class Clock(Protocol):
    def now_us(self) -> int: ...


class Rpc(Protocol):
    """Calls between nodes. A call may be lost, come late or come twice; so may its answer."""

    def work_on_view_building_tasks(self, host: NodeId, term: Term, shard: int, ids: Collection[TaskId]) -> Answer:
        """Wait until some of the tasks are finished, or none is running any more. Repeating the call is safe."""
        ...


class Store(Protocol):
    """The catalog, as the coordinator's loop uses it."""

    def load(self) -> State: ...

    def commit(self, decision: Decision) -> bool:
        """Make the updates true if the term still holds; False: read the state again."""
        ...


class Engine(Protocol):
    """What moves rows: Spark, or a model of it.

    It works through a batch in chunks. Each chunk's rows and the new position are one commit, which requires that the
    tasks are open and the position is the one that the chunk started from. It tells the worker which tasks finished.
    """

    def start(self, shard: int, tasks: Collection[Task]) -> None: ...

    def stop(self, shard: int, ids: Collection[TaskId]) -> None: ...


class Filler(Protocol):
    """What the engine fills relations of one kind with: views, or indexes.

    A filler reads and writes; which part of the base is next, and how fast, is the engine's business. Every commit of
    a filler requires that the tasks are open (`TasksOpen`) and that the position is the one that the part starts from
    (`SegmentsBegin`, exactly), and covers the part (`CoverSegment`).
    """

    @property
    def tablets_max(self) -> int | None:
        """So many tablets are filled at once, if there is a bound besides the number of rows."""
        ...

    def in_one_piece(self, relation: RelationId) -> bool:
        """Whether it cannot be filled part by part."""
        ...

    def chunk_rows(self, relation: RelationId, rows_covered: int) -> int:
        """How many rows of the base the next chunk should have, unless the build says."""
        ...

    def fill_whole(self, relation: RelationId) -> None:
        """Fill a relation that is filled in one piece: one commit covers all tablets of the base."""
        ...

    def reading(self, base: Relation, relations: Collection[RelationId]) -> Reading:
        """What filling them with a chunk reads of the base."""
        ...

    def fill(self, scan: Scan, tasks: Mapping[RelationId, frozenset[TaskId]]) -> Mapping[RelationId, Exception]:
        """Fill some relations with a chunk of the base that others read as well; what went wrong, by relation."""
        ...

    def failed(self, relation: RelationId, error: Exception, read: Version) -> bool:
        """Whether an error will come again until an input changes. If so, it is kept with the relation, and that it
        was met at the version `read` or a later one."""
        ...
