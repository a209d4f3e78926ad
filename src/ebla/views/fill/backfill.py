"""Rows of a part of the base, computed for views that are being built, and committed together with the position.

A chunk reads every input at one version *t*: the newest, or the one at which an index of the same chunk is read. The
rows that it writes have keys that no other run of the view has: the view's key holds the base's, and epochs leave alone
what is not covered. So large chunks go straight to level 1, whatever lies there already, and a chunk may commit
whatever epochs have done meanwhile, as long as the position is still where it started.

Plan of a chunk: the base's files of these tablets, filtered by token where a tablet is read in parts; the view's query
over them; one shuffle to the view's tablets, sort, write. One Spark job for each view; the rows of the base are scanned
once for all (`ebla.tables.chunk_scan`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ebla.algebra.driving import Driving
from ebla.base.failpoint import hit
from ebla.base.ids import TabletId, TaskId, Version
from ebla.catalog import building, reads
from ebla.catalog import transactions as tx
from ebla.errors import ConflictError, TransactionClosedError
from ebla.model import changes as c
from ebla.model import segments as sg
from ebla.model.plans import Plan
from ebla.model.relation import SPANS_TABLETS, Relation
from ebla.model.segments import Segment
from ebla.relations import views as definition
from ebla.relations.shapes import shape_of, used_columns
from ebla.relations.views import View
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.tables import batch as b
from ebla.tables.chunk_scan import Reading, Scan
from ebla.tables.context import Context
from ebla.tables.writes import Work
from ebla.views.epoch.culprit import naming_culprits
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.inputs import Inputs
from ebla.views.epoch.round import Round

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMIT_ATTEMPTS = 100
"""An epoch that came first costs nothing but another look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """A view that takes part in a chunk."""

    view: View
    driven: Driving
    relations: Mapping[str, Relation]
    tasks: frozenset[TaskId]
    """Those of the chunk's tablets."""


def reading(base: Relation, fillings: Sequence[Filling], not_before: Version) -> Reading:
    """What a chunk of these views reads of its base."""
    used = {k.name for k in base.key}
    for one in fillings:
        shape, _ = shape_of(one.view, one.relations)
        used |= used_columns(shape, one.relations).get(base.name.lower(), frozenset())
    columns = frozenset(col.physical for col in base.columns if col.name in used)
    return Reading(columns=columns, jobs=len(fillings), not_before=not_before)


def fill(context: Context, scan: Scan, fillings: Sequence[Filling]) -> list[Exception | None]:
    """Compute and commit a chunk for each view; what kept one from it, in their order. One does not stop the others."""
    works = [_begun(context, one.view) for one in fillings]
    # The newest, unless somebody needs an older one and keeps it: those that began before keep it from vacuum, too.
    version = works[-1].transaction.snapshot if scan.at is None else scan.at
    round_ = Round(context)
    found: list[Exception | None] = []
    try:
        frame = scan.rows(version)
        rows = sscan.logical(frame, [col for col in scan.base.visible if col.physical in frame.columns])
    except BaseException:
        for work in works:
            work.roll_back()
        raise
    for one, work in zip(fillings, works, strict=True):
        try:
            with context.kept_alive(work.transaction.id):
                _Chunk(context, one, scan, version, work, round_).run(rows)
            found.append(None)
        except Exception as error:
            work.give_up(error)
            found.append(error)
        except BaseException:
            for left in works[len(found) :]:
                left.roll_back()
            raise
    return found


def _begun(context: Context, view: View) -> Work:
    transaction = tx.begin(
        context.catalog,
        view.relation,
        node=context.node,
        holder=context.holder,
        reason=f"build of {view.relation.name}",
        lease_us=context.lease_us,
    )
    return Work(context, view.relation, transaction)


