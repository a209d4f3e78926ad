"""Expressions of one row, such as those of indexes and constraints: their types, and why one is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebla.errors import EblaError, UnknownNameError, UsageError
from ebla.model.relation import Column, under_names
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.sql import chance
from ebla.values import types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What has the expressions, in the words of its errors."""

    name: str
    one: str
    """Such as `a deterministic condition`."""
    of_row: str
    """Such as `a condition of one row`."""
    why: str

    def not_deterministic(self, found: str) -> UsageError:
        return UsageError(f"{self.name}: expected {self.one}, found {found}; {self.why}")

    def not_of_one_row(self) -> UsageError:
        return UsageError(
            f"{self.name}: expected {self.of_row}, found an aggregate, a window, a generator or a subquery"
        )

    def refuse_changing(self, text: str) -> None:
        """Refuse a text that calls a function whose result changes. Needs no Spark."""
        for called, _ in chance.calls(text):
            raise self.not_deterministic(called)

    def types(
        self,
        spark: SparkSession,
        table: str,
        columns: Sequence[Column],
        texts: Sequence[str],
        *,
        label: str,
        qualified: bool,
    ) -> list[str]:
        """The types that Spark gives expressions, if they are functions of one row and of nothing else. Nothing runs.

        `label` names the expressions in errors of Spark. `qualified`: a column may be named `table.column`.
        """
        rows = sscan.empty(spark, sscan.struct(under_names(columns)))
        rows = rows.alias(table) if qualified else rows
        try:
            with swrite.translated(label):
                frame = rows.selectExpr(*[f"({text}) AS c{n}" for n, text in enumerate(texts)])
                plan = frame._jdf.queryExecution().analyzed()
        except EblaError as error:
            if "TABLE_OR_VIEW_NOT_FOUND" in str(error):
                raise self.not_of_one_row() from error
            if "UNRESOLVED_COLUMN" in str(error):
                have = ", ".join(column.name for column in columns)
                raise UnknownNameError(f"{error}; {table} has columns {have}") from error
            raise
        patterns = ssession.tree_patterns(spark)
        if not plan.deterministic() or plan.containsPattern(patterns.CURRENT_LIKE()):
            raise self.not_deterministic(", ".join(texts))
        below = rows._jdf.queryExecution().analyzed()
        is_projection = str(plan.nodeName()) == "Project" and str(plan.child().nodeName()) == str(below.nodeName())
        if not is_projection or plan.containsPattern(patterns.PLAN_EXPRESSION()):
            raise self.not_of_one_row()
        return [types.from_spark(field.dataType) for field in frame.schema.fields]
