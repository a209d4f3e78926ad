"""The time of a PostgreSQL catalog: that of its server, on every node alike.

Leases are times in the catalog that other processes compare with their own. A node whose clock is a minute ahead would
take every other process for dead, and one that is a minute behind would never be seen alive. So each process takes the
server's time with a new connection, and counts on from there with a clock that no administrator turns back.
"""

from __future__ import annotations

import time
from typing import Any

PERIOD_S = 60.0
"""How often the server is asked again."""
TRIP_S_MAX = 1.0
"""An answer that took longer tells too little, unless it is the first one."""

QUERY = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class ServerClock:
    """Microseconds since 1970 by the server's clock; by this machine's until the server was asked."""

    def __init__(self) -> None:
        self._measured: tuple[int, float] | None = None
        """A time of the server, and the reading of the steady clock at that moment."""

    def __call__(self) -> int:
        if self._measured is None:
            return time.time_ns() // 1000
        server_us, at_s = self._measured
        return server_us + int((steady_s() - at_s) * 1e6)

    @property
    def is_due(self) -> bool:
        return self._measured is None or steady_s() - self._measured[1] >= PERIOD_S

    def measure(self, cursor: Any, before: str = "") -> None:
        """Ask the server, in one round trip with statements that come before."""
        began_s = steady_s()
        cursor.execute(f"{before}{QUERY}")
        while cursor.nextset():
            pass
        [server_us] = cursor.fetchone()
        trip_s = steady_s() - began_s
        if self._measured is None or trip_s <= TRIP_S_MAX:
            self._measured = int(server_us), began_s + trip_s / 2


def steady_s() -> float:
    """Seconds that go on while the machine sleeps, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
