"""How a process that runs until it is stopped is asked to end."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def asking(stop: threading.Event) -> Iterator[None]:
    """The first signal sets the event; a second one is Python's own, and ends at once.

    A handler runs between two steps of the main thread, which may hold the event's lock just then, as it is about to
    wait: a handler that set the event would wait for the thread that it interrupted. So another thread sets it, and is
    told through a `SimpleQueue`, which is made for being put into from a handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signals: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def listen() -> None:
        if signals.get():
            stop.set()

    def ask(number: int, frame: FrameType | None) -> None:
        signals.put(True)
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    listener = threading.Thread(target=listen, name="ebla-signals", daemon=True)
    listener.start()
    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        restore()
        signals.put(False)
        listener.join()
