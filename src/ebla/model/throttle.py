"""How long a task waits, so that it reads at most this many rows a minute.

Theory of operation. What a task has read and not yet waited for is a debt of rows, which time pays off at the rate.
The task waits until nothing is owed, after every chunk and after the last one too: so N rows at R rows a minute take
at least N/R minutes. The debt is counted in rows, not in time, so a new rate holds at once for what is still owed.
There is no credit: a pause is never followed by a burst.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    rows_per_minute: int | None
    """`None`: no bound; 0: nothing may be read."""
    owed_row_us: int = 0
    """Rows that are not waited for, times a minute: a whole number, so that nothing is lost by rounding."""
    at_us: int = 0
    """When `owed_row_us` was true."""

    def __post_init__(self) -> None:
        if self.rows_per_minute is not None and self.rows_per_minute < 0:
            raise ValueError(f"rate: expected rows per minute from 0, found {self.rows_per_minute}")

    def settled(self, now_us: int) -> Throttle:
        """The same debt as of now. A clock that went backwards pays nothing."""
        if self.rows_per_minute is None:
            return replace(self, owed_row_us=0, at_us=now_us)
        paid = self.rows_per_minute * max(0, now_us - self.at_us)
        return replace(self, owed_row_us=max(0, self.owed_row_us - paid), at_us=now_us)

    def spent(self, rows: int, now_us: int) -> Throttle:
        """The debt after a chunk of this many rows."""
        settled = self.settled(now_us)
        return replace(settled, owed_row_us=settled.owed_row_us + rows * MINUTE_US)

    def altered(self, rows_per_minute: int | None, now_us: int) -> Throttle:
        """The throttle with another rate from now on."""
        return replace(self.settled(now_us), rows_per_minute=rows_per_minute)

    def wait_us(self, now_us: int) -> int | None:
        """How long to wait before the next chunk; `None`: until the rate is altered."""
        if self.rows_per_minute is None:
            return 0
        if self.rows_per_minute == 0:
            return None
        return -(-self.settled(now_us).owed_row_us // self.rows_per_minute)

    def rows_now(self, chunk_rows: int) -> int:
        """How many rows the next chunk should have: not more than two seconds' worth, so that a pause comes soon."""
        if self.rows_per_minute is None:
            return chunk_rows
        return max(1, min(chunk_rows, self.rows_per_minute // 30))
