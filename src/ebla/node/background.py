"""What runs in the background of an open database, and what wakes it."""

from __future__ import annotations

from ebla.build.loop import BUILDING
from ebla.catalog.processes import Role
from ebla.node.compactor import Compactor
from ebla.node.presence import Presence
from ebla.node.runner import Runner
from ebla.node.vacuumer import Vacuumer
from ebla.tables.context import Context
from ebla.views.handlers.epochs import Epochs


class Background:
    def __init__(self, context: Context, epochs: Epochs) -> None:
        self._context = context
        self.compactor = Compactor(context)
        Runner(context, epochs)
        self._vacuumer = Vacuumer(context)
        context.on_spark = self.wake_all

    def show(self, role: Role) -> None:
        """Keep a row in `system.processes` that says what this process does."""
        Presence(self._context, role).start()

    def wake(self) -> None:
        """Look whether there is anything to build or to bring up to date."""
        self._context.services.wake(Runner.name, BUILDING)

    def wake_runner(self) -> None:
        """Look whether views are behind; the runner wakes building if anything was committed."""
        self._context.services.wake(Runner.name)

    def wake_all(self) -> None:
        """Spark is there: epochs, builds, compaction and vacuum may have waited for it."""
        self.wake()
        self.compactor.want_all()
        self._vacuumer.start()

    def written(self, name: str) -> None:
        """Rows of a relation were committed: views may be behind, and its level 0 has grown."""
        self.wake_runner()
        self.compactor.want(name)
