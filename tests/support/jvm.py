"""The JVM of the Spark that the tests share, when a test ends in the middle of a call to it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def threads() -> str:
    """What the threads of the JVM are doing."""
    process = getattr(_gateway(), "proc", None)
    if process is None:
        return "no JVM was launched by this process"
    try:
        shown = subprocess.run(
            ["jstack", "-l", str(process.pid)], check=False, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"jstack {process.pid}: {error}"
    return shown.stdout + shown.stderr


def give_up_call() -> None:
    """Close this thread's connection to the JVM: the next call makes another one.

    A call that the end of a test's time interrupted has an answer to come, which the next call would take for its own,
    and so on through all tests behind it. py4j itself closes it for a `KeyboardInterrupt` alone.
    """
    gateway = _gateway()
    connection = None if gateway is None else gateway._gateway_client.get_thread_connection()
    if connection is not None:
        connection.close()


def _gateway() -> Any:
    return getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_gateway", None)
