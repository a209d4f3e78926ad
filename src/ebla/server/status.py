"""How the cluster is: views, builds, nodes, jobs, requests that run, and metrics."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ebla.api import system
from ebla.catalog import reads
from ebla.model.access import UserRole
from ebla.relations import status
from ebla.relations.status_document import as_json
from ebla.server import formats
from ebla.server.dependencies import Accept, CallerDep, PoolDep
from ebla.server.openapi import PROBLEMS, ROWS, answered
from ebla.server.request_pool import Caller, RequestPool, RunningRequest
from ebla.values.columns import python_rows
from ebla.values.json_values import to_json

router = APIRouter(tags=["status"])

METRICS = "text/plain; version=0.0.4; charset=utf-8"


class UserInfo(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "ada", "role": "writer", "token": True, "rights": {"orders": "OWN"}}]}
    )

    name: str
    role: str
    token: bool = Field(description="Whether the node asks for tokens.")
    rights: dict[str, str] = Field(description="By relation, where something else than the role was said.")


REQUEST: dict[str, JsonValue] = {
    "id": "r-7",
    "user": "ada",
    "statement": "SELECT count(*) FROM orders",
    "doing": "",
    "part": None,
    "seconds": 0.8,
    "cancelled": None,
}
STATUS = {
    "version": 41,
    "needs": [],
    "nodes": [{"node": "n1", "state": "normal"}],
    "tables": [{"table": "orders", "tablets": 16, "rows": 1000}],
    "views": [],
}
"""A part of the answer."""
METRIC = """# HELP ebla_view_age_seconds Seconds since the oldest write that the view has not read.
# TYPE ebla_view_age_seconds gauge
ebla_view_age_seconds{view="sales"} 0.4
"""


class RequestInfo(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [REQUEST]})

    id: str
    user: str
    statement: str
    doing: str
    part: float | None
    seconds: float
    cancelled: str | None


async def _statement(pool: RequestPool, caller: Caller, text: str, accept: str | None) -> Response:
    def work() -> Response:
        table = pool.database.sql(text).to_arrow()
        return formats.answer(table, {}, accept)

    return await pool.query(caller, work)


@router.get("/v1/version", responses={**PROBLEMS, **answered({"version": 41})})
async def version(pool: PoolDep, caller: CallerDep) -> dict[str, int]:
    """The newest committed version, shared by all tables."""
    return {"version": await pool.query(caller, lambda: pool.database.version)}


@router.get("/v1/me", responses=PROBLEMS)
async def me(pool: PoolDep, caller: CallerDep) -> UserInfo:
    """The user of the token, with its role, and what was granted and revoked by relation."""
    user = caller.user

    def work() -> UserInfo:
        catalog = pool.database.context.catalog
        rights = catalog.read(lambda at: {reads.called(at, one): said.value for one, said in user.said.items()})
        return UserInfo(name=user.name, role=user.role.value, token=pool.options.users, rights=rights)

    return await pool.query(caller, work)


@router.get("/v1/status", responses={**PROBLEMS, **answered(STATUS)})
async def whole(pool: PoolDep, caller: CallerDep) -> dict[str, Any]:
    """How the warehouse is, as `ebla status --json` shows it."""

    def work() -> dict[str, Any]:
        found: dict[str, Any] = to_json(as_json(status.of(pool.database.context.catalog)))
        return found

    return await pool.query(caller, work)


@router.get("/v1/views", responses={**PROBLEMS, **ROWS})
async def views(pool: PoolDep, caller: CallerDep, accept: Accept = None) -> Response:
    """Every view: its state, and how fresh it is."""
    return await _statement(pool, caller, "SHOW VIEWS", accept)


@router.get("/v1/progress", responses={**PROBLEMS, **ROWS})
async def progress(pool: PoolDep, caller: CallerDep, accept: Accept = None) -> Response:
    """How far builds are."""
    return await _statement(pool, caller, "SHOW PROGRESS", accept)


@router.get("/v1/progress/{name}", responses={**PROBLEMS, **answered({"name": "sales", "percent": 62.5})})
async def progress_of(name: str, pool: PoolDep, caller: CallerDep) -> dict[str, Any]:
    """How far the build of a view or an index is."""

    def work() -> dict[str, Any]:
        pool.database.progress(name)  # says what is wrong with the name
        context = pool.database.context
        with context.catalog.reading() as connection:
            rows = python_rows(system.read(connection, "build_progress", context.catalog.clock(), context))
        [found] = [row for row in rows if row["name"].lower() == name.lower()] or [{"name": name}]
        return {column: to_json(value) for column, value in found.items()}

    return await pool.query(caller, work)


@router.get("/v1/topology", responses={**PROBLEMS, **ROWS})
async def topology(pool: PoolDep, caller: CallerDep, accept: Accept = None) -> Response:
    """The nodes of the cluster."""
    return await _statement(pool, caller, "SHOW NODES", accept)


@router.get("/v1/jobs", responses={**PROBLEMS, **ROWS})
async def jobs(pool: PoolDep, caller: CallerDep, accept: Accept = None) -> Response:
    """The jobs of the cluster: the handlers, and where each one runs."""
    return await _statement(pool, caller, "SHOW JOBS", accept)


@router.get("/metrics", response_class=Response, responses=answered(METRIC, "text/plain", "Prometheus' text format."))
async def metrics(pool: PoolDep) -> Response:
    """What monitoring reads."""
    return Response(await asyncio.to_thread(pool.database.metrics), media_type=METRICS)


# ---- requests that run ----------------------------------------------------------------------------------


def _info(one: RunningRequest) -> RequestInfo:
    request = one.asked
    return RequestInfo(
        id=request.id,
        user=request.user,
        statement=request.text[:1000],
        doing=request.doing,
        part=request.part,
        seconds=time.monotonic() - one.began,
        cancelled=request.cancelled,
    )


@router.get("/v1/requests", responses={**PROBLEMS, **answered([REQUEST])})
async def requests(pool: PoolDep, caller: CallerDep) -> list[RequestInfo]:
    """The statements that run on this node: a user's own, or all for an administrator."""
    mine = None if caller.user.role is UserRole.ADMIN else caller.user.name
    return [_info(one) for one in pool.running(mine)]


@router.get("/v1/requests/{request}", responses=PROBLEMS)
async def request_of(request: str, pool: PoolDep, caller: CallerDep) -> RequestInfo:
    """How far a statement is."""
    return _info(pool.find(caller, request))


@router.delete("/v1/requests/{request}", responses=PROBLEMS, status_code=202)
async def cancel(request: str, pool: PoolDep, caller: CallerDep) -> RequestInfo:
    """Cancel a statement. It is answered with RequestCancelledError, unless it ended before."""
    found = pool.find(caller, request)
    await asyncio.to_thread(pool.cancel, found, f"cancelled by {caller.user.name}")
    return _info(found)
