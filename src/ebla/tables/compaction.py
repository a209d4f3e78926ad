"""Compaction folds level 0 into level 1.

Deciding what to fold is a pure function of a snapshot. In the background a compaction folds some tablets after the
others, in *pieces* of about `PIECE_ROWS` rows for each of its cores: each is one Spark job and one commit, so that what
is more urgent can go first in between. Half of Spark's cores are its own, so that another job finds one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ebla.base.failpoint import hit
from ebla.base.ids import RunId, TabletId, Version
from ebla.catalog import reads, resizes
from ebla.catalog import transactions as tx
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.relation import SPANS_TABLETS, TOKEN, Relation, Run, RunSource
from ebla.model.snapshot import BEGINNING, Snapshot, span_of
from ebla.model.tablets import tablet_around, tablets_over
from ebla.relations.indexes import may_fold
from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.tables.commit import Commit
from ebla.tables.context import Context
from ebla.tables.sink import Sink
from ebla.tables.transaction import begin
from ebla.values import token as tokens

PIECE_ROWS = 1_000_000
"""The rows of one piece for each core, where compaction gives way to other work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """What one piece does. `rewritten` tablets get new level 1 runs; `settled` ones have nothing to fold."""

    rewritten: tuple[TabletId, ...]
    settled: tuple[TabletId, ...]
    left: tuple[TabletId, ...]
    """Tablets that are folded by later pieces."""
    ended_level1: frozenset[RunId]
    ended_level0: frozenset[RunId]


def plan_fold(
    snapshot: Snapshot, touched: set[TabletId], since: Version, rows_max: float = math.inf, least: int = 1
) -> Fold:
    """Fold tablets that level 0 has rows in and that were not folded since a version, and advance the cutoff of those
    that it has none in. A level 0 run ends with the last of its tablets, or with the next fold if it was folded in all
    of them before: a tablet map that changed since may have moved it out of those that were left.

    A piece has at most `rows_max` rows, or `least` tablets, which are worked on at once.
    """
    old = {t: snapshot.cutoffs.get(t, BEGINNING) for t in snapshot.tablets}
    due = sorted((t for t in touched if old[t] < since), key=lambda t: (old[t], t))
    rewritten = tuple(sorted(_first(due, _rows(snapshot), rows_max, least)))
    settled = tuple(t for t in snapshot.tablets if t not in touched)
    again = set(rewritten)
    new: dict[int, Version] = {
        t: snapshot.version if t in again or t not in touched else old[t] for t in snapshot.tablets
    }

    def ends(run: Run) -> bool:
        return all(run.begin_version <= new.get(t, BEGINNING) for t in span_of(run, snapshot.relation.tablets))

    return Fold(
        rewritten=rewritten,
        settled=settled,
        left=tuple(t for t in due if t not in again),
        ended_level1=frozenset(r.id for r in snapshot.level1 if r.tablet in again),
        ended_level0=frozenset(r.id for r in (*snapshot.level0, *snapshot.folded) if ends(r)),
    )


