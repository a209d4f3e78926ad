"""The service that copies to a node what it missed while it could not be written to."""

from __future__ import annotations

import logging

from ebla.base.services import Rank
from ebla.tables.context import Context
from ebla.topology.streaming import REPAIR, lacking, repair

log = logging.getLogger("ebla.topology")

WAIT_MAX = 16
"""Where no copy can be made, the next try is after a period that doubles, up to this many."""


class Repairer:
    """The repair of one open database."""

    name = "repair"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._periods = 1
        context.services.add(self, rank=Rank.VACUUM)

    @property
    def wanted(self) -> bool:
        return self._context.settings.repair_period_s > 0 and not self._context.catalog.read_only

    def start(self) -> None:
        """Repair when a period is over."""
        if self.wanted:
            self._context.services.wake_in(self.name, self._context.settings.repair_period_s)

    def step(self, now_s: float) -> float | None:
        """Read first: the lease is taken only where a copy is missing, so that an idle warehouse is not written to."""
        context, period_s = self._context, self._context.settings.repair_period_s
        self._periods = min(2 * self._periods, WAIT_MAX) if self._is_stuck() else 1
        return context.services.clock() + period_s * self._periods

    def _is_stuck(self) -> bool:
        """Make good what is missing; whether something is, and nothing could be done about it."""
        context = self._context
        if not lacking(context) or context.leadership.take(REPAIR, from_the_gone=True) is None:
            return False
        with context.leadership.working(REPAIR):
            done = repair(context, is_over=lambda: context.leadership.held(REPAIR) is None)
        if done.made:
            log.info("repair copies=%d", done.made)
        return bool(done.failed) and not done.made

    def stop(self) -> None:
        """The lease is given back with all others."""
