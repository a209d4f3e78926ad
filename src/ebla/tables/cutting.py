"""Runs cut into runs of one tablet each.

A split needs every level 1 run in one of the coming tablets; a tablet that moves needs runs that it shares with no
other. The rows stay what they are and where they are in the order of commits: the runs say the same as before. So
nothing is folded, and writers, and an index that is being filled, go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ebla.base.failpoint import hit
from ebla.errors import StorageError
from ebla.model import changes as c
from ebla.model.relation import FOREVER, Run, RunSource
from ebla.model.snapshot import Snapshot
from ebla.model.tablets import tablet_around
from ebla.model.work import WorkKind
from ebla.spark.write import TabletFile
from ebla.storage import runs as rf
from ebla.storage.cutting import CutFile, cut
from ebla.tables.commit import Commit
from ebla.tables.compaction import forget
from ebla.tables.sink import Sink
from ebla.tables.transaction import OpenTransaction, begin
from ebla.tables.write_access import WriteAccess

COMMIT_BYTES = 2**26
"""Runs are cut and committed in parts of about this size: what is cut stays cut. A part that leaves time to writers
takes some times as long, and a barrier waits for it no longer than for any transaction."""


Choice = Callable[[Snapshot], Sequence[Run]]
"""The runs of a snapshot that are to be cut."""


def crossing(runs: Iterable[Run], tablets: int) -> list[Run]:
    """The runs that do not lie in one tablet of a map with this number of them."""
    return [run for run in runs if tablet_around(run.tokens, tablets) is None]


def cut_runs(context: WriteAccess, name: str, tablets: int, choose: Choice) -> int:
    """Cut the chosen runs of a relation for a map of `tablets` tablets; returns how many runs were cut.

    A conflict is raised: another process was at work on the same runs.
    """
    cut_so_far = 0
    while True:
        transaction = begin(context, name, reason=f"compact {name}", work=WorkKind.COMPACTION)
        relation = transaction.relation
        try:
            with context.kept_alive(transaction.id), context.at_work(f"cutting of {relation.name}"):
                snapshot = transaction.snapshot_of(relation)
                chosen = _first(choose(snapshot))
                if not chosen:
                    transaction.roll_back()
                    return cut_so_far
                with rf.reading([snapshot], transaction.roots):
                    sink = _cut(transaction, chosen, tablets)
                hit("cut.files_written")
                _commit(sink, chosen)
        except BaseException as error:
            transaction.give_up(error)
            raise
        forget(context.storage, context.frames, relation, chosen)
        cut_so_far += len(chosen)


def _first(runs: Sequence[Run]) -> list[Run]:
    """The first of them, about `COMMIT_BYTES` together."""
    found: list[Run] = []
    for run in runs:
        if found and sum(one.bytes for one in found) + run.bytes > COMMIT_BYTES:
            break
        found.append(run)
    return found


def _cut(transaction: OpenTransaction, runs: Sequence[Run], tablets: int) -> Sink:
    after = transaction.relation.in_map(tablets)
    sink = Sink(transaction, after)
    home, scratch, roots = sink.files.home(), sink.files.next_scratch(), transaction.roots

    def one(item: tuple[int, Run]) -> list[CutFile]:
        number, run = item
        node = rf.readable_node(roots, run)
        if node is None:
            raise StorageError(f"{after.name}: expected a sound copy of {run.path} to cut, found none")
        return cut(roots[node], run.path, after, home, lambda tablet: f"{scratch}/{number}-{tablet}.parquet")

    for run, parts in zip(runs, rf.in_threads(one, list(enumerate(runs))), strict=True):
        files = [TabletFile(tablet=part.tablet, path=part.path, facts=part.facts) for part in parts]
        new = sink.files.adopt(files, level=run.level, deletes=run.tombstones > 0, source=RunSource.COMPACTION)
        newest = run.begin_version if run.level == 0 else FOREVER
        sink.runs += [
            replace(part, schema_version=run.schema_version, begin_version=newest, state=run.state) for part in new
        ]
    return sink


def _commit(sink: Sink, ended: Sequence[Run]) -> None:
    """Put the parts in the place of the runs, if these are visible."""
    relation = sink.relation
    ids = frozenset(run.id for run in ended)
    decision = Commit(sink).decision(
        f"cut {len(ended)} runs of {relation.name} into {len(sink.runs)}",
        rows=(c.EndRuns(relation=relation.id, runs=ids), *sink.added()),
        requires=(c.RunsLive(relation=relation.id, runs=ids),),
    )
    sink.transaction.commit(decision)
