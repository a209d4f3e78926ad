"""Statements that change rows: INSERT, UPSERT, UPDATE, DELETE, MERGE, TRUNCATE, LOAD.

Expressions are cut out as text. Where one ends is clear from the words around it, at no depth of
parentheses and outside CASE.
"""

from __future__ import annotations

from collections.abc import Callable

from ebla.sql.cursor import Cursor
from ebla.sql.ddl import options, table_name
from ebla.sql.lex import Kind, StatementText
from ebla.sql.refs import Finder, check_expression, query_at
from ebla.sql.statements import (
    Assignments,
    Delete,
    Insert,
    Load,
    Matched,
    Merge,
    MergeClause,
    Places,
    Statement,
    Truncate,
    Update,
)

_QUERY_WORDS = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")


def insert(cursor: Cursor, *, upsert: bool) -> Statement:
    if cursor.sees("OVERWRITE"):
        cursor.fail("INTO", "INSERT OVERWRITE is not supported: DELETE or TRUNCATE first, then INSERT INTO")
    cursor.expect("INTO")
    if cursor.sees("TABLE") and cursor.sees_name(1):
        cursor.at += 1
    table = table_name(cursor)
    columns: tuple[str, ...] | None = None
    if cursor.sees("(") and not _query_in_group(cursor):
        columns = cursor.names("the name of a column")
    if cursor.peek().key not in _QUERY_WORDS:
        cursor.fail("VALUES, SELECT or WITH" if columns else "a list of columns, VALUES, SELECT or WITH")
    width = _values_width(cursor, None if columns is None else len(columns))
    return Insert(table=table, columns=columns, source=query_at(cursor), upsert=upsert, width=width)


def _values_width(cursor: Cursor, expected: int | None) -> int | None:
    """How many values each row of VALUES has; None where only Spark can tell, as with `struct(1, 2)`."""
    first = cursor.at
    if not cursor.accept("VALUES"):
        return None
    while True:
        opening = cursor.peek()
        width = _row_width(cursor)
        if width is not None and expected not in (None, width):
            raise cursor.error(f"expected {expected} values, found {width}", opening)
        expected = expected if width is None else width
        while not (cursor.sees(",") or cursor.peek().kind is Kind.END):
            if cursor.sees("("):
                cursor.skip_group()
            else:
                cursor.at += 1
        if not cursor.accept(","):
            cursor.at = first
            return expected


def _row_width(cursor: Cursor) -> int | None:
    if not cursor.sees("("):
        return None
    first = cursor.at
    cursor.skip_group()
    depth = commas = 0
    for token in cursor.tokens[first : cursor.at]:
        if token.key == "(":
            depth += 1
        elif token.key == ")":
            depth -= 1
        elif token.key == "," and depth == 1:
            commas += 1
    is_whole_row = cursor.sees(",") or cursor.peek().kind is Kind.END
    is_literal = cursor.at - first == 3 and cursor.tokens[first + 1].kind in (Kind.STRING, Kind.NUMBER)
    return commas + 1 if is_whole_row and (commas or is_literal) else None


def _query_in_group(cursor: Cursor) -> bool:
    """`(SELECT …)` or `((SELECT …) UNION …)`, not a list of columns."""
    return cursor.peek(1).key == "(" or cursor.starts_query(1)


def update(cursor: Cursor) -> Statement:
    table = table_name(cursor)
    alias = _alias(cursor, "SET")
    cursor.expect("SET")
    assignments, places = _assignments(cursor, table, alias, lambda: cursor.sees("WHERE") or _from(cursor))
    if cursor.sees("FROM"):
        cursor.fail("WHERE or the end of the statement", "use MERGE to update a table from another one")
    return Update(table=table, alias=alias, assignments=assignments, where=_where(cursor), places=places)


def delete(cursor: Cursor) -> Statement:
    cursor.expect("FROM")
    table = table_name(cursor)
    alias = _alias(cursor, "WHERE", "USING")
    return Delete(table=table, alias=alias, where=_where(cursor))


