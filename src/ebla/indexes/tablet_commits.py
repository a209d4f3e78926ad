"""The commits of a chunk that was filled for several indexes: each tablet on its own, in one transaction.

A commit brings the runs of a tablet, of all indexes that are still filled as they were when the chunk began, and covers
the tablet. What was committed before an error or a crash stays and is not done again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, TaskId, Version
from ebla.catalog import build_tasks
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model import segments as sg
from ebla.model.chunks import Covered, Stretch, covers
from ebla.model.relation import Run
from ebla.model.tablets import number_of
from ebla.model.tasks import Task
from ebla.relations.indexes import Index
from ebla.tables.commit import filling
from ebla.tables.sink import Sink
from ebla.tables.transaction import OpenTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletCommits:
    transaction: OpenTransaction
    base: RelationId
    version: Version
    """At which the base was read."""
    sinks: Mapping[RelationId, tuple[Index, Sink]]
    covered: Mapping[RelationId, Covered]
    """The state when the chunk began."""
    tasks: Mapping[RelationId, frozenset[TaskId]]

    def run(self, stretches: Sequence[Stretch]) -> None:
        """Record every tablet on its own. An index that went or moved meanwhile holds up none of the others."""
        with self.transaction.context.catalog.reading() as connection:
            tasks = {t.id: t for t in build_tasks.tasks(connection) if t.view in self.sinks and not t.aborted}
        for stretch in stretches:
            due = {
                number: tasks[task]
                for number in self.sinks
                for task in self.tasks[number]
                if task in tasks and tasks[task].tokens.holds(stretch.tokens)
            }
            try:
                self._cover(stretch, due)
            except ConflictError:
                for number, task in due.items():
                    try:
                        self._cover(stretch, {number: task})
                    except ConflictError:
                        self._forget(number, stretch)
            for number in self.sinks.keys() - due.keys():
                self._forget(number, stretch)
            hit("index.tablet_filled")
        # What it brought is committed; it holds nothing any more.
        self.transaction.end()

    def _of_tablet(self, index: RelationId, stretch: Stretch) -> list[Run]:
        return [run for run in self.sinks[index][1].runs if run.tokens.overlaps(stretch.tokens)]

    def _forget(self, index: RelationId, stretch: Stretch) -> None:
        self.sinks[index][1].files.remove(self._of_tablet(index, stretch))

    def _cover(self, stretch: Stretch, tasks: Mapping[RelationId, Task]) -> None:
        if not tasks:
            return
        requires: list[c.Requirement] = [c.TasksOpen(tasks=frozenset(task.id for task in tasks.values()))]
        updates: list[c.Update] = []
        finished: list[TaskId] = []
        for number, task in tasks.items():
            seen = self.covered[number].get(stretch.tokens, ())
            segment: sg.Segment[str] = sg.Segment(up_to=stretch.up_to, since=self.version, rows=stretch.rows)
            after = sg.cover(seen, segment)  # refuses a chunk that does not advance
            requires.append(c.SegmentsBegin(view=number, tokens=stretch.tokens, segments=seen, exactly=True))
            updates.append(c.CoverSegment(view=number, tokens=stretch.tokens, segment=segment))
            if covers({**self.covered[number], stretch.tokens: after}, task.tokens):
                finished.append(task.id)
        if finished:
            updates.append(c.FinishTasks(tasks=frozenset(finished)))
        entries = [(self.sinks[number][0], self._of_tablet(number, stretch)) for number in tasks]
        names = ", ".join(index.name for index, _ in entries)
        reason = f"fill index {names}: tablet {number_of(stretch.tokens)} at version {self.version}"
        decision = filling(self.transaction, self.base, entries, reason, requires=requires, updates=updates)
        self.transaction.commit(decision)
