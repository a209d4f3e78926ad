"""What is being done, on standard error, when a person is watching."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ebla.api.database import Database

Tell = Callable[[str, float | None], None]

FIRST_LINE_S = 5.0
LINE_S_MAX = 60.0


@contextlib.contextmanager
def progress_line(database: Database, what: str) -> Iterator[Tell]:
    """Show what the database says it is doing until the block ends; nothing stays on the screen.

    Without a terminal there is a plain line now and then, for builds that take long, and else nothing. The function
    that is given to the block may be given more.
    """
    with display(what) as tell, database.telling(tell):
        yield tell


def display(what: str) -> contextlib.AbstractContextManager[Tell]:
    """A line on a terminal, plain lines elsewhere."""
    return _bar(what) if sys.stderr.isatty() else contextlib.nullcontext(Lines())


class Lines:
    """Plain lines for a log: of builds alone, the first after a while, then in growing distances."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wait_s = FIRST_LINE_S
        self._due = clock() + FIRST_LINE_S

    def __call__(self, what: str, part: float | None) -> None:
        if part is None or self._clock() < self._due:
            return
        self._wait_s = min(LINE_S_MAX, 2 * self._wait_s)
        self._due = self._clock() + self._wait_s
        print(what, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    # Standard error is silenced while Spark starts. A copy of it is not, so the spinner turns on.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace") as stream:
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=stream), transient=True) as progress:
            bar = BarColumn(bar_width=30)
            task = progress.add_task(what, total=None)

            def tell(what: str, part: float | None) -> None:
                progress.columns = columns if part is None else (*columns[:2], bar, columns[2])
                progress.update(task, description=what, total=None if part is None else 1.0, completed=part or 0.0)

            yield tell
