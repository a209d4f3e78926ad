"""Answers that are fetched page by page: kept for a while, the least recently used given up first."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from ebla.errors import UnknownNameError

KEPT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    table: pa.Table
    until: float


class Pages:
    """The answers of one node. Safe to use from several threads."""

    def __init__(self, bytes_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes_max = bytes_max
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], Page] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, user: str, request: str, table: pa.Table) -> None:
        now = self._clock()
        with self._lock:
            self._kept[user, request] = Page(table=table, until=now + KEPT_S)
            while self._kept and (
                next(iter(self._kept.values())).until < now
                or sum(one.table.nbytes for one in self._kept.values()) > self._bytes_max
            ):
                self._kept.popitem(last=False)

    def find(self, user: str, request: str) -> pa.Table:
        with self._lock:
            found = self._kept.get((user, request))
            if found is None or found.until < self._clock():
                raise UnknownNameError(
                    f"result {request}: expected one that this node keeps, found none; run the statement again"
                )
            self._kept.move_to_end((user, request))
        return found.table

    def drop(self, user: str, request: str) -> None:
        with self._lock:
            self._kept.pop((user, request), None)
