"""Jobs as values: which processes run them, the commands to each, and how they went.

Every handler that should run is a job; `sys$dictionary` and `sys$coordinator` are jobs of the system. A *runner* is a
process that runs jobs. The coordinator tells it to `START` or `STOP` one by a *command*:

    CREATED -> TAKEN -> SUCCESS | ERROR
    CREATED -> ERROR            a runner that lives did not take it in time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

RunnerId = NewType("RunnerId", str)

COORDINATOR = "sys$coordinator"
"""The job that decides which runner runs which job, and the name of its lease."""


class CommandType(StrEnum):
    START = "START"
    STOP = "STOP"


class CommandStatus(StrEnum):
    CREATED = "CREATED"
    TAKEN = "TAKEN"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"

    @property
    def is_open(self) -> bool:
        return self in (CommandStatus.CREATED, CommandStatus.TAKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    id: RunnerId
    """Made anew with each registration: a process that was taken for dead comes back as another runner."""
    identity: str
    permanent: bool
    """Whether the process was started to maintain; jobs go to such processes first."""
    updated_at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A job that a runner runs."""

    runner: RunnerId
    job: str
    settings: str
    started_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    runner: RunnerId
    number: int
    """Grows from 1 for each runner."""
    type: CommandType
    job: str
    settings: str
    created_at: int
    status: CommandStatus = CommandStatus.CREATED
    diag: str | None = None
    """The traceback of an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """What the catalog says of runners, in one snapshot."""

    runners: Sequence[Runner] = ()
    running: Sequence[Running] = ()
    commands: Sequence[Command] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the coordinator has decided."""

    dead: tuple[RunnerId, ...] = ()
    """Runners that go, with their jobs and commands."""
    late: tuple[Command, ...] = ()
    """Commands that were not taken in time: they end with an error."""
    new: tuple[Command, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.dead or self.late or self.new)


Wanted = Mapping[str, str]
"""The jobs that should run, each with its settings."""
