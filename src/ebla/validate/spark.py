"""Phase 4 with a real Spark: queries are analysed over empty relations. No rows are read, no job runs."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ebla.algebra.names import CASE_SENSITIVE, is_case_sensitive
from ebla.base.issue import Code
from ebla.errors import EblaError, SqlError, UsageError
from ebla.sql.query import Query, TableRef
from ebla.sql.refs import rewrite, users_place
from ebla.validate.views import QueryAnalysis, QueryRefusal
from ebla.values import types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkAnalyser:
    """Starts Spark with the first query. Temporary views have names of their own and are gone afterwards."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def analyse(self, query: Query, inputs: Mapping[str, Sequence[tuple[str, str]]]) -> QueryAnalysis | QueryRefusal:
        spark = self._session()
        names = {name: f"ebla_{uuid.uuid4().hex}" for name in inputs}

        def replacement(ref: TableRef) -> str:
            return names[ref.name.lower()]

        try:
            for name, columns in inputs.items():
                _empty(spark, columns).createOrReplaceTempView(names[name])
            frame = spark.sql(rewrite(query, replacement))
            return _analysed(frame, spark)
        except Exception as error:
            return _refused(error, query, replacement, list(names.values()), spark)
        finally:
            for name in names.values():
                spark.catalog.dropTempView(name)


def _empty(spark: SparkSession, columns: Sequence[tuple[str, str]]) -> DataFrame:
    from pyspark.sql.types import StructField, StructType

    from ebla.spark.session import empty_frame

    return empty_frame(spark, StructType([StructField(name, types.to_spark(kind)) for name, kind in columns]))


def _analysed(frame: DataFrame, spark: SparkSession) -> QueryAnalysis | QueryRefusal:
    from ebla.spark.session import tree_patterns

    plan = frame._jdf.queryExecution().analyzed()
    # Spark counts the clock and the session as deterministic, since they are constants of one query.
    patterns = tree_patterns(spark)
    changing = bool(plan.containsPattern(patterns.CURRENT_LIKE()))
    columns = []
    for number, field in enumerate(frame.schema.fields):
        try:
            columns.append((field.name, types.from_spark(field.dataType)))
        except UsageError as error:
            message = f"column {field.name}: {error}".partition("; ")[0]
            return QueryRefusal(message=message, code=Code.UNSUPPORTED_TYPE, column=number)
    return QueryAnalysis(
        columns=tuple(columns),
        deterministic=bool(plan.deterministic()) and not changing,
        generates="Generate " in str(plan.toString()),
        case_sensitive=is_case_sensitive({CASE_SENSITIVE: str(spark.conf.get(CASE_SENSITIVE))}),
    )


def _refused(
    error: Exception,
    query: Query,
    replacement: Callable[[TableRef], str | None],
    internal: Sequence[str],
    spark: SparkSession,
) -> QueryRefusal:
    """What Spark says, without the names that only Ebla knows, at its place in the user's text."""
    from ebla.spark.wording import in_users_words

    plain = replace(query, source=None)  # so that places are those of the query's own text
    found: EblaError | None = in_users_words(
        error, plain, internal, spark, lambda position: users_place(query, replacement, position)
    )
    if not isinstance(found, UsageError):
        raise (found or error) from error
    at = None
    if isinstance(found, SqlError) and found.line is not None and found.column is not None:
        at = sum(len(one) + 1 for one in query.text.split("\n")[: found.line - 1]) + found.column - 1
    message = re.sub(r" \(line \d+, column \d+\)$", "", str(found))
    return QueryRefusal(message=message, at=min(at or 0, len(query.text)))
