"""An index is compared with its base before queries may read it.

Its entries are counted: of a full index there are as many as rows, as far as the manifest can tell without reading.
Keys are taken from the middle of some runs of the base and of the index, so that both a missing entry and one too many
can be found, and compared by lookups; only expressions cost a small Spark job. Of a unique index all of it is looked at
for values that stand twice, once those writers are through who may not have seen all entries.
"""

from __future__ import annotations

import threading

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.errors import CorruptRunError, DuplicateKeyError, UnknownNameError
from ebla.indexes import removal, uniqueness
from ebla.indexes.sample import Mismatch, compare
from ebla.model.lifecycle.index import backfill_level
from ebla.relations import indexes as definition
from ebla.relations.indexes import Index
from ebla.spark import scan as sscan
from ebla.tables import blockers
from ebla.tables.write_access import WriteAccess


class Validation:
    """What this process has looked at; all of it may be forgotten. Safe to use from several threads."""

    def __init__(self, context: WriteAccess) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._barriers: dict[RelationId, tuple[Version, int]] = {}

    def verify(self, number: RelationId) -> bool:
        """Whether the index may be read. `False`: another change is in the way, look again. An error says why it never
        may, and that it is on its way out."""
        with self._context.catalog.reading() as connection:
            index = _load(connection, number)
        if backfill_level(index.state) is None:
            return False  # it is being dropped
        if index.unique and not self._passed(index):
            return False
        try:
            if index.unique:
                _refuse_twice(self._context, index)
            compare(self._context, index)
        except (DuplicateKeyError, Mismatch) as found:
            error = CorruptRunError(str(found)) if isinstance(found, Mismatch) else found
            removal.give_up(self._context.catalog, self._context.node, self._context.holder, number, error)
            raise error from found
        hit("index.checked")
        with self._lock:
            self._barriers.pop(number, None)
        return True

    def _passed(self, index: Index) -> bool:
        """Whether no writer is open that began before the last tablet was there: it may not have seen all entries.

        Later ones do. The wait is bounded as every barrier's.
        """
        catalog = self._context.catalog
        with self._lock:
            since, began_us = self._barriers.setdefault(index.id, (catalog.version(), catalog.clock()))
        return not blockers.wait_or_abort(
            self._context,
            lambda connection, now: tx.in_the_way(connection, {index.base.id}, now, unnamed=False),
            since,
            began_us,
        )


def _load(connection: Connection, number: RelationId) -> Index:
    found = definition.find_by_id(connection, number)
    if found is None:
        raise UnknownNameError(f"index {number}: expected to be there, found dropped")
    return found


def _refuse_twice(context: WriteAccess, index: Index) -> None:
    with context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, index.relation)
    if not snapshot.level1 and not snapshot.level0:
        return
    rows_max = context.settings.level0_rows_max
    found = sscan.merged(context.writer, snapshot, context.roots(), context.storage.level0, rows_max=rows_max)
    twice = uniqueness.first_twice(index, found)
    if twice is not None:
        raise uniqueness.violation(index, twice)
