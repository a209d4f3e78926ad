"""Views and indexes kept up to date: epochs, builds, what runs in the background, and how fresh it all is."""

from __future__ import annotations

from ebla.api.adoption import adopt
from ebla.api.metrics import Metrics
from ebla.api.process_metrics import ProcessMetrics
from ebla.api.waits import Waits
from ebla.build.builder import Builder
from ebla.catalog.processes import Role
from ebla.node.background import Background
from ebla.tables.context import Context
from ebla.views.epoch.attempt import Epoch
from ebla.views.handlers.epochs import Epochs


class Maintenance:
    """The work of one open database for its views and indexes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.metrics = Metrics(context.catalog)
        of_process = ProcessMetrics(context.catalog, context.lag, context.services, context.storage.caches)
        self.metrics.registry.register(of_process)
        self.epochs = Epochs(context, self._on_epoch)
        self.background = Background(context, self.epochs)
        self.builder = Builder(context, self.epochs, self.background.written)
        self.waits = Waits(context, self.builder)

    def begin(self, role: Role) -> None:
        """Continue work that other processes left: new writes, unfinished builds and replacements."""
        if not self._context.catalog.read_only:
            adopt(self._context.catalog, self._context.node)
            self.background.show(role)
        self.background.wake()
        if self._context.has_spark:
            self.background.wake_all()

    def _on_epoch(self, done: Epoch) -> None:
        self.metrics.observe(done)
        self.background.advanced(done.view)

    def end(self) -> None:
        """Finish the steps that run, and begin no other."""
        self.epochs.stopping.set()
        self._context.services.close()
