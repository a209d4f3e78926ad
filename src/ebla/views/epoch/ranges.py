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

from ebla.model.refresh import RangeMove, Refresh
from ebla.model.relation import Relation
from ebla.relations.views import View
from ebla.storage.rows import TooLarge
from ebla.tables.chunk_scan import within
from ebla.views.epoch.frames import Frames
from ebla.views.epoch.range_values import RangeValues, tokens_of
from ebla.views.epoch.round import Round
from ebla.views.epoch.rows import Rows, unchanged
from ebla.views.epoch.scope import compared
from ebla.views.epoch.tombstones import over_stored

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
        self._affected = RangeValues(view, relations, by, round_)

    def count(self, move: RangeMove) -> int:
        """How many values of the cut changes affect. One Spark job, if they are many."""
        try:
            return int(self._affected.values(self._affected.operands(move), move).num_rows)
        except TooLarge:
            pass
        operands = self._affected.operands(move)
        try:
            plan = self._affected.plan_of_writes(operands)
            if plan is not None:
                return int(Frames(operands, plan).affected((move.first, move.last)).count())
        except TooLarge:
            pass
        return operands.stored.rows_at_most

    def cut(self, move: RangeMove, refresh: Refresh, rows_max: int) -> Cut:
        """Where the next chunk of a move ends that has about `rows_max` rows."""
        values_max = max(1, round(rows_max / refresh.rows_per_value))
        try:
            tokens = np.sort(tokens_of(self._affected.values(self._affected.operands(move), move)))
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
        operands = self._affected.operands(move)
        plan = self._affected.plan(operands)
        values = None if plan is None else self._affected.values_of(plan, operands, move)
        if plan is None or values is None or values.num_rows == 0:
            return unchanged(self._view)
        return compared(operands, plan, values)

    # ---- many: on Spark ---------------------------------------------------------------------------------

    def frame(self, move: RangeMove) -> DataFrame | None:
        """Rows of the range that changes touch, and tombstones, to be written; `None`: nothing changed."""
        operands = self._affected.operands(move)
        try:
            if not any(operands.inputs.written(n) for n in self._relations):
                return None
            plan = self._affected.plan_of_writes(operands)
            if plan is not None:
                return Frames(operands, plan).rows((move.first, move.last))
        except TooLarge:
            pass
        span = within(self._by, [(move.first, move.last)])
        return over_stored(operands, operands.evaluation.frame({}).filter(span), span)
