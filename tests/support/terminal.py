"""A program on a pseudo-terminal, typed at and read like one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][AB0]|[=>])")
TAKES_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal that of the program's session, so that Ctrl-C is a signal to all of its processes."""

LAST_S = 10.0
"""How long a program that has closed its terminal takes to end at most."""


class Terminal:
    """The program, what it has shown so far, and how far that was read."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKES_TERMINAL, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self._text = ""
        self._read = 0

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, wanted: str, seconds: float = 150.0) -> str:
        """Read until the text appears behind what was read before; returns what came in between."""
        deadline = time.monotonic() + seconds
        while wanted not in self._text[self._read :]:
            left = deadline - time.monotonic()
            if left <= 0 or not self._receive(left):
                raise AssertionError(f"expected {wanted!r}, found {self._text[self._read :]!r}")
        begin, self._read = self._read, self._text.index(wanted, self._read) + len(wanted)
        return self._text[begin : self._read]

    def _receive(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self._text += ESCAPE.sub("", data.decode(errors="replace"))
        return bool(data)

    def wait(self, seconds: float = 150.0) -> int:
        """The program's exit status. What it shows until then is read, or it would wait for a reader."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self._receive(left):
            pass
        return self.process.wait(max(left, LAST_S))

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)
