"""Building tasks as values.

Theory of operation. Building a view or an index is cut into *tasks*, one for each tablet of its base, placed on the
replica that does it. Which states a task has, and who takes it from one to the next, says `ebla.model.lifecycle.task`.
The catalog keeps a task only while it is unfinished, and whether it is aborted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from ebla.base.ids import NodeId, RelationId, TaskId, Version
from ebla.errors import UnknownNameError, UsageError
from ebla.model.lifecycle.task import TaskState
from ebla.model.tablets import TokenRange

LEASE = "view_building"
"""The lease that the leader of building holds."""

NOT_YET = Version(0)


class TaskKind(StrEnum):
    BUILD_RANGE = "build_range"
    """Read a tablet of the base and write what the view or index has of it."""
    PROCESS_STAGING = "process_staging"
    """Make the view updates of a tablet's staged runs, and make the runs visible."""


class Replica(NamedTuple):
    """Where a tablet's task is done. A tuple: it is the key of every index of the state."""

    host: NodeId
    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    id: TaskId
    kind: TaskKind
    base: RelationId
    view: RelationId | None
    """The view or index; `None` for `process_staging`, which serves all of them."""
    tokens: TokenRange
    """The rows of the base that it is about: those of a tablet."""
    replica: Replica
    aborted: bool = False
    created: Version = NOT_YET
    """The commit that first asked for this work; 0 is replaced by the version of the commit that creates the task.
    A task in the place of an aborted one keeps it, and so its turn."""

    def __post_init__(self) -> None:
        if (self.view is None) != (self.kind is TaskKind.PROCESS_STAGING):
            raise ValueError(f"task {self.id}: expected a view for build_range and none for process_staging")

    @property
    def state(self) -> TaskState:
        """The state that the catalog has of it."""
        return TaskState.ABORTED if self.aborted else TaskState.CREATED

    def again(self, new: TaskId, *, tokens: TokenRange | None = None, replica: Replica | None = None) -> Task:
        """The task that goes on where this one was aborted: same work and turn, another id, perhaps another place."""
        return replace(
            self,
            id=new,
            aborted=False,
            tokens=self.tokens if tokens is None else tokens,
            replica=self.replica if replica is None else replica,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A view or index that is not built yet."""

    view: RelationId
    base: RelationId
    rows_per_minute: int | None = None
    """A bound for each of its tasks. `None`: as fast as it goes; 0: paused."""
    chunk_rows: int | None = None
    concurrency: int | None = None
    """The number of tablets that workers fill at a time, at most. `None`: as many as a batch takes."""
    on_hold: bool = False
    """`PAUSE`: nothing is done until `RESUME`, and the rate stays what it was."""
    created: Version = NOT_YET

    @property
    def paused(self) -> bool:
        return self.on_hold or self.rows_per_minute == 0

    @property
    def rate(self) -> int | None:
        """Rows per minute that hold now."""
        return 0 if self.paused else self.rows_per_minute


def held(build: Build, on_hold: bool) -> Build:
    """Paused, or going on. A rate of 0 is a pause as well, with no other rate behind it."""
    if on_hold or build.rows_per_minute != 0:
        return replace(build, on_hold=on_hold)
    return replace(build, on_hold=False, rows_per_minute=None)


PACE = ("rows_per_minute", "chunk_rows", "concurrency")
"""How fast a view is built: `WITH (…)` when it is created, `SET (…)` while it is built."""


def pace(options: Mapping[str, object]) -> dict[str, int | None]:
    """The options that say how fast a view is built, checked."""
    found: dict[str, int | None] = {}
    for name, value in options.items():
        if name not in PACE:
            raise UnknownNameError(f"build: expected one of {', '.join(PACE)}, found {name}")
        least = 0 if name == "rows_per_minute" else 1
        if value is not None and not (type(value) is int and least <= value < 2**63):
            raise UsageError(f"{name}: expected a whole number from {least}, or NULL for no limit, found {value!r}")
        found[name] = value if type(value) is int else None
    return found
