"""Errors as problem details (RFC 9457): the class of the error, what it says, and its fields."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ebla import errors
from ebla.errors import EblaError

log = logging.getLogger("ebla.server")

MEDIA_TYPE = "application/problem+json"

STATUS: dict[type[EblaError], int] = {
    errors.LimitError: 413,
    errors.UnknownNameError: 404,
    errors.DuplicateNameError: 409,
    errors.DuplicateKeyError: 409,
    errors.ViewStoppedError: 409,
    errors.UsageError: 400,
    errors.CatalogError: 503,
    errors.NodeConflictError: 409,
    errors.ConflictError: 409,
    errors.StorageFullError: 507,
    errors.StorageError: 500,
    errors.MissingDependencyError: 501,
    errors.SparkJobError: 503,
    errors.TokenError: 401,
    errors.RightError: 403,
    errors.AccessError: 403,
    errors.RateLimitError: 429,
    errors.NodeUnavailableError: 503,
    errors.RequestCancelledError: 409,
    EblaError: 500,
}
"""The status of an error is that of the first class of it that is here, from the class up to the root."""

RETRY_AFTER_S = 1.0
"""When a client may try again where the error does not say it."""

REFUSED = "the request is not as the API describes it"
UNEXPECTED = "a defect of Ebla; the node's log says more"


def status_of(error: EblaError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def problem(error: EblaError, request: str | None = None) -> dict[str, Any]:
    """The document of an error. What is unknown is left out."""
    found: dict[str, Any] = {
        "type": f"urn:ebla:error:{type(error).__name__}",
        "title": type(error).__name__,
        "status": status_of(error),
        "detail": str(error),
        "retryable": error.retryable,
        "instance": None if request is None else f"/v1/requests/{request}",
        "line": getattr(error, "line", None),
        "column": getattr(error, "column", None),
        "settled": getattr(error, "settled", None),
        "lost": getattr(error, "lost", None) or None,
        "code": getattr(error, "code", None),
        "goes_on": error.goes_on or None,
    }
    if error.culprit is not None:
        found["culprit"] = {"relation": error.culprit.relation, "key": error.culprit.key}
    if isinstance(error, errors.UsageError) and error.issues:
        found["issues"] = [one.as_json() for one in error.issues]
    if isinstance(error, errors.TypeMismatchError) and error.refused is not None:
        refused = error.refused
        found["refused"] = {name: getattr(refused, name) for name in ("column", "row", "expected", "found", "why")}
    return {name: value for name, value in found.items() if value is not None}


def answer(error: EblaError, request: str | None = None) -> JSONResponse:
    document, headers = problem(error, request), {}
    if document["status"] in (429, 503):
        seconds = getattr(error, "retry_after_s", None) or RETRY_AFTER_S
        headers["Retry-After"] = str(max(1, round(seconds)))
    if document["status"] == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="ebla"'
    return JSONResponse(document, document["status"], headers, media_type=MEDIA_TYPE)


def request_id(request: Request) -> str | None:
    found = request.scope.get("ebla")
    return None if found is None else str(found.id)


def install(app: FastAPI) -> None:
    """Every error that leaves the app is a problem document."""

    @app.exception_handler(EblaError)
    async def of_ebla(request: Request, error: EblaError) -> JSONResponse:
        return answer(error, request_id(request))

    @app.exception_handler(RequestValidationError)
    async def of_validation(request: Request, error: RequestValidationError) -> JSONResponse:
        return answer(errors.UsageError(_said(error)), request_id(request))

    @app.exception_handler(HTTPException)
    async def of_routing(request: Request, error: HTTPException) -> JSONResponse:
        document = {"type": "about:blank", "title": str(error.detail), "status": error.status_code}
        said = f"{request.method} {request.url.path}: {error.detail}"
        return JSONResponse(
            {**document, "detail": said}, error.status_code, headers=dict(error.headers or {}), media_type=MEDIA_TYPE
        )

    @app.exception_handler(Exception)
    async def of_defect(request: Request, error: Exception) -> JSONResponse:
        log.error("request: failed path=%s error=%s", request.url.path, type(error).__name__, exc_info=error)
        return answer(EblaError(f"unexpected {type(error).__name__}: {UNEXPECTED}"), request_id(request))


def _said(error: RequestValidationError) -> str:
    """The first mistakes with their places: `body.limit: Input should be …`."""
    return f"{REFUSED}: {'; '.join(_mistake(one) for one in error.errors()[:5])}"


def _mistake(one: Any) -> str:
    if one["type"] == "json_invalid":
        return f"body: expected JSON, found: {one['ctx']['error']} at character {one['loc'][-1]}"
    return f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}"
