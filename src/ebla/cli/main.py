"""The program `ebla`: a process that carries out one command line."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ebla.base import lazy
from ebla.cli import failure, passwords
from ebla.cli.commands import app

SHORT = ("query", "status", "metrics")
"""Commands that answer from the catalog and files alone, and start neither Spark nor a thread that outlives them."""
LEAVING = (*SHORT, "node")
"""Commands that end at once when their work is done. A node has closed all that it had then; the interpreter would wait
for its calls to other nodes, which have half a minute to answer."""


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line; returns the exit code. Every error ends here."""
    manner = failure.ErrorFormat.of(arguments)
    try:
        code = app(args=list(arguments), prog_name="ebla", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else failure.UNEXPECTED
    except BrokenPipeError:
        return _reader_left()
    except (Exception, KeyboardInterrupt) as error:
        return failure.report(error, manner)
    if code == failure.INTERRUPTED:  # Ctrl-C while the arguments were read
        return failure.report(KeyboardInterrupt(), manner)
    return code if isinstance(code, int) else 0


def _reader_left() -> int:
    """`ebla … | head`: the rest has no reader, and the interpreter must not try to write it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return failure.UNEXPECTED


def _command_of(arguments: Sequence[str]) -> str | None:
    """The name of the command, before the arguments are understood."""
    rest = iter(arguments)
    for one in rest:
        if one in ("-w", "--warehouse"):
            next(rest, None)
        elif not one.startswith("-"):
            return one
    return None


def main() -> None:
    """The program. Unlike `run` it also settles what concerns the whole process: its modules, logs and streams."""
    passwords.hide()
    arguments = sys.argv[1:]
    command = _command_of(arguments)
    if command in SHORT:
        gc.disable()  # it would look through every imported module, again and again, and find nothing
        # Arrow looks for pandas, which takes as long to import as the rest of the command.
        sys.meta_path.insert(0, lazy.AbsentPackage("pandas"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    failure.quiet_logs(failure.ErrorFormat.of(arguments))
    code = run(arguments)
    if command in LEAVING:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """End the process without taking every module apart first, which takes as long as a short command's work."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
