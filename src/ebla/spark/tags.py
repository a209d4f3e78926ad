"""Which Spark jobs belong to a statement: Ctrl-C cancels those, and no others.

Theory of operation. A statement has a tag, and every job that its threads start carries it. PySpark's own answer to
SIGINT is to cancel all jobs of the process, those of epochs and builds in the background too; so while a statement
runs in the main thread, SIGINT cancels the jobs with its tag, and then interrupts it. The cancelling call is made in a
thread of its own: the interrupted one may be in the middle of a call to the JVM, and the two would get each other's
answers.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
T = TypeVar("T")

CANCEL_S = 5.0
"""How long an interrupted statement waits for Spark to take note."""


class Tags:
    """The tags of a process's statements. `session` is the Spark that runs, if one does."""

    def __init__(self, session: Callable[[], SparkSession | None]) -> None:
        self._session = session
        self._here = threading.local()

    @property
    def current(self) -> str | None:
        """The tag of the statement that this thread works for."""
        return getattr(self._here, "tag", None)

    @contextlib.contextmanager
    def statement(self) -> Iterator[None]:
        """Jobs that are started inside are cancelled when the statement is interrupted."""
        if self.current is not None:
            yield
            return
        tag = f"ebla-{uuid.uuid4()}"
        with self._tagged(tag), self._interruptible(tag):
            yield

    def bound(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function, which works for this thread's statement in whichever thread it is called."""
        tag = self.current
        if tag is None:
            return function

        def run(*args: P.args, **named: P.kwargs) -> T:
            with self._tagged(tag):
                return function(*args, **named)

        return run

    def started(self) -> None:
        """Spark was started by this thread, in the middle of its statement."""
        if self.current is not None:
            self._call("addJobTag", self.current)

    @contextlib.contextmanager
    def _tagged(self, tag: str) -> Iterator[None]:
        before = self.current
        if before == tag:
            yield
            return
        self._here.tag = tag
        self._call("addJobTag", tag)
        try:
            yield
        finally:
            self._here.tag = before
            with contextlib.suppress(Exception):  # the JVM may be gone, and the tag with it
                self._call("removeJobTag", tag)

    def _call(self, method: str, tag: str) -> None:
        session = self._session()
        if session is not None and session.sparkContext._jsc is not None:
            getattr(session.sparkContext, method)(tag)

    def cancel(self, tag: str) -> None:
        """Cancel the jobs of a statement; whatever becomes of it, the statement is interrupted."""

        def call() -> None:
            with contextlib.suppress(Exception):
                self._call("cancelJobsWithTag", tag)

        if self._session() is None:
            return
        thread = threading.Thread(target=call, name="ebla-cancel", daemon=True)
        thread.start()
        thread.join(CANCEL_S)

    @contextlib.contextmanager
    def _interruptible(self, tag: str) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: Any = signal.getsignal(signal.SIGINT)
        if before in (signal.SIG_IGN, None):
            yield
            return

        pressed = False

        def interrupted(number: int, frame: FrameType | None) -> None:
            nonlocal pressed
            pressed = True
            self.cancel(tag)
            if callable(before) and not cancels_all(before):
                before(number, frame)
            else:
                _interrupt()

        signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        except Exception as error:
            if pressed:  # PySpark raises what became of the job in the place of the interrupt
                raise KeyboardInterrupt from error
            raise
        finally:
            if signal.getsignal(signal.SIGINT) is interrupted:
                signal.signal(signal.SIGINT, before)


def cancels_all(handler: object) -> bool:
    """Whether this is PySpark's own answer to SIGINT, which cancels every job of the process."""
    return getattr(handler, "__module__", "").startswith("pyspark.")


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt


@contextlib.contextmanager
def own_handler_kept() -> Iterator[None]:
    """Starting Spark leaves the program's answer to SIGINT what it was."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if cancels_all(signal.getsignal(signal.SIGINT)):
            signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)
