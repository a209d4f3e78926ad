"""What runs in the background of an open database, and what wakes it."""

from __future__ import annotations

import atexit
import gc
import sys
from functools import cache

from ebla.base.ids import Version
from ebla.build.loop import BUILDING
from ebla.catalog.processes import Role
from ebla.node.compactor import Compactor
from ebla.node.membership import Membership
from ebla.node.preparer import PREPARATION, Preparer
from ebla.node.repairer import Repairer
from ebla.node.runner import Runner
from ebla.node.vacuumer import Vacuumer
from ebla.query.execute import Reader
from ebla.tables.context import Context
from ebla.views.handlers.epochs import Epochs


def let_threads_in(after_s: float | None) -> None:
    """Have threads of this process wait less for one that computes in Python; the limit is never raised.

    A query gives the interpreter away with each call of the catalog and of Arrow, and waits that long to get it back.
    """
    if after_s is not None and after_s < sys.getswitchinterval():
        sys.setswitchinterval(after_s)


@cache
def shorten_collections() -> None:
    """Once in a process: have full garbage collections not look at what is in memory now, modules above all.

    Each collection would stop all threads while it visits them: about 0.1 s with the modules of Spark loaded.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # the interpreter's last collection frees it, or libraries report what is left


class Background:
    def __init__(self, context: Context, epochs: Epochs) -> None:
        let_threads_in(context.settings.thread_switch_s)
        self._context = context
        self.membership = Membership(context)
        self.reader = Reader(context, self.wake_runner)
        self.compactor = Compactor(context)
        self._runner = Runner(context, epochs)
        self._vacuumer = Vacuumer(context)
        self._repairer = Repairer(context)
        Preparer(context.services, self.reader)
        context.sessions.on_start = self.wake_all

    def show(self, role: Role) -> None:
        """Keep a row in `system.processes` that says what this process does, follow the topology, and repair now and
        then."""
        self._runner.assignment.permanent = role.maintains
        self.membership.show(role, self._runner.assignment)
        self._repairer.start()

    def wake(self) -> None:
        """Look whether there is anything to build or to bring up to date."""
        self._context.services.wake(Runner.name, BUILDING)

    def follow(self, version: Version) -> Version:
        """Look at once, because another process has committed; returns the version of the topology that is followed."""
        self.wake()
        return self.membership.follow(version)

    def wake_runner(self) -> None:
        """Look whether views are behind; the runner wakes building if anything was committed."""
        self._context.services.wake(Runner.name)

    def wake_all(self) -> None:
        """Spark is there: epochs, builds, compaction and vacuum may have waited for it."""
        if self._context.settings.gc_freeze:
            shorten_collections()
        self.wake()
        self.compactor.want_all()
        self._vacuumer.start()

    def advanced(self, view: str) -> None:
        """An epoch of a view has ended."""
        self._context.services.wake(PREPARATION)
        self.written(view)

    def written(self, name: str) -> None:
        """Rows of a relation were committed: views may be behind, its level 0 has grown, a transaction has ended."""
        self.membership.coordination.ended()
        self.wake_runner()
        self.compactor.want(name)
