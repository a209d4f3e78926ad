"""`INSERT … VALUES` of plain literals as a batch, made by the driver: no Spark is needed, and none is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ebla.errors import Refused, TypeMismatchError
from ebla.sql import literals as lit
from ebla.sql import statements as st
from ebla.sql.dml import given_columns
from ebla.sql.refs import find
from ebla.storage import runs as rf
from ebla.storage import types
from ebla.storage.calendar import UTC
from ebla.storage.defaults import stored_form
from ebla.storage.grammar import Type, Unfit, parse
from ebla.storage.model import Relation
from ebla.tables import batch as b
from ebla.tables.context import Context

_CONFIGURATION = {
    "zone": "spark.sql.session.timeZone",
    "naive": "spark.sql.timestampType",
    "escaped": "spark.sql.parser.escapedStringLiterals",
    "quoted_names": "spark.sql.ansi.doubleQuotedIdentifiers",
}


def dialect_of(context: Context, parameters: Mapping[str, object]) -> lit.Dialect:
    """What literals mean in the user's session, or in one that would be started."""
    if not context.has_spark:
        return lit.Dialect(parameters=parameters)
    found = {name: str(context.spark.conf.get(setting)) for name, setting in _CONFIGURATION.items()}
    return lit.Dialect(
        zone=found["zone"],
        naive=found["naive"] == "TIMESTAMP_NTZ",
        escaped=found["escaped"] == "true",
        quoted_names=found["quoted_names"] == "true",
        parameters=parameters,
    )


def zone_of(context: Context) -> str:
    """The zone of times that name none."""
    return str(context.spark.conf.get(_CONFIGURATION["zone"])) if context.has_spark else UTC


def literal_batch(statement: st.Insert, relation: Relation, dialect: lit.Dialect) -> b.ArrowBatch | st.Insert:
    """The rows, if all their values are plain literals; else the statement with its strings as values of the columns.

    A string becomes the value that it says of its column's type, or is an error at its place.
    """
    rows = lit.rows_of(statement.source.text, dialect)
    if rows is None:
        return statement
    given = given_columns(statement, [c.name for c in relation.visible])
    if any(len(row) != len(given) for row in rows):
        return statement
    rows = _with_defaults(statement, relation, given, rows)
    if all(cell.literal is not None for row in rows for cell in row):
        try:
            return _rows(statement, relation, dialect, given, rows)
        except lit.NotPlain:
            pass
    return _rewritten(statement, relation, dialect, given, rows)


def _with_defaults(
    statement: st.Insert, relation: Relation, given: Sequence[str], rows: Sequence[Sequence[lit.Cell]]
) -> Sequence[Sequence[lit.Cell]]:
    """The word DEFAULT as what it stands for in its column."""
    columns = {column.name: column for column in relation.visible}

    def told(cell: lit.Cell, name: str) -> lit.Cell:
        if cell.literal is not None or statement.source.text[cell.start : cell.end].upper() != "DEFAULT":
            return cell
        default, kind = columns[name].default, columns[name].type
        value = None if default is None else stored_form(default, parse(kind))
        return replace(cell, literal=lit.Literal(kind="default", value=value, text="DEFAULT", at=cell.start))

    return [[told(cell, name) for cell, name in zip(row, given, strict=True)] for row in rows]


def _rows(
    statement: st.Insert,
    relation: Relation,
    dialect: lit.Dialect,
    given: Sequence[str],
    rows: Sequence[Sequence[lit.Cell]],
) -> b.ArrowBatch:
    def store(literals: Sequence[lit.Literal], tree: Type) -> pa.Array:
        return pa.array([lit.stored(one, tree, dialect.zone) for one in literals], types.to_arrow(str(tree)))

    values = {name: [row[i].literal for row in rows] for i, name in enumerate(given)}
    try:
        table = types.gather(values, len(rows), relation.visible, store=store, relation=relation.name)
    except TypeMismatchError as error:
        found = error.refused
        if found is None or found.column not in given:
            raise
        raise _at(statement, relation, found, rows[found.row][given.index(found.column)]) from None
    table = table.rename_columns([c.physical for c in relation.visible])
    kind = b.UPSERT if statement.upsert else b.INSERT
    return b.ArrowBatch(table=rf.align(table, relation.columns), kinds=kind, ordered=False)


def _rewritten(
    statement: st.Insert,
    relation: Relation,
    dialect: lit.Dialect,
    given: Sequence[str],
    rows: Sequence[Sequence[lit.Cell]],
) -> st.Insert:
    """The statement for Spark, which would read a string beside other values in its own way."""
    trees = {c.name: parse(c.type) for c in relation.visible}
    made, at = "", 0
    for number, row in enumerate(rows):
        for name, cell in zip(given, row, strict=True):
            tree, literal = trees[name], cell.literal
            if literal is None or not lit.needs_reading(literal):
                continue
            try:
                value: Any = lit.stored(literal, tree, dialect.zone)
            except Unfit as why:
                found = Refused(column=name, row=number, expected=str(tree), found=literal.text, why=str(why))
                raise _at(statement, relation, found, cell) from None
            if tree.kind != "string" or literal.kind == "default":
                made += statement.source.text[at : cell.start] + lit.sql_of(value, tree)
                at = cell.end
    if not at:
        return statement
    query = find(made + statement.source.text[at:])
    return st.Insert(
        table=statement.table,
        columns=statement.columns,
        source=query,
        upsert=statement.upsert,
        width=statement.width,
    )


def _at(statement: st.Insert, relation: Relation, found: Refused, cell: lit.Cell) -> TypeMismatchError:
    """The error with the place of the value in the user's text."""
    where, source = f"{relation.name}.{found.column}, row {found.row + 1}", statement.source.source
    if source is not None:
        line, column = source.place(source.text.rfind(statement.source.text) + cell.start)
        where += f" (line {line}, column {column})"
    return found.error(where)
