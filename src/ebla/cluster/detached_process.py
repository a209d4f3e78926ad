"""Processes that outlive the one that starts them."""

from __future__ import annotations

import subprocess


class DetachedProcess(subprocess.Popen[bytes]):
    """A process that outlives the one that has started it; Python warns of others that are forgotten."""

    def __del__(self, *_: object) -> None:
        """Nothing is waited for."""
