"""Ranges of a view's rows, by the token of the cut, each brought from its own versions to its own.

A range is computed as any epoch is, by the values of the cut that changes affect, of which those count whose token lies
in the range. Few values come to the driver; many stay on Spark, where the affected values of the range are joined;
where a change cannot be followed, or its history is gone, all rows of the range are computed anew. Of a view that is
driven by its base, only the base's rows of the range are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ebla.algebra.driving import Driving
from ebla.algebra.plan import Incremental, of_scope
from ebla.base.ids import TabletId, Version
from ebla.catalog import reads
from ebla.errors import SqlError, TypeMismatchError
from ebla.model import chunks
from ebla.model.chunks import position_of
from ebla.model.refresh import TOKEN_MAX, TOKEN_MIN, Part, Refresh
from ebla.model.relation import Relation
from ebla.relations.shapes import how_built, shape_of, used_columns
from ebla.relations.views import View
from ebla.spark import scan as sscan
from ebla.storage.rows import TooWide, difference, without_keys
from ebla.tables import scans
from ebla.tables.chunk_scan import within
from ebla.tables.value_lookup import fitting, rows_by
from ebla.tables.writes import Work
from ebla.values import token
from ebla.views.epoch.culprit import culprit
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.frames import Wide, with_tombstones
from ebla.views.epoch.inputs import Inputs, Round, arrow_schema, column_of
from ebla.views.epoch.narrow import affected, narrowed_to
from ebla.views.epoch.region import Region

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a range gains and loses, and how many of its rows were computed."""

    gained: pa.Table
    doomed: pa.Table
    rows: int


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
        self._context = round_.context
        self._view = view
        self._relations = relations
        self._by = by
        self._round = round_
        shape, _ = shape_of(view, relations)
        assert shape is not None, "a view that is refreshed in chunks is understood"
        self._shape = shape
        how = how_built(view, relations)
        self._driven = how if isinstance(how, Driving) and how.scope == by else None
        with self._context.catalog.reading() as connection:
            self._mine = reads.snapshot(connection, view.relation)

    def count(self, part: Part) -> int:
        """How many values of the cut changes affect. One Spark job, if they are many."""
        try:
            return int(self._values(self._inputs(part), part).num_rows)
        except TooWide:
            pass
        inputs = self._inputs(part)
        try:
            plan = of_scope(self._shape, [n for n in self._relations if inputs.written(n)], self._by)
            if plan is not None:
                return int(self._wide(inputs, plan).affected((part.first, part.last)).count())
        except TooWide:
            pass
        return self._mine.rows_at_most

    def cut(self, part: Part, refresh: Refresh, rows_max: int) -> Cut:
        """Where the next chunk of a part ends that has about `rows_max` rows."""
        values_max = max(1, round(rows_max / refresh.rows_per_value))
        try:
            tokens = np.sort(self._tokens(self._values(self._inputs(part), part)))
        except TooWide:
            left = refresh.values_left
            if left <= values_max:
                return Cut(up_to=part.last, values=left, exact=False)
            end = part.first + max(1, (part.last - part.first + 1) * values_max // left) - 1
            return Cut(up_to=min(end, part.last), values=values_max, exact=False)
        if len(tokens) <= values_max:
            return Cut(up_to=part.last, values=len(tokens), exact=True)
        end = int(tokens[values_max - 1])  # all values of one token go together
        taken = int(np.searchsorted(tokens, end, side="right"))
        return Cut(up_to=part.last if taken == len(tokens) else end, values=taken, exact=True)

    # ---- few values: on the driver ----------------------------------------------------------------------

    def followed(self, part: Part) -> Found:
        """The rows of the range that changes touch, compared with those that are there."""
        relation = self._view.relation
        stored = [col.name for col in relation.columns]
        schema = arrow_schema(relation, stored)
        inputs = self._inputs(part)
        plan = self._plan(inputs)
        values = None if plan is None else self._values_of(plan, inputs, part)
        if plan is None or values is None or values.num_rows == 0:
            return Found(gained=schema.empty_table(), doomed=schema.empty_table(), rows=0)
        bounds = narrowed_to(plan, values, inputs, rows_max=inputs.rows_max)
        evaluation = Evaluation(self._view, inputs)
        with self._finding_culprits(inputs, evaluation, bounds.leaves):
            new = evaluation.in_scope(bounds, whole=bool(plan.whole))
        old = rows_by(self._context, self._mine, self._by, values, stored, most=inputs.read_max)
        came, went = difference(new, old.select(new.schema.names))
        doomed = without_keys(went, came, [k.name for k in relation.key])
        return Found(
            gained=came.select(stored).cast(schema),
            doomed=doomed.select(stored).cast(schema),
            rows=max(new.num_rows, old.num_rows),
        )

    def _plan(self, inputs: Inputs) -> Incremental | None:
        """How changes are followed to the cut; `None` where nothing changed that the view uses."""
        changed = inputs.moved()
        if not changed:
            return None
        plan = of_scope(self._shape, changed, self._by)
        if plan is None:
            raise TooWide(f"a change that cannot be followed to ({', '.join(self._by)})")
        return plan

    def _values(self, inputs: Inputs, part: Part) -> pa.Table:
        plan = self._plan(inputs)
        return self._typed(None) if plan is None else self._values_of(plan, inputs, part)

    def _values_of(self, plan: Incremental, inputs: Inputs, part: Part) -> pa.Table:
        """Affected values of the cut in the range."""
        values = self._typed(affected(plan, inputs, rows_max=inputs.rows_max))
        tokens = self._tokens(values)
        return values.filter(pa.array((tokens >= part.first) & (tokens <= part.last)))

    def _typed(self, values: pa.Table | None) -> pa.Table:
        """In the types of the view's columns: tokens depend on them. No row of the view has a value that does not fit.

        Such a value comes from the other side of an equality of whole numbers, as in INT = BIGINT.
        """
        relation = self._view.relation
        kinds = arrow_schema(relation, self._by)
        schema = pa.schema([pa.field(f"c{i}", kind.type) for i, kind in enumerate(kinds)])
        if values is None or values.num_rows == 0:
            return schema.empty_table()
        return fitting(values, [column_of(relation, name) for name in self._by]).cast(schema)

    def _tokens(self, values: pa.Table) -> np.ndarray:
        return token.tokens(values, values.schema.names)

    @contextmanager
    def _finding_culprits(
        self, inputs: Inputs, evaluation: Evaluation, leaves: Mapping[int, pa.Table]
    ) -> Iterator[None]:
        try:
            yield
        except (SqlError, TypeMismatchError) as error:
            found = culprit(self._view, inputs, evaluation, leaves)
            if found is None:
                raise
            raise error.found_at(found) from error

    # ---- many: on Spark ---------------------------------------------------------------------------------

    def written(self, part: Part, work: Work) -> int:
        """Write the rows of the range that changes touch, and tombstones; how many."""
        inputs = self._inputs(part)
        try:
            changed = [n for n in self._relations if inputs.written(n)]
            if not changed:
                return 0
            plan = of_scope(self._shape, changed, self._by)
            if plan is not None:
                return work.put_more(self._wide(inputs, plan).rows((part.first, part.last)))
        except TooWide:
            pass
        return work.put_more(self._anew(inputs, part))

    def _wide(self, inputs: Inputs, plan: Incremental) -> Wide:
        return Wide(self._view, inputs, Evaluation(self._view, inputs), self._mine, plan)

    def _anew(self, inputs: Inputs, part: Part) -> DataFrame:
        """All rows that the range should have, over those that it has."""
        relation, span = self._view.relation, within(self._by, [(part.first, part.last)])
        found = Evaluation(self._view, inputs).frame({}).filter(span)
        stored = scans.frame_of(self._context, self._mine, hidden=True).filter(span)
        key = [k.name for k in relation.key]
        return with_tombstones(relation, stored.select(*[sscan.quoted(n) for n in key]), key, found)

    # ---- inputs -----------------------------------------------------------------------------------------

    def _inputs(self, part: Part) -> Inputs:
        with self._context.catalog.reading() as connection:
            now = {n: self._round.snapshot(connection, r, part.now[n]) for n, r in self._relations.items()}
        return Inputs(
            round=self._round,
            relations=self._relations,
            before=dict(part.before),
            now=now,
            used=used_columns(self._shape, self._relations),
            rows_max=self._context.settings.batch_rows_max,
            region=self._region(part),
        )

    def _region(self, part: Part) -> Region | None:
        """The base's rows of the range, if the view is driven: no other row of it has a part in the result."""
        if self._driven is None or (part.first, part.last) == (TOKEN_MIN, TOKEN_MAX):
            return None
        base = self._relations[self._driven.base]
        return Region(table=self._driven.base, known=tuple(_of_tablets(part, base.tablets)))


def _of_tablets(part: Part, tablets: int) -> Iterator[chunks.Part]:
    """A range of tokens as parts of tablets."""
    for number in range(tablets):
        first, last = token.token_range(number, tablets)
        if part.first <= last and first <= part.last:
            yield chunks.Part(
                tablet=TabletId(number),
                after=None if part.first <= first else position_of(part.first - 1),
                up_to=None if last <= part.last else position_of(part.last),
                rows=0,
            )


def ahead(read: Mapping[str, int], refresh: Refresh, target: Mapping[str, Version]) -> Part:
    """What a refresh has yet to do, with all other inputs at the target: where the view has read them, if it can be."""
    return Part(
        first=TOKEN_MIN if refresh.up_to is None else refresh.up_to + 1,
        last=TOKEN_MAX,
        before={n: Version(read[n]) for n in target},
        now={**target, **{n: Version(v) for n, v in refresh.to.items()}},
    )
