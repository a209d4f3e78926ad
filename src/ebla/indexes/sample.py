"""A sample of an index compared with its base, and its entries counted, at the newest version."""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa

from ebla.catalog import reads
from ebla.indexes import entries
from ebla.model.snapshot import Snapshot
from ebla.relations.indexes import Index
from ebla.storage.rows import difference, distinct
from ebla.tables.read_access import ReadAccess
from ebla.tables.sample import sample
from ebla.tables.value_lookup import rows_by

log = logging.getLogger("ebla.build")


class Mismatch(Exception):
    """The index was read, and is not what its definition says. A file that cannot be read says nothing of the kind."""


def compare(context: ReadAccess, index: Index) -> None:
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


def _compare_sample(context: ReadAccess, index: Index, base: Snapshot, mine: Snapshot) -> None:
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
