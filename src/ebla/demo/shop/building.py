"""Views and an index are built while the writers write: one builder is killed, and the build goes on.

The first connection neither builds nor keeps views up to date: it only writes. So it is surely the worker, another
process, that begins to build `card`. After it was killed, a second connection finds the build and goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebla.demo.shop import schema
from ebla.demo.shop.display import BuildRow
from ebla.errors import UnknownNameError
from ebla.model.progress import Phase

if TYPE_CHECKING:
    from ebla.api.database import Database
    from ebla.demo.shop.worker import Worker

CHUNKS = 8
"""The worker would read about this many chunks if it were not killed."""
BUILD_S = 8.0
"""How long the worker would take at least: its rate is bounded, so that it is surely killed before the end."""
CHUNKS_UNTIL_KILLED = 1
LOOK_S = 0.1
PATIENCE_S = 180.0

Show = Callable[[Sequence[BuildRow]], None]
"""Shows how far builds are, and raises what a writer failed with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KilledBuild:
    """Where a build was when its worker was dead."""

    exit_code: int
    percent: float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedBuild:
    killed: KilledBuild
    resumed_rows: int
    """The fewest rows that were seen as read after the kill, in another process."""
    seconds: float
    """From the first statement until the last view was readable."""
    commits: int
    """Commits of the writers meanwhile."""

    @property
    def resumed(self) -> bool:
        """Whether the build went on where it was, and the worker did not end by itself."""
        return self.killed.exit_code < 0 and 0 < self.killed.rows <= self.resumed_rows


def pace(lines: int) -> tuple[int, int]:
    """Rows of a chunk, and rows a minute, for a table of this many lines."""
    return max(1, lines // CHUNKS), max(60, int(lines * 60 / BUILD_S))


def begin_and_kill(db: Database, worker: Worker, lines: int, show: Show) -> KilledBuild:
    """Let the worker create `card`, and kill it when a part of it is built."""
    chunk_rows, rows_per_minute = pace(lines)
    worker.give(schema.view_statement("card", f"chunk_rows = {chunk_rows}, rows_per_minute = {rows_per_minute}"))
    for seen in looks(lambda: _progress(db, ["card"])):
        worker.raise_failure()
        show(seen)
        if all(one.rows >= CHUNKS_UNTIL_KILLED * chunk_rows for one in seen):
            break
    code = worker.kill()
    (left,) = _progress(db, ["card"])
    return KilledBuild(exit_code=code, percent=left.percent, rows=left.rows)


def carry_on(db: Database, show: Show) -> int:
    """Create the other views, and wait until all can be read; the fewest rows of `card` that were seen as read."""
    db.sql("ALTER MATERIALIZED VIEW card SET (chunk_rows = NULL, rows_per_minute = NULL)")
    fewest = _progress(db, ["card"])[0].rows
    for name in ("revenue", "by_country"):
        db.sql(schema.view_statement(name, asynchronous=True))
    for seen in looks(lambda: _progress(db, list(schema.VIEWS))):
        show(seen)
        card = seen[0]
        if card.phase != Phase.READABLE:  # then nothing is left to be read
            fewest = min(fewest, card.rows)
        if all(one.phase == Phase.READABLE for one in seen):
            break
    return fewest


def create_index(db: Database, show: Show) -> float:
    """Create the index of `card` and wait until queries can take it; the seconds that it took."""
    began = time.perf_counter()
    db.sql(schema.INDEX.replace("CREATE INDEX", "CREATE ASYNC INDEX"))
    for seen in looks(lambda: _progress(db, [schema.INDEX_NAME])):
        show(seen)
        if all(one.percent == 100 for one in seen):
            break
    return time.perf_counter() - began


def looks(look: Callable[[], Sequence[BuildRow]]) -> Iterator[Sequence[BuildRow]]:
    """What is seen, again and again; an error if that goes on for too long."""
    deadline = time.monotonic() + PATIENCE_S
    seen: Sequence[BuildRow] = ()
    while time.monotonic() < deadline:
        seen = look()
        yield seen
        time.sleep(LOOK_S)
    found = "; ".join(f"{one.name} {one.percent:.0f} % {one.phase}" for one in seen)
    raise RuntimeError(f"building: expected an end within {PATIENCE_S:.0f} s, found {found or 'nothing begun'}")


def _progress(db: Database, names: Sequence[str]) -> list[BuildRow]:
    """What `SHOW PROGRESS` says of these; a view that another process has yet to create waits for that."""
    found = []
    for name in names:
        try:
            at = db.progress(name).progress
        except UnknownNameError:
            found.append(BuildRow(name=name, phase=Phase.WAITING, percent=0.0, detail="the worker"))
            continue
        found.append(
            BuildRow(
                name=name,
                phase=at.phase.value,
                percent=at.percent,
                rows=at.rows,
                tablets=at.tablets,
                rows_per_s=at.rows_per_s,
                detail=at.detail,
            )
        )
    return found
