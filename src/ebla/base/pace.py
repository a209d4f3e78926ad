"""Pace: what moves files in the background leaves disks and cores to writers and queries of the process.

Theory of operation. Files that go to another node, or are cut for a split, are read and written as fast as the disk
takes them: a writer's flush waits behind them, and a query shares the cores with them. Work that is paced therefore
asks for a `turn` for each piece of some MiB. While writers or queries are at work one piece goes at a time, and behind
each comes a pause in proportion to what it took, so that the work has no more than its share of the time. A pause ends
when neither have been at work for `QUIET_S`. Without them pieces go side by side, and none pauses.

Small pieces can be put together into one: what asks for turns within a turn, its threads included, has it already.

The work goes on under any load: a turn is kept for one piece and its pause, each piece is bounded, and a pause takes
`PAUSE_S_MAX` at most. Where no thread is paced (a user waits for a repair, say) a turn is nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

QUIET_S = 0.05
"""Behind the end of a write or a query, how long the process counts as one in which they are at work:"""
PAUSE_S_MAX = 2.0
"""they follow each other. And the longest pause behind one piece."""

P = ParamSpec("P")
Done = TypeVar("Done")


class Pace:
    """The turns of one process. Safe to use from several threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        """One piece at a time."""
        self._mine = threading.local()
        self._at_work = 0
        self._last_s = -float("inf")
        """When the last write or query has ended."""
        self.paused_s = 0.0
        """How long pieces have paused, together."""

    # ---- those that go first ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def first(self) -> Iterator[None]:
        """This thread writes or asks for a user, who waits for it."""
        with self._lock:
            self._at_work += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1
                self._last_s = self._clock()

    @property
    def is_busy(self) -> bool:
        """Whether writers or queries are at work, or were just now."""
        return self._at_work > 0 or self._clock() < self._last_s + QUIET_S

    # ---- what is paced ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def paced(self, share: float) -> Iterator[None]:
        """What this thread does meanwhile has this share of the time, from above 0 to 1, while others are at work."""
        before = self.share
        self._mine.share = share
        try:
            yield
        finally:
            self._mine.share = before

    @property
    def share(self) -> float:
        return float(getattr(self._mine, "share", 1.0))

    def bound(self, function: Callable[P, Done]) -> Callable[P, Done]:
        """The function, which has this thread's share, and the turn that it is in, in whichever thread it is called."""
        share, is_within = self.share, self._is_within
        if share >= 1:
            return function

        def run(*args: P.args, **named: P.kwargs) -> Done:
            with self.paced(share), self._in_turn() if is_within else contextlib.nullcontext():
                return function(*args, **named)

        return run

    @property
    def _is_within(self) -> bool:
        """Whether this thread is in a turn."""
        return bool(getattr(self._mine, "is_within", False))

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        before, self._mine.is_within = self._is_within, True
        try:
            yield
        finally:
            self._mine.is_within = before

    @contextlib.contextmanager
    def turn(self) -> Iterator[bool]:
        """One piece of the work; whether it goes alone, and others wait for what it leaves to do."""
        share = self.share
        if share >= 1 or self._is_within or not self.is_busy:
            yield False
            return
        with self._turn:
            began_s = self._clock()
            with self._in_turn():
                yield True
            took_s = self._clock() - began_s
            self._pause(min(PAUSE_S_MAX, took_s * (1 / share - 1)))

    def _pause(self, most_s: float) -> None:
        began_s = now_s = self._clock()
        while (left_s := began_s + most_s - now_s) > 0 and self.is_busy:
            self._sleep(min(left_s, QUIET_S))
            now_s = self._clock()
        self.paused_s += now_s - began_s


PACE = Pace()
"""The pace of all threads of this process."""
