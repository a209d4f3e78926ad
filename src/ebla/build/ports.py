"""Where effects attach. The coordinator and the worker only return values; whoever runs them carries these out.

The same decisions run in a unit test, in a simulation, in one process and on a cluster: only what stands behind these
protocols differs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from ebla.build.coordinator import Decision
from ebla.build.model import Task
from ebla.build.state import State
from ebla.build.worker import Answer
from ebla.ids import NodeId, TaskId, Term


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
