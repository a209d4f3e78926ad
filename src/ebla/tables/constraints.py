"""`CHECK` constraints: conditions of one row that no write may make false. NULL is well, as in the standard.

Every write comes by here with the rows that it would leave, before its commit: few rows on the driver, many as the
files that Spark has cut them into. DuckDB evaluates a condition where its answer is Spark's to the last digit
(`ebla.algebra.direct_query`), Spark any other, under the settings of the session that declared it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ebla.algebra.direct_query import ROW, DirectQuery, direct_of_rows
from ebla.base.ids import NodeId
from ebla.errors import (
    ConstraintError,
    UsageError,
)
from ebla.model.relation import DELETED, Column, Constraint, Relation, Run, under_names
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.spark.sessions import Sessions
from ebla.sql.lex import Kind as TokenKind
from ebla.sql.lex import lex, unquote_name
from ebla.storage import runs as rf
from ebla.storage.duck import Duck
from ebla.storage.files import Root
from ebla.values import bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def columns_of(text: str, columns: Iterable[Column]) -> list[Column]:
    """The columns that a condition may name."""
    said = {unquote_name(t.text).lower() for t in lex(text) if t.kind in (TokenKind.WORD, TokenKind.QUOTED)}
    return [column for column in columns if column.name.lower() in said]


def direct_of(table: str, columns: Sequence[Column], constraint: Constraint) -> DirectQuery | None:
    """The numbers of the rows that break a condition, for DuckDB; `None` where only Spark may judge."""
    kinds = {column.name: column.type for column in columns_of(constraint.text, columns)}
    return direct_of_rows(table, table, kinds, [], f"NOT ({constraint.text})", constraint.settings)


# ---- keeping --------------------------------------------------------------------------------------------


def refuse(lookups: Duck, sessions: Sessions, relation: Relation, rows: pa.Table) -> None:
    """Refuse rows on the driver, under physical names, of which one breaks a constraint."""
    for constraint in relation.constraints if rows.num_rows else ():
        cursor = lookups.cursor()
        try:
            found = broken_directly(cursor, relation, constraint, rows)
        finally:
            cursor.close()
        if found is None:
            numbered, schema = _numbered(relation, constraint, rows)
            spark = sessions.of_view(constraint.settings, small=True)
            fields = sscan.struct([*under_names(schema), Column(name=ROW, physical=ROW, type="bigint")])
            wrong = _breaking(sscan.local(spark, numbered, fields), relation, constraint, [ROW])
            found = None if wrong is None else [wrong[0]]
        if found:
            raise _broken(relation, constraint, rows.slice(found[0], 1))


def broken_directly(
    cursor: duckdb.DuckDBPyConnection, relation: Relation, constraint: Constraint, rows: pa.Table
) -> list[int] | None:
    """The first row that breaks a constraint, if one does, as a list; `None` where Spark must be asked."""
    made = direct_of(relation.name, relation.visible, constraint)
    if made is None:
        return None
    numbered, _ = _numbered(relation, constraint, rows)
    try:
        cursor.register("leaf_0", numbered)
        found = cursor.sql(made.sql).to_arrow_table().column(0)
    except duckdb.Error:
        return None  # an overflow, or something alike: Spark says what is right
    return [] if len(found) == 0 else [pc.min(found).as_py()]


def refuse_directly(relation: Relation, rows: pa.Table) -> None:
    """The same where there is no Spark, as in a task of a data source, which has refused what needs it."""
    for constraint in relation.constraints if rows.num_rows else ():
        with duckdb.connect(":memory:") as connection:
            found = broken_directly(connection, relation, constraint, rows)
        if found is None:
            raise ConstraintError(
                f"{relation.name}: constraint {constraint.name}, CHECK ({constraint.text}): expected a condition "
                'that is evaluated without Spark, found another; write with db.table("…").upsert(df)'
            )
        if found:
            raise _broken(relation, constraint, rows.slice(found[0], 1))


def refuse_what_needs_spark(relation: Relation) -> None:
    """Tasks of a data source have no Spark of their own."""
    for constraint in relation.constraints:
        if direct_of(relation.name, relation.visible, constraint) is None:
            raise UsageError(
                f'{relation.name}: expected constraints that are evaluated without Spark for format("ebla"), found '
                f'{constraint.name}, CHECK ({constraint.text}); write with db.table("…").upsert(df)'
            )


def refuse_in_runs(
    sessions: Sessions, relation: Relation, runs: Sequence[Run], roots: Mapping[NodeId, Root], *, deletes: bool
) -> None:
    """The same for rows that Spark has written: one job for each constraint that reads them back."""
    paths = rf.paths(roots, runs)
    for constraint in relation.constraints:
        spark = sessions.of_view(constraint.settings, small=False)
        schema = sscan.struct(relation.columns)
        rows = sscan.files(spark, paths, schema.add(DELETED, "boolean") if deletes else schema)
        refuse_frame(rows.filter(f"NOT {DELETED}") if deletes else rows, relation, constraint)


def refuse_frame(rows: DataFrame, relation: Relation, constraint: Constraint) -> None:
    """Refuse rows under physical names."""
    columns = _columns_to_report(relation, constraint)
    named = rows.selectExpr(*sscan.renamed([(col.physical, col.name) for col in relation.columns]))
    wrong = _breaking(named, relation, constraint, [col.name for col in columns])
    if wrong is not None:
        raise _error(relation, constraint, list(zip([col.name for col in columns], wrong, strict=True)))


def _breaking(rows: DataFrame, relation: Relation, constraint: Constraint, names: Sequence[str]) -> list[Any] | None:
    """Some values of a row that breaks a constraint."""
    with swrite.translated(f"{relation.name}: constraint {constraint.name}"):
        wrong = rows.alias(relation.name).filter(f"NOT ({constraint.text})")
        found = wrong.select(*map(sscan.quoted, names)).limit(1).toArrow()
    return None if found.num_rows == 0 else [_python(found[i][0]) for i in range(len(names))]


def _numbered(relation: Relation, constraint: Constraint, rows: pa.Table) -> tuple[pa.Table, list[Column]]:
    """What a condition is made of, under the names that users know, and the number of each row."""
    used = columns_of(constraint.text, relation.visible)
    table = rows.select([col.physical for col in used]).rename_columns([col.name for col in used])
    return table.append_column(ROW, pa.array(range(rows.num_rows), pa.int64())), used


def _columns_to_report(relation: Relation, constraint: Constraint) -> list[Column]:
    keyed = [] if relation.keyless else list(relation.key)
    return [*keyed, *(col for col in columns_of(constraint.text, relation.visible) if col not in keyed)]


def _broken(relation: Relation, constraint: Constraint, row: pa.Table) -> ConstraintError:
    values = [(col.name, _python(row[col.physical][0])) for col in _columns_to_report(relation, constraint)]
    return _error(relation, constraint, values)


def _error(relation: Relation, constraint: Constraint, values: Sequence[tuple[str, Any]]) -> ConstraintError:
    row = ", ".join(f"{name} = {bounds.in_message(value)}" for name, value in values)
    return ConstraintError(
        f"{relation.name}: expected rows that fulfil constraint {constraint.name}, CHECK ({constraint.text}), "
        f"found one with {row}"
    )


def _python(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):  # a date beyond Python's calendar
        return str(value.cast(pa.int64()) if not pa.types.is_date(value.type) else value.cast(pa.int32()))
