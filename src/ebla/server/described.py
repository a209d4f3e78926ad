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


def install(app: FastAPI) -> None:
    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title, version=app.version, summary=app.summary, routes=app.routes, tags=app.openapi_tags
            )
            parts = made.setdefault("components", {})
            parts.setdefault("schemas", {}).update(SCHEMAS)
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"token": []}]
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]
