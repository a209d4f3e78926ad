"""Stored groups to which sums and counts of changed rows are added, and from which they are subtracted."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ebla.algebra.merge import Call, MergeResult, merge
from ebla.algebra.plan import of_groups
from ebla.model.relation import HIDDEN_KEY
from ebla.storage.rows import distinct, matching, numbered
from ebla.values.columns import from_plain, plain_rows
from ebla.views.epoch.mutations import arrow_schema
from ebla.views.epoch.narrow import narrowed_to
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.rows import Recompute, Rows
from ebla.views.epoch.scope import replaced
from ebla.views.epoch.stored_rows import all_stored, stored_by
from ebla.views.epoch.sums import added


def merged(operands: Operands, came: pa.Table, went: pa.Table, *, steps: int) -> Rows | Recompute:
    """The groups that differ. `came` and `went` are what the query gives for the rows that came and went alone."""
    roles = operands.view.roles
    assert roles is not None, "a view whose groups are merged"
    by = [r.column for r in roles if r.call is Call.GROUP]
    old = _stored(operands, by, pa.concat_tables([came, went]))
    is_bag = operands.view.relation.keyless
    groups = old.drop_columns(list(HIDDEN_KEY)) if is_bag else old
    cursor = operands.context.duck()
    try:
        summed = added(cursor, roles, groups, came, went)
        if summed is None:
            done = merge(roles, plain_rows(groups), plain_rows(came), plain_rows(went), steps=steps)
            if done.stale:
                return _regrouped(operands, by, done)
            summed = from_plain(done.rows, groups.schema), from_plain([dict(row) for row in done.gone], groups.schema)
        gained, gone = summed
        if not is_bag:
            return Rows(gained=gained, doomed=gone)
        if not by:  # the one row of a global aggregate keeps its id, so that it is replaced
            for name in HIDDEN_KEY:
                gained = gained.append_column(old.schema.field(name), old[name].slice(0, gained.num_rows))
            return Rows(gained=gained, doomed=gone)
        # Rows without a key are not written over: what differs goes, and comes as it is now.
        left = numbered(pa.concat_tables([gained, gone]).select(by))
        return Rows(gained=gained, doomed=matching(cursor, old, by, left))
    finally:
        cursor.close()


def _stored(operands: Operands, by: Sequence[str], rows: pa.Table) -> pa.Table:
    """The stored groups of these rows; the one row of a view without groups."""
    if not by:
        return all_stored(operands)
    return stored_by(operands, by, numbered(distinct(rows.select(list(by)))))


def _regrouped(operands: Operands, by: Sequence[str], done: MergeResult) -> Rows | Recompute:
    """Compute again the groups that sums and counts cannot tell, together with those that changed."""
    if not by:
        return Recompute(reason="the smallest or largest value left")
    assert operands.shape is not None
    plan = of_groups(operands.shape, by)
    if plan is None or plan.whole:
        return Recompute(reason="the smallest or largest value of a group left")
    groups = [tuple(row[c] for c in by) for row in (*done.rows, *done.gone)] + done.stale
    rows = [dict(zip(by, group, strict=True)) for group in dict.fromkeys(groups)]
    values = numbered(from_plain(rows, arrow_schema(operands.view.relation, by)))
    bounds = narrowed_to(plan, values, operands.inputs, rows_max=operands.inputs.rows_max)
    return replaced(operands, bounds, whole=False)
