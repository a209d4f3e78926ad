"""Texts of statements, carried out: parsed as a whole, then run one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebla.api.operations import Operations
from ebla.errors import EblaError, SqlError, UsageError
from ebla.spark import faults
from ebla.spark.result import Result
from ebla.sql import statements as st
from ebla.sql.lex import StatementText, split
from ebla.sql.parse import parse
from ebla.sql.query import Parameters

if TYPE_CHECKING:
    from ebla.api.database import Database


class Executor:
    """The statements of one open database."""

    def __init__(self, database: Database) -> None:
        self._context = database.context
        self.operations = Operations(database)

    def run(self, text: str, parameters: Parameters) -> Result:
        """Run statements in order; return the last one's result. All are parsed before the first one runs."""
        if not isinstance(text, str):
            raise UsageError(f"sql: expected a text, found {type(text).__name__}")
        parsed = self.parsed(text)
        with self._context.sessions.tags.statement():
            result = self.carry_out(*parsed[0], parameters)
            for statement, part in parsed[1:]:
                result = self.carry_out(statement, part, parameters)
            return result

    def parsed(self, text: str) -> list[tuple[st.Statement, StatementText]]:
        """The statements of a text, at least one, each with its place."""
        found = [(parse(part), part) for part in split(text)]
        if not found:
            raise SqlError("expected a statement, found none")
        return found

    def carry_out(self, statement: st.Statement, source: StatementText, parameters: Parameters) -> Result:
        """One statement, again where the catalog fell silent before anything was committed."""
        again = isinstance(statement, st.WaitStatement)
        patience = self._context.catalog.patience
        try:
            return patience.insist(lambda: self.operations.carry_out(statement, source, parameters), twice=again)
        except Exception as error:
            if isinstance(error, EblaError) or not faults.is_of_spark(error) or not faults.is_lost(error):
                raise
            raise faults.of_spark(error, "statement") from error
