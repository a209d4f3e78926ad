"""Statements about materialized views."""

from __future__ import annotations

from ebla.sql import ddl
from ebla.sql.cursor import Cursor
from ebla.sql.refs import query_at
from ebla.sql.statements import (
    AlterBuild,
    CancelBuild,
    CreateView,
    DropView,
    ExplainView,
    Flush,
    RenameView,
    Statement,
    WaitFor,
)


def create_view(cursor: Cursor) -> Statement:
    """`[OR REPLACE] [ASYNC] MATERIALIZED VIEW [IF NOT EXISTS] v [(columns)] [PRIMARY KEY (…)] [WITH (…)] AS query`."""
    replaces = ddl.or_replace(cursor)
    asynchronous = cursor.accept("ASYNC")
    cursor.expect("MATERIALIZED", "VIEW")
    if_not_exists = ddl.if_not_exists(cursor, replaces=replaces)
    name_at = cursor.peek().start
    name = ddl.table_name(cursor)
    columns = cursor.names("the name of an output column") if cursor.sees("(") else ()
    ddl.unique_names(columns, f"a column of view {name}")
    primary_key: tuple[str, ...] = ()
    if cursor.accept("PRIMARY", "KEY"):
        primary_key = cursor.names("a column of the primary key")
        ddl.unique_names(primary_key, f"in the primary key of view {name}")
    settings = ddl.options(cursor) if cursor.sees("WITH") and cursor.peek(1).key == "(" else {}
    cursor.expect("AS")
    query_starts = cursor.peek().start
    return CreateView(
        name=name,
        columns=columns,
        primary_key=primary_key,
        if_not_exists=if_not_exists,
        or_replace=replaces,
        asynchronous=asynchronous,
        options=settings,
        query=query_at(cursor),
        query_at=query_starts,
        name_at=name_at,
    )


def drop_view(cursor: Cursor) -> Statement:
    cursor.expect("MATERIALIZED", "VIEW")
    if_exists = cursor.accept("IF", "EXISTS")
    return DropView(name=ddl.table_name(cursor), if_exists=if_exists, cascade=cursor.accept("CASCADE"))


def alter_view(cursor: Cursor) -> Statement:
    cursor.expect("MATERIALIZED", "VIEW")
    name = ddl.table_name(cursor)
    if cursor.accept("PAUSE"):
        return AlterBuild(name=name, on_hold=True)
    if cursor.accept("RESUME"):
        return AlterBuild(name=name, on_hold=False)
    if cursor.accept("SET"):
        return AlterBuild(name=name, options=ddl.assignments(cursor))
    if not cursor.sees("RENAME"):
        cursor.fail("RENAME TO, PAUSE, RESUME or SET (…)")
    cursor.expect("RENAME", "TO")
    return RenameView(name=name, new_name=ddl.table_name(cursor))


def cancel(cursor: Cursor) -> Statement:
    """`CANCEL BUILD [IF EXISTS] name`"""
    cursor.expect("BUILD")
    if_exists = cursor.accept("IF", "EXISTS")
    return CancelBuild(name=ddl.table_name(cursor), if_exists=if_exists)


def flush(cursor: Cursor) -> Statement:
    """`FLUSH [v, …]`"""
    names: list[str] = []
    while cursor.sees_name():
        names.append(ddl.table_name(cursor))
        if not cursor.accept(","):
            break
    return Flush(names=tuple(names))


def wait_for(cursor: Cursor) -> Statement:
    """`v, …`, behind WAIT FOR"""
    names = [ddl.table_name(cursor)]
    while cursor.accept(","):
        names.append(ddl.table_name(cursor))
    return WaitFor(names=tuple(names))


def explain_view(cursor: Cursor) -> Statement:
    """`EXPLAIN MATERIALIZED VIEW v` and `EXPLAIN CREATE MATERIALIZED VIEW …`, behind EXPLAIN."""
    if cursor.accept("CREATE"):
        made = create_view(cursor)
        assert isinstance(made, CreateView)
        return ExplainView(name=made.name, create=made)
    cursor.expect("MATERIALIZED", "VIEW")
    return ExplainView(name=ddl.table_name(cursor))
