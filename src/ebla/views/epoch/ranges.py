"""Ranges of a view's rows, by the token of the cut, each brought from its own versions to its own.

A range is computed as any epoch is, by the values of the cut that changes affect, of which those count whose token lies
in the range. Few values come to the driver; many stay on Spark, where the affected values of the range are joined;
where a change cannot be followed, or its history is gone, all rows of the range are computed anew. Of a view that is
driven by its base, only the base's rows of the range are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ebla.algebra.build_method import DrivenBuild
from ebla.algebra.plan import IncrementalPlan, of_scope
from ebla.catalog import reads
from ebla.model.refresh import TOKEN_MAX, TOKEN_MIN, RangeMove, Refresh
from ebla.model.relation import Relation
from ebla.relations.shapes import build_method, shape_of
from ebla.relations.views import View
from ebla.storage.rows import TooLarge
from ebla.tables.chunk_scan import within
from ebla.values import token
from ebla.views.epoch.frames import Frames, over_stored
from ebla.views.epoch.inputs import Inputs, values_as_stored
from ebla.views.epoch.narrow import affected
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.region import Region, region_of_tokens
from ebla.views.epoch.round import Round
from ebla.views.epoch.rows import Rows, unchanged
from ebla.views.epoch.scope import compared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where a chunk ends, and how many values of the cut that change it has."""

    up_to: int
    values: int
    exact: bool
    """Whether the values were few enough to be looked at; else they are taken to be spread evenly."""


class Ranges:
    """One view, the columns of its cut, and its rows as they are."""

    def __init__(self, view: View, relations: Mapping[str, Relation], by: tuple[str, ...], round_: Round) -> None:
        self._view = view
        self._relations = relations
        self._by = by
        self._round = round_
        shape, _ = shape_of(view, relations)
        assert shape is not None, "a view that is refreshed in chunks is understood"
        self._shape = shape
        how = build_method(view, relations)
        self._driven = how if isinstance(how, DrivenBuild) and how.scope == by else None
        with round_.context.catalog.reading() as connection:
            self._stored = reads.snapshot(connection, view.relation)

    def count(self, move: RangeMove) -> int:
        """How many values of the cut changes affect. One Spark job, if they are many."""
        try:
            return int(self._values(self._operands(move).inputs, move).num_rows)
        except TooLarge:
            pass
        operands = self._operands(move)
        try:
            plan = self._plan_of_writes(operands.inputs)
            if plan is not None:
                return int(Frames(operands, plan).affected((move.first, move.last)).count())
        except TooLarge:
            pass
        return self._stored.rows_at_most

    def cut(self, move: RangeMove, refresh: Refresh, rows_max: int) -> Cut:
        """Where the next chunk of a move ends that has about `rows_max` rows."""
        values_max = max(1, round(rows_max / refresh.rows_per_value))
        try:
            tokens = np.sort(self._tokens(self._values(self._operands(move).inputs, move)))
        except TooLarge:
            left = refresh.values_left
            if left <= values_max:
                return Cut(up_to=move.last, values=left, exact=False)
            end = move.first + max(1, (move.last - move.first + 1) * values_max // left) - 1
            return Cut(up_to=min(end, move.last), values=values_max, exact=False)
        if len(tokens) <= values_max:
            return Cut(up_to=move.last, values=len(tokens), exact=True)
        end = int(tokens[values_max - 1])  # all values of one token go together
        taken = int(np.searchsorted(tokens, end, side="right"))
        return Cut(up_to=move.last if taken == len(tokens) else end, values=taken, exact=True)

    # ---- few values: on the driver ----------------------------------------------------------------------

    def followed(self, move: RangeMove) -> Rows:
        """The rows of the range that changes touch, compared with those that are there."""
        operands = self._operands(move)
        plan = self._plan(operands.inputs)
        values = None if plan is None else self._values_of(plan, operands.inputs, move)
        if plan is None or values is None or values.num_rows == 0:
            return unchanged(self._view)
        return compared(operands, plan, values)

    def _plan(self, inputs: Inputs) -> IncrementalPlan | None:
        """How changes are followed to the cut; `None` where nothing changed that the view uses."""
        changed = inputs.changed_inputs()
        if not changed:
            return None
        plan = of_scope(self._shape, changed, self._by)
        if plan is None:
            raise TooLarge(f"a change that cannot be followed to ({', '.join(self._by)})")
        return plan

    def _values(self, inputs: Inputs, move: RangeMove) -> pa.Table:
        plan = self._plan(inputs)
        return (
            values_as_stored(self._view.relation, self._by, None)
            if plan is None
            else self._values_of(plan, inputs, move)
        )

    def _values_of(self, plan: IncrementalPlan, inputs: Inputs, move: RangeMove) -> pa.Table:
        """Affected values of the cut in the range."""
        values = values_as_stored(self._view.relation, self._by, affected(plan, inputs, rows_max=inputs.rows_max))
        tokens = self._tokens(values)
        return values.filter(pa.array((tokens >= move.first) & (tokens <= move.last)))

    def _tokens(self, values: pa.Table) -> np.ndarray:
        return token.tokens(values, values.schema.names)

    # ---- many: on Spark ---------------------------------------------------------------------------------

    def frame(self, move: RangeMove) -> DataFrame | None:
        """Rows of the range that changes touch, and tombstones, to be written; `None`: nothing changed."""
        operands = self._operands(move)
        try:
            if not any(operands.inputs.written(n) for n in self._relations):
                return None
            plan = self._plan_of_writes(operands.inputs)
            if plan is not None:
                return Frames(operands, plan).rows((move.first, move.last))
        except TooLarge:
            pass
        span = within(self._by, [(move.first, move.last)])
        return over_stored(operands, operands.evaluation.frame({}).filter(span), span)

    def _plan_of_writes(self, inputs: Inputs) -> IncrementalPlan | None:
        return of_scope(self._shape, [n for n in self._relations if inputs.written(n)], self._by)

    # ---- inputs -----------------------------------------------------------------------------------------

    def _operands(self, move: RangeMove) -> Operands:
        with self._round.context.catalog.reading() as connection:
            return Operands.read(
                connection,
                self._round,
                self._view,
                self._relations,
                before=move.before,
                now=move.now,
                region=self._region(move),
                stored=self._stored,
            )

    def _region(self, move: RangeMove) -> Region | None:
        """The base's rows of the range, if the view is driven: no other row of it has a part in the result."""
        if self._driven is None or (move.first, move.last) == (TOKEN_MIN, TOKEN_MAX):
            return None
        return region_of_tokens(self._relations[self._driven.base], move.first, move.last)
