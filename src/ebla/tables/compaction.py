"""Compaction folds level 0 into level 1.

Deciding what to fold is a pure function of a snapshot. Folding is one Spark job, whatever the number of tablets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ebla.base.failpoint import hit
from ebla.base.ids import RunId, TabletId, Version
from ebla.catalog import indexing, reads
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.lifecycle.index import may_compact
from ebla.model.relation import SPANS_TABLETS, TOKEN, Kind, Relation, RunSource
from ebla.model.snapshot import BEGINNING, Snapshot
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.storage import runs as rf
from ebla.tables.context import Context
from ebla.tables.writes import Work, begin
from ebla.values import token as tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """What one compaction does. `rewritten` tablets get new level 1 runs; `settled` ones have nothing to fold."""

    rewritten: tuple[TabletId, ...]
    settled: tuple[TabletId, ...]
    ended_level1: frozenset[RunId]
    ended_level0: frozenset[RunId]


def plan_fold(snapshot: Snapshot, touched: set[TabletId]) -> Fold:
    """Fold all of a snapshot's level 0: rewrite the tablets it has rows in, and advance the cutoff of the others."""
    rewritten = tuple(t for t in snapshot.tablets if t in touched)
    again = set(rewritten)
    return Fold(
        rewritten=rewritten,
        settled=tuple(t for t in snapshot.tablets if t not in again),
        ended_level1=frozenset(r.id for r in snapshot.level1 if r.tablet in again),
        ended_level0=frozenset(r.id for r in snapshot.level0) if snapshot.complete else frozenset(
            r.id for r in snapshot.level0 if r.tablet != SPANS_TABLETS
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    relation: str
    tablets: int
    folded_runs: int
    version: Version | None


def compact(context: Context, name: str, *, attempts: int = 5) -> Compacted:
    """Fold a relation's level 0. Writers go on; what they commit meanwhile stays level 0."""
    for attempt in range(attempts):
        try:
            return _compact(context, name)
        except ConflictError:
            if attempt == attempts - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _compact(context: Context, name: str) -> Compacted:
    work = begin(context, name, reason=f"compact {name}")
    relation, transaction = work.relation, work.transaction
    try:
        if relation.kind is Kind.INDEX and not _may_fold(context, relation):
            work.roll_back()
            return Compacted(relation=relation.name, tablets=0, folded_runs=0, version=None)
        with context.kept_alive(transaction.id), context.at_work(f"compaction of {relation.name}"):
            snapshot = work.snapshot()
            crowded = _crowded(snapshot)
            if not snapshot.level0 and not crowded:
                work.roll_back()
                return Compacted(relation=relation.name, tablets=0, folded_runs=0, version=None)
            fold = plan_fold(snapshot, _touched(context, snapshot) | crowded)
            context.progress(f"compacting {len(fold.rewritten)} tablets of {relation.name}", None)
            with work.reading([snapshot]):
                _rewrite(context, work, snapshot, fold)
            hit("compact.files_written")
            version = work.commit_decision(_decision(work, snapshot, fold))
    except BaseException as error:
        work.give_up(error)
        raise
    return Compacted(
        relation=relation.name,
        tablets=len(fold.rewritten),
        folded_runs=len(snapshot.level0),
        version=version,
    )


def _may_fold(context: Context, index: Relation) -> bool:
    """Not while it is filled: tombstones must stay above what the backfill brings."""
    with context.catalog.reading() as connection:
        found = indexing.of_index(connection, index.id)
    return found is not None and may_compact(found.state)


def _crowded(snapshot: Snapshot) -> set[TabletId]:
    """Tablets with more than one level 1 run that are small enough to be one."""
    counts: dict[TabletId, int] = {}
    for run in snapshot.level1:
        counts[run.tablet] = counts.get(run.tablet, 0) + 1
    return {t for t, n in counts.items() if n > 1}


def _touched(context: Context, snapshot: Snapshot) -> set[TabletId]:
    """The tablets that level 0 has rows in."""
    relation = snapshot.relation
    found = {r.tablet for r in snapshot.level0 if r.tablet != SPANS_TABLETS}
    spanning = [r for r in snapshot.level0 if r.tablet == SPANS_TABLETS]
    if sum(r.rows for r in spanning) > context.settings.level0_rows_max:
        return set(snapshot.tablets)  # too many to look at one by one; they are everywhere
    if spanning:
        rows = rf.mutations(relation, spanning, context.roots(), context.cache, snapshot)
        numbers = np.unique(tokens.tablets_of(rows[TOKEN].to_numpy(), relation.tablets))
        found |= {TabletId(int(t)) for t in numbers}
    return found & set(snapshot.tablets)


def _rewrite(context: Context, work: Work, snapshot: Snapshot, fold: Fold) -> None:
    if not fold.rewritten:
        return
    relation, part = snapshot.relation, snapshot
    if fold.settled:
        with context.catalog.reading() as connection:
            part = reads.snapshot(connection, relation, snapshot.version, fold.rewritten)
    rows = sscan.merged(context.writer, part, work.roots, context.cache, rows_max=context.settings.level0_rows_max)
    home = work.home()
    scratch = work.next_scratch()
    files = swrite.write_tablets(
        rows, relation, home, scratch, row_group_bytes=context.row_group_bytes(relation), index=fold.rewritten
    )
    work.runs = work.adopt(home, files, level=1, source=RunSource.COMPACTION)


def _decision(work: Work, snapshot: Snapshot, fold: Fold) -> c.Decision:
    relation = snapshot.relation
    tablets = (*fold.rewritten, *fold.settled)
    return c.Decision(
        reason=f"compact {relation.name}: {len(snapshot.level0)} level 0 runs into {len(fold.rewritten)} tablets",
        relation=relation.id,
        transaction=work.transaction.id,
        requires=(
            *work.requirements(),
            c.RunsLive(relation=relation.id, runs=fold.ended_level1 | fold.ended_level0),
            *(c.CutoffIs(relation=relation.id, tablet=t, cutoff=snapshot.cutoffs.get(t, BEGINNING)) for t in tablets),
        ),
        updates=(
            c.EndRuns(relation=relation.id, runs=fold.ended_level1 | fold.ended_level0),
            c.AddRuns(runs=tuple(work.runs)),
            *(c.SetCutoff(relation=relation.id, tablet=t, cutoff=snapshot.version) for t in tablets),
            c.EndTransaction(transaction=work.transaction.id),
        ),
    )
