"""Columns of a table, as declared and as statements alter them.

Column names in files never change (`Column.physical`), so adding, dropping, renaming and widening touch no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlalchemy import Connection

from ebla.catalog import reads
from ebla.errors import DuplicateNameError, TypeMismatchError, UnknownNameError, UsageError
from ebla.model.relation import Column, Default, Relation
from ebla.relations.guard import require_table
from ebla.spark.sessions import Sessions
from ebla.sql.lex import name_text
from ebla.sql.statements import ColumnSpec
from ebla.tables.defaults import declared
from ebla.tables.new_table import (
    check_name,
)
from ebla.tables.reshape import reshape
from ebla.tables.write_access import WriteAccess
from ebla.values import types
from ebla.values.defaults import of_array, scalar
from ebla.values.grammar import parse


def free_physical(name: str, used: set[str]) -> str:
    """A name for files that no column of the relation ever had."""
    taken = {u.lower() for u in used}
    number, candidate = 1, name
    while candidate.lower() in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def find_column(relation: Relation, name: str) -> Column:
    found = relation.column(name)
    if found is None or found.hidden:
        have = ", ".join(col.name for col in relation.visible)
        raise UnknownNameError(f"{relation.name}: expected one of columns {have}, found {name}")
    return found


def add_columns(
    context: WriteAccess,
    name: str,
    declared: Sequence[Column],
    *,
    if_not_exists: bool = False,
    fills: Callable[[Connection, Relation], bool] | None = None,
) -> None:
    def change(relation: Relation, used: set[str]) -> Sequence[Column]:
        taken = set(used)
        added = []
        for column in declared:
            if relation.column(column.name) is not None:
                if if_not_exists:
                    continue
                raise DuplicateNameError(f"{relation.name}: expected a new column, found {column.name} there already")
            if not column.nullable:
                raise TypeMismatchError(
                    f"{relation.name}.{column.name}: expected a nullable column, found NOT NULL; "
                    "rows that are there already have no value for it"
                )
            physical = free_physical(column.name, taken)
            taken.add(physical)
            added.append(replace(column, physical=physical, type=types.canonical(column.type)))
        hidden = [col for col in relation.columns if col.hidden]
        return [*relation.visible, *added, *hidden]

    reshape(context, name, change, "add " + ", ".join(d.name for d in declared), fills=fills)


def drop_columns(context: WriteAccess, name: str, names: Sequence[str], *, cascade: bool = False) -> None:
    def change(relation: Relation, used: set[str]) -> Sequence[Column]:
        gone = {find_column(relation, n).name for n in names}
        keyed = [col.name for col in relation.key if col.name in gone]
        if keyed:
            raise UsageError(f"{relation.name}: expected a column outside the primary key, found {keyed[0]}")
        if gone >= {col.name for col in relation.visible}:
            raise UsageError(f"{relation.name}: expected one column to remain, found all of them dropped")
        return [col for col in relation.columns if col.name not in gone]

    reshape(context, name, change, "drop " + ", ".join(names), dropped=names, cascade=cascade)


def rename_column(context: WriteAccess, name: str, old: str, new: str) -> None:
    check_name(new, "column")

    def change(relation: Relation, used: set[str]) -> Sequence[Column]:
        column = find_column(relation, old)
        taken = relation.column(new)
        if taken is not None and taken is not column:
            raise DuplicateNameError(f"{relation.name}: expected a new column name, found {new} there already")
        return [replace(col, name=new) if col is column else col for col in relation.columns]

    reshape(context, name, change, f"rename {old} to {new}", [old])


def widen_column(context: WriteAccess, name: str, column_name: str, new_type: str) -> None:
    wanted = types.canonical(new_type)

    def change(relation: Relation, used: set[str]) -> Sequence[Column]:
        column = find_column(relation, column_name)
        if column.key_position is not None and column.type != wanted:
            raise UsageError(
                f"{relation.name}.{column.name}: expected a column outside the primary key, found a key column; "
                "its type decides where rows lie"
            )
        if column.type != wanted and not types.widens(column.type, wanted):
            raise TypeMismatchError(
                f"{relation.name}.{column.name}: expected a type as which files of {column.type} can be read, "
                f"found {wanted}; add a column of that type and fill it with UPDATE"
            )
        default = None if column.default is None else _widened(column, column.default, wanted)
        return [replace(col, type=wanted, default=default) if col is column else col for col in relation.columns]

    reshape(context, name, change, f"{column_name} type {wanted}", [column_name])


def _widened(column: Column, default: Default, kind: str) -> Default:
    """A column's default as a value of a wider type."""
    one = scalar(default, parse(column.type), types.to_arrow(column.type))
    new = replace(column, type=kind, default=None)
    fitted = types.fit(pa.table({column.name: pa.repeat(one, 1)}), [new], relation="default")
    return of_array(default.text, fitted[0].combine_chunks(), parse(kind))


def comment_column(context: WriteAccess, name: str, column_name: str, comment: str | None) -> None:
    def change(relation: Relation, used: set[str]) -> Sequence[Column]:
        column = find_column(relation, column_name)
        return [replace(col, comment=comment) if col is column else col for col in relation.columns]

    reshape(context, name, change, f"comment on {column_name}")


def set_default(context: WriteAccess, table: str, column: str, text: str | None) -> None:
    """`ALTER COLUMN … SET DEFAULT constant | DROP DEFAULT`: for rows that are written from now on."""
    with context.catalog.reading() as connection:
        relation = reads.relation(connection, table)
    require_table(relation)
    found = find_column(relation, column)
    default = None if text is None else declared(context.sessions, f"{relation.name}.{found.name}", found.type, text)

    def change(current: Relation, used: set[str]) -> Sequence[Column]:
        at = find_column(current, column)
        if default is not None and at.type != found.type:
            raise UsageError(f"{current.name}.{at.name}: altered meanwhile; set its default again")
        return [replace(col, default=default) if col is at else col for col in current.columns]

    reshape(context, table, change, f"{'drop' if text is None else 'set'} default of {column}")


def columns_of(sessions: Sessions, table: str, specs: Sequence[ColumnSpec]) -> list[Column]:
    """Columns as declared, with the values of their defaults."""
    made = []
    for spec in specs:
        default = None
        if spec.default is not None:
            default = declared(sessions, f"{table}.{spec.name}", types.canonical(spec.type), spec.default)
            if default.value == "null" and not spec.nullable:
                raise TypeMismatchError(f"{table}.{spec.name}: DEFAULT: expected a value for NOT NULL, found NULL")
        made.append(
            Column(
                name=spec.name,
                physical=spec.name,
                type=spec.type,
                nullable=spec.nullable,
                comment=spec.comment,
                default=default,
            )
        )
    return made


def fills_rows(connection: Connection, relation: Relation, *, added: Sequence[Column]) -> bool:
    """Whether a column that is added has a default. Rows that are there hold NULL in it: for a table that has some,
    a default is refused before they were given theirs."""
    given = [
        (column, column.default)
        for column in added
        if column.default is not None and column.default.value != "null" and relation.column(column.name) is None
    ]
    if not given:
        return False
    snapshot = reads.snapshot(connection, relation)
    if snapshot.level0 or snapshot.level1:
        (column, default), *_ = given
        name = name_text(column.name)
        raise UsageError(
            f"{relation.name}.{column.name}: expected an added column without DEFAULT, found {default.text} for a "
            f"table with rows; ADD COLUMN {name} {column.type}, then UPDATE {name_text(relation.name)} SET {name} = "
            f"{default.text}, then ALTER COLUMN {name} SET DEFAULT {default.text}"
        )
    return True
