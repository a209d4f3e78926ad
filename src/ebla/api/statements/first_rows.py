"""First rows of one relation, asked for in SQL and answered without Spark."""

from __future__ import annotations

import contextlib

from ebla.errors import UnknownNameError
from ebla.model.relation import Relation
from ebla.predicates import select
from ebla.predicates.conditions import Request
from ebla.query import explain
from ebla.query.execute import Reader
from ebla.query.streams import TooMany
from ebla.spark.result import Result
from ebla.sql.query import Parameters, Query
from ebla.tables.literals import zone_of
from ebla.tables.read_access import ReadAccess

SCAN_ROWS_MAX = 10_000_000
"""A query that no path fits is left to Spark if it would read more rows than this."""


class FirstRows:
    def __init__(self, context: ReadAccess, reader: Reader) -> None:
        self._context = context
        self._reader = reader

    def answer(self, query: Query, parameters: Parameters) -> Result | None:
        """The answer to a query that asks for first rows of one relation; `None` for any other."""
        wanted = select.recognize(query, parameters)
        if wanted is None:
            return None
        try:
            answer = self._reader.query(
                wanted.relation, lambda relation: self._request(wanted, relation), scan_rows_max=SCAN_ROWS_MAX
            )
        except (select.NotSimple, TooMany, UnknownNameError):
            return None  # Spark reads large relations in parallel, and knows the user's temporary views
        return answer.result(self._context)

    def plan(self, query: Query, parameters: Parameters) -> tuple[str | None, str]:
        """How a query is answered as first rows, or why it is not."""
        wanted = select.recognize(query, parameters)
        if wanted is None:
            return None, ""
        try:
            plan = self._reader.explain(wanted.relation, lambda relation: self._request(wanted, relation))
        except (select.NotSimple, TooMany, UnknownNameError) as error:
            return None, str(error)
        if plan.scan and plan.extent.rows > SCAN_ROWS_MAX:
            return None, f"{plan.extent.rows:,} rows would be read one by one"
        return explain.as_text(plan), ""

    def _request(self, wanted: select.Select, relation: Relation) -> Request:
        """What a SELECT asks for. What indexes say is looked up only if it has more than comparisons of columns."""
        try:
            return select.bound(wanted, relation)
        except select.NotSimple:
            zone = zone_of(self._context.sessions)
        with contextlib.suppress(select.NotSimple):
            return select.bound(wanted, relation, zone=zone)
        return select.bound(wanted, relation, self._reader.spoken(wanted.relation), zone)
