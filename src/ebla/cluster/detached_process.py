"""Processes that outlive the one that starts them."""

from __future__ import annotations

import subprocess


class DetachedProcess(subprocess.Popen[bytes]):
    """A process that outlives its parent. Python warns of a plain `Popen` that is never waited for."""

    def __del__(self, *_: object) -> None:
        """Do not wait for the process, as a plain `Popen` would have its owner do."""
