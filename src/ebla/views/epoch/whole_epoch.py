"""One epoch: which way it takes, the rows it writes, and what its commit says.

Small changes go through the driver (`ebla.views.epoch.follow`). Large ones stay on Spark (`ebla.views.epoch.frames`).
What cannot be followed, or costs more than it saves, recomputes the view and replaces it in one commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from ebla.base.failpoint import hit
from ebla.errors import SqlError, TypeMismatchError
from ebla.model.plans import Plan
from ebla.storage.rows import TooLarge
from ebla.views.epoch.attempt import Attempt, Epoch
from ebla.views.epoch.chunk_rows import chunk_alone, groups_added
from ebla.views.epoch.cost import Estimate, Way, estimate, is_large
from ebla.views.epoch.culprit import naming_culprits
from ebla.views.epoch.first_rows import as_it_is, first_anew, keep
from ebla.views.epoch.follow import FAILS_ALONE, follow
from ebla.views.epoch.frames import Frames
from ebla.views.epoch.growth import Growth, OnePiece
from ebla.views.epoch.rows import Recompute, Rows, exchanged
from ebla.views.epoch.stored_rows import all_stored
from ebla.views.epoch.whole_operands import whole_operands

FIRST_BUILD = "first build"
WRITTEN_TIMES_MAX = 2
"""A write of more rows than this many times those of the input is not followed row by row."""
KEPT_ROWS_MAX = 50_000
"""A view of at most this many rows is refreshed by difference, so that what reads it sees only what changed."""


class WholeEpoch:
    """One attempt of one epoch. `building`: what it builds of a view that is not built."""

    def __init__(self, attempt: Attempt, building: OnePiece | Growth | None = None) -> None:
        self._attempt = attempt
        self._building = building
        self._growth = building if isinstance(building, Growth) else None
        self._stands = attempt.view.position
        """Where the rows stand that are there; `None`: there are none."""
        if building is not None:
            self._stands = attempt.view.reached if self._growth is not None and self._growth.begun else None
        self._operands, self._until = whole_operands(attempt, self._stands, self._growth)

    def run(self) -> Epoch:
        inputs = self._operands.inputs
        if self._stands is None or not self._stands.built:
            return self._recompute(FIRST_BUILD, Plan.BUILD)
        try:
            written = {n: inputs.written(n) for n in inputs.relations}
        except TooLarge as reason:
            return self._recompute(str(reason))
        changed = [n for n, rows in written.items() if rows]
        if not changed:
            return self._apply(as_it_is(self._operands))
        sizes = {n: inputs.size(n) for n in inputs.relations}
        view_rows = self._operands.stored.rows_at_most
        guess = estimate(written, sizes, rows_max=inputs.rows_max, view_rows=view_rows)
        if self._growth is None and is_large(written, guess, view_rows):
            self._attempt.context.sessions.pieces.abandon()
        if self._growth is not None and self._growth.stretches and sum(written.values()) > inputs.rows_max:
            return self._chunk(changed, guess)
        if guess.way is Way.DRIVER:
            try:
                return self._on_driver()
            except TooLarge as reason:
                return self._on_spark(changed, str(reason))
        return self._as_estimated(changed, guess)

    def anew(self, reason: str) -> Epoch:
        """Compute the view as its query says, whatever its rows are."""
        return self._recompute(reason)

    # ---- ways -------------------------------------------------------------------------------------------

    def _as_estimated(self, changed: Sequence[str], guess: Estimate) -> Epoch:
        """Changed rows that are all that is read of their input are followed, however many they are.

        Rows that were written over and over are more than the input has: then that is read instead.
        """
        frames, inputs = Frames.of_change(self._operands, changed), self._operands.inputs
        follows = frames is not None and frames.one_by_one is not None
        if guess.way is Way.RECOMPUTE and not (
            follows and all(inputs.written(table) <= WRITTEN_TIMES_MAX * inputs.size(table) for table in changed)
        ):
            return self._recompute(guess.reason)
        return self._on_spark(changed, guess.reason)

    def _on_driver(self) -> Epoch:
        return self._apply(follow(self._operands))

    def _on_spark(self, changed: Sequence[str], reason: str) -> Epoch:
        """The same plan on Spark alone, if the view has a key and a scope that it shows."""
        frames = Frames.of_change(self._operands, changed)
        if frames is None:
            return self._recompute(self._operands.blocked or reason)
        try:
            with naming_culprits(self._operands.evaluation):
                rows = frames.put(self._attempt.sink)
            hit("epoch.slice_written")
        except TooLarge as why:
            return self._recompute(str(why))
        except (SqlError, TypeMismatchError) as error:
            if not frames.evaluates:
                raise
            return self._recompute(FAILS_ALONE, failed=error)
        gone = self._attempt.tombstones
        return self._commit(Plan.INCREMENTAL, reason, rows - gone, gone)

    def _chunk(self, changed: Sequence[str], guess: Estimate) -> Epoch:
        """A chunk too large for the driver: by what it adds, if that can be computed, else as any large change."""
        operands = self._operands
        added = chunk_alone(operands)
        if added is None:
            return self._as_estimated(changed, guess)
        if operands.view.roles is None:
            with naming_culprits(operands.evaluation):
                gained = self._attempt.put_new(added)
            return self._commit(Plan.INCREMENTAL, None, gained, 0)
        found = groups_added(operands, added)
        # Many groups are better found by Spark.
        return self._as_estimated(changed, guess) if found is None else self._apply(found)

    def _recompute(self, reason: str, plan: Plan = Plan.FULL_REFRESH, failed: Exception | None = None) -> Epoch:
        """Compute the view anew. `failed`: what stopped an attempt to follow the change, and may know the row."""
        if failed is None:
            with naming_culprits(self._operands.evaluation):
                return self._anew(reason, plan)
        try:
            return self._anew(reason, plan)
        except (SqlError, TypeMismatchError) as error:
            raise failed from error

    def _anew(self, reason: str, plan: Plan) -> Epoch:
        operands = self._operands
        first = first_anew(operands)
        rows, reserve = (None, None) if first is None else (first.rows, first.reserve)
        few = self._few_anew(rows)
        if few is not None:
            return self._put(replace(few, reserve=reserve), plan, reason)
        evaluation = operands.evaluation
        gained = self._attempt.put_new(evaluation.frame({}) if rows is None else evaluation.given(rows))
        epoch = self._commit(plan, reason, gained, operands.stored.rows_at_most, emptied=True)
        if reserve is not None:
            keep(operands, reserve)
        return epoch

    def _few_anew(self, first: pa.Table | None) -> Rows | None:
        """All rows of the view compared with those that are there, if they are few."""
        operands = self._operands
        if operands.stored.rows_at_most > KEPT_ROWS_MAX or self._stands is None or not self._stands.built:
            return None
        new = operands.evaluation.whole(rows_max=KEPT_ROWS_MAX * 2) if first is None else first
        return None if new is None else exchanged(operands.view, new, all_stored(operands))

    # ---- the end ----------------------------------------------------------------------------------------

    def _apply(self, found: Rows | Recompute) -> Epoch:
        if isinstance(found, Recompute):
            return self._recompute(found.reason, Plan.FULL_REFRESH, found.failed)
        return self._put(found, Plan.UNCHANGED if found.is_empty else Plan.INCREMENTAL, None)

    def _put(self, rows: Rows, plan: Plan, reason: str | None) -> Epoch:
        self._attempt.put(rows)
        epoch = self._commit(plan, reason, rows.gained.num_rows, rows.doomed.num_rows)
        if rows.reserve is not None:
            keep(self._operands, rows.reserve)
        return epoch

    def _commit(self, plan: Plan, reason: str | None, gained: int, lost: int, *, emptied: bool = False) -> Epoch:
        growth, building, attempt = self._growth, self._building, self._attempt
        if growth is not None:
            plan, reason = Plan.BUILD, reason or plan
            if growth.stretches:
                hit("build.chunk_written")
        epoch = attempt.epoch(self._until, plan, reason, gained, lost)
        decision = attempt.decision(
            epoch.position(attempt.view.reached, self._operands.inputs.versions()),
            f"{self._history(plan, reason)}, +{gained} -{lost}",
            emptied=emptied,
            requires=() if building is None else building.requires(),
            updates=() if building is None else building.updates(self._until),
            is_chunk=growth is not None and bool(growth.stretches),
        )
        if growth is None:
            hit("epoch.before_commit")
        elif growth.stretches:
            hit("build.before_chunk_commit")
        else:
            hit("build.before_epoch_commit")
        attempt.commit(decision)
        if growth is None:
            hit("epoch.committed")
        elif growth.stretches:
            hit("build.chunk_committed")
        else:
            hit("build.epoch_committed")
        return epoch

    def _history(self, plan: Plan, reason: str | None) -> str:
        """What the commit is, for the history; of a full refresh also why."""
        name = self._attempt.view.relation.name
        if self._growth is None:
            why = f" ({reason})" if plan is Plan.FULL_REFRESH and reason else ""
            return f"epoch of {name} to version {self._until}: {plan}{why}"
        if not self._growth.stretches:
            return f"epoch of {name}, being built, to version {self._until}"
        tablets = "1 tablet" if len(self._growth.stretches) == 1 else f"{len(self._growth.stretches)} tablets"
        return f"build of {name}: {tablets}, {self._growth.rows_read} rows read"
