"""Rows of a view from a position on, in the order of a column: what windows that look back make of a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from ebla.algebra.plan import TailPlan
from ebla.model.relation import under_names
from ebla.spark import scan as sscan
from ebla.spark.session import local_frame
from ebla.storage import runs as rf
from ebla.storage.rows import TooLarge
from ebla.tables import scans
from ebla.views.epoch.culprit import naming_culprits
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.rows import Rows, exchanged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POSITION = "_ebla_position"


def replaced_tail(operands: Operands, made: TailPlan, values: pa.Table) -> Rows:
    """Rows from the first of the values on, computed anew and compared with the stored ones. Two Spark jobs.

    Raises `TooLarge` if they are too many for the driver.
    """
    cursor = operands.context.duck()
    try:
        position = first_position(cursor, values, descending=made.descending)
    finally:
        cursor.close()
    with naming_culprits(operands.evaluation):
        new = operands.evaluation.collected(_behind(operands, operands.evaluation.frame({}), made, position))
    view, most = operands.view, operands.inputs.read_max
    stored = scans.frame_of(operands.context, operands.stored, hidden=True)
    old = _behind(operands, stored, made, position).limit(most + 1).toArrow()
    if old.num_rows > most:
        raise TooLarge(f"more than {most} rows of the view from a changed position on")
    return exchanged(view, new, rf.align(old, under_names(view.relation.columns)))


def first_position(cursor: duckdb.DuckDBPyConnection, values: pa.Table, *, descending: bool) -> pa.Table:
    """The first of some values, which are a column `c0`, in Spark's order."""
    cursor.register("affected_values", values)
    order = "DESC NULLS LAST" if descending else "ASC NULLS FIRST"
    text = f"SELECT c0 AS {POSITION} FROM affected_values ORDER BY c0 {order} LIMIT 1"
    found = cursor.sql(text).to_arrow_table()
    return found.cast(pa.schema([pa.field(POSITION, values.schema.field("c0").type)]))


def is_behind(column: str, *, descending: bool) -> str:
    """Whether a row is at the position or behind it, for Spark and for DuckDB; `column` is quoted."""
    if descending:
        return f"({column} IS NULL OR {column} <= {POSITION})"
    return f"({POSITION} IS NULL OR {column} >= {POSITION})"


def _behind(operands: Operands, rows: DataFrame, made: TailPlan, position: pa.Table) -> DataFrame:
    from pyspark.sql import functions as F

    given = F.broadcast(local_frame(operands.context.spark, position))
    on = is_behind(sscan.quoted(made.column), descending=made.descending)
    return rows.join(given, F.expr(on), "left_semi")
