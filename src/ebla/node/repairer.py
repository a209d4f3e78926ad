"""The service that copies to a node what it missed while it could not be written to."""

from __future__ import annotations

import logging

from ebla.base.services import Rank
from ebla.catalog import transactions as tx
from ebla.relations.copies import all_missing
from ebla.tables.context import Context
from ebla.topology.streaming import repair

log = logging.getLogger("ebla.topology")

LEASE = "repair"
"""Under which one process repairs in a period, whichever comes first."""


class Repairer:
    """The repair of one open database."""

    name = "repair"

    def __init__(self, context: Context) -> None:
        self._context = context
        context.services.add(self, rank=Rank.VACUUM)

    @property
    def wanted(self) -> bool:
        return self._context.settings.repair_period_s > 0 and not self._context.catalog.read_only

    def start(self) -> None:
        """Repair when a period is over."""
        if self.wanted:
            self._context.services.wake_in(self.name, self._context.settings.repair_period_s)

    def step(self, now_s: float) -> float | None:
        context, period_s = self._context, self._context.settings.repair_period_s
        if self._context.catalog.read(all_missing) and tx.lead(
            context.catalog, LEASE, context.holder, int(period_s * 1e6)
        ):
            log.info("repair copies=%d", repair(context))
        return context.services.clock() + period_s

    def stop(self) -> None:
        """The lease is not given back: another process repairs when the period is over."""
