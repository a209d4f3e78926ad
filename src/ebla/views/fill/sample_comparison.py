"""Rows of a view compared with those that its query gives, for some values of the scope, or by their number."""

from __future__ import annotations

import logging

import pyarrow as pa

from ebla.algebra.plan import IncrementalPlan
from ebla.errors import CorruptRunError
from ebla.model.snapshot import Snapshot
from ebla.relations.views import Position, View
from ebla.storage.rows import TooLarge, difference
from ebla.tables.value_lookup import rows_by
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.inputs import Inputs
from ebla.views.epoch.narrow import narrowed_to
from ebla.views.epoch.whole_epoch import FIRST_BUILD

log = logging.getLogger("ebla.build")


def count(view: View, position: Position, mine: Snapshot) -> None:
    """Raise if a view that one commit has filled has not the number of rows that was computed."""
    computed = position.epoch.get("gained")
    if position.epoch.get("reason") == FIRST_BUILD and mine.rows_at_most != computed:
        raise CorruptRunError(
            f"view {view.relation.name}: expected {computed} rows, as computed, found {mine.rows_at_most} in its runs; "
            "drop it and create it again"
        )


def compare(view: View, plan: IncrementalPlan, values: pa.Table, inputs: Inputs, mine: Snapshot) -> None:
    """Raise if the rows of a view that have these values, or of the first of them, differ from those of its query."""
    while values.num_rows:
        try:
            bounds = narrowed_to(plan, values, inputs, rows_max=inputs.rows_max)
            new = Evaluation(view, inputs).in_scope(bounds, whole=bool(plan.whole))
            old = rows_by(inputs.context, mine, plan.scope, values, new.schema.names, most=inputs.read_max)
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
