"""`DEFAULT` of a column, declared: a literal by the driver, any other constant by Spark, exactly or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import functions as F
from sqlalchemy import Connection

from ebla.catalog import reads
from ebla.errors import EblaError, TypeMismatchError, UsageError
from ebla.model.relation import Column, Default, Relation
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.sql import chance
from ebla.sql import literals as lit
from ebla.sql.lex import name_text
from ebla.sql.statements import ColumnSpec
from ebla.tables import ddl
from ebla.tables.context import Context
from ebla.tables.literals import dialect_of
from ebla.values import defaults, types
from ebla.values.grammar import Unfit, parse

_UNFIT = (Unfit, ValueError, TypeError, OverflowError)


def sql_by_name(relation: Relation) -> dict[str, str]:
    """Columns that have a default, with an expression of Spark's that is its value."""
    return {c.name: lit.default_sql(c.default, c.type) for c in relation.visible if c.default is not None}


def columns_of(context: Context, table: str, specs: Sequence[ColumnSpec]) -> list[Column]:
    """Columns as declared, with the values of their defaults."""
    made = []
    for spec in specs:
        default = None
        if spec.default is not None:
            default = declared(context, f"{table}.{spec.name}", types.canonical(spec.type), spec.default)
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


def declared(context: Context, column: str, kind: str, text: str) -> Default:
    """The value of a constant, in a column's type; `column` is its name for messages."""
    tree, where = parse(kind), f"{column}: DEFAULT"
    dialect = dialect_of(context, {})
    try:
        value = lit.stored(lit.whole(text, dialect), tree, dialect.zone)
        return defaults.of_array(text, pa.array([value], types.to_arrow(kind)), tree)
    except lit.NotPlain:
        pass
    except _UNFIT as why:
        raise TypeMismatchError(f"{where}: expected {tree}, found {text} ({why})") from None
    if not types.is_key_type(kind):
        raise UsageError(f"{where}: expected NULL for a column of type {tree}, found {text}")
    return _computed(context, where, kind, text)


def _computed(context: Context, where: str, kind: str, text: str) -> Default:
    """The same by Spark, in the user's session. One job over no data."""
    changing = next((name for name, _ in chance.calls(text)), None)
    found: pa.Table | None = None
    try:
        with swrite.translated(where):
            frame = context.spark.sql(f"SELECT ({text}) AS d")
            plan = frame._jdf.queryExecution().analyzed()
            patterns = ssession.tree_patterns(context.spark)
            constant = plan.deterministic() and not plan.containsPattern(patterns.CURRENT_LIKE())
            constant = constant and not plan.containsPattern(patterns.PLAN_EXPRESSION())
            if constant and changing is None:
                value = swrite.assigned(F.col("d"), frame.schema[0].dataType, types.to_spark(kind), where)
                found = frame.select(value.alias("d")).toArrow()
    except EblaError as error:
        if "UNRESOLVED_COLUMN" not in str(error) and "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
            raise
    if found is None or found.num_rows != 1:
        raise UsageError(f"{where}: expected a constant, found {text}; give such a value in each row instead")
    return defaults.of_array(text, found[0].cast(types.to_arrow(kind)).combine_chunks(), parse(kind))


def set_default(context: Context, table: str, column: str, text: str | None) -> None:
    """`ALTER COLUMN … SET DEFAULT constant | DROP DEFAULT`: for rows that are written from now on."""
    with context.catalog.reading() as connection:
        relation = reads.relation(connection, table)
    ddl.require_table(relation)
    found = ddl.find_column(relation, column)
    default = None if text is None else declared(context, f"{relation.name}.{found.name}", found.type, text)

    def change(current: Relation, used: set[str]) -> Sequence[Column]:
        at = ddl.find_column(current, column)
        if default is not None and at.type != found.type:
            raise UsageError(f"{current.name}.{at.name}: altered meanwhile; set its default again")
        return [replace(col, default=default) if col is at else col for col in current.columns]

    ddl.reshape(context, table, change, f"{'drop' if text is None else 'set'} default of {column}")


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
