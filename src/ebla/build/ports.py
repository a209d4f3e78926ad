"""Where effects attach. The coordinator and the worker only return values; the node and the leader carry them out.

The same decisions run in a unit test, in a simulation, in one process and on a cluster: only what stands behind these
protocols differs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from ebla.base.ids import RelationId, TaskId, Version
from ebla.build.coordinator import Call, Event
from ebla.build.state import State
from ebla.catalog.transactions import Lease
from ebla.model import changes as c
from ebla.model.relation import Relation
from ebla.model.tasks import Task

if TYPE_CHECKING:
    from ebla.tables.chunk_scan import ChunkReading, Scan


class Rpc(Protocol):
    """Calls between nodes: `work_on_view_building_tasks(term, shard, ids)`."""

    def send(self, call: Call, answered: Callable[[Event], None]) -> None:
        """Call a worker, which answers when some of the tasks are finished, or none is running any more.

        A call may be lost, come late or come twice; so may its answer. Repeating it is safe.
        """
        ...


class Nodes(Rpc, Protocol):
    """The nodes that this process reaches."""

    def observed(self, state: State) -> None:
        """The catalog may have changed: workers here stop what must not go on."""
        ...

    def let_go(self) -> None:
        """Another process leads, or nothing is to be built here: workers stop all batches."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """The catalog, as the loop uses it."""

    def load(self) -> State: ...

    def commit(self, decision: c.Decision) -> None:
        """Make the updates true. `StaleTermError`: another process leads; `ConflictError`: read the state again."""
        ...

    def forgive(self, state: State) -> bool:
        """Let builds go on that failed on a row, and one of whose inputs was written to since; whether there is one."""
        ...


class Leases(Protocol):
    """Which process leads (`ebla.catalog.leadership`)."""

    def held(self, name: str) -> Lease | None: ...

    def take(self, name: str) -> Lease | None: ...

    def lost(self, name: str) -> None: ...

    def give_back(self, name: str) -> None: ...


class Settlement(Protocol):
    """Views and indexes whose tasks are done, on the way to one version and to be checked (`ebla.build.settlement`)."""

    def begin_round(self) -> None:
        """The state is about to be read."""
        ...

    def look(self, state: State, now_us: int) -> None: ...

    def forget(self) -> None: ...


class WalkResult(Protocol):
    """What came of a step of indexes from state to state."""

    @property
    def moved(self) -> bool: ...

    @property
    def wait_us(self) -> int | None: ...


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
    a filler requires that the tasks are open (`TasksOpen`) and that the position is the one that the stretch starts
    from (`SegmentsBegin`, exactly), and covers the stretch (`CoverSegment`).
    """

    @property
    def tablets_max(self) -> int | None:
        """The number of tablets that are filled at once, if there is a bound besides the number of rows."""
        ...

    def in_one_piece(self, relation: RelationId) -> bool:
        """Whether it cannot be filled chunk by chunk."""
        ...

    def chunk_rows(self, relation: RelationId, rows_covered: int) -> int:
        """How many rows of the base the next chunk should have, unless the build says."""
        ...

    def fill_whole(self, relation: RelationId) -> None:
        """Fill a relation that is filled in one piece: one commit covers all tablets of the base."""
        ...

    def reading(self, base: Relation, relations: Collection[RelationId]) -> ChunkReading:
        """What filling them with a chunk reads of the base."""
        ...

    def fill(self, scan: Scan, tasks: Mapping[RelationId, frozenset[TaskId]]) -> Mapping[RelationId, Exception]:
        """Fill some relations with a chunk of the base that others read as well; what went wrong, by relation."""
        ...

    def failed(self, relation: RelationId, error: Exception, read: Version) -> bool:
        """Whether an error will come again until an input changes. If so, it is kept with the relation, and that it
        was met at the version `read` or a later one."""
        ...
