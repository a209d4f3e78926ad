"""Values of a view's scope that stand for it: of rows that it has, and of rows that the base should have made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ebla.algebra.nodes import Column
from ebla.algebra.plan import IncrementalPlan
from ebla.model.snapshot import Snapshot
from ebla.relations.views import View
from ebla.storage.rows import TooLarge, distinct
from ebla.tables.sample import sample
from ebla.tables.value_lookup import named
from ebla.views.epoch.inputs import Inputs
from ebla.views.epoch.narrow import State, affected


def driven_keys(view: View, scope: Sequence[str], base: str, inputs: Inputs, mine: Snapshot) -> pa.Table:
    """Keys of the base, in its own runs and in those of a view that it drives."""
    key, roots = inputs.relations[base].key, inputs.context.roots()
    values = sample(roots, inputs.now[base], key, key)
    stored = sample(roots, mine, named(view.relation, scope), key)
    return distinct(pa.concat_tables([values, stored]))


def grown_keys(view: View, plan: IncrementalPlan, base: str, inputs: Inputs, mine: Snapshot) -> pa.Table:
    """Values of the scope: of rows that the view has, and of those that rows of the base should have made."""
    scope, roots = named(view.relation, plan.scope), inputs.context.roots()
    stored = sample(roots, mine, scope, scope)
    key = inputs.relations[base].key
    keys = sample(roots, inputs.now[base], key, key)
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
