"""Requests carried out by threads: how many at once, until when, and how one is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request

from ebla.base import user_requests as a
from ebla.errors import RequestCancelledError, UnknownNameError
from ebla.model.access import User
from ebla.server.access import Access
from ebla.server.options import Options
from ebla.server.pages import Pages
from ebla.server.pulse import Pulse, of_catalog

if TYPE_CHECKING:
    from ebla.api.database import Database

Done = TypeVar("Done")

CANCEL_AGAIN_S = 0.2
"""How often the jobs of a cancelled request are cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sent a request, and the id that the client gave it."""

    id: str
    user: User


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRequest:
    """A request that is being carried out."""

    asked: a.UserRequest
    began: float
    over: threading.Event

    @property
    def tag(self) -> str:
        """What Spark's jobs of it carry."""
        return f"ebla-{self.asked.user}-{self.asked.id}"


class RequestPool:
    """What the requests of one node share."""

    def __init__(self, database: Database, options: Options) -> None:
        self.database = database
        self.options = options
        limits = options.limits
        self.statements = ThreadPoolExecutor(limits.statements, "ebla-statement")
        self.queries = ThreadPoolExecutor(limits.queries, "ebla-query")
        self.access = Access(database.context.catalog, limits)
        self.pages = Pages(limits.pages_bytes)
        self.streams = 0
        """Open streams of changes and events."""
        self.pulse = Pulse(partial(of_catalog, database.context.catalog), self.queries)
        self._running: dict[tuple[str, str], RunningRequest] = {}
        self._lock = threading.Lock()
        database.context.progress = a.tell

    def close(self) -> None:
        for pool in (self.statements, self.queries):
            pool.shutdown(wait=False, cancel_futures=True)

    # ---- what runs --------------------------------------------------------------------------------------

    def running(self, user: str | None = None) -> list[RunningRequest]:
        with self._lock:
            return [one for one in self._running.values() if user is None or one.asked.user == user]

    def find(self, caller: Caller, identifier: str) -> RunningRequest:
        with self._lock:
            found = self._running.get((caller.user.name, identifier))
        if found is None:
            raise UnknownNameError(f"request {identifier}: expected one that runs on this node, found none")
        return found

    def cancel(self, found: RunningRequest, reason: str) -> None:
        """Cancel what a request has begun, and what it begins until it notices: a query may be several jobs."""
        found.asked.cancel(reason)

        def cancel_jobs() -> None:
            self.database.context.sessions.tags.cancel(found.tag)
            while not found.over.wait(CANCEL_AGAIN_S):
                self.database.context.sessions.tags.cancel(found.tag)

        threading.Thread(target=cancel_jobs, name="ebla-cancel", daemon=True).start()

    @contextlib.contextmanager
    def _begun(self, caller: Caller, text: str) -> Iterator[RunningRequest]:
        """The request, when no other with its id runs here any more: the second is a repetition of the first."""
        made = RunningRequest(
            asked=a.UserRequest(id=caller.id, user=caller.user.name, text=text),
            began=time.monotonic(),
            over=threading.Event(),
        )
        while True:
            with self._lock:
                before = self._running.setdefault((caller.user.name, caller.id), made)
            if before is made:
                break
            before.over.wait()
        try:
            with a.asking(made.asked):
                yield made
        finally:
            with self._lock:
                del self._running[caller.user.name, caller.id]
            made.over.set()

    def _give_up(self, reason: str, begun: Iterable[RunningRequest], cancelled: list[str]) -> None:
        """Cancel a statement, also one that begins at this moment: that one looks whether it was cancelled."""
        cancelled.append(reason)
        for running in begun:
            self.cancel(running, reason)

    # ---- carrying out -----------------------------------------------------------------------------------

    async def query(self, caller: Caller, work: Callable[[], Done]) -> Done:
        """Something that takes milliseconds: it is not cancelled, and does not wait for a catalog that is away."""

        def carried_out() -> Done:
            patience = self.database.context.catalog.patience
            files = self.database.context.nodes.reading()
            with files, patience.without(), a.asking(a.UserRequest(id=caller.id, user=caller.user.name)):
                return work()

        return await asyncio.get_running_loop().run_in_executor(self.queries, carried_out)

    async def statement(
        self, request: Request, caller: Caller, text: str, work: Callable[[], Done], timeout_s: float | None = None
    ) -> Done:
        """Something that may take long: it ends when the client goes, when its time is over, and by DELETE.

        What has not begun then does not begin: it may wait for a thread, or for another request with its id.
        """
        begun, cancelled = list[RunningRequest](), list[str]()

        def carried_out() -> Done:
            context = self.database.context
            tagged, kept = context.sessions.tags.statement, context.storage.nodes.reading
            with self._begun(caller, text) as running, kept(), tagged(tag=running.tag):
                begun.append(running)
                for reason in cancelled:
                    running.asked.cancel(reason)
                try:
                    running.asked.require_wanted()
                    return work()
                except Exception as error:
                    said = running.asked.cancelled
                    if said is None or isinstance(error, RequestCancelledError):
                        raise
                    raise RequestCancelledError(said) from error

        limit_s = self.options.limits.request_s
        limit_s = limit_s if timeout_s is None else min(timeout_s, limit_s)
        loop = asyncio.get_running_loop()
        submitted = self.statements.submit(carried_out)
        done = asyncio.wrap_future(submitted)
        gone = asyncio.ensure_future(_gone(request))
        try:
            waiting: set[asyncio.Future[Any]] = {done, gone}
            await asyncio.wait(waiting, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                reason = (
                    "the client went away" if gone.done() else f"expected to end within {limit_s:g} s, found it running"
                )
                if submitted.cancel():
                    raise RequestCancelledError(reason)
                await loop.run_in_executor(None, self._give_up, reason, begun, cancelled)
            return await done
        finally:
            gone.cancel()


async def _gone(request: Request) -> None:
    """Returns when the client has closed the connection. The body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
