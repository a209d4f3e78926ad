"""The operation of each statement: which part of the API carries it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebla.api import checks
from ebla.api.statements import access, cluster
from ebla.api.statements import handlers as jobs
from ebla.api.statements.changes import Changes
from ebla.api.statements.filling import FillStatements
from ebla.api.statements.indexes import Indexes
from ebla.api.statements.queries import Queries
from ebla.api.statements.tables import Tables
from ebla.api.statements.views import Views
from ebla.spark.result import Result
from ebla.sql import statements as st
from ebla.sql.lex import StatementText
from ebla.sql.query import Parameters, Query

if TYPE_CHECKING:
    from ebla.api.database import Database


class Operations:
    """The operations of one open database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.queries = Queries(database)
        self._changes = Changes(database, self.queries.snapshots)
        self._filling = FillStatements(database, self.queries.snapshots)
        self.views = Views(database)
        self._indexes = Indexes(database)
        self._tables = Tables(database)

    def carry_out(self, statement: st.Statement, source: StatementText, parameters: Parameters) -> Result:  # noqa: C901
        """One case of `ebla.sql.statements`."""
        if isinstance(statement, st.ViewStatement):
            return self.views.run(statement)
        if isinstance(statement, st.IndexStatement):
            return self._indexes.run(statement)
        if isinstance(statement, st.HandlerStatement):
            return jobs.run(self._database, statement)
        if isinstance(statement, st.CheckStatement):
            return checks.run(self._database, statement)
        if isinstance(statement, st.UserStatement):
            return access.run(self._database, statement)
        match statement:
            case Query():
                return self.queries.query(statement, parameters)
            case st.Explain():
                return self.queries.explain(statement, parameters)
            case st.Insert() | st.Update() | st.Delete() | st.Merge():
                return self._changes.change(statement, source, parameters)
            case st.Load():
                return self._filling.load(statement, parameters)
            case st.Truncate() | st.Compact() | st.Vacuum():
                return self._tables.maintain(statement)
            case st.ShowTables(like=like):
                return self._tables.show_tables(like)
            case st.ShowReplication(like=like):
                return self._tables.show_replication(like)
            case st.ShowCreate(what=what, name=name):
                return self._tables.show_create(what, name)
            case st.Describe(name=name, system=is_system):
                return self._tables.describe(name, is_system=is_system)
            case st.CreateTable(query=Query()):
                return self._filling.create_filled(statement, parameters)
            case _ if isinstance(statement, st.TableDefinition):
                return self._tables.define(statement)
            case _:
                return cluster.run(self._database, statement)
