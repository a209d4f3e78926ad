"""An index is compared with its base before queries may read it.

Its entries are counted: of a full index there are as many as rows, as far as the manifest can tell without reading.
Keys are taken from the middle of some runs of the base and of the index, so that both a missing entry and one too many
can be found, and compared by lookups; only expressions cost a small Spark job. Of a unique index all of it is looked at
for values that stand twice, once those writers are through who may not have seen all entries.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pyarrow as pa
from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.errors import CorruptRunError, DuplicateKeyError, UnknownNameError
from ebla.indexes import create, entries, uniqueness
from ebla.model.lifecycle.index import backfill_level
from ebla.model.snapshot import Snapshot
from ebla.relations import indexes as definition
from ebla.relations.indexes import Index
from ebla.spark import scan as sscan
from ebla.storage.rows import difference, distinct
from ebla.tables import blockers
from ebla.tables.context import Context
from ebla.tables.sample import sample
from ebla.tables.value_lookup import rows_by

log = logging.getLogger("ebla.build")


class Mismatch(Exception):
    """The index was read, and is not what its definition says. A file that cannot be read says nothing of the kind."""


class Validation:
    """What this process has looked at; all of it may be forgotten. Safe to use from several threads."""

    def __init__(self, context: Context) -> None:
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
            create.give_up(self._context, number, error)
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
    relation = reads.relation_by_id(connection, number)
    if relation is None:
        raise UnknownNameError(f"index {number}: expected to be there, found dropped")
    return definition.load(connection, relation.name)


def _refuse_twice(context: Context, index: Index) -> None:
    with context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, index.relation)
    if not snapshot.level1 and not snapshot.level0:
        return
    rows_max = context.settings.level0_rows_max
    found = sscan.merged(context.writer, snapshot, context.roots(), context.cache, rows_max=rows_max)
    twice = uniqueness.first_twice(context, index, found)
    if twice is not None:
        raise uniqueness.violation(index, twice)


def compare(context: Context, index: Index) -> None:
    """Raise if the index cannot be what its definition says, at the newest version."""
    with context.catalog.reading() as connection:
        at = reads.current_version(connection)
        base, mine = reads.snapshot(connection, index.base, at), reads.snapshot(connection, index.relation, at)
    _compare_counts(index, base, mine)
    _compare_sample(context, index, base, mine)


def counted(snapshot: Snapshot) -> tuple[int, int]:
    """Between how many rows a snapshot has, from the manifest alone: the two are equal where there is no level 0."""
    rows = sum(run.rows for run in snapshot.level1)
    gone = sum(run.tombstones for run in snapshot.level0)
    come = sum(run.rows - run.tombstones for run in snapshot.level0)
    return max(0, rows - gone), rows + come


def _compare_counts(index: Index, base: Snapshot, mine: Snapshot) -> None:
    (least, most), (fewest, many) = counted(base), counted(mine)
    too_few = index.where is None and many < least
    if too_few or fewest > most:
        expected = f"{least}" if least == most else f"{least} to {most}"
        raise Mismatch(
            f"index {index.name}: expected {'' if index.where is None else 'at most '}{expected} entries, as "
            f"{index.base.name} has rows, found {many if too_few else fewest}; create it again"
        )


def _by_physical_names(snapshot: Snapshot) -> Snapshot:
    """An index's own names are texts of expressions, of which two may be equal but for their case."""
    columns = tuple(replace(column, name=column.physical) for column in snapshot.relation.columns)
    return replace(snapshot, relation=replace(snapshot.relation, columns=columns))


def _compare_sample(context: Context, index: Index, base: Snapshot, mine: Snapshot) -> None:
    key, roots = index.base.key, context.roots()
    samples = [sample(roots, base, key, key), sample(roots, mine, index.relation.placed_by, key)]
    values = distinct(pa.concat_tables(samples))
    if values.num_rows == 0:
        return
    should = entries.of_keys(context, index, base, values)
    placed = [column.physical for column in index.relation.placed_by]
    have = rows_by(context, _by_physical_names(mine), placed, values, should.schema.names)
    missing, spurious = difference(should, have.cast(should.schema))
    if missing.num_rows or spurious.num_rows:
        raise Mismatch(
            f"index {index.name}: expected the entries of {values.num_rows} sampled rows of {index.base.name}, found "
            f"{missing.num_rows} missing and {spurious.num_rows} too many; create it again"
        )
    log.info("index=%s checked keys=%d entries=%d", index.name, values.num_rows, have.num_rows)