def _alias(cursor: Cursor, *stops: str) -> str | None:
    if cursor.accept("AS"):
        return cursor.name("an alias")
    if cursor.sees_name() and cursor.peek().key not in stops:
        return cursor.name("an alias")
    return None


def _where(cursor: Cursor) -> str | None:
    if cursor.accept("WHERE"):
        return _expression(cursor, "a condition", lambda: False).text
    if cursor.peek().kind is not Kind.END:
        cursor.fail("WHERE or the end of the statement")
    return None


def _from(cursor: Cursor) -> bool:
    return cursor.sees("FROM") and cursor.peek(-1).key != "DISTINCT"


def _expression(cursor: Cursor, what: str, stop: Callable[[], bool]) -> StatementText:
    """The text up to where `stop` holds, or the end; commas and parentheses inside groups belong to it."""
    first, case_depth = cursor.at, 0
    while cursor.peek().kind is not Kind.END:
        is_name = cursor.peek(-1).key in (".", ":")
        if case_depth == 0 and not is_name and stop():
            break
        if cursor.sees("("):
            cursor.skip_group()
        elif cursor.sees("::"):
            cursor.at += 1
            cursor.skip_type()
        elif cursor.sees(")"):
            break
        else:
            if not is_name and cursor.sees("CASE"):
                case_depth += 1
            elif not is_name and cursor.sees("END") and case_depth:
                case_depth -= 1
            cursor.at += 1
    if cursor.at == first:
        cursor.fail(what)
    found = cursor.part(first)
    check_expression(found)
    return found


def _assignments(cursor: Cursor, table: str, alias: str | None, stop: Callable[[], bool]) -> tuple[Assignments, Places]:
    """`column = expression, …`; a column may be qualified with the table or its alias."""
    result: list[tuple[str, str]] = []
    places: list[StatementText] = []
    while True:
        first = cursor.peek()
        parts = cursor.dotted("the name of a column")
        qualifiers = {(alias or table).lower(), table.lower()}
        if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() not in qualifiers):
            raise cursor.error(
                f"expected a column of {alias or table}, found {'.'.join(parts)}; "
                "to change one field of a struct, assign the whole struct",
                first,
            )
        cursor.expect("=")
        expression = _expression(cursor, "an expression", lambda: cursor.sees(",") or stop())
        result.append((parts[-1], expression.text))
        places.append(expression)
        if not cursor.accept(","):
            return tuple(result), tuple(places)


# MERGE


def merge(cursor: Cursor) -> Statement:
    cursor.expect("INTO")
    table = table_name(cursor)
    alias = _alias(cursor, "USING")
    cursor.expect("USING")
    source, source_alias = _merge_source(cursor)
    cursor.expect("ON")
    on = _expression(cursor, "a condition", lambda: _when(cursor)).text
    clauses: list[MergeClause] = []
    while cursor.sees("WHEN"):
        before = next((c for c in clauses if c.matched == _peek_matched(cursor) and not c.condition), None)
        if before is not None:
            cursor.fail(
                "no further clause of this kind",
                "the one before it has no condition and takes every row: only the last may go without AND",
            )
        clauses.append(_merge_clause(cursor, table, alias))
    if not clauses:
        cursor.fail("WHEN MATCHED or WHEN NOT MATCHED")
    return Merge(table=table, alias=alias, source=source, source_alias=source_alias, on=on, clauses=tuple(clauses))


def _merge_source(cursor: Cursor) -> tuple[str, str | None]:
    """A table or subquery with its alias, read by the finder of references so that both agree on it."""
    first = cursor.at
    finder = Finder(cursor.source, cursor.tokens)
    finder.at = first
    is_named = finder.sees_name()
    try:
        alias = finder.relation(frozenset())
    except RecursionError:
        raise finder.too_deep() from None
    if alias is None and is_named and finder.refs:
        alias = finder.refs[0].name
    cursor.at = finder.at
    return cursor.text(first), alias


def _when(cursor: Cursor) -> bool:
    return cursor.sees("WHEN", "MATCHED") or cursor.sees("WHEN", "NOT", "MATCHED")


