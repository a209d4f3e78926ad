"""The select list of a query, as far as tokens show it.

Enough to see which items are a plain call of an aggregate function, and to add items behind the last one without
touching the user's own text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ebla.sql.lex import Token, lex
from ebla.sql.query import Query
from ebla.sql.refs import find

_AGGREGATES = frozenset({"COUNT", "SUM", "AVG", "MEAN", "MIN", "MAX"})
_SET_OPERATORS = frozenset({"UNION", "EXCEPT", "INTERSECT", "MINUS", "SETMINUS"})
_CLAUSES = _SET_OPERATORS | {
    "|>",
    "SELECT",
    "FROM",
    "WHERE",
    "WINDOW",
    "SORT",
    "CLUSTER",
    "DISTRIBUTE",
    "LIMIT",
    "OFFSET",
}
_BEFORE = {"(": 1, "[": 1, ")": -1, "]": -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item. `call` is the aggregate function that it is a plain call of, `argument` and `filter` its texts."""

    text: str
    call: str | None = None
    argument: str = ""
    filter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectList:
    items: tuple[Item, ...]
    end: int
    """Where more items can be put."""
    distinct: tuple[int, int] | None = None
    """The place of the word DISTINCT."""


def select_list(query: Query) -> SelectList | None:
    """The items of a query that is one `SELECT … FROM …`, possibly behind `WITH`; `None` for any other."""
    tokens = lex(query.text)
    outer = _outer(tokens)
    selects = [i for i in outer if tokens[i].key == "SELECT"]
    if len(selects) != 1 or any(tokens[i].key in _SET_OPERATORS or tokens[i].key == "|>" for i in outer):
        return None
    start = selects[0] + 1
    end = next((i for i in outer if i > start and tokens[i].key == "FROM" and tokens[i - 1].key != "DISTINCT"), None)
    if end is None or tokens[start].key == "ALL":
        return None
    distinct = None
    if tokens[start].key == "DISTINCT":
        distinct = (tokens[start].start, tokens[start].end)
        start += 1
    cuts = [i for i in outer if start <= i < end and tokens[i].key == ","]
    bounds = list(zip([start, *(c + 1 for c in cuts)], [*cuts, end], strict=True))
    if any(first == last for first, last in bounds):
        return None
    items = tuple(_item(query.text, tokens[first:last]) for first, last in bounds)
    return SelectList(items=items, end=tokens[end - 1].end, distinct=distinct)


def says(query: Query, *words: str) -> bool:
    """Whether one of these words stands outside all parentheses."""
    tokens = lex(query.text)
    return any(tokens[i].key in words and tokens[i - 1].key not in (".", "AS") for i in _outer(tokens))


def extended(query: Query, at: int, more: str) -> Query:
    """The query with more text at a place: what comes behind it moves."""
    refs = tuple(ref if ref.start < at else ref.shifted(len(more)) for ref in query.refs)
    return Query(text=query.text[:at] + more + query.text[at:], refs=refs)


def without(query: Query, place: tuple[int, int]) -> Query:
    """The query with a part of its text gone."""
    start, end = place
    refs = tuple(ref if ref.start < start else ref.shifted(start - end) for ref in query.refs)
    return Query(text=query.text[:start] + query.text[end:], refs=refs)


def unordered(query: Query) -> Query | None:
    """The query without the `ORDER BY … LIMIT … OFFSET …` that it ends with; `None` if something else stands there."""
    tokens = lex(query.text)
    outer = _outer(tokens)
    orders = [i for i in outer if tokens[i].key == "ORDER" and tokens[i + 1].key == "BY"]
    if not orders:
        return None
    clauses = [i for i in outer if i > orders[-1] and tokens[i].key in _CLAUSES]
    end = len(tokens) - 1
    forms = {("LIMIT",): [end - 2], ("LIMIT", "OFFSET"): [end - 4, end - 2]}
    if forms.get(tuple(tokens[i].key for i in clauses)) != clauses:
        return None
    return without(query, (tokens[orders[-1]].start, len(query.text)))


def subquery_of(query: Query, mentions: Sequence[int]) -> Query | None:
    """The largest `(SELECT …)` of a query that has these of its table references and no others, if it can stand alone.

    One that reads a table that WITH defines outside of it cannot.
    """
    tokens = lex(query.text)
    for i, token in enumerate(tokens[:-1]):
        if token.key != "(" or tokens[i + 1].key not in ("SELECT", "WITH"):
            continue
        close = _closing(tokens, i)
        if close is None:
            return None
        start, end = token.end, tokens[close].start
        if [n for n, ref in enumerate(query.refs) if start <= ref.start < end] == list(mentions):
            refs = tuple(query.refs[number].shifted(-start) for number in mentions)
            alone = find(query.text[start:end].rstrip())
            same = [(ref.start, ref.end) for ref in alone.refs] == [(ref.start, ref.end) for ref in refs]
            return Query(text=alone.text, refs=refs) if same else None
    return None


def _outer(tokens: list[Token]) -> list[int]:
    """The places of tokens outside all parentheses."""
    depth, found = 0, []
    for i, token in enumerate(tokens):
        step = _BEFORE.get(token.key, 0)
        if step < 0:
            depth += step
        if depth == 0 and step == 0:
            found.append(i)
        if step > 0:
            depth += step
    return found


def _item(text: str, tokens: list[Token]) -> Item:
    whole = text[tokens[0].start : tokens[-1].end]
    plain = Item(text=whole)
    if len(tokens) < 4 or tokens[0].key not in _AGGREGATES or tokens[1].key != "(":
        return plain
    close = _closing(tokens, 1)
    if close is None or tokens[2].key in ("DISTINCT", "ALL"):
        return plain
    if any(t.key == "," for t in _top(tokens[2:close])):
        return plain
    argument = text[tokens[2].start : tokens[close - 1].end] if close > 2 else ""
    rest, condition = tokens[close + 1 :], ""
    if len(rest) > 3 and rest[0].key == "FILTER" and rest[1].key == "(":
        shut = _closing(rest, 1)
        if shut is None:
            return plain
        condition = text[rest[0].start : rest[shut].end]
        rest = rest[shut + 1 :]
    if rest and rest[0].key == "AS":
        rest = rest[1:]
    if len(rest) > 1 or not argument:
        return plain
    call = "AVG" if tokens[0].key == "MEAN" else tokens[0].key
    return Item(text=whole, call=call, argument=argument, filter=condition)


def _top(tokens: list[Token]) -> list[Token]:
    return [tokens[i] for i in _outer(tokens)]


def _closing(tokens: list[Token], opening: int) -> int | None:
    depth = 0
    for i in range(opening, len(tokens)):
        depth += _BEFORE.get(tokens[i].key, 0)
        if depth == 0:
            return i
    return None
