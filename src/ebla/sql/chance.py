"""Functions whose result changes by itself: chance, the clock, the session, where a row happens to lie."""

from __future__ import annotations

from collections.abc import Iterator

from ebla.sql.lex import Kind, lex

_WORDS = {
    "chance": "rand random randn randstr uniform uuid shuffle monotonically_increasing_id",
    "the clock": "current_timestamp current_date current_time curdate now localtimestamp",
    "the session": "current_timezone current_user session_user user",
    "the place of a row": "spark_partition_id input_file_name input_file_block_start input_file_block_length",
}
CHANGING = {name: reason for reason, names in _WORDS.items() for name in names.split()}
"""Function to what its result depends on."""
LITERALS = frozenset(
    {"current_date", "current_timestamp", "current_time", "localtimestamp", "current_user", "session_user", "user"}
)
"""Names that Spark takes for a function without parentheses where no column has them."""
_WITHOUT_ARGUMENTS = frozenset({"unix_timestamp", "to_unix_timestamp"})
"""Functions that read the clock only if nothing is given."""
_TIMES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"})
_MOMENTS = frozenset({"now", "today", "yesterday", "tomorrow"})
"""Literals of those types that Spark takes for the moment at which it reads the query."""
_BEFORE_A_NAME = frozenset({"AS", "WITH", "RECURSIVE", "."})


def calls(text: str) -> Iterator[tuple[str, int]]:
    """Calls of such functions in a query, and where they stand. By tokens: also where nothing else understands it."""
    tokens = lex(text)
    for i, token in enumerate(tokens[:-1]):
        if token.key in _TIMES and tokens[i + 1].text.strip("'\"").strip().lower() in _MOMENTS:
            yield f"{token.text}{tokens[i + 1].text}", token.start
        if token.kind is not Kind.WORD or tokens[i + 1].key != "(":
            continue
        if i and tokens[i - 1].key in _BEFORE_A_NAME:
            continue  # the name of a CTE or an alias with columns
        name = token.text.lower()
        if name in CHANGING or (name in _WITHOUT_ARGUMENTS and tokens[i + 2].key == ")"):
            yield name, token.start


def described(name: str) -> tuple[str, str]:
    """The message and the hint for such a function."""
    found = f"{name.lower()}, a function of {CHANGING.get(name.lower(), 'the clock')}"
    return (
        f"expected a deterministic query, found {found}",
        "a view must be the same whenever it is computed: keep the value in a column, or apply it when you read",
    )
