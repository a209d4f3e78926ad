"""Processes that outlive the one that starts them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class DetachedProcess(subprocess.Popen[bytes]):
    """A process that outlives its parent. Python warns of a plain `Popen` that is never waited for."""

    def __del__(self, *_: object) -> None:
        """Nothing is waited for."""


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
