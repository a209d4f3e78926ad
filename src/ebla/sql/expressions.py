"""Expressions that are skimmed to their end: where a value ends that an alias may follow, and how deep a type is.

Parentheses are skimmed by the caller, since a query may stand in them.
"""

from __future__ import annotations

from collections.abc import Callable

from ebla.errors import TypeMismatchError
from ebla.sql.cursor import Cursor, words
from ebla.sql.lex import Kind, unquote_string
from ebla.values.grammar import DEPTH_MAX, too_deep

Group = Callable[[bool], None]
"""Skims the parenthesis that the cursor stands at; the argument: whether a query begins in it."""

_BINARY = words("+ - * / % & | ^ || = == <=> <> != < <= > >= AND OR DIV IS")
_UNITS = frozenset(
    unit + plural
    for unit in words("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND NANOSECOND")
    for plural in ("", "S")
)
_NESTED = frozenset({"ARRAY", "MAP", "STRUCT"})
_WITHIN_TYPES = frozenset({"<", ">", "<>", ",", ":", "(", ")"})


def skip_value(cursor: Cursor, group: Group) -> None:
    """An expression that an alias may follow: the one place where its end has to be known."""
    _operand(cursor, group)
    while cursor.peek().key in _BINARY:
        cursor.at += 1
        _operand(cursor, group)


def _operand(cursor: Cursor, group: Group) -> None:
    while cursor.peek().key in ("-", "+", "~", "!", "NOT"):
        cursor.at += 1
    token = cursor.peek()
    if token.key == "(":
        group(cursor.starts_query(1))
    elif token.key == ":" and cursor.sees_name(1):
        cursor.at += 2
    elif token.key == "?" or token.kind is Kind.NUMBER:
        cursor.at += 1
    elif token.kind is Kind.STRING:
        cursor.string("a value")
    elif token.key == "CASE":
        _case(cursor, group)
    elif token.key == "INTERVAL" and cursor.begins_value(1):
        _interval(cursor, group)
    elif cursor.sees_name():
        cursor.at += 1
        if cursor.peek().kind is Kind.STRING:
            cursor.string("a value")
        else:
            _call(cursor, group)
    else:
        cursor.fail("a value")
    _postfix(cursor, group)


def _call(cursor: Cursor, group: Group) -> None:
    while cursor.accept("."):
        cursor.name("a name")
    if cursor.sees("("):
        group(False)


def _postfix(cursor: Cursor, group: Group) -> None:
    while cursor.peek().key in ("::", "[", "."):
        match cursor.next().key:
            case "::":
                cursor.skip_type()
            case "[":
                skip_value(cursor, group)
                cursor.expect("]")
            case _:
                cursor.name("a field")


def _interval(cursor: Cursor, group: Group) -> None:
    cursor.at += 1
    _operand(cursor, group)
    while cursor.peek().key in _UNITS:
        while cursor.peek().key in _UNITS or (cursor.sees("TO") and cursor.peek(1).key in _UNITS):
            cursor.at += 1
        if cursor.peek().kind in (Kind.NUMBER, Kind.STRING):
            cursor.at += 1


def _case(cursor: Cursor, group: Group) -> None:
    cursor.at += 1
    depth = 1
    while depth:
        if cursor.sees("("):
            group(cursor.starts_query(1))
            continue
        token = cursor.next()
        if token.kind is Kind.END:
            cursor.fail("END of CASE")
        depth += {"CASE": 1, "END": -1}.get(token.key, 0)


def version(cursor: Cursor) -> int | str:
    if cursor.sees(":") and cursor.sees_name(1):
        cursor.at += 1
        return ":" + cursor.next().text
    digits = unquote_string(cursor.peek().text) if cursor.peek().kind is Kind.STRING else cursor.peek().text
    if not digits.isdecimal():
        cursor.fail("the number of a version, or a :parameter")
    cursor.at += 1
    return int(digits)


def refuse_deep_types(cursor: Cursor) -> None:
    """A type of a CAST that is nested as deep as no column's may be; Spark's parser would overflow its stack."""
    depth, begin = 0, 0
    for number, token in enumerate(cursor.tokens):
        if token.key == "<" and cursor.tokens[number - 1].key in _NESTED:
            begin = begin if depth else cursor.tokens[number - 1].start
            depth += 1
        elif token.key == ">":
            depth -= depth > 0
        elif token.kind is Kind.OP and token.key not in _WITHIN_TYPES:
            depth = 0  # what was compared with < is no type
        if depth > DEPTH_MAX:
            line, column = cursor.source.place(begin)
            raise TypeMismatchError(f"{too_deep()} (line {line}, column {column})")
