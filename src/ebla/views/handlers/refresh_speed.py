"""How fast a view is refreshed after a change of dictionaries, and what is owed before its next chunk."""

from __future__ import annotations

from dataclasses import dataclass

from ebla.model.handlers import Tuning
from ebla.model.refresh import Refresh
from ebla.model.throttle import Throttle


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshSpeed:
    """How fast a view is refreshed now."""

    rows_per_minute: int | None
    chunk_rows: int

    @classmethod
    def of(cls, tuned: Tuning, refresh: Refresh | None) -> RefreshSpeed:
        """What `ALTER` has set for the refresh, else what holds for the handler. Rounded down: it is a bound."""
        rate = None if tuned.dictionary_rows_per_s is None else max(1, int(tuned.dictionary_rows_per_s * 60))
        rows = tuned.dictionary_rows_per_scan
        if refresh is not None:
            rate = rate if refresh.rows_per_minute is None else refresh.rows_per_minute
            rows = refresh.chunk_rows or rows
        return cls(rows_per_minute=rate, chunk_rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedChunk:
    """A view's next chunk, and what is owed before it is done."""

    chunk: object
    """Which refresh, and where it is; `None`: no chunk is decided."""
    rows: int
    throttle: Throttle


def planned(
    before: PacedChunk | None, chunk: object, rows_left: int, pace: RefreshSpeed, now_us: int, *, whole: bool = False
) -> PacedChunk:
    """The next chunk under a pace. What is owed stays owed, unless the rate has changed: then it is planned anew.

    `whole`: all rows that are left are written in one epoch, and waited for before it.
    """
    throttle = Throttle(rows_per_minute=pace.rows_per_minute, at_us=now_us)
    if before is not None and before.throttle.rows_per_minute == pace.rows_per_minute:
        if before.chunk == chunk:
            return before
        throttle = before.throttle
    rows = max(1, rows_left if whole else min(throttle.rows_now(pace.chunk_rows), rows_left))
    return PacedChunk(chunk=chunk, rows=rows, throttle=throttle.spent(rows, now_us))


def done(waited: PacedChunk, rows: int, now_us: int) -> PacedChunk:
    """Behind the chunk: rows that it had and that were not planned for are owed."""
    return PacedChunk(chunk=None, rows=0, throttle=waited.throttle.spent(max(0, rows - waited.rows), now_us))
