"""`POST /v1/query`: the first rows of a relation, answered in milliseconds without Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from ebla.errors import UsageError
from ebla.model.access import Right
from ebla.model.relation import Column, Relation
from ebla.predicates import conditions as c
from ebla.predicates.values import from_text
from ebla.query import explain
from ebla.server import formats
from ebla.server.dependencies import Accept, CallerDep, PoolDep
from ebla.server.direct_route import DirectRoute
from ebla.server.openapi import PROBLEMS, ROWS
from ebla.values import tagged_json

router = APIRouter(prefix="/v1", tags=["queries"], route_class=DirectRoute)

OPERATORS = ("eq", "lt", "lte", "gt", "gte", "between", "prefix", "in", "null")


class QueryBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "relation": "card",
                    "where": {"name": {"prefix": "Ada"}, "total": {"gte": "10.00"}},
                    "order_by": ["-total"],
                    "limit": 100,
                }
            ]
        },
    )

    relation: str = Field(description="A table or view.")
    where: dict[str, Any] | None = Field(
        None, description=f"By column: a value, or an object of {', '.join(OPERATORS)}, or a list of such objects."
    )
    order_by: str | list[str] | None = Field(None, description="Columns; `-name` is downwards.")
    limit: int = Field(100, ge=1, le=c.LIMIT_MAX)
    columns: list[str] | None = None
    after: str | dict[str, Any] | None = Field(None, description="The `next` of the page before.")
    at_least: int | None = Field(None, ge=0, description="Wait until a view shows everything up to this version.")
    wait_s: float = Field(10.0, ge=0, le=300)
    explain: bool = Field(
        False, description="Say also which path was taken (`plan`), and how long it took (`took_ms`)."
    )


@router.post("/query", responses={**PROBLEMS, **ROWS})
async def query(body: QueryBody, pool: PoolDep, caller: CallerDep, accept: Accept = None) -> Response:
    """The first rows that fulfil conditions, in an order."""

    def make(relation: Relation) -> c.Request:
        return c.request(
            relation,
            where=None if body.where is None else _where(relation, body.where),
            order_by=body.order_by,
            limit=body.limit,
            columns=body.columns,
            after=_after(relation, body.after),
        )

    def work() -> Response:
        context, reader = pool.database.context, pool.database.reader
        began = time.perf_counter()
        permit = pool.access.permit(caller.user, Right.SELECT)
        found = reader.query(body.relation, make, at_least=body.at_least, wait_s=body.wait_s, permit=permit)
        facts = {**formats.facts(found.result(context)), "version": int(found.version)}
        if body.explain:
            facts |= {"plan": explain.as_json(found.plan), "took_ms": round((time.perf_counter() - began) * 1000, 2)}
        return formats.answer(found.table, facts, accept)

    return await pool.query(caller, work)


def _after(relation: Relation, after: object) -> object:
    if not isinstance(after, dict):
        return after
    return {name: _value(relation, c.column_of(relation, name, "after"), value) for name, value in after.items()}


def _where(relation: Relation, where: Mapping[str, Any]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, said in where.items():
        column = c.column_of(relation, name, "where")
        several = said if isinstance(said, list) else [said]
        made = [one for given in several for one in _conditions(relation, column, given)]
        if not made:
            raise UsageError(f"where.{name}: expected a value or conditions, found {said!r}")
        found[name] = made
    return found


def _conditions(relation: Relation, column: Column, said: Any) -> list[c.Condition]:
    """The conditions that an object of operators means; any other value is one to be equal to."""
    if not isinstance(said, dict) or tagged_json.is_tagged(said):
        return [c.Equals(_value(relation, column, said))]
    return [_condition(relation, column, operator, value) for operator, value in said.items()]


def _condition(relation: Relation, column: Column, operator: str, said: Any) -> c.Condition:
    def value(given: Any) -> Any:
        return _value(relation, column, given)

    match operator:
        case "eq":
            return c.Equals(value(said))
        case "lt" | "lte":
            return c.Range(None, value(said), high_in=operator == "lte")
        case "gt" | "gte":
            return c.Range(value(said), None, low_in=operator == "gte")
        case "between" if isinstance(said, list) and len(said) == 2:
            return c.between(*map(value, said))
        case "prefix" if isinstance(said, str):
            return c.prefix(said)
        case "in" if isinstance(said, list):
            return c.one_of(list(map(value, said)))
        case "null" if isinstance(said, bool):
            return c.is_null() if said else c.not_null()
    raise UsageError(f"where.{column.name}: expected one of {', '.join(OPERATORS)}, found {operator}: {said!r}")


def _value(relation: Relation, column: Column, said: Any) -> Any:
    """A value as JSON has it: dates, times and decimals are texts there."""
    if isinstance(said, str) and column.type != "string":
        return from_text(said, column, relation.name)
    return tagged_json.decode(said)
