"""A process of a user who may not write: reads a warehouse with the command line, or with Python.

Root may write everywhere, so a process of root becomes `nobody` before it opens anything. All modules are imported
before that, for `nobody` may not be let into the interpreter's own directories.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BECOME = """
import importlib, os, pkgutil, sys
import ebla, rich.table, rich.console, rich.box, rich.progress, encodings.idna
for found in pkgutil.walk_packages(ebla.__path__, "ebla."):
    if not found.name.startswith(("ebla.demo", "ebla.__main__")):
        importlib.import_module(found.name)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({group})
    os.setuid({user})
warehouse = sys.argv[1]
"""


def run_as_reader(program: str, warehouse: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has `ebla`, `os` and `warehouse`, as a user who is not the files' owner if possible."""
    nobody = pwd.getpwnam("nobody")
    text = _BECOME.format(user=nobody.pw_uid, group=nobody.pw_gid) + program
    return subprocess.run(
        [sys.executable, "-c", text, str(warehouse), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, "HOME": "/nonexistent"},
    )


@contextmanager
def open_directory() -> Iterator[Path]:
    """A temporary directory that every user may enter; that of pytest is its owner's alone."""
    with tempfile.TemporaryDirectory(prefix="ebla-reader-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def forbid_writing(folder: Path) -> None:
    """For a process that is not root: its own user may not write here any more."""
    for place in (folder, *folder.rglob("*")):
        place.chmod(place.stat().st_mode & ~0o222)


def allow_writing(folder: Path) -> None:
    for place in (folder, *folder.rglob("*")):
        place.chmod(place.stat().st_mode | 0o200)
