"""The answer to a request: a page of rows, with what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ebla.base.ids import Version
from ebla.model.relation import Column
from ebla.predicates import conditions as c
from ebla.predicates import values as v
from ebla.query.plan import Plan
from ebla.spark.result import Facts, Result
from ebla.storage.store import single
from ebla.tables.read_access import ReadAccess
from ebla.values import types


@dataclass(frozen=True, kw_only=True)
class Answer:
    table: pa.Table
    """The shown columns under their names."""
    version: Version
    plan: Plan
    next: str | None
    """Where the next page begins; `None` after the last one."""
    applied_version: Version | None = None
    age_s: float | None = None

    def result(self, context: ReadAccess) -> Result:
        applied = None if self.applied_version is None else int(self.applied_version)
        facts = Facts(applied_version=applied, age_s=self.age_s, next=self.next)
        return Result(table=self.table, spark=lambda: context.spark, facts=facts)


def under_names(page: pa.Table, columns: Sequence[Column]) -> pa.Table:
    schema = pa.schema([pa.field(column.name, types.to_arrow(column.type)) for column in columns])
    return page.select([column.physical for column in columns]).rename_columns(schema.names).cast(schema)


def cursor_behind(request: c.Request, page: pa.Table) -> str:
    last = page.num_rows - 1
    names = [by.column.physical for by in request.order]
    values = [v.plain(single(page.column(name)))[last].as_py() for name in names]
    return c.cursor(request.relation, request.order, values)