def cores_of(cores: int) -> int:
    """How many of Spark's cores a compaction in the background works with."""
    return max(1, cores // 2)


def _first(due: Sequence[TabletId], rows: Mapping[TabletId, int], rows_max: float, least: int) -> list[TabletId]:
    """The first tablets, at least `least` of them, with at most `rows_max` rows together."""
    total = 0
    found: list[TabletId] = []
    for tablet in due:
        total += rows[tablet]
        if len(found) >= least and total > rows_max:
            break
        found.append(tablet)
    return found


def _rows(snapshot: Snapshot) -> dict[TabletId, int]:
    """About how many rows each tablet has, in both levels."""
    spanning = sum(r.rows for r in snapshot.level0 if r.tablet == SPANS_TABLETS)
    found = dict.fromkeys(snapshot.tablets, spanning // len(snapshot.tablets))
    for run in (*snapshot.level1, *snapshot.level0):
        if run.tablet in found:
            found[run.tablet] += run.rows
    return found


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

    With `gives_way`, piece by piece; it is asked after each whether the compaction ends early. What is folded stays
    folded. While a split is decided, level 1 is cut for the tablets that are coming.
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
    transaction = begin(context, name, reason=f"{tx.COMPACT}{name}")
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
            crowded = _crowded(snapshot, tablets)
            if not (snapshot.level0 or snapshot.folded or crowded):
                transaction.roll_back()
                return nothing, until
            cores = cores_of(context.writer.sparkContext.defaultParallelism) if in_pieces else 1
            rows_max = PIECE_ROWS * cores if in_pieces else math.inf
            fold = plan_fold(snapshot, _touched(context, snapshot) | crowded, until, rows_max, cores)
            context.progress(f"compacting {len(fold.rewritten)} tablets of {relation.name}", None)
            sink = Sink(transaction, relation.in_map(tablets))
            with rf.reading([snapshot], transaction.roots):
                _rewrite(context, sink, snapshot, fold)
            hit("compact.files_written")
            version = commit_fold(sink, snapshot, fold)
    except BaseException as error:
        transaction.give_up(error)
        raise
    ends = fold.ended_level0 | fold.ended_level1
    runs = (*snapshot.level0, *snapshot.folded, *snapshot.level1)
    forget(context, relation, [run for run in runs if run.id in ends])
    done = CompactionResult(
        relation=relation.name,
        tablets=len(fold.rewritten),
        folded_runs=len(fold.ended_level0),
        version=version,
        ended=not fold.left,
    )
    return done, until


def forget(context: Context, relation: Relation, ended: Sequence[Run]) -> None:
    """Keep nothing more in memory of runs that have ended."""
    context.store.end(ended)
    context.cache.end(relation.id, [run for run in ended if run.level == 0])
    ids = {run.id for run in ended}
    context.frames.drop(lambda read: any(run in ids for run, _ in read.copies))


def _crowded(snapshot: Snapshot, tablets: int) -> set[TabletId]:
    """Tablets with a level 1 run that does not lie in one tablet of a map with that number of tablets, or with several
    runs in one of these."""
    counts: dict[TabletId | None, int] = {}
    places = [(run.tablet, tablet_around(run.tokens, tablets)) for run in snapshot.level1]
    for _, place in places:
        counts[place] = counts.get(place, 0) + 1
    return {tablet for tablet, place in places if place is None or counts[place] > 1}


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


def _rewrite(context: Context, sink: Sink, snapshot: Snapshot, fold: Fold) -> None:
    if not fold.rewritten:
        return
    relation, part, roots = snapshot.relation, snapshot, sink.transaction.roots
    if len(fold.rewritten) < len(snapshot.tablets):
        with context.catalog.reading() as connection:
            part = reads.snapshot(connection, relation, snapshot.version, snapshot.tokens_of(fold.rewritten))
    rows = sscan.merged(context.writer, part, roots, context.cache, rows_max=context.settings.level0_rows_max)
    after = sink.relation.tablets
    files = sink.files.cut(rows, [t for one in snapshot.tokens_of(fold.rewritten) for t in tablets_over(one, after)])
    sink.runs = sink.files.adopt(files, level=1, source=RunSource.COMPACTION)


def commit_fold(sink: Sink, snapshot: Snapshot, fold: Fold) -> Version:
    """Put the new runs in the place of those that were folded, if these are what readers still see.

    What queries keep in memory of those is read of the new runs before: the next query is to find it.
    """
    transaction = sink.transaction
    replaced = [run for run in snapshot.level1 if run.id in fold.ended_level1]
    transaction.context.store.take_over(transaction.roots, replaced, sink.runs)
    relation = snapshot.relation.id
    tablets, ended = (*fold.rewritten, *fold.settled), fold.ended_level1 | fold.ended_level0
    places = tuple(snapshot.tokens_of(tablets))
    before = [snapshot.cutoffs.get(t, BEGINNING) for t in tablets]
    decision = Commit(sink).decision(
        f"compact {snapshot.relation.name}: {len(fold.ended_level0)} level 0 runs into {len(fold.rewritten)} tablets",
        rows=(c.EndRuns(relation=relation, runs=ended), *sink.added()),
        requires=(
            c.RunsLive(relation=relation, runs=ended),
            c.CutoffsAre(relation=relation, cutoffs=dict(zip(places, before, strict=True))),
        ),
        updates=[c.SetCutoff(relation=relation, tablets=places, cutoff=snapshot.version)],
    )
    return transaction.commit(decision)
