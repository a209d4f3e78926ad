"""A disk that is really full: a small one of its own, mounted for a test."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

NO_MOUNT = (
    "a small disk cannot be mounted here ({why}): that a full disk rolls a write back was NOT tested with Spark. "
    "Run the tests as root, in a container with --cap-add SYS_ADMIN."
)


@contextlib.contextmanager
def small_disk(at: Path, megabytes: int) -> Iterator[Path]:
    """An empty file system of this size. Where none can be mounted, skips loudly."""
    at.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(at)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(NO_MOUNT.format(why=mounted.stderr.strip() or f"exit {mounted.returncode}"))
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def free_bytes(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize
