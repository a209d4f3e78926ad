"""Entries of indexes made of rows of their base, on the driver or in Spark, with one meaning.

Columns are copied; a condition that compares columns with literals is Arrow's, as in first-100 queries, which is tested
against Spark. Expressions and all other conditions are Spark's own, in a session with the settings of the one in which
the index was created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.ids import RelationId
from ebla.model.relation import Column, Relation
from ebla.model.snapshot import Snapshot
from ebla.predicates import filters as fl
from ebla.relations.indexes import Index
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.spark.scan import quoted
from ebla.spark.sessions import Sessions
from ebla.storage import runs as rf
from ebla.storage.store import single
from ebla.tables.read_access import ReadAccess
from ebla.tables.value_lookup import rows_by
from ebla.values import types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def needed(base: Relation, indexes: Sequence[Index]) -> list[Column]:
    """The base's columns that some of the indexes need, in the base's order."""
    used = {c.physical for index in indexes for c in index.needed}
    return [c for c in base.columns if c.physical in used]


# ---- in Spark -------------------------------------------------------------------------------------------


def value_name(index: Index, physical: str) -> str:
    return f"_ebla_{index.id}_{physical}"


def flag_name(index: Index) -> str:
    return f"_ebla_{index.id}_where"


def computed(frame: DataFrame, base: Relation, indexes: Sequence[Index], keep: Sequence[str] = ()) -> DataFrame:
    """Rows (physical names) with a column for every expression and condition. A projection: no job, no shuffle.

    `keep` names columns of the frame that are no column of the base and stay.
    """
    columns = needed(base, indexes)
    named = frame.selectExpr(*sscan.renamed([(c.physical, c.name) for c in columns]), *[quoted(name) for name in keep])
    more = []
    for index in indexes:
        more += [f"({item.text}) AS {quoted(value_name(index, item.physical))}" for item in index.expressions]
        if index.where is not None:
            more.append(f"coalesce(({index.where}), false) AS {quoted(flag_name(index))}")
    return named.selectExpr(
        *sscan.renamed([(c.name, c.physical) for c in columns]), *[quoted(name) for name in keep], *more
    )


def entries_of(frame: DataFrame, index: Index, keep: Sequence[str] = ()) -> DataFrame:
    """The entries of an index from computed rows: its physical columns and those to keep."""
    rows = frame if index.where is None else frame.filter(quoted(flag_name(index)))
    expressions = {item.physical for item in index.expressions}
    return rows.selectExpr(
        *[
            f"{quoted(value_name(index, c.physical))} AS {quoted(c.physical)}"
            if c.physical in expressions
            else quoted(c.physical)
            for c in index.relation.columns
        ],
        *[quoted(name) for name in keep],
    )


def of_snapshot(context: ReadAccess, index: Index, base: Snapshot) -> DataFrame:
    """The entries that all rows of a snapshot of the base make, in the session that writes."""
    spark = context.view_session(index.settings, small=False) if index.settings else context.writer
    rows_max = context.settings.level0_rows_max
    rows = sscan.merged(spark, base, context.roots(), context.storage.level0, rows_max=rows_max)
    return ssession.rebind(entries_of(computed(rows, index.base, [index]), index), context.writer)


# ---- on the driver --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedValues:
    """What Spark says of rows: expressions by index and name, and which rows the condition takes."""

    values: Mapping[tuple[RelationId, str], pa.Array]
    flags: Mapping[RelationId, pa.Array]


NOTHING = ComputedValues(values={}, flags={})


def by_spark(sessions: Sessions, base: Relation, indexes: Sequence[Index], rows: pa.Table) -> ComputedValues:
    """The expressions and conditions that only Spark understands, of rows on the driver, in their order.

    One job for all indexes that were created under the same settings; none where there is nothing to compute.
    """
    from pyspark.sql import types as T

    values: dict[tuple[RelationId, str], pa.Array] = {}
    flags: dict[RelationId, pa.Array] = {}
    groups: dict[tuple[tuple[str, str], ...], list[Index]] = {}
    for index in indexes:
        if index.needs_spark and rows.num_rows:
            groups.setdefault(tuple(sorted(index.settings.items())), []).append(index)
    for settings, group in groups.items():
        spark = sessions.of_view(dict(settings), small=True)
        columns = needed(base, group)
        numbered = rows.select([c.physical for c in columns]).append_column(
            "_ebla_row", pa.array(range(rows.num_rows), pa.int64())
        )
        schema = sscan.struct(columns).add("_ebla_row", T.LongType())
        frame = computed(sscan.local(spark, numbered, schema), base, group, ["_ebla_row"])
        with swrite.translated(base.name):
            found = frame.toArrow().sort_by("_ebla_row")
        for index in group:
            kinds = {c.physical: c.type for c in index.relation.columns}
            for item in index.expressions:
                array = single(found[value_name(index, item.physical)])
                values[index.id, item.physical] = array.cast(types.to_arrow(kinds[item.physical]))
            if index.where is not None:
                flags[index.id] = single(found[flag_name(index)])
    return ComputedValues(values=values, flags=flags)


def entries(index: Index, rows: pa.Table, found: ComputedValues) -> tuple[pa.Table, pa.Array | None]:
    """What an index would have of each row of its base (physical names), and which rows it takes; `None`: all."""
    schema = rf.physical_schema(index.relation.columns)
    if rows.num_rows == 0:
        return schema.empty_table(), None
    arrays: list[pa.Array | pa.ChunkedArray] = []
    for column in index.relation.columns:
        given = found.values.get((index.id, column.physical))
        arrays.append(rows[column.physical] if given is None else given)
    table = pa.table(arrays, schema=schema)
    if index.where is None:
        return table, None
    if index.id in found.flags:
        return table, pc.fill_null(found.flags[index.id], False)
    conditions = index.conditions
    assert conditions is not None, "what Spark alone understands was computed before"
    values = {f.column.physical: single(rows[f.column.physical]) for f in conditions}
    return table, pc.fill_null(fl.mask(conditions, values), False)


def of_keys(context: ReadAccess, index: Index, base: Snapshot, keys: pa.Table) -> pa.Table:
    """The entries of the rows that a snapshot of the base has of some keys (columns `c0`, `c1`, …)."""
    columns = needed(index.base, [index])
    names = [column.name for column in index.base.key]
    rows = rows_by(context, base, names, keys, [column.name for column in columns])
    rows = rows.rename_columns([column.physical for column in columns])
    made, taken = entries(index, rows, by_spark(context.sessions, index.base, [index], rows))
    return made if taken is None else made.filter(taken)
