"""What Spark says of a query, in the user's words and at its place in the user's script."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ebla.errors import EblaError, SparkJobError, SqlError
from ebla.spark import write as swrite
from ebla.sql.query import Query, place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LISTED = re.compile(r"\[(`[^\]]*)\]")
"""The names that Spark suggests."""


def in_users_words(
    error: BaseException,
    query: Query,
    internal: Collection[str] = (),
    spark: SparkSession | None = None,
    users_position: Callable[[int], int] | None = None,
) -> EblaError | None:
    """What Spark said of a query's text with other names for its tables; `None` if the error is not Spark's.

    `internal` are those names; `users_position` finds a position of that text in the query's own.
    """
    if isinstance(error, EblaError):
        return error
    found = swrite.translate(error, "query")
    if found is None:
        return None
    message = without_internals(str(found).removeprefix("query: "), internal)
    if isinstance(found, SparkJobError):
        return SparkJobError(message, lost=found.lost, code=found.code)
    if not isinstance(found, SqlError):
        return type(found)(message)
    at = _position(error, query, users_position)
    if at is None and spark is not None and found.line is not None:
        at = _syntax_error(query.text, spark)
    line, column = (None, None) if at is None else place(query, at) or (None, None)
    return SqlError(message, line=line, column=column)


def without_internals(message: str, internal: Collection[str]) -> str:
    """A message without places in the text that Spark was given, and without names that only Ebla knows."""
    message = re.sub(r" \(line \d+, (pos|column) \d+\)", "", message)
    message = re.sub(r"\s*;?\s*line \d+,? pos \d+;?", "", message)
    for name in internal:
        message = message.replace(f"`{name}`.", "").replace(name, "the table")
    message = _LISTED.sub(lambda found: f"[{', '.join(_ours_left_out(found[1]))}]", message)
    return re.sub(r" Did you mean one of the following\? \[\]\.?", "", message)


def _ours_left_out(listed: str) -> list[str]:
    return [name for name in listed.split(", ") if "`_ebla_" not in name]


def _position(error: BaseException, query: Query, users_position: Callable[[int], int] | None) -> int | None:
    """Where, in the query's own text, the expression begins that Spark complains about."""
    try:
        contexts = error.getQueryContext()  # type: ignore[attr-defined]
        fragment, start = (str(contexts[0].fragment()), int(contexts[0].startIndex())) if contexts else ("", -1)
    except Exception:  # a Spark error without a context has none to give
        return None
    if start >= 0 and users_position is not None:
        return users_position(start)
    at = query.text.find(fragment) if fragment else -1
    return at if at >= 0 else None


def _syntax_error(text: str, spark: SparkSession) -> int | None:
    """Where Spark's parser stops in a query's own text; tables need not be there for that."""
    try:
        spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except Exception as error:
        found = swrite.translate(error, "query")
        if isinstance(found, SqlError) and found.line is not None and found.column is not None:
            before = sum(len(one) + 1 for one in text.split("\n")[: found.line - 1])
            return min(before + found.column - 1, len(text))
    return None
