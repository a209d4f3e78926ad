"""An index compared with its definition, and mended.

Plan: the entries that the base's rows make and those that are stored, at one version, joined on the entry's key. One
scan of each, one shuffled join. A sample takes rows by their token, which both sides have, so it needs no more than the
part of the join that it looks at.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.catalog import reads
from ebla.errors import UsageError
from ebla.ids import Version
from ebla.indexes import definition, entries
from ebla.indexes.definition import Index
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.storage.snapshot import Snapshot
from ebla.tables import batch as b
from ebla.tables import compare
from ebla.tables.compare import Compared
from ebla.tables.context import Context
from ebla.tables.writes import Work, begin, until_committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check(context: Context, name: str, percent: float | None = None) -> Compared:
    with context.catalog.reading() as connection:
        index, base, stored = _read(connection, name, None)
    frame = differences(context, index, base, stored, percent)
    with swrite.translated(index.name):
        counted = compare.counted(frame)
    return Compared.of("index", index.name, base.version, counted, percent)


def repair(context: Context, name: str) -> Compared:
    """Write what is missing and different, and tombstones of what is spurious, as any writer would.

    A commit that touches one of these entries meanwhile makes it start over.
    """

    def attempt() -> Compared:
        relation, transaction = begin(context, name, reason=f"repair index {name}")
        work = Work(context, relation, transaction)
        try:
            with context.kept_alive(transaction.id):
                with context.catalog.reading() as connection:
                    index, base, stored = _read(connection, name, transaction.snapshot)
                frame = differences(context, index, base, stored, None).persist()
                try:
                    return _mend(work, index, base, frame)
                finally:
                    frame.unpersist()
        except BaseException as error:
            work.give_up(error)
            raise

    return until_committed(context, attempt)


def _mend(work: Work, index: Index, base: Snapshot, frame: DataFrame) -> Compared:
    with swrite.translated(index.name):
        counted = compare.counted(frame)
    kind = f"IF({compare.DIFFERENCE} = '{compare.SPURIOUS}', '{b.DELETE}', '{b.UPSERT}') AS {b.KIND}"
    names = [sscan.quoted(c.physical) for c in index.relation.columns]
    work.put(b.FrameBatch(frame=frame.selectExpr(*names, kind), kind=None, rows=sum(counted.values())))
    work.commit(f"repair index {index.name}", reads_target=True)
    return replace(Compared.of("index", index.name, base.version, counted, None), repaired=True)


def _read(connection: Connection, name: str, version: Version | None) -> tuple[Index, Snapshot, Snapshot]:
    index = definition.load(connection, name)
    if not index.readable:
        raise UsageError(f"index {index.name}: expected one that can be read, found it {index.state}")
    at = reads.current_version(connection) if version is None else version
    return index, reads.snapshot(connection, index.base, at), reads.snapshot(connection, index.relation, at)


def differences(context: Context, index: Index, base: Snapshot, stored: Snapshot, percent: float | None) -> DataFrame:
    """Entries that are wrong: the columns as they should be (of a spurious one, as they are) and what is wrong."""
    rows_max = context.settings.level0_rows_max
    spark = context.view_session(index.settings, small=False) if index.settings else context.writer
    rows = sscan.merged(spark, base, context.roots(), context.cache, rows_max=rows_max)
    should = entries.entries_of(entries.computed(rows, index.base, [index]), index)
    found = sscan.merged(context.writer, stored, context.roots(), context.cache, rows_max=rows_max)
    token = sscan.token_sql(index.relation.placed_by)
    should, found = (compare.sampled(side, token, percent) for side in (should, found))
    key = [c.physical for c in index.relation.key]
    return compare.differences(ssession.rebind(should, context.writer), found, index.relation.columns, key)
