"""The service that compacts relations whose level 0 has grown.

Level-triggered: a wake-up names a relation, but what is done follows from the catalog's state.
"""

from __future__ import annotations

import logging
import threading

from ebla.base.services import Rank
from ebla.catalog import manifest, reads
from ebla.errors import EblaError
from ebla.model.lifecycle.index import may_compact
from ebla.model.relation import Kind
from ebla.relations import indexes
from ebla.relations.views import all_views
from ebla.tables.compaction import compact
from ebla.tables.context import Context

log = logging.getLogger("ebla.compaction")

EVERY = "*"
"""In place of a name: every table, and every view that is built."""


class Compactor:
    """The compaction of one open database. Safe to use from several threads."""

    name = "compaction"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._relations: set[str] = set()
        self._lock = threading.Lock()
        context.services.add(self, rank=Rank.COMPACTION)

    @property
    def wanted(self) -> bool:
        return self._context.settings.auto_compact and not self._context.catalog.read_only

    def want(self, name: str) -> None:
        """Look at a relation that was written to."""
        if self.wanted:
            with self._lock:
                self._relations.add(name)
            self._context.services.wake(self.name)

    def want_all(self) -> None:
        """Look at every relation once: other processes may have written and ended, or have no Spark."""
        self.want(EVERY)

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

    def step(self, now_s: float) -> float | None:
        """Look at one relation. What fails is looked at again when the relation is written to."""
        with self._lock:
            if not self._relations:
                return None
            name = self._relations.pop()
        try:
            if name == EVERY:
                found = self._every()
                with self._lock:
                    self._relations |= found
            else:
                self._compact(name)
        except EblaError as error:
            log.warning("relation=%s compaction failed reason=%s", name, error)
        except Exception:
            if self._context.services.is_running(self):
                log.exception("relation=%s compaction failed", name)
        return now_s if self._relations else None

    def _compact(self, name: str) -> None:
        for each in (name, *self._indexes_of(name)):
            if self.due(each):
                done = compact(self._context, each, gives_way=self._gives_way)
                log.info("relation=%s compacted tablets=%d runs=%d", each, done.tablets, done.folded_runs)
                if not done.ended:
                    self.want(name)
                    return

    def _gives_way(self) -> bool:
        """Whether work that goes before compaction waits for this process."""
        return self._context.services.should_yield(Rank.COMPACTION)

    def wait_idle(self, timeout_s: float = 600.0) -> bool:
        """Wait until there is nothing left to do."""
        return self._context.services.wait_idle(self.name, timeout_s)

    def stop(self) -> None:
        """Nothing is held."""
