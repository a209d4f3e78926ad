"""Whether the node lives, and whether it can serve. No token is asked for."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from ebla.errors import EblaError
from ebla.server import formats
from ebla.server.dependencies import PoolDep
from ebla.server.request_pool import RequestPool

router = APIRouter(prefix="/health", tags=["health"])


class Health(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ready", "reason": None}]})

    status: str
    reason: str | None = None


@router.get("/live", response_model=Health)
async def live() -> Health:
    """The process answers."""
    return Health(status="live")


@router.get("/ready", response_model=Health, responses={503: {"model": Health, "description": "Not ready, and why."}})
async def ready(pool: PoolDep) -> Response:
    """The node serves: it is not stopping, and its catalog answers."""
    reason = await asyncio.to_thread(_unready, pool)
    document = {"status": "ready"} if reason is None else {"status": "unready", "reason": reason}
    headers = {} if reason is None else {"Retry-After": "1"}
    return Response(
        formats.json_bytes(document), 200 if reason is None else 503, headers=headers, media_type=formats.JSON
    )


def _unready(pool: RequestPool) -> str | None:
    if pool.options.stopping():
        return "stopping"
    reason = pool.options.unready()
    if reason is not None:
        return reason
    catalog = pool.database.context.catalog
    try:
        with catalog.patience.without():
            catalog.version()
    except EblaError as error:
        return str(error)
    return None