class _Chunk:
    """One view's part in a chunk."""

    def __init__(
        self,
        context: Context,
        filling: Filling,
        scan: Scan,
        version: Version,
        work: Work,
        round_: Round,
    ) -> None:
        self._context = context
        self._filling = filling
        self._view = filling.view
        self._base = scan.base
        self._parts = scan.parts
        self._version = version
        self._work = work
        self._started = time.perf_counter()
        with context.catalog.reading() as connection:
            now = {n: reads.snapshot(connection, r, version) for n, r in filling.relations.items()}
        shape, _ = shape_of(self._view, filling.relations)
        self._inputs = Inputs(
            round=round_,
            relations=filling.relations,
            before=dict.fromkeys(filling.relations),
            now=now,
            used=used_columns(shape, filling.relations),
            rows_max=context.settings.batch_rows_max,
        )

    def run(self, rows: DataFrame) -> None:
        evaluation = Evaluation(self._view, self._inputs)
        relation = self._view.relation
        with naming_culprits(evaluation):
            found = evaluation.frame({self._filling.driven.leaf: rows})
            fitted = swrite.fitted(found, relation, hidden=True)
            self._work.put(b.FrameBatch(frame=fitted, kind=b.UPSERT, plain=True, rows=None))
        hit("build.chunk_written")
        self._commit()
        hit("build.chunk_committed")

    # ---- the commit -------------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Rows and position in one commit. An epoch that moved the segments before the position is no obstacle."""
        seen: dict[TabletId, sg.Segments[str]] | None = None
        for attempt in range(COMMIT_ATTEMPTS):
            before, seen = seen, self._segments()
            if before == seen:
                raise ConflictError(f"view {self._view.relation.name}: expected to commit a chunk, found it refused")
            try:
                self._work.commit_decision(self._decision(seen))
                return
            except TransactionClosedError:
                raise
            except ConflictError:
                if attempt == COMMIT_ATTEMPTS - 1 or self._segments() == seen:
                    raise

    def _segments(self) -> dict[TabletId, sg.Segments[str]]:
        with self._context.catalog.reading() as connection:
            covered = building.segments(connection, self._view.relation.id)
        found = {part.tablet: covered.get(part.tablet, ()) for part in self._parts}
        for part in self._parts:
            if sg.is_covered(found[part.tablet]) or sg.position(found[part.tablet]) != part.after:
                raise ConflictError(
                    f"view {self._view.relation.name} tablet {part.tablet}: expected position {part.after}, found "
                    "another; another worker came first: read again"
                )
        return found

    def _decision(self, seen: Mapping[TabletId, sg.Segments[str]]) -> c.Decision:
        relation, work = self._view.relation, self._work
        requires: list[c.Requirement] = [*work.requirements(), c.TasksOpen(tasks=self._filling.tasks)]
        requires += [
            c.SegmentsBegin(view=relation.id, tablet=tablet, segments=segments, exactly=True)
            for tablet, segments in seen.items()
        ]
        # The keys are new, so level 1 has room for them, whatever is there already.
        runs = tuple(replace(run, level=0 if run.tablet == SPANS_TABLETS else 1) for run in work.runs)
        updates: list[c.Update] = [c.AddRuns(runs=runs)] if runs else []
        for part in self._parts:
            segment = Segment(up_to=part.up_to, since=self._version, rows=part.rows)
            sg.cover(seen[part.tablet], segment)  # refuses a chunk that does not advance
            updates.append(c.CoverSegment(view=relation.id, tablet=part.tablet, segment=segment))
        gained = sum(run.rows for run in runs)
        if len(self._parts) == self._base.tablets and all(part.whole for part in self._parts):
            # All at one version: there is nothing for epochs to bring together.
            requires.append(c.ProgressIs(name=self._view.progress_name, value=self._view.stored))
            updates += definition.moved(self._view, self._position(gained))
        updates.append(c.EndTransaction(transaction=work.transaction.id))
        hit("build.before_chunk_commit")
        rows = sum(part.rows for part in self._parts)
        tablets = "tablet" if len(self._parts) == 1 else "tablets"
        return c.Decision(
            reason=f"build of {relation.name}: {len(self._parts)} {tablets}, {rows} rows read, +{gained}",
            relation=relation.id,
            transaction=work.transaction.id,
            requires=tuple(requires),
            updates=tuple(updates),
        )

    def _position(self, gained: int) -> definition.Position:
        return definition.advanced(
            self._view.reached,
            applied_version=self._version,
            read={n: int(self._version) for n in self._filling.relations},
            plan=Plan.BUILD,
            reason="first build",
            gained=gained,
            lost=0,
            seconds=round(time.perf_counter() - self._started, 4),
        )
