"""What a chunk too large for the driver adds to a view that grows: the query over the chunk's rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebla.algebra.build_method import adding
from ebla.errors import SqlError, TypeMismatchError
from ebla.spark import scan as sscan
from ebla.storage.rows import TooLarge
from ebla.views.epoch.culprit import naming_culprits
from ebla.views.epoch.groups import merged
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.rows import Recompute, Rows, no_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def chunk_alone(operands: Operands) -> DataFrame | None:
    """The query over a chunk's rows alone, if what it gives is what the chunk adds: rows, or parts of sums."""
    inputs, shape = operands.inputs, operands.shape
    region = inputs.region
    if shape is None or region is None:
        return None
    found = adding(shape, region.table, merges=operands.view.roles is not None)
    rows = inputs.added(region.table)
    if found is None or rows is None:
        return None
    leaf, others = found
    visible = [sscan.quoted(col.name) for col in inputs.relations[region.table].visible]
    return operands.evaluation.frame({leaf.number: rows.select(*visible)}, unread=others)


def groups_added(operands: Operands, added: DataFrame) -> Rows | Recompute | None:
    """The groups of a view to which a chunk adds parts of sums; `None`: they are too many for the driver."""
    try:
        with naming_culprits(operands.evaluation):
            came = operands.evaluation.collected(added)
        return merged(operands, came, no_rows(operands.view), steps=1)
    except (SqlError, TypeMismatchError) as error:
        return Recompute(reason="an expression fails on the chunk alone", failed=error)
    except TooLarge:
        return None
