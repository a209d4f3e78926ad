"""Rows of a view from a position on, in the order of a column: what windows without `PARTITION BY` make of a change.

Where running columns can go on from the rows in front of them (`ebla.views.epoch.continuation`), the inputs' rows from
there on are looked up, and the query runs over those: lookups by DuckDB, and one Spark job. Otherwise the query runs
over its whole inputs, and only what lies from the position on is compared and written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.algebra.plan import IncrementalPlan, TailPlan
from ebla.errors import SqlError, TypeMismatchError
from ebla.spark import scan as sscan
from ebla.spark.session import local_frame
from ebla.storage.positions import POSITION, Position, first_position, from_on, is_behind
from ebla.storage.rows import TooLarge
from ebla.tables.range_lookup import rows_from, value_before
from ebla.views.epoch.continuation import Tail, carried_on, moved_back, tail_of
from ebla.views.epoch.culprit import naming_culprits
from ebla.views.epoch.input_rows import values_as_stored
from ebla.views.epoch.narrow import narrowed_to
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.rows import Rows, exchanged, unchanged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class StoredRows:
    """The rows of a view as they are, in the order of one of its columns."""

    def __init__(self, operands: Operands, made: TailPlan) -> None:
        self._operands = operands
        self._course = made.course

    def value_before(self, position: Position, count: int) -> Position | None:
        return value_before(self._operands.context, self._operands.stored, self._course, position, count)

    def rows_from(self, position: Position | None) -> pa.Table:
        operands = self._operands
        names = [col.name for col in operands.view.relation.columns]
        most = operands.inputs.read_max
        return rows_from(operands.context, operands.stored, self._course, position, names, most=most)


def replaced_tail(operands: Operands, made: TailPlan, found: pa.Table) -> Rows:
    """Rows from the first of the values on, computed anew and compared with the stored ones.

    Raises `TooLarge` if they are too many for the driver.
    """
    view = operands.view
    values = values_as_stored(view.relation, [made.course.column], found)
    if values.num_rows == 0:
        return unchanged(view)
    rows = StoredRows(operands, made)
    cursor = operands.context.duck()
    try:
        start = moved_back(rows, first_position(cursor, values, made.course), made.ahead)
        if made.onward is not None:
            try:
                tail = tail_of(cursor, rows, made.course, values, start, made.onward)
                new = carried_on(cursor, made.onward.running, _of_values(operands, made, tail), tail.last)
                return exchanged(view, from_on(cursor, new, made.course, start), tail.old)
            except (TooLarge, SqlError, TypeMismatchError):
                pass  # the rows before do not tell, or rows alone fail: all rows do
    finally:
        cursor.close()
    with naming_culprits(operands.evaluation):
        frame = operands.evaluation.frame({})
        new = operands.evaluation.collected(_from_on(operands, frame, made, start))
    return exchanged(view, new, rows.rows_from(start))


def _of_values(operands: Operands, made: TailPlan, tail: Tail) -> pa.Table:
    """The query over the rows of the inputs that have the values of the tail."""
    onward, inputs = made.onward, operands.inputs
    assert onward is not None, "rows that go on from those in front of them"
    plan = IncrementalPlan(scope=made.scope, affected=(), narrowed=onward.narrowed, whole=onward.whole)
    if tail.values.num_rows > inputs.rows_max:
        raise TooLarge(f"{tail.values.num_rows} values from a changed position on")
    bounds = narrowed_to(plan, tail.values, inputs, rows_max=inputs.rows_max)
    return operands.evaluation.in_scope(bounds, whole=bool(onward.whole))


def _from_on(operands: Operands, rows: DataFrame, made: TailPlan, position: Position | None) -> DataFrame:
    from pyspark.sql import functions as F

    if position is None:
        return rows
    text = is_behind(made.course, sscan.quoted(made.course.column), POSITION if position.is_valid else None)
    if not position.is_valid:
        return rows.filter(text)
    given = local_frame(operands.context.spark, pa.table({POSITION: pa.array([position], position.type)}))
    return rows.join(F.broadcast(given), F.expr(text), "left_semi")
