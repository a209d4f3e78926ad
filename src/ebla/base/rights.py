"""Directories and files with the rights that a mask leaves, whatever mask the process has."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PRIVATE = 0o077
"""The rights that group and others do not get, unless a setting says otherwise."""


def make_directory(folder: Path, mask: int) -> None:
    """A directory, and those above it; one that is there keeps its rights."""
    if folder.is_dir():
        return
    make_directory(folder.parent, mask)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700 & ~mask)
        folder.chmod(0o777 & ~mask)


def make_file(file: Path, mask: int, *, new: bool = False) -> None:
    """An empty file to be filled by others, so that no moment comes in which it can be read; or one that is there."""
    try:
        made = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 & ~mask)
    except FileExistsError:
        if new:
            raise
        return
    try:
        os.fchmod(made, 0o666 & ~mask)
    finally:
        os.close(made)


def restrict(file: Path, mask: int) -> None:
    """Take the masked rights from a file that another program has written."""
    os.chmod(file, 0o666 & ~mask)
