"""What nodes ask each other: `/rpc/…`. They prove with the secret of the cluster that they belong to it.

The catalog is the truth. A wake-up saves its receiver the wait until its next look, and no more: one that is lost, late
or repeated changes nothing. A call to build is one that the coordinator of building repeats until it is answered.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as TooLate
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict

from ebla.base.ids import NodeId, TaskId, Term, Version
from ebla.build.node import TermRefused
from ebla.errors import NodeUnavailableError, TokenError
from ebla.server import files
from ebla.server.join import Join, Joins, answer_join

if TYPE_CHECKING:
    from ebla.api.database import Database
    from ebla.build.worker import Answer

SECRET = "Ebla-Secret"
WORK_S = 30.0
"""How long a call to build waits for its answer; the caller asks again."""


class Wake(BaseModel):
    model_config = ConfigDict(extra="forbid")

    topology: int = 0
    """The version of the topology that the sender has committed or read."""


class Followed(BaseModel):
    topology: int


class Work(BaseModel):
    """`work_on_view_building_tasks(term, shard, ids)` on a node."""

    model_config = ConfigDict(extra="forbid")

    host: str
    term: int
    shard: int
    ids: list[str]


class Worked(BaseModel):
    refused_by: int | None = None
    """The newer term that the worker has seen."""
    finished: list[str] = []
    failed: dict[str, str] = {}
    waits_us: dict[str, int] = {}


def router(database: Database, secret: str) -> APIRouter:
    made = APIRouter(prefix="/rpc", include_in_schema=False, route_class=_asking_for(secret))

    @made.post("/join")
    def join(body: Join) -> Joins:
        """A node that has the secret asks to join: what can be checked here is, and its request is written."""
        return answer_join(database, body)

    @made.post("/wake")
    def wake(body: Wake) -> Followed:
        """Another node has committed something."""
        return Followed(topology=int(database.background.follow(Version(body.topology))))

    @made.post("/work_on_view_building_tasks")
    def work(body: Work) -> Worked:
        """Build these tasks; answered when some are finished, or none of them runs."""
        if not database.context.maintains:
            raise NodeUnavailableError("building: expected a node with Spark, found one without; build it elsewhere")
        ids = [TaskId(one) for one in body.ids]
        return _answer(database.builder.called.call(NodeId(body.host), Term(body.term), body.shard, ids))

    files.add_to(made, database)
    return made


def _asking_for(secret: str) -> type[APIRoute]:
    """Routes that ask for the secret of the cluster before they read what is sent."""

    class SecretRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_member(request: Request) -> Response:
                given = request.headers.get(SECRET)
                if given is None or not hmac.compare_digest(given.encode(), secret.encode()):
                    raise TokenError(f"header {SECRET}: expected the secret of the cluster, found another one")
                return await handle(request)

            return handle_member

    return SecretRoute


def _answer(future: Future[Answer]) -> Worked:
    try:
        answer = future.result(WORK_S)
    except TermRefused as refused:
        return Worked(refused_by=int(refused.term))
    except (TooLate, CancelledError) as error:
        raise NodeUnavailableError(f"building: expected an answer in {WORK_S:.0f} s, found none; ask again") from error
    return Worked(
        finished=[str(one) for one in answer.finished],
        failed={str(one): error for one, error in answer.failed.items()},
        waits_us={str(one): wait for one, wait in answer.waits_us.items()},
    )
