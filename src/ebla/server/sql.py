"""`POST /v1/sql`: statements, and what became of them."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ebla.server import execution, formats
from ebla.server.dependencies import Accept, CallerDep, PoolDep
from ebla.server.openapi import PROBLEMS, ROWS
from ebla.values import tagged_json

router = APIRouter(prefix="/v1", tags=["statements"])


class SqlBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"sql": "SELECT * FROM orders WHERE id = :id", "parameters": {"id": 5}, "timeout_s": 30}]
        },
    )

    sql: str = Field(description="Statements, separated by semicolons. Each commits by itself.")
    parameters: dict[str, Any] = Field(default_factory=dict, description="The values of `:name` in the statements.")
    timeout_s: float | None = Field(None, gt=0, description="Cancel the request when it has taken this long.")
    page_rows: int | None = Field(
        None, ge=1, le=100_000, description="Answer with the first rows, and `next_page` for the rest."
    )


@router.post("/sql", responses={**PROBLEMS, **ROWS})
async def sql(request: Request, body: SqlBody, pool: PoolDep, caller: CallerDep, accept: Accept = None) -> Response:
    """Run statements; the answer has the rows of the last one."""

    def work() -> Response:
        parameters = {name: tagged_json.decode(value) for name, value in body.parameters.items()}
        result = execution.run_statements(pool, caller, body.sql, parameters)
        table = result.to_arrow()
        formats.require_rows(table, pool.options.limits.rows)
        facts = formats.facts(result)
        if body.page_rows is not None and table.num_rows:
            pool.pages.keep(caller.user.name, caller.id, table)
            table, facts = _page(table, facts, caller.id, 0, body.page_rows)
        return formats.answer(table, facts, accept)

    return await pool.statement(request, caller, body.sql, work, body.timeout_s)


@router.get("/results/{result}", responses={**PROBLEMS, **ROWS})
async def page(
    result: str,
    pool: PoolDep,
    caller: CallerDep,
    offset: Annotated[int, Query(ge=0)] = 0,
    rows: Annotated[int | None, Query(ge=1, description="Default: all from `offset` on.")] = None,
    accept: Accept = None,
) -> Response:
    """Another page of an answer: ask the node that gave the first one, within five minutes."""

    def work() -> Response:
        table = pool.pages.find(caller.user.name, result)
        rest, facts = _page(table, {}, result, offset, table.num_rows if rows is None else rows)
        return formats.answer(rest, facts, accept)

    return await pool.query(caller, work)


def _page(
    table: pa.Table, facts: dict[str, Any], result: str, offset: int, rows: int
) -> tuple[pa.Table, dict[str, Any]]:
    behind = offset + rows
    more = {"next_page": f"/v1/results/{result}?offset={behind}&rows={rows}"} if behind < table.num_rows else {}
    return table.slice(offset, rows), {**facts, "rows_total": table.num_rows, **more}
