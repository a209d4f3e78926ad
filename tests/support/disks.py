"""A disk that is really full: a small one of its own, mounted for a test.

Root may mount one. Other users may where they may have a user namespace: there a process holds the disk, and all
processes of the same user reach it through `/proc/PID/root`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

NO_MOUNT = (
    "a small disk cannot be mounted here ({why}): that a full disk rolls a write back was NOT tested with Spark. "
    "Run the tests as root, in a container with --cap-add SYS_ADMIN, or where user namespaces are allowed."
)


class NoDiskError(Exception):
    """This way to get a small disk is closed here."""


@contextlib.contextmanager
def mounted(at: Path, megabytes: int) -> Iterator[Path]:
    """By root."""
    made = subprocess.run(_mount(at, megabytes), capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise NoDiskError(made.stderr.strip() or f"mount: exit {made.returncode}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


@contextlib.contextmanager
def in_namespace(at: Path, megabytes: int) -> Iterator[Path]:
    """By any user: the disk is gone when the process that holds it ends."""
    hold = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", '"$@" && echo ready && exec cat', "sh"]
    pipe = subprocess.PIPE
    try:
        holder = subprocess.Popen([*hold, *_mount(at, megabytes)], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    except OSError as error:
        raise NoDiskError(str(error)) from error
    with holder:  # closes what it reads from, and waits for its end
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "ready\n":
            raise NoDiskError(holder.stderr.read().strip() or "unshare: no disk")
        yield Path(f"/proc/{holder.pid}/root{at}")


WAYS: tuple[Callable[[Path, int], AbstractContextManager[Path]], ...] = (mounted, in_namespace)


@contextlib.contextmanager
def small_disk(at: Path, megabytes: int) -> Iterator[Path]:
    """An empty file system of this size. Where none can be mounted, skips loudly."""
    at.mkdir(parents=True, exist_ok=True)
    closed: list[str] = []
    with contextlib.ExitStack() as stack:
        for way in WAYS:
            try:
                disk = stack.enter_context(way(at, megabytes))
            except NoDiskError as error:
                closed.append(str(error))
                continue
            yield disk
            return
    pytest.skip(NO_MOUNT.format(why="; ".join(closed)))


def _mount(at: Path, megabytes: int) -> list[str]:
    return ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(at)]


def free_bytes(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize
