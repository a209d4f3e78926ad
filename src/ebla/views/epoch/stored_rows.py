"""The rows that a view has, hidden columns too: on Spark, or those that are wanted on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.model.relation import under_names
from ebla.storage import runs as rf
from ebla.tables import scans
from ebla.tables.value_lookup import rows_by
from ebla.views.epoch.operands import Operands

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stored_frame(operands: Operands) -> DataFrame:
    return scans.frame_of(operands.context, operands.stored, hidden=True)


def all_stored(operands: Operands) -> pa.Table:
    """All rows of the view, on the driver."""
    return rf.align(stored_frame(operands).toArrow(), under_names(operands.view.relation.columns))


def stored_by(operands: Operands, by: Sequence[str], values: pa.Table, *, most: int | None = None) -> pa.Table:
    """The rows of the view whose columns `by` are among the values, on the driver."""
    names = [col.name for col in operands.view.relation.columns]
    return rows_by(operands.context, operands.stored, by, values, names, most=most)
