"""An index compared with its definition, part by part.

Plan of a part: the entries that the base's rows make and those that are stored, at one version, joined on the base's
key. One scan of each, one shuffled join. Entries lie where their rows lie, so a part reads the same tablets of both. A
sample takes rows by their token, which both sides have, so it needs no more than the part of the join that it looks at.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.errors import UsageError
from ebla.indexes import entries
from ebla.model.snapshot import Snapshot
from ebla.relations import indexes as definition
from ebla.relations.indexes import Index
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.tables import compare, scans
from ebla.tables import parts as pt
from ebla.tables.compare import ComparisonResult
from ebla.tables.parts import CheckSpeed, Part
from ebla.tables.write_access import WriteAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_index(
    context: WriteAccess, pins: scans.Pins, name: str, percent: float | None, pace: CheckSpeed
) -> ComparisonResult:
    found, rows = size_of(context.catalog, name)
    wrong: Counter[str] = Counter()
    for part in pt.parts(context.progress, f"checking index {found.name}", rows, pace):
        read = partial(read_part, name=name, part=part)
        (index, base, stored), holds = scans.at_version(context.catalog, pins, None, f"check of {name}", read)
        try:
            frame = differences(context, index, base, stored, percent, part)
            with swrite.translated(index.name), pt.stoppable(context.spark):
                wrong.update(compare.counted(frame))
        finally:
            for hold in holds:
                hold.release()
    return ComparisonResult.of("index", index.name, base.version, wrong, percent)


def size_of(catalog: Catalog, name: str) -> tuple[Index, int]:
    """An index, and how many rows are looked at: those of its base."""
    with catalog.reading() as connection:
        index, base, _ = read_part(connection, reads.current_version(connection), name, Part(number=0, count=1))
    return index, base.rows_at_most


def read_part(connection: Connection, at: Version, name: str, part: Part) -> tuple[Index, Snapshot, Snapshot]:
    index = definition.load(connection, name)
    if not index.readable:
        raise UsageError(f"index {index.name}: expected one that can be read, found it {index.state}")
    base, stored = (reads.snapshot(connection, relation, at, part.tokens) for relation in (index.base, index.relation))
    return index, base, stored


def differences(
    context: WriteAccess, index: Index, base: Snapshot, stored: Snapshot, percent: float | None, part: Part
) -> DataFrame:
    """Entries that are wrong: the columns as they should be (of a spurious one, as they are) and what is wrong."""
    should = entries.of_snapshot(context, index, base)
    rows_max = context.settings.level0_rows_max
    found = sscan.merged(context.writer, stored, context.roots(), context.storage.level0, rows_max=rows_max)
    token = sscan.token_sql(index.relation.placed_by)
    should, found = (compare.sampled(side.filter(part.within(token)), token, percent) for side in (should, found))
    key = [c.physical for c in index.relation.identity]
    return compare.differences(should, found, index.relation.columns, key)
