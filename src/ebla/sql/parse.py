"""From the text of one statement to a value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Literal

from ebla.errors import SqlError
from ebla.sql import access, cluster, ddl, handlers, indexes, views, write
from ebla.sql.cursor import Cursor
from ebla.sql.lex import Kind, StatementText, split
from ebla.sql.query import Query
from ebla.sql.refs import query_at, rewrite
from ebla.sql.statements import Check, Compact, CreateView, Explain, ExplainView, Repair, Statement, Vacuum

__all__ = ["SUPPORTED", "VERBS", "parse", "rewrite", "split"]

_QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "MAP", "REDUCE", "("})

_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}

_EXPLAIN_MODES: dict[str, Literal["extended", "formatted", "cost", "codegen"]] = {
    "EXTENDED": "extended",
    "FORMATTED": "formatted",
    "COST": "cost",
    "CODEGEN": "codegen",
}


def parse(text: StatementText | str) -> Statement:
    """The one statement of a text. Nothing is looked up: names may turn out not to exist."""
    if isinstance(text, str):
        text = _only_statement(text)
    cursor = Cursor(text)
    word = cursor.peek().key
    if word in _QUERY_WORDS:
        return query_at(cursor)
    cursor.at += 1
    if word not in _STATEMENTS or cursor.peek(-1).kind is not Kind.WORD:
        cursor.at -= 1
        cursor.fail("a statement", f"supported are {SUPPORTED}")
    statement = _STATEMENTS[word](cursor)
    cursor.finish()
    return statement


def _is_about_views(cursor: Cursor, *before: str) -> bool:
    """Whether MATERIALIZED comes next, possibly behind CREATE, OR REPLACE or ASYNC."""
    ahead = 0
    while cursor.peek(ahead).key in (*before, "OR", "REPLACE", "ASYNC"):
        ahead += 1
    return cursor.peek(ahead).key == "MATERIALIZED"


Parser = Callable[[Cursor], Statement]


def _alter(cursor: Cursor) -> Statement:
    if cursor.sees("USER") and cursor.sees_name(1):
        return access.alter_user(cursor)
    return cluster.alter_cluster(cursor) if cursor.sees("CLUSTER") else _alter_relation(cursor)


def _wait(cursor: Cursor) -> Statement:
    cursor.expect("FOR")
    return cluster.wait_for_request(cursor) if cluster.sees_request(cursor) else views.wait_for(cursor)


def _by_kind(
    of_view: Parser,
    of_handler: Parser,
    of_table: Parser,
    of_index: Parser | None = None,
    of_user: Parser | None = None,
) -> Parser:
    def parser(cursor: Cursor) -> Statement:
        if of_user is not None and cursor.sees("USER"):
            return of_user(cursor)
        if _is_about_views(cursor):
            return of_view(cursor)
        if of_index is not None and indexes.is_about_indexes(cursor):
            return of_index(cursor)
        ahead = 1 if cursor.sees("ASYNC") else 0
        return of_handler(cursor) if cursor.peek(ahead).key == "HANDLER" else of_table(cursor)

    return parser


def _only_statement(text: str) -> StatementText:
    statements = split(text)
    if not statements:
        raise SqlError("expected a statement, found an empty text", line=1, column=1)
    if len(statements) > 1:
        second = statements[1]
        raise SqlError(
            f"expected one statement, found {len(statements)}; run them one by one",
            line=second.line,
            column=second.column,
        )
    return statements[0]


def _explain(cursor: Cursor) -> Statement:
    if _is_about_views(cursor, "CREATE"):
        return views.explain_view(cursor)
    if cursor.sees("INDEX"):
        return indexes.explain_index(cursor)
    if (life := cluster.explain_life(cursor)) is not None:
        return life
    mode = _EXPLAIN_MODES.get(cursor.peek().key)
    if mode is not None:
        cursor.at += 1
    if cursor.peek().key not in _QUERY_WORDS:
        cursor.fail("a query, MATERIALIZED VIEW, INDEX, TABLET, NODE or TASK after EXPLAIN")
    return Explain(query=query_at(cursor), mode=mode)


def _compact(cursor: Cursor) -> Statement:
    return Compact(table=_optional_table(cursor))


def _vacuum(cursor: Cursor) -> Statement:
    table = None if _retain(cursor) else _optional_table(cursor)
    if not _retain(cursor):
        if cursor.peek().kind is not Kind.END:
            cursor.fail("RETAIN or the end of the statement")
        return Vacuum(table=table)
    cursor.at += 1
    try:
        amount = float(cursor.peek().text)
    except ValueError:
        cursor.fail("a number")
    cursor.at += 1
    unit = cursor.peek().key
    if unit.removesuffix("S") not in _SECONDS:
        cursor.fail("SECONDS, MINUTES, HOURS, DAYS or WEEKS")
    cursor.at += 1
    return Vacuum(table=table, retain_seconds=amount * _SECONDS[unit.removesuffix("S")])


def _retain(cursor: Cursor) -> bool:
    """RETAIN and what follows it, not a table of that name."""
    return cursor.sees("RETAIN") and cursor.peek(1).kind is Kind.NUMBER


def _optional_table(cursor: Cursor) -> str | None:
    if cursor.sees("TABLE") and cursor.sees_name(1):
        cursor.at += 1
    return ddl.table_name(cursor) if cursor.sees_name() else None


def _check(cursor: Cursor) -> Statement:
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


def _repair(cursor: Cursor) -> Statement:
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


_alter_relation = _by_kind(views.alter_view, handlers.alter_handler, ddl.alter, indexes.alter_index)

_STATEMENTS: dict[str, Parser] = {
    "INSERT": lambda cursor: write.insert(cursor, upsert=False),
    "UPSERT": lambda cursor: write.insert(cursor, upsert=True),
    "UPDATE": write.update,
    "DELETE": write.delete,
    "MERGE": write.merge,
    "TRUNCATE": write.truncate,
    "LOAD": write.load,
    "CREATE": _by_kind(
        views.create_view, handlers.create_handler, ddl.create, indexes.create_index, access.create_user
    ),
    "DROP": _by_kind(views.drop_view, handlers.drop_handler, ddl.drop, indexes.drop_index, access.drop_user),
    "ALTER": _alter,
    "BUILD": indexes.build_indexes,
    "CHECK": _check,
    "REPAIR": _repair,
    "FLUSH": views.flush,
    "WAIT": _wait,
    "CANCEL": views.cancel,
    "MOVE": cluster.move,
    "GRANT": access.grant,
    "REVOKE": access.revoke,
    "COMMENT": ddl.comment_on,
    "SHOW": lambda cursor: access.show(cursor) or ddl.show(cursor),
    "DESCRIBE": ddl.describe,
    "EXPLAIN": _explain,
    "DESC": ddl.describe,
    "COMPACT": _compact,
    "VACUUM": _vacuum,
}

VERBS = frozenset({*_QUERY_WORDS, *_STATEMENTS})
"""What a statement may begin with."""

SUPPORTED = (
    "SELECT, WITH, VALUES, FROM, TABLE, EXPLAIN, INSERT INTO, UPSERT INTO, UPDATE, DELETE FROM, MERGE INTO, "
    "TRUNCATE, LOAD INTO, CREATE TABLE, DROP TABLE, ALTER TABLE, CREATE, DROP and ALTER MATERIALIZED VIEW, "
    "CREATE, DROP and ALTER HANDLER, CREATE, DROP and ALTER INDEX, BUILD INDEXES, CHECK and REPAIR, FLUSH, WAIT FOR, "
    "CANCEL BUILD, ALTER CLUSTER, MOVE TABLET, CREATE, DROP and ALTER USER, GRANT, REVOKE, COMMENT ON, SHOW TABLES, "
    "SHOW VIEWS, SHOW HANDLERS, SHOW JOBS, SHOW RUNNERS, SHOW COMMANDS, SHOW INDEXES, SHOW NODES, SHOW REQUESTS, "
    "SHOW TABLETS, SHOW TRANSITIONS, SHOW REPLICATION, SHOW PROGRESS, SHOW USERS, SHOW GRANTS, SHOW CREATE, "
    "DESCRIBE, COMPACT and VACUUM"
)


def statement_of(query: Query) -> tuple[StatementText, CreateView]:
    """The statement that a query was found in, so that issues point into it; or one made of the query alone."""
    if query.source is not None:
        found = parse(query.source)
        made = found.create if isinstance(found, ExplainView) else found
        if isinstance(made, CreateView) and made.query == query:
            return query.source, made
    return StatementText(text=query.text), CreateView(name="", query=query)
