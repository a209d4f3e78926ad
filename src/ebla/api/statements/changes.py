"""Statements that change rows, carried out: INSERT, UPSERT, UPDATE, DELETE and MERGE."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from ebla.api.statements import answers
from ebla.api.statements.frames import Rows
from ebla.api.statements.points import point_rows
from ebla.api.statements.snapshot_queries import PlannedQuery, Snapshots
from ebla.spark import write as swrite
from ebla.spark.result import Result
from ebla.sql import dml
from ebla.sql import statements as st
from ebla.sql.lex import StatementText
from ebla.sql.query import Parameters, Query
from ebla.tables import batch as b
from ebla.tables import defaults
from ebla.tables.computed_values import values_batch
from ebla.tables.literals import dialect_of
from ebla.tables.transaction import OpenTransaction
from ebla.tables.writes import Make, WriteResult, write

if TYPE_CHECKING:
    from ebla.api.database import Database


class Changes:
    """Statements that change rows of one open database."""

    def __init__(self, database: Database, snapshots: Snapshots) -> None:
        self._database = database
        self._context = database.context
        self._snapshots = snapshots

    def change(
        self, statement: st.Insert | st.Update | st.Delete | st.Merge, source: StatementText, parameters: Parameters
    ) -> Result:
        def make(transaction: OpenTransaction) -> b.ArrowBatch | b.FrameBatch:
            relation = transaction.relation
            columns = [c.name for c in relation.visible]
            key = [c.name for c in relation.key]
            hidden = [c.name for c in relation.columns if c.hidden]
            kinds = {c.name: c.type for c in relation.visible}
            dialect, given = dialect_of(self._context, parameters), defaults.sql_by_name(relation)

            def read(query: Query, target: Rows | None = None) -> PlannedQuery:
                asked = replace(query, source=source)
                return self._snapshots.read_in(asked, parameters, transaction.snapshot, target)

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

        # A blind upsert of given values reads nothing that another writer could change.
        blind = isinstance(statement, st.Insert) and statement.upsert and not statement.source.refs
        reason = f"{_verb(statement)} {statement.table}"
        return self._write(statement.table, make, reason=reason, reads_target=not blind)

    def _write(self, table: str, make: Make, *, reason: str, reads_target: bool) -> Result:
        written: WriteResult = write(self._context, table, make, reason=reason, reads_target=reads_target)
        self._database.background.written(written.relation.name)
        return answers.row(
            self._context, rows=written.rows, version=None if written.version is None else int(written.version)
        )


def _verb(statement: st.Insert | st.Update | st.Delete | st.Merge) -> str:
    """What the history says of a statement, in front of the table's name."""
    match statement:
        case st.Insert(upsert=upsert):
            return "upsert into" if upsert else "insert into"
        case st.Update():
            return "update"
        case st.Delete():
            return "delete from"
        case st.Merge():
            return "merge into"
        case _:
            assert_never(statement)
