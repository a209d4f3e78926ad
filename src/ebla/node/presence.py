"""A process's row in `system.processes`: that it is alive, whether it maintains, and what it is doing.

A service looks at what the process does and writes where that has changed, every two seconds at most, or where the row
is old (`SILENCE`). The same database transaction renews its row among the runners of jobs. That it follows another
version of the topology is written at once: the coordinator waits for it. The load and the disks of its machine are
written with the rest, and are never why. A process that maintains nothing has no row for its first seconds: a command
that reads and ends writes nothing, and needs no right to.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from ebla.base.ids import Version
from ebla.base.services import HEARTS
from ebla.catalog import processes
from ebla.catalog.processes import Role
from ebla.errors import EblaError
from ebla.node.assignment import Assignment
from ebla.node.machine import look
from ebla.tables.context import Context
from ebla.topology.service import Coordination

log = logging.getLogger("ebla.jobs")

LOOK_S = 0.5
"""How often the process looks at what it does, at least. Shorter work is seldom seen, and seldom worth a write."""
QUIET_S = 3.0
"""For how long a process that does not maintain says nothing."""
DOING_S = 2.0
"""How often the row is written because the process does something else now."""
LEASES = 3
"""The lease of a process in leases of a leader: a row that comes late tells less than a leader that is late."""
SILENCE = 2
"""A row is written every third of this many leases of a leader: that of a silent leader runs out after one lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceRow:
    """What the row says, apart from times."""

    maintains: bool
    doing: tuple[str, ...]
    seen: Version = Version(0)  # noqa: RUF009  a number
    """The version of the topology that the process follows."""


def periods(leader_lease_s: float, runner_lease_s: float) -> tuple[float, float]:
    """After how many seconds the row is written again, and how often the process looks.

    Both together are less than a lease of a leader, so that the row of a leader that lives, and only lost its lease,
    does not run out when another process follows it (`ebla.catalog.processes.silence`).
    """
    written_s = min(SILENCE * leader_lease_s, runner_lease_s) / 3
    return written_s, min(LOOK_S, written_s / 3)


def is_due(
    now_s: float, opened_s: float, period_s: float, said: PresenceRow | None, said_s: float, is_now: PresenceRow
) -> bool:
    """Whether a process has to write its row."""
    if said is None:
        return is_now.maintains or now_s - opened_s >= QUIET_S
    if is_now.maintains != said.maintains or is_now.seen != said.seen or now_s - said_s >= period_s:
        return True
    return is_now != said and now_s - said_s >= DOING_S


class Presence:
    """The service that keeps the row of one open database."""

    name = "presence"
    wanted = True

    def __init__(self, context: Context, role: Role, coordination: Coordination, assignment: Assignment) -> None:
        self._context = context
        self._assignment = assignment
        self._role = role
        self._coordination = coordination
        self._lease_s = LEASES * context.settings.leader_lease_s
        self._period_s, self._look_s = periods(context.settings.leader_lease_s, context.settings.runner_lease_s)
        self._opened_s = context.services.clock()
        self._said: PresenceRow | None = None
        self._said_s = 0.0

    def start(self) -> None:
        self._context.services.add(self, lane=HEARTS)
        self._context.services.wake(self.name)

    def step(self, now_s: float) -> float:
        if now_s < self._opened_s + self._look_s:
            return self._opened_s + self._look_s
        now = self._now()
        if is_due(now_s, self._opened_s, self._period_s, self._said, self._said_s, now):
            try:
                self._report(now)
            except (EblaError, OSError, SQLAlchemyError) as error:
                # A reader without the right to write, or a database that does not answer: others miss this row only.
                log.debug("presence: expected to write its row, found reason=%s", error)
            self._said_s = self._context.services.clock()
        return now_s + self._look_s

    def _now(self) -> PresenceRow:
        context = self._context
        return PresenceRow(maintains=context.maintains, doing=context.activities.now(), seen=self._coordination.seen)

    def appear(self) -> None:
        """Put the row there at once: others shall know that this process lives."""
        self._report(self._now())
        self._said_s = self._context.services.clock()

    def _report(self, now: PresenceRow) -> None:
        own = self._coordination.own()
        processes.report(
            self._context.catalog,
            holder=self._context.holder,
            node=self._context.node,
            host=socket.gethostname(),
            pid=os.getpid(),
            role=self._role,
            maintains=now.maintains,
            doing=now.doing,
            lease_us=int(self._lease_s * 1e6),
            hosts=own,
            seen=now.seen,
            runner=self._assignment.runner if now.maintains else None,
            runner_lease_us=self._assignment.lease_us,
            machine=look(self._context.nodes, own),
        )
        self._said = now

    def stop(self) -> None:
        """Take the row away."""
        if self._said is not None:
            with contextlib.suppress(EblaError, OSError, SQLAlchemyError):  # the row runs out
                processes.leave(self._context.catalog, self._context.holder)
