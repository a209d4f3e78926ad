"""A query's text over given DataFrames: each mention of a table reads the frame that stands for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ebla.errors import TypeMismatchError
from ebla.spark.session import rebind
from ebla.sql.query import Query, TableRef
from ebla.sql.refs import rewrite, users_place
from ebla.values.grammar import DEPTH_MAX, too_deep

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


Reworded = Callable[[Exception, Collection[str], Callable[[int], int]], Exception | None]
"""A better error for what Spark said of a text with these internal names, or `None`.

The function finds a position in that text in the query's own.
"""


def over(
    session: SparkSession,
    query: Query,
    frames: Mapping[int, DataFrame],
    *,
    parameters: Mapping[str, object] | None = None,
    reworded: Reworded = lambda error, names, place: None,
    exact: Callable[[DataFrame, str], str | None] = lambda frame, text: None,
) -> DataFrame:
    """The query, analysed; `frames` by the number of the mention. A mention without one keeps its name.

    `exact` may give another text for one that Spark has understood, and understood otherwise than it is meant.

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

        def replacement(ref: TableRef) -> str | None:
            return names.get((ref.start, ref.end))

        text = rewrite(query, replacement)
        try:
            literals = parameter_columns(parameters or {})
            made = session.sql(text, literals) if literals else session.sql(text)
        except Exception as error:
            better = reworded(error, views.values(), lambda at: users_place(query, replacement, at))
            if better is None:
                raise
            raise better from error
        meant = exact(made, text)
        if meant is None:
            return made
        return session.sql(meant, literals) if literals else session.sql(meant)
    finally:
        for name in views.values():
            session.catalog.dropTempView(name)


def parameter_columns(parameters: Mapping[str, object]) -> dict[str, Any]:
    """Parameters as Spark's literals. A value that it has no literal for is an error that names the parameter."""
    return {name: _literal(name, value) for name, value in parameters.items()}


def _literal(name: str, value: object) -> Column:
    from py4j.protocol import Py4JJavaError, Py4JNetworkError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    try:
        if isinstance(value, str):
            value.encode()  # half of a character would break the connection to the JVM
        return F.lit(value)
    except (PySparkException, Py4JNetworkError, Py4JJavaError, OSError):
        raise  # Spark's own words, or its end
    except Exception as error:  # Py4J and pandas raise any kind for what they cannot convert
        found = repr(value) if isinstance(value, int | Decimal) else f"one of Python's {type(value).__name__}"
        message = f"parameter :{name}: expected a value that Spark has a type for, found {found}"
        raise TypeMismatchError(message) from error


def refuse_deep(frame: DataFrame) -> None:
    """Refuse columns that are nested deeper than Arrow's messages hold: Spark may lose its scheduler over them."""
    try:
        level: list[Any] = [field.dataType for field in frame.schema.fields]
        for _ in range(DEPTH_MAX + 1):
            level = [part for kind in level for part in _parts(kind)]
    except RecursionError:  # already the reading of such a schema
        raise TypeMismatchError(str(too_deep())) from None
    if level:
        raise TypeMismatchError(str(too_deep()))


def _parts(kind: Any) -> Iterator[Any]:
    for name in ("elementType", "keyType", "valueType"):
        if hasattr(kind, name):
            yield getattr(kind, name)
    for field in getattr(kind, "fields", ()):
        yield field.dataType
