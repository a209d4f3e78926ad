"""Queries, carried out: from system tables, as first rows, or over snapshots by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebla.api import system_queries
from ebla.api.statements.answers import columns
from ebla.api.statements.first_rows import FirstRows
from ebla.api.statements.snapshot_queries import Snapshots
from ebla.api.statements.versions import is_system
from ebla.errors import StorageError
from ebla.spark.result import Result
from ebla.spark.session import java_class
from ebla.spark.wording import in_users_words
from ebla.sql import statements as st
from ebla.sql.query import Parameters, Query
from ebla.storage import runs as rf
from ebla.tables.literals import is_common

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ebla.api.database import Database


class Queries:
    """The queries of one open database."""

    def __init__(self, database: Database) -> None:
        self._context = database.context
        self.snapshots = Snapshots(database.context, database.pins)
        self._first_rows = FirstRows(database.context, database.reader)

    def query(self, query: Query, parameters: Parameters) -> Result:
        for way in (
            (self._system_rows, self._first_rows.answer) if is_common(self._context.sessions, query.text) else ()
        ):
            found = way(query, parameters)
            if found is not None:
                return found
        read = self.snapshots.read(query, parameters)

        def rescue(error: BaseException) -> DataFrame | BaseException | None:
            nonlocal read
            found = in_users_words(error, query)
            if not isinstance(found, StorageError):
                return found
            try:
                damaged = [rf.distrust_damaged(s, self._context.roots()) for s in read.snapshots]
            except StorageError as broken:
                return broken
            if not any(damaged):
                return found
            read = self.snapshots.read(query, parameters, at=read.version)
            return read.frame

        return Result(
            frame=read.frame,
            spark=lambda: self._context.spark,
            rescue=rescue,
            holds=read.holds,
            running=lambda: self._context.sessions.tags.statement(with_jobs=True),
        )

    def _system_rows(self, query: Query, parameters: Parameters) -> Result | None:
        """The answer to a query that names only system tables, without Spark; `None` for any other."""
        if not query.refs or not all(is_system(ref) for ref in query.refs):
            return None
        try:
            settings = self._context.expression_settings()
        except Exception:  # a session that has ended cannot be asked
            settings = None
        rows = system_queries.answer(self._context, query, parameters, settings)
        return None if rows is None else Result(table=rows, spark=lambda: self._context.spark)

    def explain(self, statement: st.Explain, parameters: Parameters) -> Result:
        plan, why = None, ""
        if statement.mode is None and is_common(self._context.sessions, statement.query.text):
            plan, why = self._first_rows.plan(statement.query, parameters)
        if plan is not None:
            return columns(self._context.sessions, {"plan": [plan]})
        read = self.snapshots.read(statement.query, parameters)
        mode = statement.mode or "formatted"
        utils = java_class(self._context.spark, "org.apache.spark.sql.api.python.PythonSQLUtils")
        text = utils.explainString(read.frame._jdf.queryExecution(), mode)
        read.release()
        said = f"\nNot answered as first rows, without Spark: {why}\n" if why else ""
        return columns(self._context.sessions, {"plan": [f"{text}{said}"]})
