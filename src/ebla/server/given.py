"""What endpoints take from every request."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Request

from ebla.server.serving import Caller, Serving


async def _serving(request: Request) -> Serving:
    found: Serving = request.app.state.serving
    return found


async def _caller(request: Request) -> Caller:
    found: Caller = request.scope["ebla"]
    return found


Served = Annotated[Serving, Depends(_serving)]
Called = Annotated[Caller, Depends(_caller)]
Accept = Annotated[str | None, Header(description="`application/json`, an Arrow stream, Parquet or CSV.")]

ROWS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Rows: as JSON, or as an Arrow stream, Parquet or CSV where `Accept` says so.",
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/Rows"},
                "example": {
                    "columns": [{"name": "id", "type": "bigint"}, {"name": "total", "type": "decimal(12,2)"}],
                    "rows": [[5, "10.50"]],
                },
            },
            "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
            "application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}},
            "text/csv": {"schema": {"type": "string"}},
        },
    }
}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request is wrong; nothing was changed."},
    401: {"description": "The token is missing or wrong."},
    403: {"description": "The user lacks a right; `detail` names it."},
    404: {"description": "A table, view, column or request of this name does not exist."},
    409: {"description": "Something else is there already, came first, or cancelled the request."},
    413: {"description": "The request or its answer is too large."},
    429: {"description": "The token asks too often; `Retry-After` says when to ask again."},
    503: {"description": "The node stops, or its catalog does not answer; `Retry-After` says when to ask again."},
}
for _one in PROBLEMS.values():
    _one["content"] = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
