"""`MERGE` from a few rows of literals whose keys the condition equates with the table's: computed on the driver.

Each row of the source meets one row of the table at most, which is looked up. With the row's literals for the source's
columns, a clause is an UPDATE, a DELETE or a row of VALUES.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ebla.model.relation import Relation
from ebla.predicates.conjuncts import conjuncts
from ebla.spark.sessions import Sessions
from ebla.sql.literal_source import LiteralSource, equated, literal_source, substituted
from ebla.sql.literals import Dialect, Literal, NotPlain, stored
from ebla.sql.statements import Merge, MergeClause
from ebla.storage import runs as rf
from ebla.storage.node_storage import NodeStorage
from ebla.tables import assignments as ag
from ebla.tables import batch as b
from ebla.values import types
from ebla.values.columns import python_tuples
from ebla.values.grammar import Unfit, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralMerge:
    """A MERGE that meets one row of the table with each row of its source."""

    statement: Merge
    source: LiteralSource
    keys: pa.Table
    """The key of each row of the source, under the columns' names."""
    paired: dict[str, str]
    """Key column to the source's column that it equals."""


def literal_merge(statement: Merge, relation: Relation, dialect: Dialect) -> LiteralMerge | None:
    """The MERGE, if its rows are found by key; `None` for any other."""
    source = literal_source(statement.source, dialect)
    if (
        source is None
        or len(source.rows) > ROWS_MAX
        or any(clause.matched == "not_matched_by_source" for clause in statement.clauses)
    ):
        return None
    alias = statement.alias or statement.table
    pairs = [equated(text, alias, source) for text in conjuncts(statement.on)]
    found = dict(pair for pair in pairs if pair is not None)
    key = {column.name: column for column in relation.key}
    if relation.keyless or len(found) != len(pairs) or found.keys() != key.keys():
        return None
    if not set(found.values()) <= set(source.names):
        return None
    try:
        arrays = [
            pa.array(_key_values(source, found[name], column.type, dialect), types.to_arrow(column.type))
            for name, column in key.items()
        ]
    except (NotPlain, Unfit, ValueError, TypeError, OverflowError, pa.ArrowException):
        return None
    keys = pa.table(arrays, names=list(key))
    if rf.first_duplicate(keys, keys.schema.names) is not None:
        return None  # Spark says which row of the table is ambiguous, if there is one
    return LiteralMerge(statement=statement, source=source, keys=keys, paired=found)


ROWS_MAX = 100
"""More rows are computed faster by one join than one by one."""

_COMPARABLE = {"tinyint": "number", "smallint": "number", "int": "number", "bigint": "number"} | {
    kind: kind for kind in ("string", "date", "boolean")
}
"""Types of keys, and the kind of literal that equals one without conversion."""


def _key_values(source: LiteralSource, name: str, kind: str, dialect: Dialect) -> list[object]:
    place, tree = source.names.index(name), parse(kind)
    literals = [row[place] for row in source.rows]
    if any(one.kind != _COMPARABLE.get(kind) or isinstance(one.value, float) for one in literals):
        raise NotPlain
    return [stored(one, tree, dialect.zone) for one in literals]


def merged_rows(
    storage: NodeStorage, sessions: Sessions, relation: Relation, merge: LiteralMerge, rows: pa.Table, dialect: Dialect
) -> b.ArrowBatch | None:
    """What becomes of the table's rows that have these keys (all columns under their names), and of the source's."""
    key = [column.name for column in relation.key]
    places = {found: at for at, found in enumerate(python_tuples(rows, key))}
    made: list[b.ArrowBatch] = []
    try:
        for number, wanted in enumerate(python_tuples(merge.keys, key)):
            at = places.get(wanted)
            literals = merge.source.rows[number]
            row = None if at is None else rows.slice(at, 1)
            made += _fired(storage, sessions, relation, merge, literals, row, dialect)
    except (ag.OnlySpark, NotPlain):
        return None
    tables = [one.table for one in made]
    kinds = [str(one.kinds) for one in made]
    table = pa.concat_tables(tables) if tables else rf.align(pa.table({}), relation.columns)
    return b.ArrowBatch(table=table, kinds=pa.chunked_array([pa.array(kinds, pa.string())]), ordered=False)


def _fired(
    storage: NodeStorage,
    sessions: Sessions,
    relation: Relation,
    merge: LiteralMerge,
    literals: Sequence[Literal],
    row: pa.Table | None,
    dialect: Dialect,
) -> list[b.ArrowBatch]:
    """What the first clause that fires makes of a row of the source, and the table's row if there is one."""
    alias = merge.statement.alias or merge.statement.table
    for clause in merge.statement.clauses:
        if (clause.matched == "matched") != (row is not None):
            continue
        condition = None if clause.condition is None else _with_cells(relation, merge, clause.condition, literals)
        if row is None:
            if condition is not None:
                raise ag.OnlySpark
            return [ag.inserted_row(relation, _values(relation, merge, clause, literals), dialect)]
        assigned = None if clause.action == "delete" else _values(relation, merge, clause, literals)
        found = ag.changed_rows(storage, sessions, relation, alias, row, assigned, condition, dialect)
        if found is None:
            raise ag.OnlySpark
        if found.table.num_rows:
            return [found]
    return []


def _values(
    relation: Relation, merge: LiteralMerge, clause: MergeClause, literals: Sequence[Literal]
) -> dict[str, str]:
    """Column to the text of its value. A key that is set to what it equals already is left out of an UPDATE."""
    source, columns = merge.source, {column.name: column for column in relation.visible}
    if clause.star:
        if not columns.keys() <= set(source.names):
            raise NotPlain
        texts = {name: f"{source.alias}.{name}" for name in columns}
        cells = {name: name for name in columns}
    else:
        listed = clause.columns or tuple(columns)
        given = clause.assignments if clause.action == "update" else tuple(zip(listed, clause.values, strict=True))
        texts = ag.names_of(relation, given)
        cells = {name: found for name, text in texts.items() if (found := _cell(text, source)) is not None}
    made: dict[str, str] = {}
    for name, text in texts.items():
        cell = cells.get(name)
        if clause.action == "update" and cell is not None and merge.paired.get(name) == cell:
            continue
        if cell is None:
            made[name] = _with_cells(relation, merge, text, literals)
            continue
        literal = literals[source.names.index(cell)]
        if literal.kind == "string" and parse(columns[name].type).kind != "string":
            raise NotPlain  # a string that stands in the statement is read, one of a column is not
        made[name] = literal.text
    return made


def _with_cells(relation: Relation, merge: LiteralMerge, text: str, literals: Sequence[Literal]) -> str:
    """An expression with a row's literals for columns of the source.

    To Spark a whole number of the source is a column, and in an expression with decimals a `DECIMAL(10, 0)`; a number
    that stands in the text is the smallest decimal that holds it. So their results may be rounded differently.
    """
    made = substituted(text, merge.source, literals)
    decimals = any(parse(column.type).kind == "decimal" for column in relation.visible) or re.search(r"\d\.|\.\d", made)
    if made != text and decimals and any(literal.kind == "number" for literal in literals):
        raise NotPlain
    return made


def _cell(text: str, source: LiteralSource) -> str | None:
    """The column of the source that a text is, if it is nothing more."""
    prefix = f"{source.alias}."
    name = text.strip().removeprefix(prefix).strip("`")
    return name if text.strip().startswith(prefix) and name in source.names else None
