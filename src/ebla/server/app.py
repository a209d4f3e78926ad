"""The HTTP API as an ASGI application: `create_app(database, Options(…))`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import FastAPI

from ebla.server import console, openapi, problems
from ebla.server.gate import Gate
from ebla.server.options import Options
from ebla.server.request_pool import RequestPool
from ebla.server.routes import ROUTERS

if TYPE_CHECKING:
    from ebla.api.database import Database


def create_app(database: Database, options: Options | None = None) -> FastAPI:
    """The API of a node. The database stays open when the application ends; the caller closes it."""
    pool = RequestPool(database, options or Options())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            pool.close()

    app = FastAPI(
        title="Ebla",
        version=version("ebla"),
        summary="Tables, materialized views and indexes over HTTP.",
        lifespan=lifespan,
        redoc_url=None,
        strict_content_type=False,
    )
    app.state.pool = pool
    problems.install(app)
    for router in (*ROUTERS, *pool.options.routers):
        app.include_router(router)
    openapi.install(app)
    app.include_router(console.router)
    app.add_middleware(Gate, pool=pool)
    _make_routes(app)
    return app


def _make_routes(app: FastAPI) -> None:
    """FastAPI makes the routes of a router when it is first asked whether one of them fits.

    That is with the first request otherwise, in the thread of the listener, and with the filter of warnings changed
    meanwhile, which all threads of a process share.
    """
    for route in app.routes:
        route.matches({"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": []})
