"""`ebla run`: a process that maintains a warehouse and does nothing else.

It starts Spark, and then epochs, builds and compaction go on in the background until it is stopped. A person at a
terminal sees what is being done; a service gets log lines. SIGTERM and Ctrl-C end it after the work that is running.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ebla.base.signals import asking
from ebla.cli import output
from ebla.cli.status import span
from ebla.errors import EblaError
from ebla.relations import status as status_module

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ebla.api.database import Database
    from ebla.relations.status import Status

LOOK_S = 1.0
"""How often it looks at what there is to do, and shows it."""
LINES_MAX = 8

log = logging.getLogger("ebla.run")


def run(database: Database, *, as_json: bool) -> None:
    """Maintain until a signal comes."""
    stop = threading.Event()
    with asking(stop), _telling(as_json=as_json) as lines:
        log.info("starting Spark")
        _ = database.spark
        database.wake()
        log.info("maintaining %s", status_module.of(database.context.catalog).catalog)
        try:
            if sys.stdout.isatty() and not as_json:
                _watch(database, stop, lines)
            else:
                _look_until(database, stop)
        finally:
            log.info("stopping: the work that is running is finished first")
            database.close()
            log.info("stopped")


# ---- looking --------------------------------------------------------------------------------------------


def _look_until(database: Database, stop: threading.Event) -> None:
    looks = Looks(database)
    while not stop.is_set():
        looks.look()
        stop.wait(LOOK_S)


class Looks:
    """Wakes compaction for what other processes wrote: epochs and builds find it by themselves."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: int | None = None

    def look(self) -> Status | None:
        """The warehouse now; `None` if the catalog does not answer, which is tried again."""
        try:
            found = status_module.of(self._database.context.catalog)
        except EblaError as error:
            log.warning("%s", error)
            return None
        if found.version != self._seen:
            self._seen = found.version
            for name in (*(t.name for t in found.tables), *(v.name for v in found.views)):
                self._database.background.written(name)
        return found


# ---- log lines ------------------------------------------------------------------------------------------


class Lines(logging.Handler):
    """Log records as lines: plain, as JSON objects, or kept for the display."""

    def __init__(self, *, as_json: bool, kept: deque[str] | None) -> None:
        super().__init__(logging.INFO)
        self._as_json = as_json
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        text = output.one_line(record.getMessage())
        level = record.levelname.lower()
        if self._as_json:
            output.write_json({"at": at, "level": level, "logger": record.name, "message": text})
            sys.stdout.flush()
        elif self._kept is not None:
            self._kept.append(f"{at[11:19]} {level} {text}")
        else:
            print(f"{at} {level} {record.name} {text}", flush=True)


@contextlib.contextmanager
def _telling(*, as_json: bool) -> Iterator[deque[str]]:
    """Send what Ebla logs to standard output, or keep the last lines for the display."""
    kept: deque[str] = deque(maxlen=LINES_MAX)
    lines = Lines(as_json=as_json, kept=kept if sys.stdout.isatty() and not as_json else None)
    root = logging.getLogger("ebla")
    before, level = list(root.handlers), root.level
    root.handlers = [lines]
    root.setLevel(min(logging.INFO, level) if level else logging.INFO)
    try:
        yield kept
    finally:
        root.handlers = before
        root.setLevel(level)


# ---- the display ----------------------------------------------------------------------------------------


def _watch(database: Database, stop: threading.Event, lines: deque[str]) -> None:
    from rich.live import Live

    looks, began = Looks(database), time.monotonic()
    with Live(auto_refresh=False, transient=True) as live:
        while not stop.is_set():
            found = looks.look()
            if found is not None:
                doing = database.context.activities.now()
                live.update(display(found, doing, list(lines), time.monotonic() - began), refresh=True)
            stop.wait(LOOK_S)


def display(found: Status, doing: tuple[str, ...], lines: list[str], up_s: float) -> RenderableType:
    """What a person sees: views and how old they are, builds and how far they are, what is done now, the last lines."""
    from rich.console import Group
    from rich.text import Text

    up = span(int(up_s * 1e6))
    head = Text(f"ebla run  {found.catalog}  version {found.version}  up {up}   Ctrl-C ends it", style="bold")
    parts: list[RenderableType] = [head]
    if found.needs:
        parts.append(Text("needs a person: " + "; ".join(f"{n.subject}: {n.reason}" for n in found.needs), style="red"))
    parts += [_views(found), _builds(found)]
    parts.append(Text("now: " + ("; ".join(doing) or "nothing to do"), style="cyan"))
    parts += [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines]
    return Group(*parts)


def _views(found: Status) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("view", "status", "age", "last epoch", "rows", "waits for", "last error"):
        table.add_column(name, justify="right" if name in ("age", "rows") else "left")
    for view in found.views:
        cells = (
            view.name,
            view.status,
            "-" if view.age_s is None else span(int(view.age_s * 1e6)),
            "-" if view.last_epoch_s is None else f"{view.last_plan}, {view.last_epoch_s:.2f} s",
            f"{view.size.rows:,}",
            view.waits_for or "-",
            view.error or "-",
        )
        table.add_row(*(Text(output.one_line(cell)) for cell in cells), style="red" if view.status == "failed" else "")
    return table if found.views else Text("no views", style="dim")


def _builds(found: Status) -> RenderableType:
    from rich import box
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    if not found.builds:
        return Text("no builds", style="dim")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("build", "phase", "", "done", "rows", "left", "waits for"):
        table.add_column(name)
    for one in found.builds:
        at = one.progress
        table.add_row(
            Text(one.name),
            Text(at.phase.value),
            ProgressBar(total=100, completed=at.percent, width=24),
            Text(f"{at.percent:.0f} %"),
            Text(f"{at.rows:,}"),
            Text("-" if at.eta_s is None else span(int(at.eta_s * 1e6))),
            Text(output.one_line(at.detail or "-")),
        )
    return table
