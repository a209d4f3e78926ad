"""Statements about indexes."""

from __future__ import annotations

from ebla.sql import ddl
from ebla.sql.cursor import Cursor
from ebla.sql.lex import Kind
from ebla.sql.statements import (
    AlterBuild,
    BuildIndexes,
    CreateIndex,
    DropIndex,
    ExplainIndex,
    IndexItem,
    Statement,
)

_DEPTH = {"(": 1, "[": 1, ")": -1, "]": -1}


def is_about_indexes(cursor: Cursor) -> bool:
    """Whether INDEX comes next, possibly behind ASYNC and UNIQUE."""
    ahead = 0
    while cursor.peek(ahead).key in ("ASYNC", "UNIQUE"):
        ahead += 1
    return cursor.peek(ahead).key == "INDEX"


def create_index(cursor: Cursor) -> Statement:
    """`[ASYNC] [UNIQUE] INDEX [IF NOT EXISTS] i ON t (item, …) [INCLUDE (…)] [WHERE …] [WITH (…)]`."""
    asynchronous = cursor.accept("ASYNC")
    unique = cursor.accept("UNIQUE")
    cursor.expect("INDEX")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = ddl.table_name(cursor)
    cursor.expect("ON")
    table = ddl.table_name(cursor)
    cursor.expect("(")
    items = [_item(cursor)]
    while cursor.accept(","):
        items.append(_item(cursor))
    cursor.expect(")")
    include = cursor.names("an included column") if cursor.accept("INCLUDE") else ()
    ddl.unique_names(include, f"included in index {name}")
    where = _where(cursor) if cursor.accept("WHERE") else None
    settings = ddl.options(cursor) if cursor.sees("WITH") else {}
    return CreateIndex(
        name=name,
        table=table,
        items=tuple(items),
        include=include,
        where=where,
        unique=unique,
        if_not_exists=if_not_exists,
        asynchronous=asynchronous,
        options=settings,
    )


def _item(cursor: Cursor) -> IndexItem:
    first = cursor.at
    _skip_expression(cursor, ",", ")", "ASC", "DESC", "NULLS")
    if cursor.at == first:
        cursor.fail("a column or an expression")
    token = cursor.peek(-1)
    only = cursor.at == first + 1 and token.kind in (Kind.WORD, Kind.QUOTED)
    text = cursor.text(first)
    at = cursor.tokens[first].start
    descending = cursor.accept("DESC")
    if not descending:
        cursor.accept("ASC")
    if cursor.accept("NULLS"):
        cursor.expect("LAST" if descending else "FIRST")
    column = None
    if only:
        end, cursor.at = cursor.at, first
        column = cursor.name("a column")
        cursor.at = end
    return IndexItem(text=text, column=column, descending=descending, at=at)


def _where(cursor: Cursor) -> str:
    first = cursor.at
    _skip_expression(cursor, "WITH")
    if cursor.at == first:
        cursor.fail("a condition")
    return cursor.text(first)


def _skip_expression(cursor: Cursor, *ends: str) -> None:
    """Past an expression: up to one of these words outside all parentheses."""
    depth = 0
    while cursor.peek().kind is not Kind.END:
        key = cursor.peek().key
        if depth == 0 and key in ends:
            return
        depth += _DEPTH.get(key, 0)
        if depth < 0:
            return
        cursor.at += 1


def drop_index(cursor: Cursor) -> Statement:
    cursor.expect("INDEX")
    if_exists = cursor.accept("IF", "EXISTS")
    return DropIndex(name=ddl.table_name(cursor), if_exists=if_exists)


def alter_index(cursor: Cursor) -> Statement:
    """`INDEX i PAUSE | RESUME | SET (…)`"""
    cursor.expect("INDEX")
    name = ddl.table_name(cursor)
    if cursor.accept("PAUSE"):
        return AlterBuild(name=name, options={"rows_per_minute": 0}, of="index")
    if cursor.accept("RESUME"):
        return AlterBuild(name=name, options={"rows_per_minute": None}, of="index")
    if not cursor.accept("SET"):
        cursor.fail("PAUSE, RESUME or SET (…)")
    return AlterBuild(name=name, options=ddl.assignments(cursor), of="index")


def explain_index(cursor: Cursor) -> Statement:
    """`INDEX i`, behind EXPLAIN."""
    cursor.expect("INDEX")
    return ExplainIndex(name=ddl.table_name(cursor))


def build_indexes(cursor: Cursor) -> Statement:
    """`BUILD INDEXES ON t`"""
    cursor.expect("INDEXES", "ON")
    return BuildIndexes(table=ddl.table_name(cursor))
