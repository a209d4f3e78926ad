"""How the cluster is: views, builds, nodes, jobs, requests that run, and metrics."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from ebla.api import system
from ebla.catalog import reads
from ebla.model.access import UserRole
from ebla.relations import status
from ebla.relations.status_document import as_json
from ebla.server import formats
from ebla.server.given import PROBLEMS, ROWS, Accept, Called, Served
from ebla.server.serving import Caller, RunningRequest, Serving
from ebla.values.columns import python_rows
from ebla.values.json_values import to_json

router = APIRouter(tags=["status"])

METRICS = "text/plain; version=0.0.4; charset=utf-8"


class UserInfo(BaseModel):
    name: str
    role: str
    token: bool = Field(description="Whether the node asks for tokens.")
    rights: dict[str, str] = Field(description="By relation, where something else than the role was said.")


class RequestInfo(BaseModel):
    id: str
    user: str
    statement: str
    doing: str
    part: float | None
    seconds: float
    cancelled: str | None


async def _statement(serving: Serving, caller: Caller, text: str, accept: str | None) -> Response:
    def work() -> Response:
        table = serving.database.sql(text).to_arrow()
        return formats.answer(table, {}, accept)

    return await serving.query(caller, work)


@router.get("/v1/version", responses=PROBLEMS)
async def version(serving: Served, caller: Called) -> dict[str, int]:
    """The newest committed version, shared by all tables."""
    return {"version": await serving.query(caller, lambda: serving.database.version)}


@router.get("/v1/me", responses=PROBLEMS)
async def me(serving: Served, caller: Called) -> UserInfo:
    """The user of the token, with its role, and what was granted and revoked by relation."""
    user = caller.user

    def work() -> UserInfo:
        catalog = serving.database.context.catalog
        rights = catalog.read(lambda at: {reads.called(at, one): said.value for one, said in user.said.items()})
        return UserInfo(name=user.name, role=user.role.value, token=serving.options.users, rights=rights)

    return await serving.query(caller, work)


@router.get("/v1/status", responses=PROBLEMS)
async def whole(serving: Served, caller: Called) -> dict[str, Any]:
    """How the warehouse is, as `ebla status --json` shows it."""

    def work() -> dict[str, Any]:
        found: dict[str, Any] = to_json(as_json(status.of(serving.database.context.catalog)))
        return found

    return await serving.query(caller, work)


@router.get("/v1/views", responses={**PROBLEMS, **ROWS})
async def views(serving: Served, caller: Called, accept: Accept = None) -> Response:
    """Every view: its state, and how fresh it is."""
    return await _statement(serving, caller, "SHOW VIEWS", accept)


@router.get("/v1/progress", responses={**PROBLEMS, **ROWS})
async def progress(serving: Served, caller: Called, accept: Accept = None) -> Response:
    """How far builds are."""
    return await _statement(serving, caller, "SHOW PROGRESS", accept)


@router.get("/v1/progress/{name}", responses=PROBLEMS)
async def progress_of(name: str, serving: Served, caller: Called) -> dict[str, Any]:
    """How far the build of a view or an index is."""

    def work() -> dict[str, Any]:
        serving.database.progress(name)  # says what is wrong with the name
        context = serving.database.context
        with context.catalog.reading() as connection:
            rows = python_rows(system.read(connection, "build_progress", context.catalog.clock(), context))
        [found] = [row for row in rows if row["name"].lower() == name.lower()] or [{"name": name}]
        return {column: to_json(value) for column, value in found.items()}

    return await serving.query(caller, work)


@router.get("/v1/topology", responses={**PROBLEMS, **ROWS})
async def topology(serving: Served, caller: Called, accept: Accept = None) -> Response:
    """The nodes of the cluster."""
    return await _statement(serving, caller, "SHOW NODES", accept)


@router.get("/v1/jobs", responses={**PROBLEMS, **ROWS})
async def jobs(serving: Served, caller: Called, accept: Accept = None) -> Response:
    """The jobs of the cluster: the handlers, and where each one runs."""
    return await _statement(serving, caller, "SHOW JOBS", accept)


@router.get("/metrics", responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text format."}})
async def metrics(serving: Served) -> Response:
    """What monitoring reads."""
    return Response(await asyncio.to_thread(serving.database.metrics), media_type=METRICS)


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


@router.get("/v1/requests", responses=PROBLEMS)
async def requests(serving: Served, caller: Called) -> list[RequestInfo]:
    """The statements that run on this node: a user's own, or all for an administrator."""
    mine = None if caller.user.role is UserRole.ADMIN else caller.user.name
    return [_info(one) for one in serving.running(mine)]


@router.get("/v1/requests/{request}", responses=PROBLEMS)
async def request_of(request: str, serving: Served, caller: Called) -> RequestInfo:
    """How far a statement is."""
    return _info(serving.find(caller, request))


@router.delete("/v1/requests/{request}", responses=PROBLEMS, status_code=202)
async def cancel(request: str, serving: Served, caller: Called) -> RequestInfo:
    """Cancel a statement. It is answered with RequestCancelledError, unless it ended before."""
    found = serving.find(caller, request)
    await asyncio.to_thread(serving.cancel, found, f"cancelled by {caller.user.name}")
    return _info(found)
