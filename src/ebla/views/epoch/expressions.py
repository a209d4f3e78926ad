"""Columns of an input's rows where some are expressions: evaluated by Spark under the settings that the view keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.algebra.nodes import Column, Computation, stored
from ebla.model.relation import Relation, under_names
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.spark.query import over
from ebla.spark.session import local_frame
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.storage import runs as rf
from ebla.storage.rows import TooLarge
from ebla.views.epoch.mutations import arrow_schema, column_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def evaluated(session: SparkSession, rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The columns of some rows, as `c0`, `c1`, …"""
    return _over(session, f"SELECT {_listed(columns, 'c')} FROM input", {0: rows})


def rows_with(
    session: SparkSession, rows: DataFrame, by: Sequence[Column], values: DataFrame, names: Sequence[str]
) -> DataFrame:
    """Columns of those rows that have `by` among the values, by position, NULL equal to NULL."""
    wanted = values.toDF(*[f"_ebla_w{i}" for i in range(len(by))])
    on = " AND ".join(f"_ebla_v{i} <=> _ebla_w{i}" for i in range(len(by)))
    listed = ", ".join(map(sscan.quoted, names))
    text = f"SELECT {listed} FROM (SELECT *, {_listed(by, '_ebla_v')} FROM input) LEFT SEMI JOIN wanted ON {on}"
    return _over(session, text, {0: rows, 1: wanted})


def evaluated_here(session: SparkSession, relation: Relation, rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """The columns of a few rows of an input, on the driver."""
    names = [name for name in rows.schema.names if name in stored(columns)]
    kinds = sscan.struct(under_names([column_of(relation, n) for n in names]))
    with swrite.translated(relation.name):
        found = evaluated(session, sscan.local(session, rows.select(names), kinds), columns).toArrow()
    return pa.table(found.columns, names=found.schema.names)  # whether Spark says NOT NULL tells nothing of other rows


def rows_here(
    session: SparkSession,
    relation: Relation,
    rows: DataFrame,
    by: Sequence[Column],
    values: pa.Table,
    names: Sequence[str],
    *,
    most: int,
) -> pa.Table:
    """As `rows_with`, on the driver, if they are not too many. Spark reads the input once."""
    with swrite.translated(relation.name):
        given = local_frame(session, values)
        found = rows_with(session, rows, by, given, names).limit(most + 1).toArrow()
    if found.num_rows > most:
        raise TooLarge(f"more than {most} rows of {relation.name} to read")
    columns = [column_of(relation, n) for n in names]
    return rf.align(found, under_names(columns)).cast(arrow_schema(relation, names))


def _listed(columns: Sequence[Column], prefix: str) -> str:
    texts = [column.text if isinstance(column, Computation) else sscan.quoted(column) for column in columns]
    return ", ".join(f"{text} AS {prefix}{i}" for i, text in enumerate(texts))


def _over(session: SparkSession, text: str, frames: Mapping[int, DataFrame]) -> DataFrame:
    query = parse(text)
    assert isinstance(query, Query), text
    return over(session, query, frames)
