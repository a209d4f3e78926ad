"""A change small enough for the driver, followed to the rows of the view: lookups by DuckDB, one Spark job at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

import pyarrow as pa

from ebla.algebra.plan import (
    Difference,
    EpochPlan,
    FirstRows,
    FullRefresh,
    IncrementalPlan,
    Merge,
    SubqueryGuard,
    TailPlan,
    Term,
    plan,
    settled,
)
from ebla.errors import SqlError, TypeMismatchError
from ebla.storage.reserve import Reserve, comes_before, reserve
from ebla.storage.rows import TooLarge, difference, distinct, matching, numbered, stored_rows, without_keys
from ebla.views.epoch.culprit import naming_culprits
from ebla.views.epoch.first_rows import as_it_is, kept_reserve, without_limit
from ebla.views.epoch.groups import merged
from ebla.views.epoch.key_changes import needs_keys_alone
from ebla.views.epoch.narrow import Side, affected, bound, sides
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.rows import Recompute, Rows, no_rows, unchanged
from ebla.views.epoch.scope import replaced, rows_in_scope
from ebla.views.epoch.stored_rows import stored_by
from ebla.views.epoch.tail import replaced_tail

FAILS_ALONE = "an expression fails on the change alone"


def follow(operands: Operands) -> Rows | Recompute:
    """Raises `TooLarge` where that turns out not to fit the driver."""
    by_keys = _by_keys(operands)
    if by_keys is not None:
        return _followed(operands, by_keys)
    changed = operands.inputs.changed_inputs()
    if not changed:
        return as_it_is(operands)
    if operands.shape is None:
        return Recompute(reason=operands.blocked or "")
    return _followed(operands, plan(operands.shape, changed, operands.keys, merges=operands.view.roles is not None))


def _followed(operands: Operands, made: EpochPlan) -> Rows | Recompute:
    match made:
        case FullRefresh(reason=reason, unless=unless):
            return Recompute(reason=reason) if unless is None else _unless_changed(operands, unless, reason)
        case IncrementalPlan():
            return _by_scope(operands, made)
        case Difference(terms=terms):
            return _by_difference(operands, terms)
        case Merge(terms=terms):
            return _by_merge(operands, terms)
        case FirstRows():
            return _first_rows(operands, made)
        case TailPlan():
            return _from_position(operands, made)
        case _:
            assert_never(made)


def _unless_changed(operands: Operands, unless: SubqueryGuard, reason: str) -> Rows | Recompute:
    """What else changed, if subqueries that every row reads give what they gave."""
    if operands.inputs.region is not None:  # a view that is being built has not all rows of its base
        return Recompute(reason=reason)
    try:
        if not all(operands.evaluation.gives_the_same(one) for one in unless.subqueries):
            return Recompute(reason=reason)
    except (SqlError, TypeMismatchError) as error:
        return Recompute(reason=FAILS_ALONE, failed=error)
    return as_it_is(operands) if unless.rows is None else _followed(operands, unless.rows)


def _by_keys(operands: Operands) -> IncrementalPlan | FirstRows | None:
    """The plan, if it needs no more than keys of what changed in some input, and reading more would cost too much."""
    inputs, shape = operands.inputs, operands.shape
    if shape is None or inputs.region is not None:
        return None
    written = [n for n in inputs.relations if inputs.written(n)]
    made = plan(shape, written, operands.keys, merges=operands.view.roles is not None)
    rows = made.rows if isinstance(made, FirstRows) else made
    if not isinstance(rows, IncrementalPlan) or rows.whole or not isinstance(made, IncrementalPlan | FirstRows):
        return None
    taken = [n for n in written if needs_keys_alone(rows, n, operands.keys[n]) and inputs.take_keys_alone(n)]
    return made if taken else None


def _by_scope(operands: Operands, made: IncrementalPlan) -> Rows | Recompute:
    """The rows of all values of the scope that the change affects, computed again."""
    try:
        bounds = bound(made, operands.inputs, rows_max=operands.inputs.rows_max)
    except (SqlError, TypeMismatchError) as error:
        return Recompute(reason=FAILS_ALONE, failed=error)
    if bounds.values.num_rows == 0:
        return unchanged(operands.view)
    return replaced(operands, bounds, whole=bool(made.whole))


def _from_position(operands: Operands, made: TailPlan) -> Rows | Recompute:
    """The rows of windows over all rows, from the first changed position on."""
    inputs, view = operands.inputs, operands.view
    if inputs.region is not None:
        return Recompute(reason="a view that is being built has not all rows of its base")
    made = settled(made, {col.name: col.type for col in view.columns}, view.settings)
    try:
        values = affected(made, inputs, rows_max=inputs.rows_max)
    except (SqlError, TypeMismatchError) as error:
        return Recompute(reason=FAILS_ALONE, failed=error)
    return replaced_tail(operands, made, values) if values.num_rows else unchanged(operands.view)


def _by_difference(operands: Operands, terms: Sequence[Term]) -> Rows | Recompute:
    """What the query gives for the changed rows, new and old."""
    try:
        found = _sides(operands, terms)
    except (SqlError, TypeMismatchError) as error:
        return Recompute(reason=FAILS_ALONE, failed=error)
    return _exchanged(operands, *difference(*_differing(operands, found)))


def _exchanged(operands: Operands, gained: pa.Table, lost: pa.Table) -> Rows:
    """Rows that come and rows that go, the latter as they are stored."""
    view = operands.view
    if not view.relation.keyless:
        return Rows(gained=gained, doomed=without_keys(lost, gained, [k.name for k in view.relation.key]))
    if lost.num_rows == 0:
        return Rows(gained=gained, doomed=lost)
    names = operands.evaluation.names
    old = stored_by(operands, names, numbered(distinct(lost)), most=operands.inputs.read_max)
    doomed = stored_rows(old, lost, names)
    if doomed.num_rows != lost.num_rows:
        raise TooLarge(f"{lost.num_rows - doomed.num_rows} rows to delete are not there")
    return Rows(gained=gained, doomed=doomed)


def _by_merge(operands: Operands, terms: Sequence[Term]) -> Rows | Recompute:
    try:
        came, went = _differing(operands, _sides(operands, terms))
    except (SqlError, TypeMismatchError) as error:
        return Recompute(reason=FAILS_ALONE, failed=error)
    return merged(operands, came, went, steps=len(terms))


def _first_rows(operands: Operands, made: FirstRows) -> Rows | Recompute:
    """What comes of the query without its limit, put among the rows that are kept."""
    kept = kept_reserve(operands)
    if kept is None:
        return Recompute(reason="the rows beyond the first are not kept by this process")
    try:
        rows = _among_kept(without_limit(operands), made.rows, kept)
    except (SqlError, TypeMismatchError) as error:
        return Recompute(reason=FAILS_ALONE, failed=error)
    cursor = operands.context.duck()
    try:
        new = reserve(cursor, made.first, rows, kept.beyond)
    finally:
        cursor.close()
    if new.unfit is not None:
        return Recompute(reason=new.unfit)
    return replace(_exchanged(operands, *difference(new.first_rows, kept.first_rows)), reserve=new)


def _among_kept(operands: Operands, made: IncrementalPlan | Difference, kept: Reserve) -> pa.Table:
    """The rows that are kept as the change leaves them, and what else it brings."""
    inputs = operands.inputs
    cursor = operands.context.duck()
    try:
        if isinstance(made, IncrementalPlan):
            bounds = bound(made, inputs, rows_max=inputs.rows_max)
            if bounds.values.num_rows == 0:
                return kept.rows
            new = rows_in_scope(operands, bounds, whole=bool(made.whole))
            return pa.concat_tables([matching(cursor, kept.rows, bounds.scope, bounds.values, negated=True), new])
        gained, lost = difference(*_differing(operands, _sides(operands, made.terms)))
        rows, missing = difference(pa.concat_tables([kept.rows, gained]), lost)
        if comes_before(cursor, kept.first, missing, kept.beyond):
            raise TooLarge(f"{missing.num_rows} rows to delete are not there")
        return rows
    finally:
        cursor.close()


def _sides(operands: Operands, terms: Sequence[Term]) -> list[Side]:
    inputs = operands.inputs
    moved = [n for term in terms for n in term.moved]
    return [side for term in terms for side in sides(term, moved, inputs, rows_max=inputs.rows_max)]


def _differing(operands: Operands, found: Sequence[Side]) -> tuple[pa.Table, pa.Table]:
    """Rows of the query for the sides: those that come, and those that go."""
    new = next((side.leaves for side in found if side.sign > 0), {})
    with naming_culprits(operands.evaluation, new):
        signed = operands.evaluation.differing(found)
    nothing = no_rows(operands.view)
    came, went = (pa.concat_tables([nothing, *(rows for sign, rows in signed if sign == side)]) for side in (1, -1))
    return came, went
