"""`GET /v1/events`: that something has changed, as server-sent events. The console then reads what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from ebla.errors import EblaError
from ebla.server import problems
from ebla.server.changes import ALIVE_S, EVENTS, UNBUFFERED, event, require_streams
from ebla.server.dependencies import CallerDep, PoolDep
from ebla.server.openapi import PROBLEMS, answered
from ebla.server.pulse import PERIOD_S
from ebla.server.request_pool import Caller, RequestPool

router = APIRouter(prefix="/v1", tags=["status"])

EXAMPLE = """event: numbers
data: {"version":41,"exclusive_version":12,"relation":7,"processes":3,"troubles":0}

"""


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={**PROBLEMS, **answered(EXAMPLE, EVENTS, "Events, each with all numbers.")},
)
async def events(pool: PoolDep, caller: CallerDep) -> Response:
    """The numbers of the catalog, at once and whenever one has changed: versions, jobs, processes, terms, troubles."""
    require_streams(pool)
    return StreamingResponse(_stream(pool, caller), media_type=EVENTS, headers=UNBUFFERED)


async def _stream(pool: RequestPool, caller: Caller) -> AsyncIterator[bytes]:
    pool.streams += 1
    silent_s = 0.0
    try:
        with pool.pulse.listen() as numbers:
            while not pool.options.stopping():
                try:
                    yield event("numbers", await asyncio.wait_for(numbers.get(), PERIOD_S))
                    silent_s = 0.0
                except TimeoutError:
                    silent_s += PERIOD_S
                if silent_s >= ALIVE_S:
                    silent_s = 0.0
                    await pool.query(caller, lambda: pool.access.again(caller.user))
                    yield b": alive\n\n"
    except EblaError as error:
        yield event("error", problems.problem(error, caller.id))
    finally:
        pool.streams -= 1
