"""Statements about tables and columns: CREATE, DROP, ALTER, COMMENT, DESCRIBE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ebla.errors import DuplicateNameError, UnknownNameError
from ebla.sql.cluster_statements import SetTableOptions, ShowNodes, ShowRequests, ShowTablets, ShowTransitions
from ebla.sql.cursor import Cursor, words
from ebla.sql.lex import Kind
from ebla.sql.query import Query
from ebla.sql.refs import check_expression, query_at
from ebla.sql.statements import (
    AddColumns,
    AddConstraint,
    AlterColumnType,
    CheckSpec,
    ColumnSpec,
    CreateTable,
    Describe,
    DropColumns,
    DropConstraint,
    DropTable,
    RenameColumn,
    RenameTable,
    SetColumnComment,
    SetDefault,
    SetTableComment,
    ShowCreate,
    ShowHandlers,
    ShowIndexes,
    ShowJobs,
    ShowProgress,
    ShowReplication,
    ShowTables,
    ShowViews,
    Statement,
)

_COLUMN_WORDS = words("NOT NULL PRIMARY COMMENT DEFAULT GENERATED UNIQUE CHECK REFERENCES CONSTRAINT FIRST AFTER")


def table_name(cursor: Cursor) -> str:
    """The name of a table to write to or to change: one part."""
    first = cursor.peek()
    parts = cursor.dotted("the name of a table")
    if len(parts) == 1:
        return parts[0]
    found = ".".join(parts)
    hint = "system tables can only be read" if parts[0].lower() == "system" else "tables have one-part names"
    raise cursor.error(f"expected the name of a table, found {found}; {hint}", first)


def or_replace(cursor: Cursor) -> bool:
    return cursor.accept("OR", "REPLACE")


def if_not_exists(cursor: Cursor, *, replaces: bool) -> bool:
    if replaces and cursor.sees("IF", "NOT", "EXISTS"):
        cursor.fail("a name", "OR REPLACE and IF NOT EXISTS contradict each other: write one of them")
    return cursor.accept("IF", "NOT", "EXISTS")


def create(cursor: Cursor) -> Statement:
    """`[OR REPLACE] TABLE [IF NOT EXISTS] t [(elements)] [PRIMARY KEY (…)] [COMMENT …] [WITH (…)] [AS query]`"""
    replaces = or_replace(cursor)
    if replaces and cursor.peek().key in ("INDEX", "UNIQUE", "HANDLER", "ASYNC"):
        cursor.fail("TABLE or MATERIALIZED VIEW behind CREATE OR REPLACE", "drop it first, then create it")
    _expect_table(cursor, "CREATE OR REPLACE" if replaces else "CREATE")
    optional = if_not_exists(cursor, replaces=replaces)
    name = table_name(cursor)
    first = cursor.peek()
    columns, keys, checks = _table_elements(cursor) if cursor.sees("(") else ([], [], [])
    comment: str | None = None
    settings: dict[str, object] = {}
    query: Query | None = None
    while cursor.peek().kind is not Kind.END:
        if cursor.accept("COMMENT"):
            comment = cursor.string("the comment as a string")
        elif cursor.sees("WITH"):
            settings = options(cursor)
        elif cursor.accept("PRIMARY", "KEY"):
            keys.append(cursor.names("a column of the primary key"))
        elif cursor.accept("AS"):
            query = query_at(cursor)
        else:
            cursor.fail("COMMENT, WITH (…), AS and a query, or the end of the statement")
    if (query is None) != bool(columns):
        found = "none" if query is None else f"column {columns[0].name} and a query"
        raise cursor.error(f"expected either columns with their types or AS and a query, found {found}", first)
    key = _primary_key(cursor, name, columns, keys) if query is None else _key_of_query(cursor, name, keys)
    in_key = {column.lower() for column in key}
    return CreateTable(
        name=name,
        columns=tuple(replace(c, nullable=False) if c.name.lower() in in_key else c for c in columns),
        primary_key=key,
        if_not_exists=optional,
        or_replace=replaces,
        comment=comment,
        options=settings,
        query=query,
        checks=tuple(checks),
    )


def _key_of_query(cursor: Cursor, table: str, keys: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The declared key; whether the query has these columns is seen when it is analysed."""
    _refuse_keys(cursor, table, keys)
    return keys[0] if keys else ()


