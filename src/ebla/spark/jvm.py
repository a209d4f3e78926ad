"""The JVM that PySpark launched for this process: how it ended, if it has, and PySpark made ready for another one.

A JVM that is killed takes its sessions with it, but PySpark goes on to hand them out: the gateway, the context and the
session are attributes of its classes. Where Ebla launched the JVM nothing else uses them, so that they can be cleared.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_launched: list[Any] = []
"""The gateway to the JVM that Ebla launched, if it did."""


def mark_launched() -> None:
    """Note that PySpark's gateway leads to a JVM that Ebla launched."""
    _launched[:] = [_gateway()]


def is_launched_by_ebla() -> bool:
    gateway = _gateway()
    return gateway is not None and any(gateway is one for one in _launched)


def ended(wait_s: float = 0.0) -> str | None:
    """How the JVM of this process ended, in words; `None`: it runs, or another program launched it.

    Its connections break a moment before it has ended: `wait_s` is how long to wait for that.
    """
    process = getattr(_gateway(), "proc", None)
    if process is None:
        return None
    if wait_s:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
    code = process.poll()
    if code is None:
        return None
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with the exit code {code}"
    return f"its JVM (process {process.pid}) {how}"


def forget(session: SparkSession) -> None:
    """Clear PySpark of a session whose JVM has ended, so that it can launch another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Sessions

    context, gateway = session.sparkContext, _gateway()
    context._jsc = None
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.shutdown()
        context._accumulatorServer = None  # type: ignore[assignment]
    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
    Sessions._instantiatedSession = Sessions._activeSession = None
    _launched.clear()
    with contextlib.suppress(Exception):  # there is no JVM that could be called
        gateway.shutdown()


def _gateway() -> Any:
    pyspark = sys.modules.get("pyspark")
    return None if pyspark is None else pyspark.SparkContext._gateway
