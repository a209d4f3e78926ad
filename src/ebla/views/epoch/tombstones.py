"""Rows to write over those that a view has, with a tombstone for each that is gone: one join on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebla.model.relation import DELETED, Relation, Run, under_names
from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.views.epoch.evaluate import semi
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.stored_rows import stored_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HIT = "_ebla_hit"


def with_tombstones(
    relation: Relation, old: DataFrame, names: Sequence[str], found: DataFrame, *, how: str = "full_outer"
) -> DataFrame:
    """Rows to write over those of the keys `old`, under physical names: what is found, and a tombstone for each key
    that has no row any more. One join. `names`: which columns of the key those of `old` are, in their order."""
    from pyspark.sql import functions as F

    keys = old.toDF(*[f"_ebla_k_{n}" for n in names])
    key = [col.name for col in relation.key]
    on = F.expr(" AND ".join(f"{sscan.quoted(f'_ebla_k_{n}')} <=> {sscan.quoted(n)}" for n in key))
    both = keys.join(found.withColumn(_HIT, F.lit(True)), on, how)
    outputs = [
        f"IF({_HIT} IS NULL, {sscan.quoted(f'_ebla_k_{col.name}')}, {sscan.quoted(col.name)}) AS "
        f"{sscan.quoted(col.physical)}"
        if col.key_position is not None
        else f"{sscan.quoted(col.name)} AS {sscan.quoted(col.physical)}"
        for col in relation.columns
    ]
    return both.selectExpr(*outputs, f"{_HIT} IS NULL AS {DELETED}")


def over_stored(operands: Operands, found: DataFrame, part: str) -> DataFrame:
    """Rows to write over all that the view has in a part of its rows: what is found there, and tombstones."""
    relation = operands.view.relation
    key = [k.name for k in relation.key]
    there = stored_frame(operands).filter(part)
    return with_tombstones(relation, there.select(*[sscan.quoted(n) for n in key]), key, found)


def gone_rows(operands: Operands, scope: Sequence[str], affected: DataFrame, written: Sequence[Run]) -> DataFrame:
    """Tombstones of rows of the view that changed and are not among those that were written."""
    relation, context = operands.view.relation, operands.context
    there = sscan.files(context.spark, rf.paths(context.roots(), written), sscan.struct(relation.key))
    key = [col.name for col in relation.key]
    old = semi(stored_frame(operands).select(*map(sscan.quoted, key)), scope, affected)
    gone = semi(old, key, there, how="left_anti")
    nothing = sscan.empty(context.spark, sscan.struct(under_names(relation.columns)))
    return with_tombstones(relation, gone, key, nothing, how="left_outer")