def _refuse_keys(cursor: Cursor, table: str, keys: Sequence[tuple[str, ...]]) -> None:
    if len(keys) > 1:
        raise cursor.error(
            f"expected one primary key, found {len(keys)}; declare PRIMARY KEY (a, b) once", cursor.tokens[0]
        )
    for key in keys:
        unique_names(key, f"in the primary key of table {table}")


def _table_elements(cursor: Cursor) -> tuple[list[ColumnSpec], list[tuple[str, ...]], list[CheckSpec]]:
    """`(column, …, PRIMARY KEY (a, b), CHECK (…))`: the columns, and all keys and checks that were declared."""
    columns: list[ColumnSpec] = []
    keys: list[tuple[str, ...]] = []
    checks: list[CheckSpec] = []
    cursor.expect("(")
    while True:
        named = _constraint_name(cursor)
        if cursor.sees("PRIMARY", "KEY", "("):
            cursor.at += 2
            keys.append(cursor.names("a column of the primary key"))
        elif cursor.sees("CHECK", "("):
            checks.append(_check(cursor, named))
        elif named is not None:
            cursor.fail("CHECK (…) or PRIMARY KEY (…)", "other constraints are not supported")
        else:
            spec, is_key = column(cursor)
            columns.append(spec)
            checks += spec.checks
            keys += [(spec.name,)] if is_key else []
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return columns, keys, checks


def _constraint_name(cursor: Cursor) -> str | None:
    """Behind CONSTRAINT, where that is not the name of a column."""
    if not cursor.sees("CONSTRAINT") or not cursor.sees_name(1) or cursor.peek(2).kind is not Kind.WORD:
        return None
    if cursor.peek(2).key not in ("CHECK", "PRIMARY", "UNIQUE", "FOREIGN", "NOT"):
        return None
    cursor.at += 1
    return cursor.name("the name of a constraint")


def _check(cursor: Cursor, name: str | None) -> CheckSpec:
    """`CHECK (condition)`; the condition is Spark's to judge."""
    cursor.expect("CHECK")
    first = cursor.at
    cursor.skip_group()
    if cursor.at - first < 3:
        cursor.at = first + 1
        cursor.fail("a condition")
    end, cursor.at = cursor.at, cursor.at - 1
    text = cursor.text(first + 1)
    check_expression(cursor.part(first + 1))
    cursor.at = end
    return CheckSpec(text=text, name=name)


