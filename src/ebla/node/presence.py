"""A process's row in `system.processes`: that it is alive, whether it maintains, and what it is doing.

One thread looks at what the process does and writes where that has changed, or where a third of the lease is over. A
process that maintains nothing has no row for its first seconds: a command that reads and ends writes nothing, and needs
no right to.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from ebla.catalog import processes
from ebla.catalog.processes import Role
from ebla.errors import EblaError
from ebla.tables.context import Context

log = logging.getLogger("ebla.jobs")

LOOK_S = 0.5
"""How often the process looks at what it does. Work that is shorter is seldom seen, and seldom worth a write."""
QUIET_S = 3.0
"""For how long a process that does not maintain says nothing."""
LEASES = 3
"""The lease of a process in leases of a leader: a row that comes late tells less than a leader that is late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the row says, apart from times."""

    maintains: bool
    doing: tuple[str, ...]


def is_due(now_s: float, opened_s: float, lease_s: float, said: Said | None, said_s: float, is_now: Said) -> bool:
    """Whether a process has to write its row."""
    if said is None:
        return is_now.maintains or now_s - opened_s >= QUIET_S
    return is_now != said or now_s - said_s >= lease_s / 3


class Presence:
    """The thread that keeps the row of one open database."""

    def __init__(self, context: Context, role: Role) -> None:
        self._context = context
        self._role = role
        self._lease_s = LEASES * context.settings.leader_lease_s
        self._opened_s = time.monotonic()
        self._said: Said | None = None
        self._said_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="ebla-presence", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _loop(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        now = Said(maintains=self._context.maintains, doing=self._context.activities.now())
        if not is_due(time.monotonic(), self._opened_s, self._lease_s, self._said, self._said_s, now):
            return
        try:
            self._report(now)
        except (EblaError, OSError, SQLAlchemyError) as error:
            # A reader without the right to write, or a database that does not answer: the others miss this row only.
            log.debug("presence: expected to write its row, found reason=%s", error)
        self._said_s = time.monotonic()

    def _report(self, now: Said) -> None:
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
        )
        self._said = now

    def stop(self) -> None:
        """Write no more, and take the row away."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._said is not None:
            with contextlib.suppress(EblaError, OSError, SQLAlchemyError):  # the row runs out
                processes.leave(self._context.catalog, self._context.holder)
