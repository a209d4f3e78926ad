"""`CHECK` and `REPAIR`."""

from __future__ import annotations

import contextlib
from typing import Literal

from ebla.sql import ddl
from ebla.sql.cursor import Cursor
from ebla.sql.lex import Kind
from ebla.sql.statements import Check, Repair, Statement


def check_statement(cursor: Cursor) -> Statement:
    """`CHECK INDEX | VIEW | TABLE name [SAMPLE percent [PERCENT]] [WITH (…)]`"""
    what = _what(cursor)
    name = ddl.table_name(cursor)
    percent = _percent(cursor) if cursor.accept("SAMPLE") else None
    return Check(what=what, name=name, percent=percent, options=_options(cursor))


def _percent(cursor: Cursor) -> float:
    token = cursor.peek()
    percent = 0.0
    if token.kind is Kind.NUMBER:
        with contextlib.suppress(ValueError):
            percent = float(token.text)
    if not 0 < percent <= 100:
        cursor.fail("a percentage above 0 and up to 100")
    cursor.at += 1
    cursor.accept("PERCENT")
    return percent


def repair_statement(cursor: Cursor) -> Statement:
    """`REPAIR INDEX | VIEW | TABLE name [WITH (…)]`"""
    what = _what(cursor)
    return Repair(what=what, name=ddl.table_name(cursor), options=_options(cursor))


def _options(cursor: Cursor) -> dict[str, object]:
    return ddl.options(cursor) if cursor.sees("WITH") else {}


def _what(cursor: Cursor) -> Literal["index", "view", "table"]:
    if cursor.accept("INDEX"):
        return "index"
    if cursor.accept("MATERIALIZED", "VIEW") or cursor.accept("VIEW"):
        return "view"
    if cursor.accept("TABLE"):
        return "table"
    cursor.fail("INDEX, VIEW or TABLE")
