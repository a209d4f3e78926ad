"""An index mended, part by part: what is missing or different is written, what is spurious gets a tombstone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ebla.base.ids import Version
from ebla.indexes.index_check import differences, read_part, size_of
from ebla.relations.indexes import Index
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.tables import batch as b
from ebla.tables import compare
from ebla.tables import parts as pt
from ebla.tables.compare import ComparisonResult
from ebla.tables.parts import CheckSpeed, Part
from ebla.tables.sink import Sink
from ebla.tables.transaction import begin
from ebla.tables.write_access import WriteAccess
from ebla.tables.writes import commit, until_committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def repair(context: WriteAccess, name: str, pace: CheckSpeed) -> ComparisonResult:
    """Write what is missing and different, and tombstones of what is spurious, as any writer would.

    Each part is a commit. A commit that touches one of its entries meanwhile makes it start over.
    """
    index, rows = size_of(context.catalog, name)
    version, wrong = Version(0), Counter[str]()
    for part in pt.parts(context.progress, f"repairing index {index.name}", rows, pace):
        version, found = until_committed(context, partial(_mended, context, name, part))
        wrong.update(found)
    return replace(ComparisonResult.of("index", index.name, version, wrong, None), repaired=True)


def _mended(context: WriteAccess, name: str, part: Part) -> tuple[Version, Mapping[str, int]]:
    transaction = begin(context, name, reason=f"repair index {name}")
    try:
        with context.kept_alive(transaction.id), pt.stoppable(context.spark):
            with context.catalog.reading() as connection:
                index, base, stored = read_part(connection, transaction.snapshot, name, part)
            frame = differences(context, index, base, stored, None, part).persist()
            try:
                return base.version, _mend(Sink(transaction), index, frame)
            finally:
                frame.unpersist()
    except BaseException as error:
        transaction.give_up(error)
        raise


def _mend(sink: Sink, index: Index, frame: DataFrame) -> Mapping[str, int]:
    with swrite.translated(index.name):
        wrong = compare.counted(frame)
    if not wrong:
        sink.transaction.roll_back()
        return wrong
    kind = f"IF({compare.DIFFERENCE} = '{compare.SPURIOUS}', '{b.DELETE}', '{b.UPSERT}') AS {b.KIND}"
    names = [sscan.quoted(c.physical) for c in index.relation.columns]
    # A row that has several wrong entries gets the right one once.
    mended = frame.dropDuplicates([c.physical for c in index.relation.identity]).selectExpr(*names, kind)
    sink.put(b.FrameBatch(frame=mended, kind=None, rows=sum(wrong.values())))
    commit(sink, f"repair index {index.name}", reads_target=True)
    return wrong
