"""Functions whose result changes by itself: chance, the clock, the session, where a row happens to lie."""

from __future__ import annotations

from collections.abc import Iterator

from ebla.sql.lex import Kind, lex

_CHANCE = "rand random randn randstr uniform uuid shuffle monotonically_increasing_id"
_CLOCK = "current_timestamp current_date current_time curdate now localtimestamp"
_SESSION = "current_timezone current_user session_user user"
_PLACE = "spark_partition_id input_file_name input_file_block_start input_file_block_length"
CHANGING = frozenset(" ".join((_CHANCE, _CLOCK, _SESSION, _PLACE)).split())
_WITHOUT_ARGUMENTS = frozenset({"unix_timestamp", "to_unix_timestamp"})
"""Functions that read the clock only if nothing is given."""
_BEFORE_A_NAME = frozenset({"AS", "WITH", "RECURSIVE", "."})


def calls(text: str) -> Iterator[tuple[str, int]]:
    """Calls of such functions in a query, and where they stand. By tokens: also where nothing else understands it."""
    tokens = lex(text)
    for i, token in enumerate(tokens[:-1]):
        if token.kind is not Kind.WORD or tokens[i + 1].key != "(":
            continue
        if i and tokens[i - 1].key in _BEFORE_A_NAME:
            continue  # the name of a CTE or an alias with columns
        name = token.text.lower()
        if name in CHANGING or (name in _WITHOUT_ARGUMENTS and tokens[i + 2].key == ")"):
            yield name, token.start
