"""Changes of a table over HTTP: once, as rows; or as they come, as server-sent events.

An event is the net change of one interval of versions: its id is the last version of it. A client that lost the
connection sends the id that it saw last (`Last-Event-ID`) and gets everything after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from ebla.catalog import reads
from ebla.errors import EblaError, LimitError, UsageError
from ebla.model.access import Right
from ebla.server import formats, problems
from ebla.server.dependencies import Accept, CallerDep, PoolDep
from ebla.server.openapi import PROBLEMS, ROWS, answered
from ebla.server.request_pool import Caller, RequestPool
from ebla.server.statement_rights import Need

router = APIRouter(prefix="/v1", tags=["changes"])

EVENTS = "text/event-stream"
POLL_S = 0.2
EXAMPLE = """id: 42
event: changes
data: {"table":"orders","version":42,"columns":[{"name":"id","type":"bigint"}],"rows":[[5]]}

"""
ALIVE_S = 15.0
"""How often a stream without changes says that it is there."""


@router.get("/tables/{table}/changes", responses={**PROBLEMS, **ROWS})
async def changes(
    request: Request,
    table: str,
    pool: PoolDep,
    caller: CallerDep,
    since: Annotated[int, Query(ge=0)],
    until: Annotated[int | None, Query(ge=0)] = None,
    old: bool = False,
    stream: str | None = None,
    accept: Accept = None,
) -> Response:
    """Net changes per key after version `since`, up to and including `until`."""

    def work() -> Response:
        found = _read(pool, caller, table, since, until, old=old, stream=stream)
        formats.require_rows(found, pool.options.limits.rows)
        return formats.answer(found, {}, accept)

    return await pool.statement(request, caller, f"changes of {table}", work)


@router.get(
    "/changes",
    response_class=StreamingResponse,
    responses={**PROBLEMS, **answered(EXAMPLE, EVENTS, "Events, each with the rows of one change.")},
)
async def events(
    table: str,
    pool: PoolDep,
    caller: CallerDep,
    since: Annotated[int | None, Query(ge=0, description="Begin after this version; default: now.")] = None,
    old: bool = False,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """The changes of a table as they are committed, as server-sent events."""
    if last_event_id is not None:
        if not last_event_id.isdigit():
            raise UsageError(f"header Last-Event-ID: expected a version, found {last_event_id!r}")
        since = int(last_event_id)
    require_streams(pool)
    newest = await pool.query(caller, lambda: _newest(pool, caller, table))
    begin = newest if since is None else since
    return StreamingResponse(_stream(pool, caller, table, begin, old=old), media_type=EVENTS, headers=UNBUFFERED)


def require_streams(pool: RequestPool) -> None:
    if pool.streams >= pool.options.limits.streams:
        raise LimitError(f"expected {pool.options.limits.streams} open streams at most, found more; close some")


UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def _stream(pool: RequestPool, caller: Caller, table: str, since: int, *, old: bool) -> AsyncIterator[bytes]:
    pool.streams += 1
    silent_s = 0.0
    loop = asyncio.get_running_loop()
    try:
        yield b"retry: 1000\n\n"
        while not pool.options.stopping():
            newest = await pool.query(caller, lambda: _newest(pool, caller, table))
            if newest > since:
                read = partial(_read, pool, caller, table, since, newest, old=old)
                found = await loop.run_in_executor(pool.statements, read)
                since = newest
                if found.num_rows:
                    silent_s = 0.0
                    yield event("changes", {"table": table, "version": newest, **_document(found)}, newest)
                continue
            await asyncio.sleep(POLL_S)
            silent_s += POLL_S
            if silent_s >= ALIVE_S:
                silent_s = 0.0
                yield b": alive\n\n"
    except EblaError as error:
        yield event("error", problems.problem(error, caller.id))
    finally:
        pool.streams -= 1


def _document(found: pa.Table) -> dict[str, Any]:
    return {"columns": formats.columns(found.schema), "rows": formats.rows(found)}


def event(kind: str, document: dict[str, Any], version: int | None = None) -> bytes:
    name = b"" if version is None else f"id: {version}\n".encode()
    return name + f"event: {kind}\ndata: ".encode() + formats.json_bytes(document) + b"\n\n"


def _newest(pool: RequestPool, caller: Caller, table: str) -> int:
    """The version of the table's last write. A right that was revoked ends the stream."""
    user = pool.access.again(caller.user)
    pool.access.require(user, (Need(Right.SELECT, table),))
    catalog = pool.database.context.catalog
    return int(catalog.read(lambda at: reads.newest_write(at, reads.relation(at, table).id)))


def _read(
    pool: RequestPool,
    caller: Caller,
    table: str,
    since: int,
    until: int | None,
    *,
    old: bool,
    stream: str | None = None,
) -> pa.Table:
    pool.access.require(caller.user, (Need(Right.SELECT, table),))
    found = pool.database.table(table)
    return found.changes(since, until, old=old, stream=stream).toArrow()
