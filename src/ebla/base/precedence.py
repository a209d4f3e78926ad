"""Queries go first: work in the background of a process pauses while one of its queries runs.

Theory of operation. Python computes in one thread at a time. Beside threads that compute, a query gets its share and
waits for it again with every call of Arrow and of the catalog: two such threads make it three times as long. A step of
a service, and what threads do for it, therefore asks `give_way` between its pieces, where it holds no lock: while a
query runs, it waits for the end, `PAUSE_S_MAX` at most. It then works for as long as it has paused, whatever runs, so
that queries which follow each other leave it half of the time.

The interpreter is the whole process's, and so are the queries that are counted: those of all open databases.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from ebla.base.pace import PACE, Pace

PAUSE_S_MAX = 0.05

P = ParamSpec("P")
Done = TypeVar("Done")


class Precedence:
    """Which threads go first. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, pace: Pace | None = None) -> None:
        """`pace`: of what moves files, which lets queries go first, too."""
        self._clock = clock
        self._pace = Pace() if pace is None else pace
        self._ended = threading.Condition()
        self._queries = 0
        self._mine = threading.local()
        self.paused = 0
        """How often work has paused."""
        self.paused_s = 0.0
        """For how long work has paused, all pauses together."""

    @contextlib.contextmanager
    def query(self) -> Iterator[None]:
        """This thread runs a query."""
        with self._ended:
            self._queries += 1
        try:
            with self._pace.first(), self._standing(behind=False):
                yield
        finally:
            with self._ended:
                self._queries -= 1
                if not self._queries:
                    self._ended.notify_all()

    def behind(self) -> contextlib.AbstractContextManager[None]:
        """What this thread does meanwhile goes behind queries."""
        return self._standing(behind=True)

    def beside(self) -> contextlib.AbstractContextManager[None]:
        """What this thread does meanwhile pauses for no query: others wait for it, and it is short."""
        return self._standing(behind=False)

    @contextlib.contextmanager
    def _standing(self, *, behind: bool) -> Iterator[None]:
        before = self.is_behind
        self._mine.behind = behind
        try:
            yield
        finally:
            self._mine.behind = before

    @property
    def is_behind(self) -> bool:
        return getattr(self._mine, "behind", False)

    def bound(self, function: Callable[P, Done]) -> Callable[P, Done]:
        """The function, which goes behind queries in whichever thread it is called, if this thread does."""
        if not self.is_behind:
            return function

        def run(*args: P.args, **named: P.kwargs) -> Done:
            with self.behind():
                return function(*args, **named)

        return run

    def give_way(self) -> None:
        """Pause while a query runs, if this thread goes behind it and has not paused just now."""
        if not self._queries or not self.is_behind:
            return
        began_s = self._clock()
        if began_s < getattr(self._mine, "not_before_s", began_s):
            return
        with self._ended:
            self._ended.wait_for(lambda: not self._queries, PAUSE_S_MAX)
            ended_s = self._clock()
            self.paused += 1
            self.paused_s += ended_s - began_s
        self._mine.not_before_s = 2 * ended_s - began_s


PRECEDENCE = Precedence(pace=PACE)
"""The precedence of all threads of this process."""
