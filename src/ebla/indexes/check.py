"""An index compared with its definition, and mended.

Plan: the entries that the base's rows make and those that are stored, at one version, joined on the entry's key. One
scan of each, one shuffled join. A sample takes rows by their token, which both sides have, so it needs no more than the
part of the join that it looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.catalog import reads
from ebla.errors import UsageError
from ebla.ids import Version
from ebla.indexes import definition, entries
from ebla.indexes.definition import Index
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.storage import types
from ebla.storage.snapshot import Snapshot
from ebla.tables import batch as b
from ebla.tables.context import Context
from ebla.tables.writes import Work, begin, until_committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DIFFERENCE = "_ebla_difference"
MISSING, SPURIOUS, DIFFERENT = "missing", "spurious", "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What is wrong with an index at a version; `repaired` once it is written."""

    index: str
    version: Version
    missing: int
    spurious: int
    different: int
    sample_percent: float
    repaired: bool = False


def check(context: Context, name: str, percent: float | None = None) -> Compared:
    with context.catalog.reading() as connection:
        index, base, stored = _read(connection, name, None)
    frame = differences(context, index, base, stored, percent)
    with swrite.translated(index.name):
        counted = {row[_DIFFERENCE]: row["count"] for row in frame.groupBy(_DIFFERENCE).count().collect()}
    return Compared(
        index=index.name,
        version=base.version,
        missing=counted.get(MISSING, 0),
        spurious=counted.get(SPURIOUS, 0),
        different=counted.get(DIFFERENT, 0),
        sample_percent=100.0 if percent is None else percent,
    )


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
        counted = {row[_DIFFERENCE]: row["count"] for row in frame.groupBy(_DIFFERENCE).count().collect()}
    kind = f"IF({_DIFFERENCE} = '{SPURIOUS}', '{b.DELETE}', '{b.UPSERT}') AS {b.KIND}"
    names = [sscan.quoted(c.physical) for c in index.relation.columns]
    work.put(b.FrameBatch(frame=frame.selectExpr(*names, kind), kind=None, rows=sum(counted.values())))
    work.commit(f"repair index {index.name}", reads_target=True)
    return Compared(
        index=index.name,
        version=base.version,
        missing=counted.get(MISSING, 0),
        spurious=counted.get(SPURIOUS, 0),
        different=counted.get(DIFFERENT, 0),
        sample_percent=100.0,
        repaired=True,
    )


def _read(connection: object, name: str, version: Version | None) -> tuple[Index, Snapshot, Snapshot]:
    from sqlalchemy import Connection

    assert isinstance(connection, Connection)
    index = definition.load(connection, name)
    if not index.readable:
        raise UsageError(f"index {index.name}: expected one that can be read, found it {index.state}")
    at = reads.current_version(connection) if version is None else version
    return index, reads.snapshot(connection, index.base, at), reads.snapshot(connection, index.relation, at)


def differences(context: Context, index: Index, base: Snapshot, stored: Snapshot, percent: float | None) -> DataFrame:
    """Entries that are wrong: the columns as they should be (of a spurious one, as they are) and what is wrong."""
    from pyspark.sql import functions as F

    rows_max = context.settings.level0_rows_max
    spark = context.view_session(index.settings, small=False) if index.settings else context.writer
    rows = sscan.merged(spark, base, context.roots(), context.cache, rows_max=rows_max)
    should = entries.entries_of(entries.computed(rows, index.base, [index]), index)
    found = sscan.merged(context.writer, stored, context.roots(), context.cache, rows_max=rows_max)
    if percent is not None and percent < 100:
        token = sscan.token_sql(index.relation.placed_by)
        part = f"pmod(xxhash64({token}), 1000000) < {percent * 10_000:.0f}"
        should, found = should.filter(part), found.filter(part)
    q = sscan.quoted
    names = [c.physical for c in index.relation.columns]
    key = [c.physical for c in index.relation.key]
    left = ssession.rebind(should, context.writer).selectExpr(
        *sscan.renamed([(n, f"_s_{n}") for n in names]), "true AS _s"
    )
    right = found.selectExpr(*sscan.renamed([(n, f"_f_{n}") for n in names]), "true AS _f")
    on = " AND ".join(f"{q(f'_s_{n}')} <=> {q(f'_f_{n}')}" for n in key)
    # Values that Spark cannot compare are compared as text.
    texts = [
        f"{q(f'_s_{c.physical}')} <=> {q(f'_f_{c.physical}')}"
        if types.is_key_type(c.type)
        else f"CAST({q(f'_s_{c.physical}')} AS STRING) <=> CAST({q(f'_f_{c.physical}')} AS STRING)"
        for c in index.relation.columns
        if c.key_position is None
    ]
    same = " AND ".join(["true", *texts])
    both = left.join(right, F.expr(on), "full_outer")
    what = f"CASE WHEN _f IS NULL THEN '{MISSING}' WHEN _s IS NULL THEN '{SPURIOUS}' ELSE '{DIFFERENT}' END"
    return both.filter(f"_f IS NULL OR _s IS NULL OR NOT ({same})").selectExpr(
        *[f"IF(_s IS NULL, {q(f'_f_{n}')}, {q(f'_s_{n}')}) AS {q(n)}" for n in names], f"{what} AS {_DIFFERENCE}"
    )


def report(done: Sequence[Compared]) -> pa.Table:
    return pa.table(
        {
            "index": pa.array([d.index for d in done], pa.string()),
            "version": pa.array([int(d.version) for d in done], pa.int64()),
            "missing": pa.array([d.missing for d in done], pa.int64()),
            "spurious": pa.array([d.spurious for d in done], pa.int64()),
            "different": pa.array([d.different for d in done], pa.int64()),
            "sample_percent": pa.array([d.sample_percent for d in done], pa.float64()),
            "repaired": pa.array([d.repaired for d in done], pa.bool_()),
        }
    )
