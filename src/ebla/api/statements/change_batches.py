"""The rows that INSERT, UPSERT, UPDATE, DELETE and MERGE write, as a batch: of Arrow where possible, else of Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from ebla.api.statements.frames import Rows
from ebla.api.statements.points import point_rows
from ebla.api.statements.snapshot_queries import PlannedQuery, Snapshots
from ebla.spark import write as swrite
from ebla.sql import dml
from ebla.sql import statements as st
from ebla.sql.lex import StatementText
from ebla.sql.query import Parameters, Query
from ebla.tables import batch as b
from ebla.tables import defaults
from ebla.tables.computed_values import values_batch
from ebla.tables.literals import dialect_of
from ebla.tables.transaction import OpenTransaction

Change = st.Insert | st.Update | st.Delete | st.Merge


def change_batch(
    snapshots: Snapshots,
    transaction: OpenTransaction,
    statement: Change,
    source: StatementText,
    parameters: Parameters,
) -> b.ArrowBatch | b.FrameBatch:
    """The rows that a statement writes, as of the transaction's snapshot."""
    relation = transaction.relation
    columns = [c.name for c in relation.visible]
    key = [c.name for c in relation.key]
    hidden = [c.name for c in relation.columns if c.hidden]
    kinds = {c.name: c.type for c in relation.visible}
    dialect, given = dialect_of(transaction.context.sessions, parameters), defaults.sql_by_name(relation)

    def read(query: Query, target: Rows | None = None) -> PlannedQuery:
        asked = replace(query, source=source)
        return snapshots.read_in(asked, parameters, transaction.snapshot, target)

    found: b.ArrowBatch | Rows | None = None
    match statement:
        case st.Insert():
            values = values_batch(statement, relation, dialect, read)
            if values is not None:
                return values
            query = dml.insert_query(statement, columns, key, hidden=hidden, defaults=given)
        case st.Update():
            query = dml.update_query(statement, columns, key, hidden, kinds, dialect, given)
            found = point_rows(transaction, statement, dialect)
        case st.Delete():
            query = dml.delete_query(statement, columns, key, hidden=hidden)
            found = point_rows(transaction, statement, dialect)
        case st.Merge():
            query = dml.merge_query(statement, columns, key, hidden, kinds, dialect, given)
            found = point_rows(transaction, statement, dialect)
        case _:
            assert_never(statement)
    if isinstance(found, b.ArrowBatch):
        return found
    rows, kind = read(query, found), dml.only_kind(statement, key)
    made, keep = (rows.frame, [b.KIND]) if kind is None else (rows.frame.drop(b.KIND), [])
    frame = swrite.fitted(made, relation, keep=keep, hidden=True, utf8=True)
    return b.FrameBatch(frame=frame, kind=kind, reads=rows.snapshots)