def _peek_matched(cursor: Cursor) -> Matched:
    if cursor.peek(1).key != "NOT":
        return "matched"
    by_source = cursor.peek(3).key == "BY" and cursor.peek(4).key == "SOURCE"
    return "not_matched_by_source" if by_source else "not_matched"


def _merge_clause(cursor: Cursor, table: str, alias: str | None) -> MergeClause:
    """`WHEN [NOT] MATCHED [BY SOURCE|TARGET] [AND condition] THEN action`"""
    matched = _peek_matched(cursor)
    cursor.expect("WHEN")
    cursor.accept("NOT")
    cursor.expect("MATCHED")
    if matched != "matched" and cursor.accept("BY"):
        cursor.expect("SOURCE" if matched == "not_matched_by_source" else "TARGET")
    condition = None
    if cursor.accept("AND"):
        condition = _expression(cursor, "a condition", lambda: cursor.sees("THEN")).text
    cursor.expect("THEN")
    if matched == "not_matched":
        return _merge_insert(cursor, condition)
    if cursor.accept("DELETE"):
        return MergeClause(matched=matched, action="delete", condition=condition)
    if not cursor.accept("UPDATE"):
        cursor.fail("UPDATE or DELETE")
    cursor.expect("SET")
    if cursor.sees("*") and matched == "not_matched_by_source":
        cursor.fail("column = expression", "there is no source row to take values from")
    if cursor.accept("*"):
        return MergeClause(matched=matched, action="update", condition=condition, star=True)
    assignments, places = _assignments(cursor, table, alias, lambda: _when(cursor))
    return MergeClause(matched=matched, action="update", condition=condition, assignments=assignments, places=places)


def _merge_insert(cursor: Cursor, condition: str | None) -> MergeClause:
    """`INSERT *` or `INSERT [(columns)] VALUES (expressions)`"""
    if not cursor.accept("INSERT"):
        cursor.fail("INSERT")
    if cursor.accept("*"):
        return MergeClause(matched="not_matched", action="insert", condition=condition, star=True)
    columns = cursor.names("the name of a column") if cursor.sees("(") else None
    cursor.expect("VALUES")
    opening = cursor.peek()
    cursor.expect("(")
    values = [_expression(cursor, "an expression", lambda: cursor.sees(","))]
    while cursor.accept(","):
        values.append(_expression(cursor, "an expression", lambda: cursor.sees(",")))
    cursor.expect(")")
    if columns is not None and len(columns) != len(values):
        message = f"expected {len(columns)} values, one for each column, found {len(values)}"
        raise cursor.error(message, opening)
    return MergeClause(
        matched="not_matched",
        action="insert",
        condition=condition,
        columns=columns,
        values=tuple(value.text for value in values),
        places=tuple(values),
    )


# Whole tables


def truncate(cursor: Cursor) -> Statement:
    if cursor.sees("TABLE") and cursor.sees_name(1):
        cursor.at += 1
    return Truncate(table=table_name(cursor))


def load(cursor: Cursor) -> Statement:
    """`LOAD [ASYNC] INTO t FROM 'path' | :parameter [FORMAT f] [WITH (…)]`"""
    asynchronous = cursor.accept("ASYNC")
    cursor.expect("INTO")
    if cursor.sees("TABLE") and cursor.sees_name(1):
        cursor.at += 1
    table = table_name(cursor)
    cursor.expect("FROM")
    path, parameter = "", None
    if cursor.accept(":"):
        parameter = cursor.name("the name of a parameter")
    else:
        path = cursor.string("the path of the files as a string or :parameter")
    settings: dict[str, object] = {}
    file_format: str | None = None
    if cursor.accept("FORMAT"):
        file_format = cursor.peek().text.lower()
        if file_format not in ("parquet", "csv", "json"):
            cursor.fail("parquet, csv or json")
        cursor.at += 1
    if cursor.sees("WITH"):
        settings = options(cursor)
    elif cursor.peek().kind is not Kind.END:
        cursor.fail("WITH (…) or the end of the statement" if file_format else "FORMAT, WITH (…) or the end")
    return Load(
        table=table,
        path=path,
        parameter=parameter,
        format=file_format,  # type: ignore[arg-type]
        options=settings,
        asynchronous=asynchronous,
    )
