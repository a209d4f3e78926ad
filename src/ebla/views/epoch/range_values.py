"""The values of a view's cut that changes affect in a range of tokens, and what they are found from."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ebla.algebra.build_method import DrivenBuild
from ebla.algebra.plan import IncrementalPlan, of_scope
from ebla.catalog import reads
from ebla.model.refresh import TOKEN_MAX, TOKEN_MIN, RangeMove
from ebla.model.relation import Relation
from ebla.relations.shapes import build_method, shape_of
from ebla.relations.views import View
from ebla.values import token
from ebla.views.epoch.input_rows import values_as_stored
from ebla.views.epoch.narrow import affected
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.region import Region, region_of_tokens
from ebla.views.epoch.round import Round
from ebla.views.epoch.scope import plan_to


def tokens_of(values: pa.Table) -> np.ndarray:
    return token.tokens(values, values.schema.names)


class RangeValues:
    """Of one view, by the columns of its cut."""

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

    def operands(self, move: RangeMove) -> Operands:
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

    def plan(self, operands: Operands) -> IncrementalPlan | None:
        """How changes are followed to the cut; `None` where nothing changed that the view uses."""
        return plan_to(operands, self._by, f"({', '.join(self._by)})")

    def plan_of_writes(self, operands: Operands) -> IncrementalPlan | None:
        """How all that was written is followed to the cut; `None` where it cannot be."""
        inputs = operands.inputs
        return of_scope(self._shape, [n for n in self._relations if inputs.written(n)], self._by)

    def values(self, operands: Operands, move: RangeMove) -> pa.Table:
        plan = self.plan(operands)
        if plan is None:
            return values_as_stored(self._view.relation, self._by, None)
        return self.values_of(plan, operands, move)

    def values_of(self, plan: IncrementalPlan, operands: Operands, move: RangeMove) -> pa.Table:
        """Affected values of the cut in the range."""
        inputs = operands.inputs
        values = values_as_stored(self._view.relation, self._by, affected(plan, inputs, rows_max=inputs.rows_max))
        tokens = tokens_of(values)
        return values.filter(pa.array((tokens >= move.first) & (tokens <= move.last)))
