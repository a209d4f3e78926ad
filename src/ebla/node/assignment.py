"""Which jobs this process is to run: its row among the runners, its commands, and its turn as coordinator.

Theory of operation. Level-triggered: a look compares what should run with what the catalog says of runners. A process
that finds something to decide asks for the lease `sys$coordinator`, decides under the commit lock, and writes commands;
so there is a coordinator where one is needed, and an idle warehouse is not written to. Each process takes the commands
of its own row and answers them. In a warehouse with one process all of that happens in one look.

A process whose row was taken away, because its lease ran out, runs nothing from then on: its jobs may run elsewhere. It
registers anew, under another id.
"""

from __future__ import annotations

import logging
import os
import socket
import traceback
import uuid
from collections.abc import Callable

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.settings import Settings
from ebla.catalog import jobs
from ebla.catalog.leadership import Leadership, is_gone
from ebla.catalog.store import Catalog
from ebla.errors import StaleTermError
from ebla.model import changes as c
from ebla.model.jobs import COORDINATOR, Command, CommandType, Jobs, Orders, Runner, RunnerId, Wanted
from ebla.node.job_coordinator import decide

log = logging.getLogger("ebla.jobs")

ROUNDS_MAX = 5
"""Looks at the state in a row: decide, take, answer, and one that finds nothing left."""


class Assignment:
    """The jobs of one process. Used by one thread, but for `runner`, which its heart reads."""

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        leadership: Leadership,
        *,
        start: Callable[[str], None],
        stop: Callable[[str], bool],
        permanent: bool = False,
    ) -> None:
        """`start` and `stop` have a job run here, or not; `stop` is asked again until it says that nothing runs."""
        self._catalog = catalog
        self._settings = settings
        self._leadership = leadership
        self._start = start
        self._stop = stop
        self.permanent = permanent
        self.runner: RunnerId | None = None
        self.jobs: set[str] = set()
        """What runs here."""
        self._ending: set[str] = set()
        """What was stopped and works on. A process whose row was taken away is no runner again before that ends."""
        self._changed: int | None = None
        self._wanted: Wanted = {}
        self._waits = False
        """Whether others, or time, may give reason to a decision that no change announces."""

    @property
    def is_ending(self) -> bool:
        """Whether a job that was stopped works on here."""
        return bool(self._ending)

    # ---- looking ----------------------------------------------------------------------------------------

    def is_due(self, changed: int) -> bool:
        """Whether a look may find anything; `changed` is the catalog's counter."""
        return self.runner is None or changed != self._changed or self._waits or self.is_ending

    def look(self, wanted: Wanted) -> None:
        """Have these jobs run in one place each, as far as that is this process's part."""
        self._wanted = wanted
        for _ in range(ROUNDS_MAX):
            if self.runner is None:
                self._ending = {job for job in self._ending if not self._stop(job)}
                if self._ending:
                    return
                self._register()
            state, changed = self._catalog.read(lambda state: (jobs.read(state), jobs.changed(state)))
            if self.runner not in {one.id for one in state.runners}:
                self._lose()
                continue
            self._waits = len(state.runners) > 1
            moved = self._coordinate(state)
            if not self._carry_out(state, decided=moved) and not moved:
                self._changed = changed
                return

    def _register(self) -> None:
        catalog, settings = self._catalog, self._settings
        host, pid = socket.gethostname(), os.getpid()
        self.runner = RunnerId(f"{host}/{pid}/{uuid.uuid4().hex[:8]}")
        now = catalog.clock()
        runner = Runner(
            id=self.runner,
            identity=f"node={settings.node} host={host} pid={pid}",
            permanent=self.permanent,
            updated_at=now,
            expires_at=now + self.lease_us,
        )
        catalog.patience.insist(lambda: catalog.change(lambda connection: jobs.register(connection, runner)))
        log.info("runner=%s registered", self.runner)

    @property
    def lease_us(self) -> int:
        return int(self._settings.runner_lease_s * 1e6)

    def _lose(self) -> None:
        log.warning("runner=%s expected to be registered, found it taken for dead; its jobs end here", self.runner)
        self._ending, self.jobs, self.runner = self._ending | self.jobs, set(), None

    # ---- as coordinator ---------------------------------------------------------------------------------

    def _coordinate(self, state: Jobs) -> bool:
        """Decide if there is anything to decide, and no other process coordinates; whether anything was."""
        if not self._decide(state):
            return False
        lease = self._leadership.take(COORDINATOR, from_the_gone=True)
        if lease is None:
            self._waits = True
            return False
        assert self.runner is not None
        runner, term = self.runner, c.TermIs(lease=COORDINATOR, holder=lease.holder, term=lease.term)
        catalog = self._catalog

        def order(connection: Connection) -> Orders:
            return jobs.order(connection, runner, term, catalog.clock(), self._decide)

        try:
            hit("jobs.before_order")
            orders = catalog.patience.insist(lambda: catalog.change(order))
        except StaleTermError:
            self._leadership.lost(COORDINATOR)
            return False
        hit("jobs.ordered")
        if orders:
            catalog.announce()
        for dead in orders.dead:
            log.info("runner=%s removed reason=dead", dead)
        for one in orders.new:
            log.info("command=%s/%d %s job=%s", one.runner, one.number, one.type, one.job)
        return bool(orders)

    def _decide(self, state: Jobs) -> Orders:
        timeout_us = int(self._settings.command_timeout_s * 1e6)

        def gone(runner: str) -> bool:
            return runner != self.runner and is_gone(runner)

        return decide(state, self._wanted, self._catalog.clock(), timeout_us=timeout_us, is_gone=gone)

    # ---- as runner --------------------------------------------------------------------------------------

    def _carry_out(self, state: Jobs, *, decided: bool) -> bool:
        """Take the commands of this process, carry them out, and answer them; whether any was answered."""
        assert self.runner is not None
        runner, catalog = self.runner, self._catalog
        if not decided and not any(one.runner == runner and one.status.is_open for one in state.commands):
            return False
        taken = catalog.patience.insist(lambda: catalog.change(lambda connection: jobs.take(connection, runner)))
        hit("jobs.taken")
        done = [(one, diag) for one in taken for is_done, diag in [self._obey(one)] if is_done]
        if not done:
            return False

        def answer(connection: Connection) -> None:
            for one, diag in done:
                jobs.answer(connection, one, catalog.clock(), diag)

        hit("jobs.before_answer")
        catalog.patience.insist(lambda: catalog.change(answer))
        return True

    def _obey(self, command: Command) -> tuple[bool, str | None]:
        """Carry one command out; whether that has come to an end, and the traceback of its failure."""
        try:
            match command.type:
                case CommandType.START:
                    self._start(command.job)
                    self.jobs.add(command.job)
                    log.info("job=%s started", command.job)
                case CommandType.STOP:
                    self.jobs.discard(command.job)
                    self._ending.add(command.job)
                    if not self._stop(command.job):
                        return False, None
                    self._ending.discard(command.job)
                    log.info("job=%s stopped", command.job)
        except Exception:
            log.exception("command=%d %s job=%s failed", command.number, command.type, command.job)
            return True, traceback.format_exc()
        return True, None

    def leave(self) -> None:
        """Take this process's row away: its jobs start elsewhere at once."""
        runner, self.runner = self.runner, None
        if runner is not None:
            catalog = self._catalog
            catalog.change(lambda connection: jobs.remove(connection, runner))
