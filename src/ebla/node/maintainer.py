"""The background thread that compacts relations whose level 0 has grown.

Level-triggered: a wake-up names a relation, but what is done follows from the catalog's state.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ebla.catalog import manifest, reads
from ebla.errors import EblaError
from ebla.model.lifecycle.index import may_compact
from ebla.model.relation import Kind
from ebla.relations import indexes
from ebla.relations.views import all_views
from ebla.tables.compaction import compact
from ebla.tables.context import Context

log = logging.getLogger("ebla.maintainer")

EVERY = "*"
"""In place of a name: every table, and every view that is built."""


class Maintainer:
    def __init__(self, context: Context, also_wakes: Callable[[], None] = lambda: None) -> None:
        self._context = context
        self._also_wakes = also_wakes
        self._wanted: set[str] = set()
        self._changed = threading.Condition()
        self._stopping = False
        self._busy = False
        self._thread: threading.Thread | None = None

    def wake(self, name: str) -> None:
        """A relation was written to."""
        self._also_wakes()
        self._want(name)

    def wake_all(self) -> None:
        """Look at every relation once: other processes may have written and ended, or have no Spark."""
        self._want(EVERY)

    def _want(self, name: str) -> None:
        if not self._context.settings.auto_compact or self._context.catalog.read_only:
            return
        with self._changed:
            self._wanted.add(name)
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="ebla-maintainer", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def due(self, name: str) -> bool:
        """Whether a relation's level 0 is worth folding: many runs, or more rows than the driver merges."""
        with self._context.catalog.reading() as connection:
            relation = reads.find_relation(connection, name)
            if relation is None:
                return False
            count, rows = manifest.level0(connection, relation)
        settings = self._context.settings
        return count >= settings.compact_runs or rows > settings.level0_rows_max

    def _every(self) -> set[str]:
        with self._context.catalog.reading() as connection:
            views = [view.relation.name for view in all_views(connection) if not view.building]
            return {*reads.relation_names(connection, Kind.TABLE), *views}

    def _indexes_of(self, name: str) -> list[str]:
        """A write to a relation is one to its indexes."""
        with self._context.catalog.reading() as connection:
            relation = reads.find_relation(connection, name)
            found = [] if relation is None else indexes.of_base(connection, relation)
        return [index.name for index in found if may_compact(index.state)]

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not self._wanted and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                name = self._wanted.pop()
                self._busy = True
            try:
                if name == EVERY:
                    found = self._every()
                    with self._changed:
                        self._wanted |= found
                    continue
                for each in (name, *self._indexes_of(name)):
                    if self.due(each):
                        done = compact(self._context, each)
                        log.info("relation=%s compacted tablets=%d runs=%d", each, done.tablets, done.folded_runs)
            except EblaError as error:
                log.warning("relation=%s compaction failed reason=%s", name, error)
            except Exception:
                if not self._stopping:
                    log.exception("relation=%s compaction failed", name)
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def wait_idle(self, timeout_s: float = 600.0) -> bool:
        """Wait until there is nothing left to do."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._wanted and not self._busy, timeout_s)

    def stop(self) -> None:
        """Finish the compaction that is running, begin no other."""
        with self._changed:
            self._stopping = True
            self._wanted.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
