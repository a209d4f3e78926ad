"""Statements that change rows, carried out: INSERT, UPSERT, UPDATE, DELETE and MERGE."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from ebla.api.statements import answers
from ebla.api.statements.change_batches import Change, change_batch
from ebla.api.statements.snapshot_queries import Snapshots
from ebla.spark.result import Result
from ebla.sql import statements as st
from ebla.sql.lex import StatementText
from ebla.sql.query import Parameters
from ebla.tables import batch as b
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

    def change(self, statement: Change, source: StatementText, parameters: Parameters) -> Result:
        def make(transaction: OpenTransaction) -> b.ArrowBatch | b.FrameBatch:
            return change_batch(self._snapshots, transaction, statement, source, parameters)

        # A blind upsert of given values reads nothing that another writer could change.
        blind = isinstance(statement, st.Insert) and statement.upsert and not statement.source.refs
        reason = f"{_verb(statement)} {statement.table}"
        return self._write(statement.table, make, reason=reason, reads_target=not blind)

    def _write(self, table: str, make: Make, *, reason: str, reads_target: bool) -> Result:
        written: WriteResult = write(self._context, table, make, reason=reason, reads_target=reads_target)
        self._database.background.written(written.relation.name)
        return answers.row(
            self._context.sessions, rows=written.rows, version=None if written.version is None else int(written.version)
        )


def _verb(statement: Change) -> str:
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
