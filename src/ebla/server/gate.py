"""What every request passes before it is read: the node serves, the token is right, the body is not too large."""

from __future__ import annotations

import asyncio
import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ebla.base import tokens
from ebla.errors import EblaError, LimitError, NodeUnavailableError, TokenError, UsageError
from ebla.model.access import User
from ebla.server import problems
from ebla.server.access import ANONYMOUS
from ebla.server.request_pool import Caller, RequestPool

REQUEST = "Ebla-Request"
"""The header with the id of a request. A client that repeats a request repeats its id."""

STOPPING_S = 5.0
"""When a client that was refused by a node that stops may ask again."""

JOIN = "/rpc/join"
JOIN_BYTES_MAX = 2**16
"""The bytes of the request of a node that is about to join: it is a few hundred."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class Gate:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, pool: RequestPool) -> None:
        self._app = app
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_guarded(scope["path"]):
            await self._app(scope, receive if _is_file(scope) else self._counted(receive, scope["path"]), send)
            return
        identifier: str | None = None

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start" and identifier is not None:
                MutableHeaders(scope=message)[REQUEST] = identifier
            await send(message)

        try:
            headers = Headers(scope=scope)
            identifier = self._id(headers)
            self._require_serving()
            self._require_small(headers)
            scope["ebla"] = Caller(id=identifier, user=await self._user(headers))
        except EblaError as error:
            await problems.answer(error, identifier)(scope, receive, named)
            return
        await self._app(scope, self._counted(receive, scope["path"]), named)

    def _id(self, headers: Headers) -> str:
        given = headers.get(REQUEST)
        if given is None:
            return uuid.uuid4().hex
        if not _ID.match(given):
            raise UsageError(f"header {REQUEST}: expected up to 64 letters, digits, - and _, found {given[:80]!r}")
        return given

    async def _user(self, headers: Headers) -> User:
        """Whose token it is. Most are known without asking the catalog."""
        access = self._pool.access
        if not self._pool.options.users:
            access.require_pace(ANONYMOUS.name)
            return ANONYMOUS
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise TokenError("header Authorization: expected Bearer and the token of a user, found none")
        digest = tokens.digest(token.strip())
        user = access.recent(digest)
        if user is None:
            loop = asyncio.get_running_loop()
            user = await loop.run_in_executor(self._pool.queries, access.look_up, digest)
        access.require_pace(digest)
        return user

    def _require_serving(self) -> None:
        if self._pool.options.stopping():
            error = NodeUnavailableError("this node is stopping: ask another one, or try again")
            error.retry_after_s = STOPPING_S
            raise error

    def _require_small(self, headers: Headers) -> None:
        length = headers.get("content-length", "")
        limit = self._pool.options.limits.body_bytes
        if length.isdigit() and int(length) > limit:
            raise _too_large(limit, f"{int(length):,}")

    def _counted(self, receive: Receive, path: str) -> Receive:
        """Messages of the request, as long as its body is not too large, whatever its headers say."""
        limit, read = self._pool.options.limits.body_bytes, 0
        if path == JOIN:
            limit = min(limit, JOIN_BYTES_MAX)

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise HTTPException(413, str(_too_large(limit, "more")))
            return message

        return counted


def _too_large(limit: int, found: str) -> LimitError:
    return LimitError(f"the body: expected {limit:,} bytes at most, found {found}; send it in parts")


def _is_file(scope: Scope) -> bool:
    """Whether a node sends a run: the secret is asked for first, and the body goes to the disk in pieces."""
    return bool(scope["type"] != "http" or (scope["method"] == "PUT" and scope["path"].startswith("/rpc/files/")))


def is_guarded(path: str) -> bool:
    """Health checks, the description of the API, and what other routers serve are open."""
    return path.startswith("/v1/") or path == "/metrics"
