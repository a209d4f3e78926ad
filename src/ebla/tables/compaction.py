"""Compaction folds level 0 into level 1.

In the background a compaction folds some tablets after the
others, in *pieces* of about `PIECE_ROWS` rows for each of its cores: each is one Spark job and one commit, so that what
is more urgent can go first in between. Half of Spark's cores are its own, so that another job finds one. A large epoch
has the piece that is at work abandoned (`ebla.spark.pieces`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ebla.base.caches import Lru
from ebla.base.failpoint import hit
from ebla.base.ids import Version
from ebla.catalog import resizes
from ebla.errors import ConflictError
from ebla.model.relation import Relation, Run
from ebla.model.work import WorkKind
from ebla.relations.indexes import may_fold
from ebla.spark.pieces import AbandonedError
from ebla.storage import runs as rf
from ebla.storage.node_storage import NodeStorage
from ebla.tables.context import Context
from ebla.tables.fold import as_piece, commit_fold, crowded, plan_fold, rewrite, touched
from ebla.tables.sink import Sink
from ebla.tables.transaction import begin

PIECE_ROWS = 1_000_000
"""The rows of one piece for each core, where compaction gives way to other work."""


def cores_of(cores: int) -> int:
    """How many of Spark's cores a compaction in the background works with."""
    return max(1, cores // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    relation: str
    tablets: int
    folded_runs: int
    version: Version | None
    ended: bool = True
    """Whether all level 0 is folded that was there at the beginning; if not, others were to go first."""


def compact(
    context: Context,
    name: str,
    *,
    attempts: int = 5,
    gives_way: Callable[[], bool] | None = None,
) -> CompactionResult:
    """Fold a relation's level 0. Writers go on; what they commit meanwhile stays level 0.

    With `gives_way`, piece by piece; it is asked after each whether the compaction ends early, and a large epoch may
    have the piece abandoned that is at work. What is folded stays folded. While a split is decided, level 1 is cut for
    the tablets that are coming.
    """
    since: Version | None = None
    done: CompactionResult | None = None
    in_pieces = gives_way is not None
    while done is None or not (done.ended or (gives_way is not None and gives_way())):
        piece, since = _insisted(context, name, since, attempts, in_pieces=in_pieces)
        before = done
        done = piece if before is None else replace(
            piece,
            tablets=before.tablets + piece.tablets,
            folded_runs=before.folded_runs + piece.folded_runs,
            version=piece.version or before.version,
        )  # fmt: skip
    return done


def _insisted(
    context: Context, name: str, since: Version | None, attempts: int, *, in_pieces: bool
) -> tuple[CompactionResult, Version]:
    for attempt in range(attempts):
        try:
            return _compact(context, name, since, in_pieces=in_pieces)
        except ConflictError:
            if attempt == attempts - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _compact(
    context: Context, name: str, since: Version | None, *, in_pieces: bool
) -> tuple[CompactionResult, Version]:
    """One piece, and the version up to which the whole compaction folds: that of its first piece."""
    transaction = begin(context, name, reason=f"compact {name}", work=WorkKind.COMPACTION)
    relation = transaction.relation
    nothing = CompactionResult(relation=relation.name, tablets=0, folded_runs=0, version=None)
    until = transaction.snapshot if since is None else since
    try:
        if not context.catalog.read(lambda connection: may_fold(connection, relation)):
            transaction.roll_back()
            return nothing, until
        with context.kept_alive(transaction.id), context.at_work(f"compaction of {relation.name}"):
            snapshot = transaction.snapshot_of(relation)
            with context.catalog.reading() as connection:
                tablets = resizes.coming_tablets(connection, relation.id) or relation.tablets
            crowds = crowded(snapshot, tablets)
            if not (snapshot.level0 or snapshot.folded or crowds):
                transaction.roll_back()
                return nothing, until
            cores = cores_of(context.writer.sparkContext.defaultParallelism) if in_pieces else 1
            rows_max = PIECE_ROWS * cores if in_pieces else math.inf
            fold = plan_fold(
                snapshot, touched(context.storage, context.settings, snapshot) | crowds, until, rows_max, cores
            )
            context.progress(f"compacting {len(fold.rewritten)} tablets of {relation.name}", None)
            sink = Sink(transaction, relation.in_map(tablets))
            piece = as_piece(context, snapshot, fold) if in_pieces else contextlib.nullcontext()
            with rf.reading([snapshot], transaction.roots), piece:
                rewrite(context, sink, snapshot, fold)
            hit("compact.files_written")
            version = commit_fold(sink, snapshot, fold)
    except AbandonedError as error:
        transaction.give_up(error)
        return replace(nothing, ended=False), until
    except BaseException as error:
        transaction.give_up(error)
        raise
    ends = fold.ended_level0 | fold.ended_level1
    runs = (*snapshot.level0, *snapshot.folded, *snapshot.level1)
    forget(context.storage, context.frames, relation, [run for run in runs if run.id in ends])
    done = CompactionResult(
        relation=relation.name,
        tablets=len(fold.rewritten),
        folded_runs=len(fold.ended_level0),
        version=version,
        ended=not fold.left,
    )
    return done, until


def forget(storage: NodeStorage, frames: Lru[Any], relation: Relation, ended: Sequence[Run]) -> None:
    """Keep nothing more in memory of runs that have ended."""
    storage.store.end(ended)
    storage.level0.end(relation.id, [run for run in ended if run.level == 0])
    ids = {run.id for run in ended}
    frames.drop(lambda read: any(run in ids for run, _ in read.copies))
