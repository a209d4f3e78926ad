"""One epoch of a view that is being built in chunks: what is covered is brought to one version, the rest is left alone.

The segments that are older than the epoch's version stand at different versions. For each of these versions the epoch
finds the keys of the base that changes since then affect, keeps those that lie in a segment of that version, and
computes their rows anew. Versions between which no input was written are one. Where a change is too large to be
followed that way, or its history is gone, everything that is covered is computed anew and compared by key on Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

from ebla.algebra.build_method import DrivenBuild
from ebla.base.failpoint import hit
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.model.plans import Plan
from ebla.storage.rows import TooLarge
from ebla.tables import scans
from ebla.tables.chunk_scan import within
from ebla.views.epoch.attempt import Attempt, Epoch
from ebla.views.epoch.narrow import affected
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.rows import Rows, together
from ebla.views.epoch.scope import compared, plan_to
from ebla.views.epoch.standing import ViewStanding
from ebla.views.epoch.tombstones import over_stored


class CoverageEpoch:
    """One attempt of one epoch of a view that is being built."""

    def __init__(self, attempt: Attempt, driven: DrivenBuild, stands: ViewStanding) -> None:
        self._attempt = attempt
        self._view = attempt.view
        self._driven = driven
        self._base = attempt.relations[driven.base]
        self._stands = stands
        self._until = attempt.target.stream
        with attempt.context.catalog.reading() as connection:
            self._stored = reads.snapshot(connection, attempt.view.relation)

    def run(self) -> Epoch:
        older = [version for version in self._stands.since if version < self._until]
        try:
            rows = self._followed(older)
        except TooLarge as reason:
            return self._anew(str(reason))
        self._attempt.put(rows)
        return self._commit(None, rows.gained.num_rows, rows.doomed.num_rows)

    def _operands(self, since: Version | None) -> Operands:
        attempt = self._attempt
        with attempt.context.catalog.reading() as connection:
            return Operands.read(
                connection,
                attempt.round,
                attempt.view,
                attempt.relations,
                before=dict.fromkeys(attempt.relations, since),
                now=dict.fromkeys(attempt.relations, self._until),
                stored=self._stored,
            )

    # ---- changes that can be followed -------------------------------------------------------------------

    def _followed(self, older: Sequence[Version]) -> Rows:
        before = (Version(0), *older)
        found = [self._of_version(*between) for between in zip(before, older, strict=False)]
        return together(self._view, [rows for rows in found if rows is not None])

    def _of_version(self, before: Version, since: Version) -> Rows | None:
        """Rows of the keys that changed behind a version, in segments that stand at it."""
        operands = self._operands(since)
        plan = plan_to(operands, self._driven.scope, "the base")
        if plan is None:
            return None
        values = affected(plan, operands.inputs, rows_max=operands.inputs.rows_max)
        values = self._stands.inside(values, self._base, before, since)
        return compared(operands, plan, values) if values.num_rows else None

    # ---- everything that is covered ---------------------------------------------------------------------

    def _anew(self, reason: str) -> Epoch:
        """Compute all rows of the segments that are older, and write them over what is there."""
        attempt, operands = self._attempt, self._operands(None)
        ranges = self._stands.spans_older(self._until)
        base = scans.frame_of(attempt.context, operands.inputs.now[self._driven.base])
        base = base.filter(within([k.name for k in self._base.key], ranges))
        found = operands.evaluation.frame({self._driven.leaf: base})
        rows = attempt.sink.put_more(over_stored(operands, found, within(self._driven.scope, ranges)))
        return self._commit(reason, rows - attempt.tombstones, attempt.tombstones)

    # ---- the end ----------------------------------------------------------------------------------------

    def _commit(self, reason: str | None, gained: int, lost: int) -> Epoch:
        attempt, until = self._attempt, self._until
        epoch = attempt.epoch(until, Plan.BUILD, reason or "catching up", gained, lost)
        decision = attempt.decision(
            epoch.position(self._view.reached, {n: int(until) for n in attempt.relations}),
            f"epoch of {self._view.relation.name}, being built, to version {until}: +{gained} -{lost}",
            requires=self._stands.requires(),
            updates=self._stands.updates(until),
        )
        hit("build.before_epoch_commit")
        attempt.commit(decision)
        hit("build.epoch_committed")
        return epoch