def _primary_key(
    cursor: Cursor, table: str, columns: Sequence[ColumnSpec], keys: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """The declared key, spelled as its columns are."""
    declared = unique_names((spec.name for spec in columns), f"a column of table {table}")
    _refuse_keys(cursor, table, keys)
    if not keys:
        return ()
    for name in keys[0]:
        if name.lower() not in declared:
            raise UnknownNameError(
                f"primary key of table {table}: expected one of its columns "
                f"({', '.join(spec.name for spec in columns)}), found {name}"
            )
    return tuple(declared[name.lower()] for name in keys[0])


def unique_names(names: Iterable[str], what: str) -> dict[str, str]:
    """Lower-case name to the name as written; a name given twice is an error."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise DuplicateNameError(f"{name} is {what} twice; name it once")
        seen[name.lower()] = name
    return seen


def column(cursor: Cursor) -> tuple[ColumnSpec, bool]:
    """`name type [NOT NULL] [PRIMARY KEY] [COMMENT 'x']`, and whether it says PRIMARY KEY."""
    name = cursor.name("the name of a column")
    type_text = data_type(cursor)
    nullable, is_key, comment = True, False, None
    default: str | None = None
    checks: list[CheckSpec] = []
    while True:
        named = _constraint_name(cursor)
        if cursor.sees("CHECK", "("):
            checks.append(_check(cursor, named))
        elif named is not None:
            cursor.fail("CHECK (…)", "other constraints of a column have no name")
        elif cursor.accept("DEFAULT"):
            default = _constant(cursor)
        elif cursor.accept("NOT", "NULL"):
            nullable = False
        elif cursor.accept("PRIMARY", "KEY"):
            nullable, is_key = False, True
        elif cursor.accept("COMMENT"):
            comment = cursor.string("the comment as a string")
        elif cursor.sees(",") or cursor.sees(")") or cursor.peek().kind is Kind.END:
            spec = ColumnSpec(
                name=name, type=type_text, nullable=nullable, comment=comment, checks=tuple(checks), default=default
            )
            return spec, is_key
        else:
            cursor.fail("NOT NULL, PRIMARY KEY, DEFAULT, CHECK (…), COMMENT, or the next column")


def _constant(cursor: Cursor) -> str:
    """The text of a default, up to what may follow it in the description of a column."""
    first = cursor.at
    while cursor.peek().kind is not Kind.END:
        ends = cursor.sees(",") or cursor.sees(")") or cursor.sees("NOT", "NULL") or cursor.sees("PRIMARY", "KEY")
        ends = ends or cursor.sees("CHECK", "(") or cursor.sees("COMMENT") or cursor.sees("CONSTRAINT")
        if ends and not (cursor.at == first and cursor.sees("NOT", "NULL")):
            break
        if cursor.sees("("):
            cursor.skip_group()
        elif cursor.accept("::"):
            cursor.skip_type()
        else:
            cursor.at += 1
    if cursor.at == first:
        cursor.fail("a constant behind DEFAULT")
    check_expression(cursor.part(first))
    return cursor.text(first)


def data_type(cursor: Cursor) -> str:
    """A type as written. Spark judges it; here only its end is found."""
    first = cursor.at
    if cursor.peek().key in _COLUMN_WORDS:
        cursor.fail("a type")
    cursor.skip_type()
    while cursor.peek().kind is Kind.WORD and cursor.peek().key not in _COLUMN_WORDS:
        cursor.at += 1
        if cursor.sees("("):
            cursor.skip_group()
    return cursor.text(first)


def options(cursor: Cursor) -> dict[str, object]:
    """`WITH (name = value, …)`: names in lower case; a value is a literal, or a word for a string."""
    cursor.expect("WITH")
    return assignments(cursor)


def assignments(cursor: Cursor) -> dict[str, object]:
    """`(name = value, …)`"""
    cursor.expect("(")
    result: dict[str, object] = {}
    while True:
        is_string = cursor.peek().kind is Kind.STRING
        name = cursor.string("an option") if is_string else ".".join(cursor.dotted("an option"))
        if name.lower() in result:
            raise DuplicateNameError(f"option {name} is given twice; give it once")
        cursor.expect("=")
        result[name.lower()] = _option_value(cursor)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return result


def _option_value(cursor: Cursor) -> object:
    token = cursor.peek()
    if token.kind is Kind.STRING:
        return cursor.string("a value")
    negative = cursor.accept("-")
    token = cursor.next()
    if token.kind is Kind.NUMBER:
        try:
            number: int | float = int(token.text)
        except ValueError:
            try:
                number = float(token.text)
            except ValueError:
                cursor.at -= 1
                cursor.fail("a number, a string, TRUE, FALSE or NULL")
        return -number if negative else number
    if token.kind is Kind.WORD and not negative:
        constants: dict[str, object] = {"TRUE": True, "FALSE": False, "NULL": None}
        return constants.get(token.key, token.text)
    cursor.at -= 1
    cursor.fail("a number, a string, TRUE, FALSE or NULL")


def _expect_table(cursor: Cursor, verb: str) -> None:
    """TABLE. For VIEW, which other databases have too, the error names the word that is missing."""
    if cursor.accept("TABLE"):
        return
    hint = ""
    if cursor.sees("VIEW"):
        ahead = 3 if cursor.peek(1).key == "IF" else 1
        named = cursor.peek(ahead).text if cursor.sees_name(ahead) else "v"
        hint = f"every view is materialized: {verb} MATERIALIZED VIEW {named}"
    cursor.fail(f"TABLE, MATERIALIZED VIEW, INDEX or HANDLER behind {verb}", hint)


def drop(cursor: Cursor) -> Statement:
    _expect_table(cursor, "DROP")
    if_exists = cursor.accept("IF", "EXISTS")
    return DropTable(name=table_name(cursor), if_exists=if_exists, cascade=cursor.accept("CASCADE"))


def alter(cursor: Cursor) -> Statement:
    _expect_table(cursor, "ALTER")
    table = table_name(cursor)
    if cursor.accept("RENAME", "TO"):
        return RenameTable(table=table, new_name=table_name(cursor))
    if cursor.accept("RENAME", "COLUMN"):
        old = cursor.name("the name of a column")
        cursor.expect("TO")
        return RenameColumn(table=table, column=old, new_name=cursor.name("the new name of the column"))
    if cursor.accept("ADD"):
        named = _constraint_name(cursor)
        if named is not None or cursor.sees("CHECK", "("):
            return AddConstraint(table=table, check=_check(cursor, named))
        return _added(cursor, table)
    if cursor.sees("DROP", "CONSTRAINT") and cursor.sees_name(2):
        cursor.at += 2
        if_exists = cursor.accept("IF", "EXISTS")
        return DropConstraint(table=table, name=cursor.name("the name of a constraint"), if_exists=if_exists)
    if cursor.accept("DROP"):
        return DropColumns(table=table, columns=_dropped(cursor, table), cascade=cursor.accept("CASCADE"))
    if cursor.accept("ALTER"):
        return _alter_column(cursor, table)
    if cursor.sees("SET", "("):
        cursor.at += 1
        return SetTableOptions(table=table, options=assignments(cursor))
    cursor.fail(
        "ADD COLUMN, DROP COLUMN, RENAME COLUMN, ALTER COLUMN, ADD CONSTRAINT, DROP CONSTRAINT, SET (…) or RENAME TO "
        "after ALTER TABLE and its name"
    )


def _added(cursor: Cursor, table: str) -> Statement:
    """`[COLUMN | COLUMNS] [IF NOT EXISTS] [(] column type …, … [)]`"""
    _ = cursor.accept("COLUMNS") or cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    first = cursor.peek()
    many = cursor.accept("(")
    added = [column(cursor)]
    while cursor.accept(","):
        added.append(column(cursor))
    if many:
        cursor.expect(")")
    if any(is_key for _spec, is_key in added):
        raise cursor.error("expected no PRIMARY KEY: the key of a table is fixed when it is created", first)
    if any(spec.checks for spec, _is_key in added):
        raise cursor.error("expected no CHECK: ALTER TABLE … ADD CONSTRAINT c CHECK (…) adds it to the table", first)
    unique_names([spec.name for spec, _is_key in added], f"added to table {table}")
    return AddColumns(table=table, columns=tuple(spec for spec, _is_key in added), if_not_exists=if_not_exists)


def _dropped(cursor: Cursor, table: str) -> tuple[str, ...]:
    _ = cursor.accept("COLUMNS") or cursor.accept("COLUMN")
    if cursor.sees("("):
        names = cursor.names("the name of a column")
    else:
        names = (cursor.name("the name of a column"),)
        while cursor.accept(","):
            names += (cursor.name("the name of a column"),)
    unique_names(names, f"dropped from table {table}")
    return names


def _alter_column(cursor: Cursor, table: str) -> Statement:
    cursor.accept("COLUMN")
    name = cursor.name("the name of a column")
    if cursor.accept("TYPE") or cursor.accept("SET", "DATA", "TYPE"):
        return AlterColumnType(table=table, column=name, type=data_type(cursor))
    if cursor.accept("COMMENT"):
        return SetColumnComment(table=table, column=name, comment=_comment_value(cursor))
    if cursor.accept("SET", "DEFAULT"):
        return SetDefault(table=table, column=name, default=_constant(cursor))
    if cursor.accept("DROP", "DEFAULT"):
        return SetDefault(table=table, column=name, default=None)
    cursor.fail("TYPE, SET DATA TYPE, SET DEFAULT, DROP DEFAULT or COMMENT")


def comment_on(cursor: Cursor) -> Statement:
    cursor.expect("ON")
    if cursor.accept("TABLE"):
        table = table_name(cursor)
        cursor.expect("IS")
        return SetTableComment(table=table, comment=_comment_value(cursor))
    cursor.expect("COLUMN")
    first = cursor.peek()
    parts = cursor.dotted("a table and its column")
    if len(parts) != 2:
        raise cursor.error(f"expected table.column, found {'.'.join(parts)}", first)
    cursor.expect("IS")
    return SetColumnComment(table=parts[0], column=parts[1], comment=_comment_value(cursor))


def _comment_value(cursor: Cursor) -> str | None:
    return None if cursor.accept("NULL") else cursor.string("the comment as a string, or NULL")


def show(cursor: Cursor) -> Statement:
    if cursor.accept("VIEWS") or cursor.accept("MATERIALIZED", "VIEWS"):
        return ShowViews(like=_like(cursor))
    if cursor.accept("HANDLERS"):
        return ShowHandlers(like=_like(cursor))
    if cursor.accept("JOBS"):
        return ShowJobs(what="jobs", like=_like(cursor))
    if cursor.accept("RUNNERS"):
        return ShowJobs(what="runners", like=_like(cursor))
    if cursor.accept("COMMANDS"):
        return ShowJobs(what="commands")
    if cursor.accept("INDEXES"):
        return ShowIndexes(like=_like(cursor))
    if cursor.accept("NODES"):
        return ShowNodes(like=_like(cursor))
    if cursor.accept("REQUESTS"):
        return ShowRequests()
    if cursor.accept("TABLETS"):
        return ShowTablets(table=table_name(cursor) if cursor.accept("OF") else None)
    if cursor.accept("TRANSITIONS"):
        return ShowTransitions()
    if cursor.accept("REPLICATION"):
        return ShowReplication(like=_like(cursor))
    if cursor.accept("PROGRESS"):
        return ShowProgress(name=table_name(cursor) if cursor.sees_name() else None)
    if cursor.accept("CREATE"):
        return _show_create(cursor)
    if not cursor.accept("TABLES"):
        cursor.fail(
            "TABLES, VIEWS, INDEXES, HANDLERS, JOBS, RUNNERS, COMMANDS, NODES, REQUESTS, TABLETS, TRANSITIONS, "
            "REPLICATION, PROGRESS, USERS, GRANTS or CREATE behind SHOW"
        )
    return ShowTables(like=_like(cursor))


def _like(cursor: Cursor) -> str | None:
    return cursor.string("a pattern of names as a string") if cursor.accept("LIKE") else None


def _show_create(cursor: Cursor) -> Statement:
    """`SHOW CREATE TABLE | MATERIALIZED VIEW | INDEX | HANDLER name`"""
    if cursor.accept("TABLE"):
        return ShowCreate(what="table", name=table_name(cursor))
    if cursor.accept("MATERIALIZED", "VIEW") or cursor.accept("VIEW"):
        return ShowCreate(what="view", name=table_name(cursor))
    if cursor.accept("INDEX"):
        return ShowCreate(what="index", name=table_name(cursor))
    if cursor.accept("HANDLER"):
        return ShowCreate(what="handler", name=cursor.name("the name of a handler"))
    cursor.fail("TABLE, MATERIALIZED VIEW, INDEX or HANDLER")


def describe(cursor: Cursor) -> Statement:
    if cursor.sees("TABLE") and cursor.sees_name(1):
        cursor.at += 1
    if cursor.sees_name() and cursor.peek().key == "SYSTEM" and cursor.peek(1).key == ".":
        cursor.at += 2
        return Describe(name=cursor.name("the name of a system table"), system=True)
    return Describe(name=table_name(cursor))
