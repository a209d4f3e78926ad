"""Statements that fill a table from files or from a query, carried out: LOAD, CREATE TABLE … AS."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.api.statements import answers
from ebla.api.statements.snapshot_queries import Snapshots
from ebla.api.statements.versions import parameter
from ebla.catalog import transactions as tx
from ebla.errors import SqlError
from ebla.spark.result import Result
from ebla.sql import statements as st
from ebla.sql.query import Parameters
from ebla.tables import create_as
from ebla.tables.writes import WriteResult

if TYPE_CHECKING:
    from ebla.api.database import Database


class FillStatements:
    """Statements that fill tables of one open database."""

    def __init__(self, database: Database, snapshots: Snapshots) -> None:
        self._database = database
        self._context = database.context
        self._snapshots = snapshots

    def load(self, load: st.Load, parameters: Parameters) -> Result:
        table = self._database.table(load.table)
        path = load.path
        if load.parameter is not None:
            given = parameter(load.parameter, parameters)
            if not isinstance(given, str | os.PathLike):
                raise SqlError(f"LOAD … FROM :{load.parameter}: expected a path, which is a string, found {given!r}")
            path = os.fspath(given)
        written = table.load(path, format=load.format, options=load.options, wait=not load.asynchronous)
        version = None if written.version is None else int(written.version)
        numbers = {"rows": written.rows, "version": version, "staged": written.staged}
        columns = {name: pa.array([value], pa.int64()) for name, value in numbers.items()}
        return answers.columns(
            self._context.sessions, {**columns, "note": pa.array([_load_note(load, written)], pa.string())}
        )

    def create_filled(self, statement: st.CreateTable, parameters: Parameters) -> Result:
        query = statement.query
        assert query is not None

        def rows(transaction: tx.Transaction) -> create_as.Rows:
            read = self._snapshots.read_in(query, parameters, transaction.snapshot)
            return create_as.Rows(frame=read.frame, reads=read.snapshots)

        written = create_as.create_filled(self._context, statement, rows)
        if written is not None:
            self._database.background.written(written.relation.name)
            return answers.row(
                self._context.sessions,
                rows=written.rows,
                version=None if written.version is None else int(written.version),
            )
        return answers.row(self._context.sessions, rows=0, version=None)


def _load_note(load: st.Load, written: WriteResult) -> str | None:
    """What the version of a staged load means."""
    if not written.staged:
        return None
    if load.asynchronous:
        return f"staged at version {written.version}; becomes visible tablet by tablet: SHOW PROGRESS"
    return f"was staged and became visible tablet by tablet, the last one at version {written.version}"
