"""The numbers that tell of changes, for all clients that listen to a node.

However many listen, the node asks the catalog once in `PERIOD_S`, with one statement; without a listener it does not
ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from ebla.catalog import pulse
from ebla.catalog.store import Catalog
from ebla.errors import EblaError

log = logging.getLogger("ebla.server")

PERIOD_S = 1.0

Numbers = dict[str, int]


class Pulse:
    """Belongs to the event loop of the server."""

    def __init__(self, read: Callable[[], Numbers], pool: Executor) -> None:
        self._read = read
        self._pool = pool
        self._listeners: set[asyncio.Queue[Numbers]] = set()
        self._task: asyncio.Task[None] | None = None
        self._newest: Numbers | None = None

    @contextlib.contextmanager
    def listen(self) -> Iterator[asyncio.Queue[Numbers]]:
        """Where the newest numbers come, at once and whenever they change. What was not taken yet is replaced."""
        queue: asyncio.Queue[Numbers] = asyncio.Queue(maxsize=1)
        self._listeners.add(queue)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())
        elif self._newest is not None:
            queue.put_nowait(self._newest)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task, self._newest = None, None

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                found = await loop.run_in_executor(self._pool, self._read)
            except EblaError as error:  # the next request of the client tells the user
                log.debug("events: the catalog did not answer error=%s", error)
            else:
                if found != self._newest:
                    self._newest = found
                    self._tell(found)
            await asyncio.sleep(PERIOD_S)

    def _tell(self, found: Numbers) -> None:
        for queue in self._listeners:
            with contextlib.suppress(asyncio.QueueEmpty):
                queue.get_nowait()
            queue.put_nowait(found)


def of_catalog(catalog: Catalog) -> Numbers:
    with catalog.patience.without():
        return catalog.read(lambda connection: pulse.read(connection, catalog.clock()))
