"""A model of the engine: chunks of a build, staged runs, epochs. Each reads now and returns a commit for later.

What it requires of a commit is what the real one must require; everything may have changed in between.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ebla.base.ids import RelationId, Version
from ebla.model import changes as c
from ebla.model import segments
from ebla.model.chunks import Covered, covers, next_piece
from ebla.model.lifecycle.index import backfill_level
from ebla.model.segments import Segment, Segments
from ebla.model.tablets import ALL, TokenRange
from ebla.model.tasks import Task
from simulation.model import Catalog, Row, View, invariant, position

Commit = Callable[[], None]


def is_done(catalog: Catalog, task: Task) -> bool:
    if task.view is None:
        return not catalog.bases[task.base].staged_in(task.tokens)
    return covers(catalog.segments(task.view), task.tokens)


def chunk(catalog: Catalog, tasks: list[Task], chance: random.Random) -> Commit:
    """One scan of a tablet for all its views and indexes, in one commit; or its staged runs."""
    if tasks[0].view is None:
        return lambda: process_staging(catalog, tasks)
    many = chance.randint(1, 3)
    requires: list[c.Requirement] = []
    updates: list[c.Update] = []
    rows: dict[RelationId, dict[int, Row | None]] = {}
    entries: dict[RelationId, set[tuple[int, int]]] = {}
    for task in tasks:
        relation = task.view
        if relation is None or (relation not in catalog.views and relation not in catalog.indexes):
            continue
        covered = catalog.segments(relation)
        piece = next_piece(covered, task.tokens)
        if piece is None:
            continue
        before = covered.get(piece, ())
        segment, taken = _range(catalog, task, relation, piece, before, many)
        base = catalog.bases[task.base]
        if relation in catalog.views:
            rows[relation] = {k: catalog.row(catalog.views[relation], k, segment.since) for k in taken}
        else:
            found = ((base.rows.at(k, segment.since), k) for k in taken)
            entries[relation] = {(value, k) for value, k in found if value is not None}
        segments.cover(before, segment)  # refuses a chunk that does not advance
        requires.append(c.TasksOpen(tasks=frozenset([task.id])))
        requires.append(c.SegmentsBegin(view=relation, tokens=piece, segments=before, exactly=True))
        updates.append(c.CoverSegment(view=relation, tokens=piece, segment=segment))

    def commit() -> None:
        if updates:
            catalog.commit(updates, requires, rows)
            catalog.count("chunks")
        for relation, found in entries.items():
            index = catalog.indexes[relation]
            invariant("INV-BUILD-4", backfill_level(index.state) == 1, f"index {relation} is filled in {index.state}")
            index.level1 |= found

    return commit


def _range(
    catalog: Catalog, task: Task, relation: RelationId, piece: TokenRange, before: Segments[str], many: int
) -> tuple[Segment[str], list[int]]:
    """The next keys. Those that are not there do not count, so that long runs of tombstones are no obstacle."""
    index = catalog.indexes.get(relation)
    at = catalog.version if index is None else index.read
    base = catalog.bases[task.base]
    after = segments.position(before)
    ahead = [k for k in base.keys(piece) if after is None or position(k) > after]
    there = [k for k in ahead if base.rows.at(k, at) is not None]
    if len(there) <= many:
        return Segment(up_to=None, since=at, rows=len(there)), there
    return Segment(up_to=position(there[many - 1]), since=at, rows=many), there[:many]


def process_staging(catalog: Catalog, tasks: list[Task]) -> None:
    """Make staged rows visible, with the index entries, in one commit. Views learn of them as of any write."""
    for task in tasks:
        base = catalog.bases[task.base]
        for number in base.staged_in(task.tokens):
            catalog.flip(base, number, (c.TasksOpen(tasks=frozenset([task.id])),))


def epoch(catalog: Catalog, view: View, behind: int) -> Commit:
    """Bring a view to a version, perhaps not the newest. Other epochs, chunks and drops may come before the commit."""
    at = Version(max(view.applied, catalog.version - behind))
    built = view.id in catalog.built
    whole: Segments[str] = (Segment(up_to=None, since=view.applied),)
    rows: dict[int, Row | None] = {}
    requires: list[c.Requirement] = [c.ProgressIs(name=str(view.id), value=str(view.applied))]
    updates: list[c.Update] = [c.SetProgress(name=str(view.id), value=str(at))]
    covered: Covered = {ALL: whole} if built else catalog.segments(view.id)
    for tokens, seen in covered.items():
        for key in view.base.keys(tokens):
            if segments.applies(seen, position(key), catalog.touched(view, key, at)):
                rows[key] = catalog.row(view, key, at)
        if not built:
            requires.append(c.SegmentsBegin(view=view.id, tokens=tokens, segments=seen))
            after = segments.advance(seen, at)
            updates.append(c.ReplaceSegments(view=view.id, tokens=tokens, seen=len(seen), segments=after))

    def commit() -> None:
        if view.id in catalog.views and (view.id in catalog.built) == built:
            catalog.commit(updates, requires, {view.id: rows})
            catalog.count("epochs")

    return commit
