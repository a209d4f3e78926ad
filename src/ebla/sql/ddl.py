"""Statements about tables and columns: CREATE, DROP, ALTER, COMMENT, DESCRIBE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ebla.errors import DuplicateNameError, UnknownNameError
from ebla.sql.cursor import Cursor, words
from ebla.sql.lex import Kind
from ebla.sql.statements import (
    AddColumns,
    AlterColumnType,
    ColumnSpec,
    CreateTable,
    Describe,
    DropColumns,
    DropTable,
    RenameColumn,
    RenameTable,
    SetColumnComment,
    SetTableComment,
    ShowCreate,
    ShowHandlers,
    ShowIndexes,
    ShowProgress,
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


def create(cursor: Cursor) -> Statement:
    _expect_table(cursor, "CREATE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = table_name(cursor)
    if cursor.sees("AS"):
        _refuse_as_select(cursor, name)
    columns, keys = _table_elements(cursor)
    comment: str | None = None
    settings: dict[str, object] = {}
    while cursor.peek().kind is not Kind.END:
        if cursor.accept("COMMENT"):
            comment = cursor.string("the comment as a string")
        elif cursor.sees("WITH"):
            settings = options(cursor)
        elif cursor.sees("AS") or cursor.sees("SELECT"):
            _refuse_as_select(cursor, name)
        else:
            cursor.fail("COMMENT, WITH (…) or the end of the statement")
    key = _primary_key(cursor, name, columns, keys)
    in_key = {column.lower() for column in key}
    return CreateTable(
        name=name,
        columns=tuple(replace(c, nullable=False) if c.name.lower() in in_key else c for c in columns),
        primary_key=key,
        if_not_exists=if_not_exists,
        comment=comment,
        options=settings,
    )


def _refuse_as_select(cursor: Cursor, name: str) -> None:
    cursor.fail(
        "the columns of the table",
        f"CREATE TABLE … AS SELECT is not supported: CREATE TABLE {name} (…), then INSERT INTO {name} SELECT …",
    )


def _table_elements(cursor: Cursor) -> tuple[list[ColumnSpec], list[tuple[str, ...]]]:
    """`(column, …, PRIMARY KEY (a, b))`: the columns, and every primary key that was declared."""
    columns: list[ColumnSpec] = []
    keys: list[tuple[str, ...]] = []
    cursor.expect("(")
    while True:
        if cursor.sees("PRIMARY", "KEY", "("):
            cursor.at += 2
            keys.append(cursor.names("a column of the primary key"))
        else:
            spec, is_key = column(cursor)
            columns.append(spec)
            keys += [(spec.name,)] if is_key else []
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return columns, keys


def _primary_key(
    cursor: Cursor, table: str, columns: Sequence[ColumnSpec], keys: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """The declared key, spelled as its columns are."""
    known = unique_names((spec.name for spec in columns), f"a column of table {table}")
    if not keys:
        return ()
    if len(keys) > 1:
        raise cursor.error(
            f"expected one primary key, found {len(keys)}; declare PRIMARY KEY (a, b) once", cursor.tokens[0]
        )
    unique_names(keys[0], f"in the primary key of table {table}")
    for name in keys[0]:
        if name.lower() not in known:
            raise UnknownNameError(
                f"primary key of table {table}: expected one of its columns "
                f"({', '.join(spec.name for spec in columns)}), found {name}"
            )
    return tuple(known[name.lower()] for name in keys[0])


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
    while True:
        if cursor.accept("NOT", "NULL"):
            nullable = False
        elif cursor.accept("PRIMARY", "KEY"):
            nullable, is_key = False, True
        elif cursor.accept("COMMENT"):
            comment = cursor.string("the comment as a string")
        elif cursor.sees(",") or cursor.sees(")") or cursor.peek().kind is Kind.END:
            return ColumnSpec(name=name, type=type_text, nullable=nullable, comment=comment), is_key
        else:
            cursor.fail("NOT NULL, PRIMARY KEY, COMMENT, or the next column")


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
    """TABLE; who writes VIEW, as in databases that have both kinds, is told the word that is missing."""
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
        return _added(cursor, table)
    if cursor.accept("DROP"):
        return DropColumns(table=table, columns=_dropped(cursor, table), cascade=cursor.accept("CASCADE"))
    if cursor.accept("ALTER"):
        return _alter_column(cursor, table)
    cursor.fail("ADD COLUMN, DROP COLUMN, RENAME COLUMN, ALTER COLUMN or RENAME TO after ALTER TABLE and its name")


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
    cursor.fail("TYPE, SET DATA TYPE or COMMENT")


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
    if cursor.accept("INDEXES"):
        return ShowIndexes(like=_like(cursor))
    if cursor.accept("PROGRESS"):
        return ShowProgress(name=table_name(cursor) if cursor.sees_name() else None)
    if cursor.accept("CREATE"):
        return _show_create(cursor)
    if not cursor.accept("TABLES"):
        cursor.fail("TABLES, VIEWS, INDEXES, HANDLERS, PROGRESS or CREATE behind SHOW")
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
