"""Which Spark jobs belong to a statement: Ctrl-C cancels those, and no others; and which give way to others.

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
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from ebla.base.precedence import PRECEDENCE
from ebla.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
T = TypeVar("T")

CANCEL_S = 5.0
"""How long an interrupted statement waits for Spark to take note."""


class Pool(StrEnum):
    """Pools of Spark's scheduler besides the default one, as `pools.xml` describes them."""

    COMPACTION = "compaction"


POOL = "spark.scheduler.pool"


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
    def statement(self, *, with_jobs: bool = False, tag: str | None = None) -> Iterator[None]:
        """Jobs that are started inside are cancelled when the statement is interrupted. Most start none, and Spark
        gets the tag when it is first used, or at once if jobs are sure to come (`with_jobs`). Another thread that shall
        cancel it gives the `tag`."""
        outermost = self.current is None
        with self._tagged(self.current or tag or f"ebla-{uuid.uuid4()}") as carried:
            if with_jobs:
                self.put()
            if outermost:
                with self._interruptible(carried):
                    yield
            else:
                yield

    def bound(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function, which works as this thread does wherever it is called: for its statement, behind queries."""
        tag, function = self.current, PRECEDENCE.bound(function)
        if tag is None:
            return function

        def run(*args: P.args, **named: P.kwargs) -> T:
            with self._tagged(tag):
                return function(*args, **named)

        return run

    def put(self) -> None:
        """This thread is about to use Spark: jobs that it starts from now on carry its statement's tag."""
        tag = self.current
        if tag is not None and not self._here.put and self._call("addJobTag", tag):
            self._here.put = True

    @contextlib.contextmanager
    def pool(self, pool: Pool) -> Iterator[None]:
        """Jobs that this thread starts inside get the cores that those of other pools leave, if Spark runs already.

        A Spark that was started by the program may have no such pool; then they are jobs like others.
        """
        put = self._call("setLocalProperty", POOL, pool.value)
        try:
            yield
        finally:
            if put:
                with contextlib.suppress(Exception):  # the JVM may be gone
                    self._call("setLocalProperty", POOL, None)

    @contextlib.contextmanager
    def _tagged(self, tag: str) -> Iterator[str]:
        if self.current == tag:
            yield tag
            return
        self._here.tag, self._here.put = tag, False
        try:
            yield tag
        finally:
            put, self._here.tag, self._here.put = self._here.put, None, False
            if put:
                with contextlib.suppress(Exception):  # the JVM may be gone, and the tag with it
                    self._call("removeJobTag", tag)

    def _call(self, method: str, *given: str | None) -> bool:
        session = self._session()
        if session is None or session.sparkContext._jsc is None or jvm.ended() is not None:
            return False
        getattr(session.sparkContext, method)(*given)
        return True

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
