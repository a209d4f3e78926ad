"""A query as text, and where it names tables; see `ebla.sql.statements`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ebla.sql.lex import StatementText

Parameters = Mapping[str, object]
"""The values of `:name` in a statement, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """One mention of a table in a query; `text[start:end]` is its name and time-travel clause.

    `parts` is `("orders",)` or `("system", "runs")`. `version` is a number, or `":name"` when it is a
    parameter. `timestamp` is the text of an expression. `alias_at` is where an alias may be put: not
    always `end`, as `TABLESAMPLE` comes between; None where no alias can stand. `select` marks the query
    `TABLE t`, whose span includes the word TABLE. `target` marks the table that a write reads in order
    to change it: the one mention that must show hidden key columns.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    alias: str | None = None
    version: int | str | None = None
    timestamp: str | None = None
    alias_at: int | None = None
    select: bool = False
    target: bool = False

    @property
    def name(self) -> str:
        return self.parts[-1]

    def shifted(self, by: int) -> TableRef:
        """The same mention, in a text that has `by` more characters before it."""
        alias_at = None if self.alias_at is None else self.alias_at + by
        return replace(self, start=self.start + by, end=self.end + by, alias_at=alias_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Any query that Spark runs, with the tables it names in order of their place in the text."""

    text: str
    refs: tuple[TableRef, ...] = ()
    source: StatementText | None = field(default=None, compare=False, repr=False)
    """The whole statement that the query was found in, for messages; a query is the same wherever it stands."""

    def within(self, before: str, after: str) -> Query:
        """The query as a part of a longer one."""
        return Query(text=before + self.text + after, refs=tuple(ref.shifted(len(before)) for ref in self.refs))


PIECE_MIN = 2
"""A piece of text that both have in common is believed from this length on, or if it is a whole word."""


def place(query: Query, position: int) -> tuple[int, int] | None:
    """Line and column in the user's script; `None` for a position in what only Ebla wrote.

    A plain query is a piece of the script. The query that carries out a DELETE, UPDATE, MERGE or INSERT is made by
    Ebla, with the user's expressions in it word for word: a position inside one of them is a position in the script.
    """
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
