"""A sample of a view compared with its query, before queries may read it.

Keys of the base are taken from the middle of some of its runs, and from some runs of the view itself, so that both a
missing row and one too many can be found. The query is run on these keys alone, by the means of an epoch: a few lookups
and one small Spark job. For a view that grew, the keys are those that an epoch would compute again if these rows of the
base had changed, its groups for one. A view that one commit has filled is counted instead: its runs must hold what was
computed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ebla.algebra.build_method import DrivenBuild, GrowingBuild, OnePieceBuild
from ebla.algebra.nodes import Column
from ebla.algebra.plan import IncrementalPlan, by_scope, of_scope
from ebla.algebra.shape import keys_of
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.errors import CorruptRunError
from ebla.model.snapshot import Snapshot
from ebla.relations import views as definition
from ebla.relations.shapes import build_method, shape_of, used_columns
from ebla.relations.views import Position, View
from ebla.storage.rows import TooLarge, difference, distinct
from ebla.tables.context import Context
from ebla.tables.sample import sample
from ebla.tables.value_lookup import named, rows_by
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.inputs import Inputs, unchanged
from ebla.views.epoch.narrow import State, affected, narrowed_to
from ebla.views.epoch.whole_epoch import FIRST_BUILD

log = logging.getLogger("ebla.build")


def compare_sample(context: Context, name: str) -> None:
    """Raise if a sample of a view that is not readable yet differs from its query, at the version it has reached."""
    with context.catalog.reading() as connection:
        view = definition.load(connection, name)
        relations = {n: reads.relation(connection, n) for n in view.inputs}
        mine = reads.snapshot(connection, view.relation)
        position = view.reached
        assert position is not None, "a view that is level has been reached by an epoch"
        how = build_method(view, relations)
        if isinstance(how, OnePieceBuild) or (
            isinstance(how, GrowingBuild) and position.epoch.get("reason") == FIRST_BUILD
        ):
            _count(view, position, mine)
            return
        now = {n: reads.snapshot(connection, r, Version(position.read[n])) for n, r in relations.items()}
    shape, _ = shape_of(view, relations)
    assert shape is not None, "a view that is built in chunks is understood"
    inputs = unchanged(context, relations, now, used_columns(shape, relations), view.settings)
    if isinstance(how, DrivenBuild):
        base = relations[how.base]
        plan = of_scope(shape, (), how.scope)
        assert plan is not None, "nothing changed, so there is nothing to follow"
        values = sample(context.roots(), now[how.base], base.key, base.key)
        stored = sample(context.roots(), mine, named(view.relation, how.scope), base.key)
        _compare(context, view, plan, distinct(pa.concat_tables([values, stored])), inputs, mine)
        return
    grown = by_scope(shape, [how.base], keys_of(relations))
    if grown is not None and not grown.whole:
        _compare(context, view, grown, _grown(context, view, grown, how.base, inputs, mine), inputs, mine)


def _grown(context: Context, view: View, plan: IncrementalPlan, base: str, inputs: Inputs, mine: Snapshot) -> pa.Table:
    """Values of the scope: of rows that the view has, and of those that rows of the base should have made."""
    scope = named(view.relation, plan.scope)
    stored = sample(context.roots(), mine, scope, scope)
    key = inputs.relations[base].key
    keys = sample(context.roots(), inputs.now[base], key, key)
    try:
        rows = inputs.lookup(base, [k.name for k in key], keys.slice(0, inputs.rows_max), None, State.NEW)
        due = affected(plan, _AsIfChanged(base, rows, inputs), rows_max=inputs.rows_max)
    except TooLarge:
        return distinct(stored)  # a row of the base stands for too many
    return distinct(pa.concat_tables([stored, due.rename_columns(stored.schema.names).cast(stored.schema)]))


@dataclass(frozen=True, slots=True)
class _AsIfChanged:
    """The inputs as they are, and some rows of one of them as if they had changed."""

    table: str
    rows: pa.Table
    inputs: Inputs

    def changed(self, table: str) -> pa.Table:
        return self.rows if table == self.table else self.rows.slice(0, 0)

    def lookup(
        self, table: str, by: Sequence[Column], values: pa.Table, columns: Sequence[str] | None, state: State
    ) -> pa.Table:
        return self.inputs.lookup(table, by, values, columns, State.NEW)

    def evaluated(self, table: str, rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
        return self.inputs.evaluated(table, rows, columns)


def _count(view: View, position: Position, mine: Snapshot) -> None:
    computed = position.epoch.get("gained")
    if position.epoch.get("reason") == FIRST_BUILD and mine.rows_at_most != computed:
        raise CorruptRunError(
            f"view {view.relation.name}: expected {computed} rows, as computed, found {mine.rows_at_most} in its runs; "
            "drop it and create it again"
        )


def _compare(
    context: Context, view: View, plan: IncrementalPlan, values: pa.Table, inputs: Inputs, mine: Snapshot
) -> None:
    while values.num_rows:
        try:
            bounds = narrowed_to(plan, values, inputs, rows_max=inputs.rows_max)
            new = Evaluation(view, inputs).in_scope(bounds, whole=bool(plan.whole))
            old = rows_by(context, mine, plan.scope, values, new.schema.names, most=inputs.read_max)
            break
        except TooLarge:
            values = values.slice(0, values.num_rows // 4)  # each key stands for many rows
    else:
        return
    missing, spurious = difference(new, old)
    if missing.num_rows or spurious.num_rows:
        raise CorruptRunError(
            f"view {view.relation.name}: expected the rows of its query for {values.num_rows} sampled keys, found "
            f"{missing.num_rows} missing and {spurious.num_rows} too many; drop it and create it again"
        )
    log.info("view=%s checked keys=%d rows=%d", view.relation.name, values.num_rows, new.num_rows)
