"""How a process that runs until it is stopped is asked to end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def asking(stop: threading.Event) -> Iterator[None]:
    """The first signal sets the event; a second one is Python's own, and ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        restore()
