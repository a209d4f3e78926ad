"""`UPDATE` and `DELETE` of rows that are on the driver, computed there where the answer is Spark's to the last digit.

A literal becomes the value that it says of its column's type, as in `INSERT … VALUES`. DuckDB computes expressions of
`ebla.algebra.direct_query`, and a result goes into its column exactly. For anything else (`None`), and for a value
that does not fit, Spark computes the same rows, and says what is wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import duckdb
import numpy as np
import pyarrow as pa

from ebla.algebra.direct_query import ROW, direct_of_rows
from ebla.model.relation import Column, Relation
from ebla.spark.sessions import Sessions
from ebla.sql import literals as lit
from ebla.sql.lex import Kind, lex, quote_string
from ebla.storage import runs as rf
from ebla.storage.node_storage import NodeStorage
from ebla.tables import batch as b
from ebla.tables.constraints import columns_of
from ebla.values import types
from ebla.values.defaults import stored_form
from ebla.values.grammar import Unfit, parse


class OnlySpark(Exception):
    """What the statement says is computed by Spark."""


def changed_rows(
    storage: NodeStorage,
    sessions: Sessions,
    relation: Relation,
    alias: str,
    rows: pa.Table,
    assigned: Mapping[str, str] | None,
    where: str | None,
    dialect: lit.Dialect,
) -> b.ArrowBatch | None:
    """The rows that fulfil a condition (all, without one), as assignments leave them; deleted, without assignments.

    `rows` has all columns under their names.
    """
    try:
        if assigned is None:
            kept, _ = _computed(storage, sessions, relation, alias, rows, {}, where, dialect)
            return _batch(relation, kept, b.DELETE)
        columns = {column.name: column for column in relation.visible}
        if any(columns[name].key_position is not None for name in assigned):
            raise OnlySpark  # a row that moves is two
        constants = {name: _constant(columns[name], text, dialect) for name, text in assigned.items()}
        texts = {name: text for name, text in assigned.items() if constants[name] is None}
        kept, made = _computed(storage, sessions, relation, alias, rows, texts, where, dialect)
        for name, constant in constants.items():
            value = made[name] if constant is None else pa.repeat(constant, kept.num_rows)
            kept = kept.set_column(kept.schema.get_field_index(name), name, _fitted(value, columns[name]))
        return _batch(relation, kept, b.UPSERT)
    except OnlySpark:
        return None


def inserted_row(relation: Relation, values: Mapping[str, str], dialect: lit.Dialect) -> b.ArrowBatch:
    """A row of literals; a column without one is its default. `OnlySpark` where one is none, or does not fit."""
    made = {}
    for column in relation.visible:
        constant = _constant(column, values.get(column.name, "DEFAULT"), dialect)
        if constant is None:
            raise OnlySpark
        made[column.physical] = _fitted(pa.repeat(constant, 1), column)
    return b.ArrowBatch(table=rf.align(pa.table(made), relation.columns), kinds=b.INSERT, ordered=False)


def _batch(relation: Relation, rows: pa.Table, kind: str) -> b.ArrowBatch:
    physical = rows.rename_columns([column.physical for column in relation.columns])
    return b.ArrowBatch(table=rf.align(physical, relation.columns), kinds=kind, ordered=False)


def _constant(column: Column, text: str, dialect: lit.Dialect) -> pa.Scalar | None:
    """The value that a literal, or the word DEFAULT, is in a column; `None` for an expression."""
    tree, kind = parse(column.type), types.to_arrow(column.type)
    try:
        if text.strip().upper() == "DEFAULT":
            value = None if column.default is None else stored_form(column.default, tree)
        else:
            value = lit.stored(lit.whole(text, dialect), tree, dialect.zone)
        return pa.array([value], kind)[0]
    except lit.NotPlain:
        return None
    except (Unfit, ValueError, TypeError, OverflowError, pa.ArrowException):
        raise OnlySpark from None


def _computed(
    storage: NodeStorage,
    sessions: Sessions,
    relation: Relation,
    alias: str,
    rows: pa.Table,
    texts: Mapping[str, str],
    where: str | None,
    dialect: lit.Dialect,
) -> tuple[pa.Table, dict[str, pa.ChunkedArray]]:
    """The rows that fulfil the condition, and what expressions are in them, in Spark's types."""
    if not texts and where is None:
        return rows, {}
    spoken = {name: _without_parameters(text, dialect) for name, text in texts.items()}
    condition = None if where is None else _without_parameters(where, dialect)
    used = columns_of(" ".join([*spoken.values(), condition or ""]), relation.visible)
    kinds = {column.name: column.type for column in used}
    found = direct_of_rows(
        relation.name, alias, kinds, list(spoken.values()), condition, sessions.expression_settings()
    )
    if found is None:
        raise OnlySpark
    cursor = storage.lookups.cursor()
    try:
        numbers = pa.array(np.arange(rows.num_rows), pa.int64())
        cursor.register("leaf_0", rows.select([c.name for c in used]).append_column(ROW, numbers))
        made = cursor.sql(found.sql).to_arrow_table()
    except duckdb.Error:
        raise OnlySpark from None  # an overflow, or something alike
    finally:
        cursor.close()
    results = {name: made.column(1 + i).cast(types.to_arrow(found.types[1 + i])) for i, name in enumerate(spoken)}
    return rows.take(made.column(0)), results


def _without_parameters(text: str, dialect: lit.Dialect) -> str:
    """The text with literals for parameters, as far as Spark takes them for literals of the same type."""
    if dialect.quoted_names and '"' in text:
        raise OnlySpark
    tokens, made, at = lex(text), "", 0
    for colon, name in itertools.pairwise(tokens):
        if colon.key != ":" or name.kind is not Kind.WORD or name.start != colon.end:
            continue
        made += text[at : colon.start] + _literal(dialect.parameters.get(name.text, ...))
        at = name.end
    return made + text[at:]


def _literal(value: object) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int() if -(2**63) < value < 2**63:
            return str(value) if value >= 0 else f"({value})"
        case str() if value.isprintable() and "\\" not in value:
            return quote_string(value)
    raise OnlySpark


def _fitted(value: pa.Array | pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """A result in its column's type, with all its digits."""
    wanted = types.to_arrow(column.type)
    if value.type != wanted:
        if not (_is_exact(value.type) and _is_exact(wanted)):
            raise OnlySpark
        try:
            value = value.cast(wanted, safe=True)
        except pa.ArrowException:
            raise OnlySpark from None
    if value.null_count and not column.nullable:
        raise OnlySpark
    return value if isinstance(value, pa.ChunkedArray) else pa.chunked_array([value], wanted)


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def names_of(relation: Relation, assignments: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Columns as the relation spells them, with the texts that are assigned to them."""
    spelled = {column.name.lower(): column.name for column in relation.visible}
    return {spelled[name.lower()]: text for name, text in assignments}
