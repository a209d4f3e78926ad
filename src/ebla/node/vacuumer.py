"""The service that vacuums now and then, so that nothing a commit leaves behind stays for ever."""

from __future__ import annotations

import logging

from ebla.base.services import Rank
from ebla.catalog import transactions as tx
from ebla.tables.context import Context
from ebla.tables.vacuum import vacuum

log = logging.getLogger("ebla.vacuum")

LEASE = "vacuum"
"""The lease under which one process vacuums in a period: the first that takes it."""


class Vacuumer:
    """The vacuum of one open database, in a process that maintains views."""

    name = "vacuum"

    def __init__(self, context: Context) -> None:
        self._context = context
        context.services.add(self, rank=Rank.VACUUM)

    @property
    def wanted(self) -> bool:
        return self._context.settings.vacuum_period_s > 0 and self._context.maintains

    def start(self) -> None:
        """Vacuum when a period is over."""
        if self.wanted:
            self._context.services.wake_in(self.name, self._context.settings.vacuum_period_s)

    def step(self, now_s: float) -> float | None:
        context, period_s = self._context, self._context.settings.vacuum_period_s
        if not self.wanted:
            return None
        if tx.lead(context.catalog, LEASE, context.holder, int(period_s * 1e6)) is not None:
            with context.at_work("vacuum"):
                done = vacuum(context.catalog, context.node, context.nodes, context.settings)
            log.info("vacuum horizon=%d files=%d bytes=%d", done.horizon, done.files, done.bytes)
        return context.services.clock() + period_s

    def stop(self) -> None:
        """The lease is not given back: another process vacuums when the period is over."""
