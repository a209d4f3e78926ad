"""What endpoints take from every request."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Request

from ebla.server.request_pool import Caller, RequestPool


async def _pool(request: Request) -> RequestPool:
    found: RequestPool = request.app.state.pool
    return found


async def _caller(request: Request) -> Caller:
    found: Caller = request.scope["ebla"]
    return found


PoolDep = Annotated[RequestPool, Depends(_pool)]
CallerDep = Annotated[Caller, Depends(_caller)]
Accept = Annotated[str | None, Header(description="`application/json`, an Arrow stream, Parquet or CSV.")]
