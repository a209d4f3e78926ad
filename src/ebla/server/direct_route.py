"""A route that takes its body, the caller and `Accept`, and nothing else, straight from the request.

FastAPI resolves the parameters of an endpoint anew for each request, which takes as long as a small query does. The
signature of the endpoint still describes the route in `/openapi.json`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, get_type_hints

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from ebla.server.request_pool import Caller, RequestPool

Endpoint = Callable[[BaseModel, RequestPool, Caller, str | None], Awaitable[Response]]


class DirectRoute(APIRoute):
    """Of an endpoint with the parameters `body`, `pool`, `caller` and `accept`, in this order."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint: Endpoint = self.endpoint
        model: type[BaseModel] = get_type_hints(endpoint)["body"]

        async def handle(request: Request) -> Response:
            body = _validated(model, await _read(request))
            pool, caller = request.app.state.pool, request.scope["ebla"]
            return await endpoint(body, pool, caller, request.headers.get("accept"))

        return handle


async def _read(request: Request) -> Any:
    """The document of the body, as FastAPI takes it: the bytes themselves where they are said to be no JSON."""
    content = await request.body()
    if not content:
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    if not _is_json(request.headers.get("content-type", "")):
        return content
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        said = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error", "input": {}}
        raise RequestValidationError([{**said, "ctx": {"error": error.msg}}], body=error.doc) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, "There was an error parsing the body") from error


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return not kind or kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _validated(model: type[BaseModel], document: Any) -> BaseModel:
    try:
        return model.model_validate(document, from_attributes=True)
    except ValidationError as error:
        mistakes = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
        raise RequestValidationError(mistakes, body=document) from error
