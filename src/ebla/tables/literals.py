"""`INSERT … VALUES`: rows of plain literals are a batch that the driver makes, and no Spark is started for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ebla.errors import RefusedValue, TypeMismatchError
from ebla.model.relation import Relation
from ebla.spark.sessions import Sessions
from ebla.sql import literals as lit
from ebla.sql import statements as st
from ebla.sql.dml import given_columns
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.values import types
from ebla.values.calendar import UTC
from ebla.values.defaults import stored_form, stored_forms
from ebla.values.grammar import Type, Unfit, parse

_CONFIGURATION = {
    "zone": "spark.sql.session.timeZone",
    "naive": "spark.sql.timestampType",
    "escaped": "spark.sql.parser.escapedStringLiterals",
    "quoted_names": "spark.sql.ansi.doubleQuotedIdentifiers",
}


def dialect_of(sessions: Sessions, parameters: Mapping[str, object]) -> lit.Dialect:
    """What literals mean in the user's session, or in one that would be started."""
    if not sessions.has_spark:
        return lit.Dialect(parameters=parameters)
    found = {name: str(sessions.spark.conf.get(setting)) for name, setting in _CONFIGURATION.items()}
    return lit.Dialect(
        zone=found["zone"],
        naive=found["naive"] == "TIMESTAMP_NTZ",
        escaped=found["escaped"] == "true",
        quoted_names=found["quoted_names"] == "true",
        parameters=parameters,
    )


_TYPED = re.compile(r"timestamp\s*['\"]|(as|::)\s*timestamp\b", re.IGNORECASE)
"""What TIMESTAMP_NTZ may stand for, as the session says."""


def is_common(sessions: Sessions, text: str) -> bool:
    """Whether a query means in the user's session what the driver reads in it: "…" is a string, a backslash in it
    begins an escape, and TIMESTAMP has a zone."""
    quotes, escapes, times = '"' in text, "\\" in text, _TYPED.search(text) is not None
    if not sessions.has_spark or not (quotes or escapes or times):
        return True
    try:
        dialect = dialect_of(sessions, {})
    except Exception:  # a session that has ended cannot be asked
        return False
    return not ((quotes and dialect.quoted_names) or (escapes and dialect.escaped) or (times and dialect.naive))


def zone_of(sessions: Sessions) -> str:
    """The zone of times that name none."""
    return str(sessions.spark.conf.get(_CONFIGURATION["zone"])) if sessions.has_spark else UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Rows of VALUES some of whose cells Spark computes; every other cell is an expression of its column's type."""

    given: Sequence[str]
    rows: Sequence[Sequence[str]]
    computed: frozenset[tuple[int, int]]
    """Row and place of the cells whose type only Spark knows."""


def literal_batch(statement: st.Insert, relation: Relation, dialect: lit.Dialect) -> b.ArrowBatch | Values | None:
    """The rows, if all their values are plain literals; those that Spark has to compute a part of; `None` if the
    source is another query.

    A literal becomes the value that it says of its column's type, or is an error at its place.
    """
    rows = lit.rows_of(statement.source.text, dialect)
    if rows is None:
        return None
    given = given_columns(statement, [c.name for c in relation.visible])
    if any(len(row) != len(given) for row in rows):
        return None
    rows = _with_defaults(statement, relation, given, rows)
    if all(cell.literal is not None for row in rows for cell in row):
        try:
            return _rows(statement, relation, dialect, given, rows)
        except lit.NotPlain:
            pass
    return _partly_computed(statement, relation, dialect, given, rows)


