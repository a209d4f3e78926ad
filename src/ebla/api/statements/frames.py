"""A query as a DataFrame: each table that it names is replaced by the DataFrame of its rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from ebla.errors import EblaError
from ebla.model.relation import Column, under_names
from ebla.model.snapshot import Snapshot
from ebla.spark import comparisons
from ebla.spark import scan as sscan
from ebla.spark.query import over, refuse_deep
from ebla.spark.session import local_frame
from ebla.spark.wording import in_users_words
from ebla.sql.lex import StatementText
from ebla.sql.query import Parameters, Query, TableRef
from ebla.tables import scans
from ebla.tables.literals import zone_of
from ebla.tables.read_access import ReadAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a relation that are on the driver already, in place of all of them."""

    table: pa.Table
    """The values under the columns' names."""
    columns: Sequence[Column]


Source: TypeAlias = Snapshot | pa.Table | Rows | None
Relations = Mapping[TableRef, Source]
"""What every mention of a table in a query stands for."""


def frame_of(context: ReadAccess, query: Query, parameters: Parameters, relations: Relations) -> DataFrame:
    """The query over its relations; a name that is none of ours is the user's temporary view."""
    spark = context.spark
    frames: dict[int, DataFrame] = {}
    for number, ref in enumerate(query.refs):
        found = relations.get(ref)
        if isinstance(found, Snapshot):
            frames[number] = scans.frame_of(context, found, hidden=ref.target, by_places=True)
        elif isinstance(found, Rows):
            fields = sscan.struct(under_names(found.columns))
            frames[number] = sscan.local(spark, found.table, fields)
        elif found is not None:
            frames[number] = local_frame(spark, found)

    def reworded(error: Exception, names: Collection[str], place: Callable[[int], int]) -> EblaError | None:
        return in_users_words(error, query, names, spark, place)

    def exact(frame: DataFrame, text: str) -> str | None:
        users = query.source or StatementText(text=query.text)
        return comparisons.exact(frame, text, zone_of(context.sessions), users)

    frame = over(spark, query, frames, parameters=parameters, reworded=reworded, exact=exact)
    refuse_deep(frame)
    return frame
