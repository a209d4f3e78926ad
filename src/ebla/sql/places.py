"""Where a position in a query's text is in the script that the user wrote.

A plain query is a piece of the script. The query that carries out a DELETE, UPDATE, MERGE or INSERT is made by Ebla,
with the user's expressions in it word for word: a position inside one of them is a position in the script.
"""

from __future__ import annotations

from ebla.sql.lex import StatementText
from ebla.sql.query import Query

PIECE_MIN = 2
"""A piece of text that both have in common is believed from this length on, or if it is a whole word."""


def place(query: Query, position: int) -> tuple[int, int] | None:
    """Line and column in the user's script; `None` for a position in what only Ebla wrote."""
    source = query.source or StatementText(text=query.text)
    begin = source.text.rfind(query.text)
    at = begin + position if begin >= 0 else shared(source.text, query.text, position)
    return None if at is None else source.place(at)


def shared(users: str, made: str, position: int) -> int | None:
    """Where in the user's text the piece of the made text is that a position lies in, if it was taken from there."""
    for at in (position, position - 1):  # what is missing at the end of a piece stands behind it
        if not 0 <= at < len(made) or made[at].isspace():
            continue
        begin, end = _common(users, made, at)
        if end - begin >= PIECE_MIN or made[begin:end].isalnum():
            return users.find(made[begin:end]) + position - begin if end > begin else None
    return None


def _common(users: str, made: str, at: int) -> tuple[int, int]:
    """The longest piece around a position that the user's text has, too: first its end, then its beginning."""
    begin, end = at, at
    while end < len(made) and made[begin : end + 1] in users:
        end += 1
    while begin > 0 and end > begin and made[begin - 1 : end] in users:
        begin -= 1
    return begin, end
