"""One piece of a compaction: which tablets it folds, the runs that it writes, and the commit that puts them in place.

Deciding what to fold is a pure function of a snapshot.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ebla.base.ids import RunId, TabletId, Version
from ebla.base.settings import Settings
from ebla.catalog import reads
from ebla.model import changes as c
from ebla.model.relation import SPANS_TABLETS, TOKEN, Run, RunSource
from ebla.model.snapshot import BEGINNING, Snapshot, span_of
from ebla.model.tablets import tablet_around, tablets_over
from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.storage.node_storage import NodeStorage
from ebla.tables.commit import Commit
from ebla.tables.context import Context
from ebla.tables.sink import Sink
from ebla.values import token as tokens


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
    rewritten = tuple(sorted(_first(due, rows_of(snapshot), rows_max, least)))
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


def rows_of(snapshot: Snapshot) -> dict[TabletId, int]:
    """About how many rows each tablet has, in both levels."""
    spanning = sum(r.rows for r in snapshot.level0 if r.tablet == SPANS_TABLETS)
    found = dict.fromkeys(snapshot.tablets, spanning // len(snapshot.tablets))
    for run in (*snapshot.level1, *snapshot.level0):
        if run.tablet in found:
            found[run.tablet] += run.rows
    return found


def crowded(snapshot: Snapshot, tablets: int) -> set[TabletId]:
    """Tablets with a level 1 run that does not lie in one tablet of a map with that number of tablets, or with several
    runs in one of these."""
    counts: dict[TabletId | None, int] = {}
    places = [(run.tablet, tablet_around(run.tokens, tablets)) for run in snapshot.level1]
    for _, place in places:
        counts[place] = counts.get(place, 0) + 1
    return {tablet for tablet, place in places if place is None or counts[place] > 1}


def touched(storage: NodeStorage, settings: Settings, snapshot: Snapshot) -> set[TabletId]:
    """The tablets that level 0 has rows in."""
    relation = snapshot.relation
    found = {r.tablet for r in snapshot.level0 if r.tablet != SPANS_TABLETS}
    spanning = [r for r in snapshot.level0 if r.tablet == SPANS_TABLETS]
    if sum(r.rows for r in spanning) > settings.level0_rows_max:
        return set(snapshot.tablets)  # too many to look at one by one; they are everywhere
    if spanning:
        rows = rf.mutations(relation, spanning, storage.nodes.all(), storage.level0, snapshot)
        numbers = np.unique(tokens.tablets_of(rows[TOKEN].to_numpy(), relation.tablets))
        found |= {TabletId(int(t)) for t in numbers}
    return found & set(snapshot.tablets)


def as_piece(context: Context, snapshot: Snapshot, fold: Fold) -> contextlib.AbstractContextManager[None]:
    """What is rewritten inside may be abandoned for a large epoch, which is `AbandonedError`."""
    rows = rows_of(snapshot)
    return context.sessions.pieces.at_work(sum(rows[tablet] for tablet in fold.rewritten))


def rewrite(context: Context, sink: Sink, snapshot: Snapshot, fold: Fold) -> None:
    if not fold.rewritten:
        return
    relation, part, roots = snapshot.relation, snapshot, sink.transaction.roots
    if len(fold.rewritten) < len(snapshot.tablets):
        with context.catalog.reading() as connection:
            part = reads.snapshot(connection, relation, snapshot.version, snapshot.tokens_of(fold.rewritten))
    rows = sscan.merged(context.writer, part, roots, context.storage.level0, rows_max=context.settings.level0_rows_max)
    after = sink.relation.tablets
    context.sessions.pieces.check()
    files = sink.files.cut(rows, [t for one in snapshot.tokens_of(fold.rewritten) for t in tablets_over(one, after)])
    sink.runs = sink.files.adopt(files, level=1, source=RunSource.COMPACTION)


def commit_fold(sink: Sink, snapshot: Snapshot, fold: Fold) -> Version:
    """Put the new runs in the place of those that were folded, if these are what readers still see.

    What queries keep in memory of those is read of the new runs before: the next query is to find it.
    """
    transaction = sink.transaction
    replaced = [run for run in snapshot.level1 if run.id in fold.ended_level1]
    transaction.context.storage.store.take_over(transaction.roots, replaced, sink.runs)
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
