"""Processes of this machine, as the operating system knows them."""

from __future__ import annotations

import os
import time
from pathlib import Path

POLL_S = 0.02


def is_there(pid: int) -> bool:
    """Whether a process has not ended; one that only waits for its parent to notice has."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return not Path("/proc/self").exists()


def has_ended(pid: int, timeout_s: float) -> bool:
    """Wait for the end of a process, for a while; whether it has come."""
    until = time.monotonic() + timeout_s
    while is_there(pid):
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_S)
    return True
