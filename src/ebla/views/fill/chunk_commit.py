"""The commit of a chunk of a view that is being built: its rows and how far the view covers its base, together.

The rows have keys that no other run of the view has: the view's key holds the base's, and epochs leave alone what is
not covered. So large chunks go straight to level 1, whatever lies there already, and a chunk may commit whatever epochs
have done meanwhile, as long as the position is still where it started.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ebla.algebra.build_method import DrivenBuild
from ebla.base.failpoint import hit
from ebla.base.ids import TaskId, Version
from ebla.catalog import build_tasks
from ebla.errors import ConflictError, TransactionClosedError
from ebla.model import changes as c
from ebla.model import segments as sg
from ebla.model.chunks import Covered, spans
from ebla.model.plans import Plan
from ebla.model.relation import SPANS_TABLETS, Relation
from ebla.model.tablets import ALL
from ebla.relations import views as definition
from ebla.relations.views import View
from ebla.tables.chunk_scan import Scan
from ebla.tables.commit import Commit
from ebla.tables.sink import Sink

COMMIT_ATTEMPTS = 100
"""An epoch that came first costs nothing but another look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledView:
    """A view that takes part in a chunk."""

    view: View
    driven: DrivenBuild
    relations: Mapping[str, Relation]
    tasks: frozenset[TaskId]
    """The tasks of the chunk's tablets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCommit:
    """What one view gets of a chunk that was read at a version."""

    filling: FilledView
    scan: Scan
    version: Version
    sink: Sink
    started: float = field(default_factory=time.perf_counter)

    def commit(self) -> None:
        """Rows and position in one commit. An epoch that moved the segments before the position is no obstacle."""
        seen: Covered | None = None
        for attempt in range(COMMIT_ATTEMPTS):
            before, seen = seen, self._segments()
            if before == seen:
                name = self.filling.view.relation.name
                raise ConflictError(f"view {name}: expected to commit a chunk, found it refused")
            try:
                self.sink.transaction.commit(self._decision(seen))
                return
            except TransactionClosedError:
                raise
            except ConflictError:
                if attempt == COMMIT_ATTEMPTS - 1 or self._segments() == seen:
                    raise

    def _segments(self) -> Covered:
        view, stretches = self.filling.view.relation, self.scan.stretches
        with self.sink.context.catalog.reading() as connection:
            covered = build_tasks.segments(connection, view.id)
        found = {stretch.tokens: covered.get(stretch.tokens, ()) for stretch in stretches}
        for stretch in stretches:
            if sg.is_covered(found[stretch.tokens]) or sg.position(found[stretch.tokens]) != stretch.after:
                raise ConflictError(
                    f"view {view.name} {stretch.tokens}: expected position {stretch.after}, found another; "
                    "another worker came first: read again"
                )
        return found

    def _decision(self, seen: Covered) -> c.Decision:
        view, stretches = self.filling.view, self.scan.stretches
        relation = view.relation
        requires: list[c.Requirement] = [c.TasksOpen(tasks=self.filling.tasks)]
        requires += [
            c.SegmentsBegin(view=relation.id, tokens=tokens, segments=segments, exactly=True)
            for tokens, segments in seen.items()
        ]
        # The keys are new, so level 1 has room for them, whatever is there already.
        runs = tuple(replace(run, level=0 if run.tablet == SPANS_TABLETS else 1) for run in self.sink.runs)
        updates: list[c.Update] = []
        for stretch in stretches:
            segment = sg.Segment(up_to=stretch.up_to, since=self.version, rows=stretch.rows)
            sg.cover(seen[stretch.tokens], segment)  # refuses a chunk that does not advance
            updates.append(c.CoverSegment(view=relation.id, tokens=stretch.tokens, segment=segment))
        if spans(stretches) == [ALL]:
            # All at one version: there is nothing for epochs to bring together.
            requires.append(definition.unmoved(view))
            updates += definition.moved(view, self._position())
        hit("build.before_chunk_commit")
        rows = sum(stretch.rows for stretch in stretches)
        tablets = "tablet" if len(stretches) == 1 else "tablets"
        return Commit(self.sink).decision(
            f"build of {relation.name}: {len(stretches)} {tablets}, {rows} rows read, +{self.sink.rows}",
            rows=(c.AddRuns(runs=runs),) if runs else (),
            requires=requires,
            updates=updates,
        )

    def _position(self) -> definition.Position:
        return definition.advanced(
            self.filling.view.reached,
            applied_version=self.version,
            read={n: int(self.version) for n in self.filling.relations},
            plan=Plan.BUILD,
            reason="first build",
            gained=self.sink.rows,
            lost=0,
            seconds=round(time.perf_counter() - self.started, 4),
        )
