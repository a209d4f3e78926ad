"""The service that compacts relations whose level 0 has grown.

Level-triggered: a wake-up names a relation, but what is done follows from the catalog's state. Relations that are
written to all the time are looked at every `LOOK_S`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque

from ebla.base.services import Rank
from ebla.catalog import manifest, reads
from ebla.errors import ConflictError, EblaError, UnknownNameError
from ebla.model.lifecycle.index import may_compact
from ebla.model.relation import Kind
from ebla.node.preparer import PREPARATION
from ebla.relations import indexes
from ebla.relations.views import all_views
from ebla.spark.tags import Pool
from ebla.tables import tiers
from ebla.tables.compaction import compact
from ebla.tables.context import Context
from ebla.tables.tiers import Due

log = logging.getLogger("ebla.compaction")

LOOK_S = 0.5
EVERY = "*"
"""Stands for every table, and every view that is built."""


class Compactor:
    """The compaction of one open database. Safe to use from several threads."""

    name = "compaction"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._relations: dict[str, None] = {}
        """The relations that were written to, in the order in which compaction looks at them."""
        self._not_before_s = -math.inf
        """When relations are looked at again that were written to since."""
        self._lock = threading.Lock()
        context.services.add(self, rank=Rank.COMPACTION)

    @property
    def wanted(self) -> bool:
        return self._context.settings.auto_compact and not self._context.catalog.read_only

    def want(self, name: str) -> None:
        """Look at a relation that was written to."""
        if self.wanted:
            with self._lock:
                self._relations[name] = None
            self._context.services.wake(self.name)

    def want_all(self) -> None:
        """Look at every relation once: other processes may have written and ended, or have no Spark."""
        self.want(EVERY)

    def due(self, name: str) -> Due:
        """What a relation's level 0 is worth: many runs are merged, and many rows beside those of level 1 folded."""
        with self._context.catalog.reading() as connection:
            relation = reads.find_relation(connection, name)
            if relation is None:
                return Due.NOTHING
            settings = self._context.settings
            levels = manifest.levels(connection, relation)
            found = tiers.due(levels, runs_max=settings.compact_runs, rows_max=settings.level0_rows_max)
            if found is Due.MERGE and not tiers.groups(reads.snapshot(connection, relation), settings.level0_rows_max):
                return Due.NOTHING
        return found

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
        """Look at the relations that were written to. What fails is looked at again when it is written to."""
        if now_s < self._not_before_s:
            return self._not_before_s
        with self._lock:
            names, self._relations = self._relations, {}
        left = deque(names)
        try:
            if EVERY in names:
                left = deque(dict.fromkeys([*self._every(), *(name for name in names if name != EVERY)]))
            while left and self._context.services.is_running(self) and self._look_at(left.popleft()):
                pass
        finally:
            with self._lock:  # what came to no turn is first
                self._relations = dict.fromkeys([*left, *self._relations])
        self._not_before_s = self._context.services.clock() + LOOK_S
        return self._not_before_s if self._relations else None

    def _look_at(self, name: str) -> bool:
        """Compact a relation and its indexes; whether the next one may be looked at in the same step."""
        try:
            return self._compact(name)
        except ConflictError as error:
            log.debug("relation=%s another process compacted first reason=%s", name, error)
        except UnknownNameError as error:  # there is nothing left to compact
            log.debug("relation=%s compaction ended reason=%s", name, error)
        except EblaError as error:
            log.warning("relation=%s compaction failed reason=%s", name, error)
        except Exception:
            if self._context.services.is_running(self):
                log.exception("relation=%s compaction failed", name)
        return True

    def _compact(self, name: str) -> bool:
        for each in (name, *self._indexes_of(name)):
            match self.due(each):
                case Due.FOLD:
                    with self._context.sessions.tags.pool(Pool.COMPACTION):
                        done = compact(self._context, each, gives_way=self._gives_way)
                    log.info("relation=%s compacted tablets=%d runs=%d", each, done.tablets, done.folded_runs)
                    self._context.services.wake(PREPARATION)
                    if not done.ended or self._gives_way():
                        self.want(name)
                        return False
                case Due.MERGE:
                    log.info("relation=%s merged runs=%d", each, tiers.merge(self._context, each))
                    self._context.services.wake(PREPARATION)
                case Due.NOTHING:
                    pass
        return True

    def _gives_way(self) -> bool:
        """Whether work that goes before compaction waits for this process."""
        return self._context.services.should_yield(Rank.COMPACTION)

    def wait_idle(self, timeout_s: float = 600.0) -> bool:
        """Wait until there is nothing left to do."""
        return self._context.services.wait_idle(self.name, timeout_s)

    def stop(self) -> None:
        """Nothing is held."""
