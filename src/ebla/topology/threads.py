"""Threads for what the leader of the topology does beside its steps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class Pool:
    """A few threads of one process."""

    def __init__(self, name: str, count: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)

    def begin(self, work: Callable[[], None]) -> None:
        self._pool.submit(work)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
