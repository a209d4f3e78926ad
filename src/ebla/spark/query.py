"""A query's text over given DataFrames: each mention of a table reads the frame that stands for it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ebla.spark.session import rebind
from ebla.sql.refs import rewrite
from ebla.sql.statements import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def over(session: SparkSession, query: Query, frames: Mapping[int, DataFrame]) -> DataFrame:
    """The query, analysed; `frames` by the number of the mention.

    The temporary views have names of their own and are gone when Spark has understood the text.
    """
    names: dict[tuple[int, int], str] = {}
    views: dict[int, str] = {}
    try:
        for number, ref in enumerate(query.refs):
            frame = frames[number]
            if id(frame) not in views:
                views[id(frame)] = f"ebla_{uuid.uuid4().hex}"
                rebind(frame, session).createOrReplaceTempView(views[id(frame)])
            names[ref.start, ref.end] = views[id(frame)]
        return session.sql(rewrite(query, lambda ref: names[ref.start, ref.end]))
    finally:
        for name in views.values():
            session.catalog.dropTempView(name)
