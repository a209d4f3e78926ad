"""What compaction does with a relation whose level 0 has grown: it merges runs of level 0, or folds level 0 away.

Theory of operation. Folding rewrites whole tablets of level 1, so it waits until level 0 is a good part of them; until
then the runs of level 0 are merged with each other, so that readers find few. Both bound how often a row is written
again.

- Merging. A run is merged with the older ones before it as long as each of those has no more rows than what is
  merged already (`alike`). So each time that rows are merged again their run has at least doubled, or newer rows of the
  same keys went into it: at most 1 + log2(`level0_rows_max`) times, which is 19 with the default.
- Folding. Level 1 is rewritten when level 0 has an eighth of its rows (`SHARE`), or a 32nd (`LARGE_SHARE`) where that
  is more than the driver keeps in memory. So for each row of level 0 at most 32 of level 1 are written, and 8 where
  they are few.

A merged run has the rows of commits that other runs are not between. For readers it stands at the place of the last of
these commits, and is compared with cutoffs like that one; snapshots of older versions see the runs that were merged.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto

import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.failpoint import hit
from ebla.catalog import transactions as tx
from ebla.catalog.manifest import Levels
from ebla.model import changes as c
from ebla.model.relation import DELETED, Relation, Run, RunSource
from ebla.model.snapshot import BEGINNING, Snapshot
from ebla.model.work import WorkKind
from ebla.relations.indexes import may_fold
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.tables.commit import Commit
from ebla.tables.compaction import forget
from ebla.tables.sink import Sink
from ebla.tables.transaction import OpenTransaction, begin
from ebla.tables.write_access import WriteAccess

SHARE = 8
"""Level 0 is folded when it has this part of the rows of level 1."""
LARGE_SHARE = 32
"""The same where level 0 is larger than what the driver keeps in memory."""


class Due(Enum):
    NOTHING = auto()
    MERGE = auto()
    """Merge runs of level 0 with each other."""
    FOLD = auto()
    """Fold level 0 into level 1."""


def due(levels: Levels, *, runs_max: int, rows_max: int) -> Due:
    """What is to be done with level 0, which has at least `runs_max` runs or more than `rows_max` rows if anything."""
    many = levels.level0_runs >= runs_max
    large = levels.level0_rows > rows_max
    if not (many or large):
        return Due.NOTHING
    if levels.level0_rows * (LARGE_SHARE if large else SHARE) >= levels.level1_rows:
        return Due.FOLD
    return Due.MERGE if many else Due.NOTHING


def alike(sizes: Sequence[int], rows_max: int) -> list[range]:
    """The places of commits whose runs are merged, two or more each, for commits of these sizes, oldest first.

    Behind it, each run is larger than the one behind it, or both have more than `rows_max` rows together.
    """
    found: list[tuple[int, int]] = []
    for start, size in enumerate(sizes):
        merged = size
        while found and found[-1][1] <= merged and found[-1][1] + merged <= rows_max:
            start, before = found.pop()
            merged += before
        found.append((start, merged))
    starts = [*(start for start, _ in found), len(sizes)]
    return [range(start, end) for start, end in itertools.pairwise(starts) if end - start > 1]


def merge(context: WriteAccess, name: str) -> int:
    """Merge level 0 runs of a relation; how many there are fewer. Writers go on, and what they commit stays as it is.

    While another compaction of the relation is at work, nothing is merged: a fold takes long, and would start over. A
    conflict is raised: another process was at work on the same runs.
    """
    transaction = begin(context, name, reason=f"compact {name}", work=WorkKind.COMPACTION)
    relation = transaction.relation
    try:
        with context.kept_alive(transaction.id), context.at_work(f"compaction of {relation.name}"):
            snapshot = transaction.snapshot_of(relation)
            found = groups(snapshot, context.settings.level0_rows_max)
            with context.catalog.reading() as connection:
                behind = tx.compacts_before(connection, relation.id, transaction.id, context.catalog.clock())
                may_merge = not behind and may_fold(connection, relation)
            if not found or not may_merge:
                transaction.roll_back()
                return 0
            with rf.reading([snapshot], transaction.roots):
                sink = _merged(transaction, snapshot, found)
            hit("merge.files_written")
            context.storage.store.expect(transaction.roots, sink.runs, context.storage.level0)
            ended = [run for group in found for run in group]
            _commit(sink, snapshot, ended)
    except BaseException as error:
        transaction.give_up(error)
        raise
    forget(context.storage, context.frames, relation, ended)
    return len(ended) - len(sink.runs)


def groups(snapshot: Snapshot, rows_max: int) -> list[Sequence[Run]]:
    """The level 0 runs that are merged with each other: all runs of a commit, or none.

    One that stayed outside would be as new as the merged run, which has older rows of its keys.
    """
    by_commit = itertools.groupby(snapshot.level0, key=lambda run: run.begin_version)
    commits = [list(runs) for _, runs in by_commit]
    places = alike([sum(run.rows for run in runs) for runs in commits], rows_max)
    return [list(itertools.chain.from_iterable(commits[place.start : place.stop])) for place in places]


def _merged(transaction: OpenTransaction, snapshot: Snapshot, merged: Sequence[Sequence[Run]]) -> Sink:
    context, sink = transaction.context, Sink(transaction)
    names = [column.physical for column in snapshot.relation.columns]
    for runs in merged:
        rows = rf.mutations(snapshot.relation, runs, transaction.roots, context.storage.level0, snapshot)
        deleted = pc.fill_null(rows[DELETED], False)
        kinds = pc.if_else(deleted, pa.scalar(b.DELETE), pa.scalar(b.UPSERT))
        before = len(sink.runs)
        sink.put_level0(rows.select(names), kinds)
        newest = runs[-1].begin_version
        sink.runs[before:] = [
            replace(run, source=RunSource.COMPACTION, begin_version=newest) for run in sink.runs[before:]
        ]
    return sink


def _commit(sink: Sink, snapshot: Snapshot, ended: Sequence[Run]) -> None:
    """Put the merged runs in the place of the others, if these are visible, and no tablet was folded meanwhile."""
    relation: Relation = snapshot.relation
    ids = frozenset(run.id for run in ended)
    places = snapshot.tokens_of(snapshot.tablets)
    before = [snapshot.cutoffs.get(tablet, BEGINNING) for tablet in snapshot.tablets]
    decision = Commit(sink).decision(
        f"compact {relation.name}: {len(ended)} level 0 runs into {len(sink.runs)}",
        rows=(c.EndRuns(relation=relation.id, runs=ids), *sink.added()),
        requires=(
            c.RunsLive(relation=relation.id, runs=ids),
            c.CutoffsAre(relation=relation.id, cutoffs=dict(zip(places, before, strict=True))),
        ),
    )
    sink.transaction.commit(decision)
