"""The rows of a view that have some values of the scope, computed anew and put in the place of the stored ones."""

from __future__ import annotations

import pyarrow as pa

from ebla.algebra.plan import IncrementalPlan, of_scope
from ebla.storage.rows import TooLarge, numbered, without_keys
from ebla.tables.value_lookup import rows_by
from ebla.views.epoch.culprit import naming_culprits
from ebla.views.epoch.narrow import Bounds, narrowed_to
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.rows import Rows, exchanged
from ebla.views.epoch.stored_rows import stored_by


def replaced(operands: Operands, bounds: Bounds, *, whole: bool) -> Rows:
    """Rows of these values. They are compared with those that are there, unless each value has one row or none."""
    relation = operands.view.relation
    key = [k.name for k in relation.key]
    if relation.keyless or set(key) != set(bounds.scope):
        return _compared(operands, bounds, whole=whole)
    new = rows_in_scope(operands, bounds, whole=whole)
    # Only keys without a row are looked for among the stored rows.
    values = bounds.values.rename_columns(list(bounds.scope)).select(key)
    gone = numbered(without_keys(values, new, key))
    doomed = rows_by(operands.context, operands.stored, key, gone, key) if gone.num_rows else values.slice(0, 0)
    return Rows(gained=new, doomed=doomed)


def plan_to(operands: Operands, scope: tuple[str, ...], name: str) -> IncrementalPlan | None:
    """How changes of the inputs are followed to a scope; `None` where nothing changed that the view uses."""
    changed = operands.inputs.changed_inputs()
    if not changed:
        return None
    assert operands.shape is not None, "a view that is computed in parts is understood"
    plan = of_scope(operands.shape, changed, scope)
    if plan is None:
        raise TooLarge(f"a change that cannot be followed to {name}")
    return plan


def compared(operands: Operands, plan: IncrementalPlan, values: pa.Table) -> Rows:
    """The difference between the rows that should have these values and those that have them."""
    bounds = narrowed_to(plan, values, operands.inputs, rows_max=operands.inputs.rows_max)
    return _compared(operands, bounds, whole=bool(plan.whole))


def _compared(operands: Operands, bounds: Bounds, *, whole: bool) -> Rows:
    new = rows_in_scope(operands, bounds, whole=whole)
    old = stored_by(operands, bounds.scope, bounds.values, most=operands.inputs.read_max)
    return exchanged(operands.view, new, old)


def rows_in_scope(operands: Operands, bounds: Bounds, *, whole: bool) -> pa.Table:
    """Rows of the query that have the values of the scope."""
    with naming_culprits(operands.evaluation, bounds.leaves):
        return operands.evaluation.in_scope(bounds, whole=whole)
