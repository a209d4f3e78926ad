"""The description of the API (`/openapi.json`): what all endpoints have in common."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

SCHEMAS: dict[str, Any] = {
    "Problem": {
        "type": "object",
        "description": "An error, as RFC 9457 has it.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string", "description": "The class of the error."},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "retryable": {"type": "boolean"},
            "instance": {"type": "string"},
            "line": {"type": "integer"},
            "column": {"type": "integer"},
        },
        "example": {
            "type": "urn:ebla:error:UnknownNameError",
            "title": "UnknownNameError",
            "status": 404,
            "detail": "ordres: expected a table or view of this name, found none; tables are orders",
            "retryable": False,
        },
    },
    "Rows": {
        "type": "object",
        "required": ["columns", "rows"],
        "properties": {
            "columns": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name", "type"],
                    "properties": {"name": {"type": "string"}, "type": {"type": "string"}},
                },
            },
            "rows": {"type": "array", "items": {"type": "array"}},
            "next": {"type": "string", "description": "`after` of the next page of a query."},
            "next_page": {"type": "string", "description": "Where the next page of statements' rows is."},
            "rows_total": {"type": "integer"},
            "version": {"type": "integer"},
            "applied_version": {"type": "integer"},
            "age_s": {"type": "number"},
        },
    },
}

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


def answered(example: object, media_type: str = "application/json", description: str = "") -> dict[int | str, Any]:
    """The answer of an endpoint by an example, where its type does not have one."""
    return {200: {"description": description or "The answer.", "content": {media_type: {"example": example}}}}


def install(app: FastAPI) -> None:
    def description() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title, version=app.version, summary=app.summary, routes=app.routes, tags=app.openapi_tags
            )
            _without_422(made)
            parts = made.setdefault("components", {})
            parts.setdefault("schemas", {}).update(SCHEMAS)
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"token": []}]
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = description  # type: ignore[method-assign]


def _without_422(made: dict[str, Any]) -> None:
    """FastAPI's status of a request that is not as described is 400 here, with a problem."""
    for methods in made["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        made.get("components", {}).get("schemas", {}).pop(name, None)
