"""The service that prepares the next query of a view behind each change of it.

An epoch and a compaction change which runs a view has. The first query afterwards reads the manifest and merges the new
runs into its layers; where queries come again and again, this is done for them.
"""

from __future__ import annotations

from ebla.base.services import Scheduler
from ebla.query.execute import Reader

PREPARATION = "preparation"
"""The name of the service."""


class Preparer:
    """Of one open database."""

    name = PREPARATION
    wanted = True

    def __init__(self, services: Scheduler, reader: Reader) -> None:
        self._reader = reader
        services.add(self)

    def step(self, now_s: float) -> None:
        self._reader.prepare()

    def stop(self) -> None:
        """Nothing is held."""
