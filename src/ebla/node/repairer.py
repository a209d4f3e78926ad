"""The service that copies to a node what it missed while it could not be written to."""

from __future__ import annotations

import logging

from ebla.base.backoff import Backoff
from ebla.base.services import Rank
from ebla.topology.ports import Host
from ebla.topology.run_copies import REPAIR, missing_copies, repair

log = logging.getLogger("ebla.topology")

PERIODS = Backoff(1, 16)
"""How many periods pass between two looks: more where no copy could be made."""


class Repairer:
    """The repair of one open database."""

    name = "repair"

    def __init__(self, host: Host) -> None:
        self._host = host
        self._failures = 0
        host.services.add(self, rank=Rank.VACUUM)

    @property
    def wanted(self) -> bool:
        return self._host.settings.repair_period_s > 0 and not self._host.catalog.read_only

    def start(self) -> None:
        """Repair when a period is over."""
        if self.wanted:
            self._host.services.wake_in(self.name, self._host.settings.repair_period_s)

    def step(self, now_s: float) -> float | None:
        """Read first: the lease is taken only where a copy is missing, so that an idle warehouse is not written to."""
        host, period_s = self._host, self._host.settings.repair_period_s
        self._failures = self._failures + 1 if self._is_stuck() else 0
        return host.services.clock() + period_s * PERIODS.after(1 + self._failures)

    def _is_stuck(self) -> bool:
        """Make good what is missing; whether something is, and nothing could be done about it."""
        host = self._host
        if not missing_copies(host) or host.leadership.take(REPAIR, from_the_gone=True) is None:
            return False
        with host.leadership.working(REPAIR):
            done = repair(host, is_over=lambda: host.leadership.held(REPAIR) is None)
        if done.made:
            log.info("repair copies=%d", done.made)
        return bool(done.failed) and not done.made

    def stop(self) -> None:
        """The lease is given back with all others."""
