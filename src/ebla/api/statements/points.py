"""Statements that change a few rows, found by lookup: no Spark job, and no scan, however large the table is."""

from __future__ import annotations

from ebla.algebra.names import is_case_sensitive
from ebla.api.statements.frames import Rows
from ebla.predicates import comparisons
from ebla.predicates import filters as fl
from ebla.query import points
from ebla.sql import statements as st
from ebla.sql.literals import Dialect
from ebla.storage.store import single
from ebla.tables.assignments import changed_rows, names_of
from ebla.tables.batch import ArrowBatch
from ebla.tables.literals import is_common
from ebla.tables.merged_rows import literal_merge, merged_rows
from ebla.tables.transaction import OpenTransaction


def point_rows(
    transaction: OpenTransaction, statement: st.Update | st.Delete | st.Merge, dialect: Dialect
) -> ArrowBatch | Rows | None:
    """What becomes of the rows whose key, or whose columns of an index, the condition fixes.

    `Rows`: Spark computes what becomes of them. `None`: the condition fixes nothing.
    """
    if isinstance(statement, st.Merge):
        return _merged(transaction, statement, dialect)
    context, relation = transaction.context, transaction.relation
    condition, alias = statement.where, statement.alias or statement.table
    if condition is None or not is_common(context.sessions, condition):
        return None
    filters = comparisons.understood(condition, alias, relation, dialect.parameters, dialect.zone)
    compared = [one for one in filters if one is not None]
    there = points.points(transaction, compared)
    rows = None if there is None else points.rows_at(transaction, there)
    if rows is None:
        return None
    columns = {column.physical: single(rows.column(column.name)) for column in relation.columns}
    rows = rows.filter(fl.mask(compared, columns))
    assigned = names_of(relation, statement.assignments) if isinstance(statement, st.Update) else None
    rest = None if len(compared) == len(filters) else condition
    made = changed_rows(context.storage, context.sessions, relation, alias, rows, assigned, rest, dialect)
    return Rows(table=rows, columns=relation.columns) if made is None else made


def _merged(transaction: OpenTransaction, statement: st.Merge, dialect: Dialect) -> ArrowBatch | Rows | None:
    context, relation = transaction.context, transaction.relation
    is_plain = is_common(context.sessions, f"{statement.source} {statement.on}") and not is_case_sensitive(
        context.expression_settings()
    )
    merge = literal_merge(statement, relation, dialect) if is_plain else None
    rows = None if merge is None else points.rows_at(transaction, points.of_keys(relation, merge.keys))
    if merge is None or rows is None:
        return None
    made = merged_rows(context.storage, context.sessions, relation, merge, rows, dialect)
    return Rows(table=rows, columns=relation.columns) if made is None else made
