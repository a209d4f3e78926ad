"""Rows of a part of the base, computed for views that are being built (`chunk_commit` says how they are committed).

A chunk reads every input at one version *t*: the newest, or the one at which an index of the same chunk is read.

Plan of a chunk: the base's files of these tablets, filtered by token where a tablet is read in stretches; the view's
query over them; one shuffle to the view's tablets, sort, write. One Spark job for each view; the rows of the base are
scanned once for all (`ebla.tables.chunk_scan`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ebla.base.failpoint import hit
from ebla.base.ids import Version
from ebla.model.relation import Relation
from ebla.model.work import WorkKind
from ebla.relations.shapes import shape_of, used_columns
from ebla.spark import scan as sscan
from ebla.tables.chunk_scan import ChunkReading, Scan
from ebla.tables.sink import Sink
from ebla.tables.transaction import begin_of
from ebla.tables.write_access import WriteAccess
from ebla.views.epoch.round import Round
from ebla.views.fill.chunk_commit import ChunkCommit, FilledView
from ebla.views.fill.chunk_write import write_chunk


def reading(base: Relation, fillings: Sequence[FilledView], not_before: Version) -> ChunkReading:
    """What a chunk of these views reads of its base."""
    used = {k.name for k in base.key}
    for one in fillings:
        shape, _ = shape_of(one.view, one.relations)
        used |= used_columns(shape, one.relations).get(base.name.lower(), frozenset())
    columns = frozenset(col.physical for col in base.columns if col.name in used)
    return ChunkReading(columns=columns, jobs=len(fillings), not_before=not_before)


def fill(context: WriteAccess, scan: Scan, fillings: Sequence[FilledView]) -> list[Exception | None]:
    """Compute and commit a chunk for each view; what kept one from it, in their order. One does not stop the others."""
    transactions = [
        begin_of(context, one.view.relation, reason=f"build of {one.view.relation.name}", work=WorkKind.CHUNK)
        for one in fillings
    ]
    # The newest, unless an index needs an older one and keeps it: those that began before keep it from vacuum, too.
    version = transactions[-1].snapshot if scan.at is None else scan.at
    round_ = Round(context)
    found: list[Exception | None] = []
    try:
        frame = scan.rows(version)
        rows = sscan.logical(frame, [col for col in scan.base.visible if col.physical in frame.columns])
    except BaseException:
        for transaction in transactions:
            transaction.roll_back()
        raise
    for one, transaction in zip(fillings, transactions, strict=True):
        try:
            with context.kept_alive(transaction.id):
                commit = ChunkCommit(filling=one, scan=scan, version=version, sink=Sink(transaction))
                write_chunk(one, version, commit.sink, round_, rows)
                commit.commit()
                hit("build.chunk_committed")
            found.append(None)
        except Exception as error:
            transaction.give_up(error)
            found.append(error)
        except BaseException:
            for left in transactions[len(found) :]:
                left.roll_back()
            raise
    return found