def _with_defaults(
    statement: st.Insert, relation: Relation, given: Sequence[str], rows: Sequence[Sequence[lit.Cell]]
) -> Sequence[Sequence[lit.Cell]]:
    """The word DEFAULT as what it stands for in its column."""
    columns = {column.name: column for column in relation.visible}

    def typed(cell: lit.Cell, name: str) -> lit.Cell:
        if cell.literal is not None or statement.source.text[cell.start : cell.end].upper() != "DEFAULT":
            return cell
        default, kind = columns[name].default, columns[name].type
        value = None if default is None else stored_form(default, parse(kind))
        return replace(cell, literal=lit.Literal(kind="default", value=value, text="DEFAULT", at=cell.start))

    return [[typed(cell, name) for cell, name in zip(row, given, strict=True)] for row in rows]


def _rows(
    statement: st.Insert,
    relation: Relation,
    dialect: lit.Dialect,
    given: Sequence[str],
    rows: Sequence[Sequence[lit.Cell]],
) -> b.ArrowBatch:
    values = {name: [row[i].literal for row in rows] for i, name in enumerate(given)}
    try:
        table = types.gather(values, len(rows), relation.visible, store=_storing(dialect), relation=relation.name)
    except TypeMismatchError as error:
        found = error.refused
        if found is None or found.column not in given:
            raise
        raise _at(statement, relation, found, rows[found.row][given.index(found.column)]) from None
    table = table.rename_columns([c.physical for c in relation.visible])
    kind = b.UPSERT if statement.upsert else b.INSERT
    return b.ArrowBatch(table=rf.align(table, relation.columns), kinds=kind, ordered=False)


def _storing(dialect: lit.Dialect) -> Callable[[Sequence[lit.Literal], Type], pa.Array]:
    def store(literals: Sequence[lit.Literal], tree: Type) -> pa.Array:
        return pa.array([lit.stored(one, tree, dialect.zone) for one in literals], types.to_arrow(str(tree)))

    return store


def _partly_computed(
    statement: st.Insert,
    relation: Relation,
    dialect: lit.Dialect,
    given: Sequence[str],
    rows: Sequence[Sequence[lit.Cell]],
) -> Values:
    """Every literal as a value of its column: Spark would read a string beside other values in its own way, and would
    unite a whole number with a fraction."""
    text, columns = statement.source.text, {column.name: column for column in relation.visible}
    made = [[text[cell.start : cell.end] for cell in row] for row in rows]
    computed: set[tuple[int, int]] = set()
    for i, name in enumerate(given):
        column, tree = columns[name], parse(columns[name].type)
        plain = [number for number, row in enumerate(rows) if _is_plain(row[i].literal, tree, dialect)]
        computed |= {(number, i) for number in set(range(len(rows))) - set(plain)}
        literals = [rows[number][i].literal for number in plain]
        try:
            table = types.gather(
                {name: literals}, len(plain), [column], store=_storing(dialect), relation=relation.name
            )
        except TypeMismatchError as error:
            if error.refused is None:
                raise
            found = replace(error.refused, row=plain[error.refused.row])
            raise _at(statement, relation, found, rows[found.row][i]) from None
        for number, value in zip(plain, stored_forms(table[name], tree), strict=True):
            literal = rows[number][i].literal
            if tree.kind != "string" or value is None or (literal is not None and literal.kind == "default"):
                made[number][i] = lit.sql_of(value, tree)
    return Values(given=given, rows=made, computed=frozenset(computed))


def _is_plain(literal: lit.Literal | None, tree: Type, dialect: lit.Dialect) -> bool:
    """Whether the driver knows what the literal is in a column of the type, if it is any value of it."""
    if literal is None:
        return False
    try:
        lit.stored(literal, tree, dialect.zone)
    except lit.NotPlain:
        return False
    except (Unfit, ValueError, TypeError, OverflowError):
        pass
    return True


def _at(statement: st.Insert, relation: Relation, found: RefusedValue, cell: lit.Cell) -> TypeMismatchError:
    """The error with the place of the value in the user's text."""
    where, source = f"{relation.name}.{found.column}, row {found.row + 1}", statement.source.source
    if source is not None:
        line, column = source.place(source.text.rfind(statement.source.text) + cell.start)
        where += f" (line {line}, column {column})"
    return found.error(where)
