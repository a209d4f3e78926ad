"""A query's text over given DataFrames: each mention of a table reads the frame that stands for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from ebla.spark.session import rebind
from ebla.sql.refs import rewrite
from ebla.sql.statements import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Reworded = Callable[[Exception, Collection[str]], Exception | None]
"""A better error for what Spark said of a text with these internal names, or `None`."""


def over(
    session: SparkSession,
    query: Query,
    frames: Mapping[int, DataFrame],
    *,
    parameters: Mapping[str, object] | None = None,
    reworded: Reworded = lambda error, names: None,
) -> DataFrame:
    """The query, analysed; `frames` by the number of the mention. A mention without one keeps its name.

    The temporary views have names of their own and are gone when Spark has understood the text.
    """
    names: dict[tuple[int, int], str] = {}
    views: dict[int, str] = {}
    try:
        for number, ref in enumerate(query.refs):
            frame = frames.get(number)
            if frame is None:
                continue
            if id(frame) not in views:
                views[id(frame)] = f"ebla_{uuid.uuid4().hex}"
                rebind(frame, session).createOrReplaceTempView(views[id(frame)])
            names[ref.start, ref.end] = views[id(frame)]
        text = rewrite(query, lambda ref: names.get((ref.start, ref.end)))
        try:
            return session.sql(text, dict(parameters)) if parameters else session.sql(text)
        except Exception as error:
            better = reworded(error, views.values())
            if better is None:
                raise
            raise better from error
    finally:
        for name in views.values():
            session.catalog.dropTempView(name)
