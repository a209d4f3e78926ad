"""The piece of a compaction that is at work in this process, and when it is abandoned for an epoch.

Theory of operation. Spark takes no core from a task that runs, so a large epoch that begins beside a piece shares the
cores with it to its end. Such an epoch has the piece abandoned: its jobs are cancelled, its transaction is rolled back,
and its tablets are folded later. Two rules bound what is done in vain:

- Pieces that end earn the time that pieces may lose. So where large epochs follow each other for ever, no more time is
  lost than is spent on pieces that end.
- A piece of which most is done goes on, as far as the last one tells how long it takes.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ebla.spark.tags import Tags

EARLY = 0.75
"""The part of its time in which a piece is abandoned."""
CREDIT_S = 60.0
"""The most time that may be lost in a row, however long pieces have ended."""


class AbandonedError(Exception):
    """A piece was abandoned. Nothing of it is seen; it is done again later."""


@dataclass(slots=True, eq=False)
class _Piece:
    tag: str
    rows: int
    began_s: float
    abandoned: bool = False


class Pieces:
    """Which piece is at work. A process has one at a time. Safe to use from several threads."""

    def __init__(self, tags: Tags, clock: Callable[[], float] = time.monotonic) -> None:
        self._tags = tags
        self._clock = clock
        self._lock = threading.Lock()
        self._piece: _Piece | None = None
        self._credit_s = 0.0
        """How much more time pieces that ended have taken than pieces that were abandoned."""
        self._row_s: float | None = None
        """How long the last piece took for each of its rows."""

    @contextlib.contextmanager
    def at_work(self, rows: int) -> Iterator[None]:
        """A piece of about this many rows, whose Spark jobs are started inside by this thread.

        If it is abandoned, what becomes of these is `AbandonedError`.
        """
        piece = _Piece(f"ebla-piece-{uuid.uuid4()}", rows, self._clock())
        with self._lock:
            self._piece = piece
        ended = False
        try:
            with self._tags.statement(with_jobs=True, tag=piece.tag):
                yield
            ended = True
        except Exception as error:
            if piece.abandoned:
                raise AbandonedError from error
            raise
        finally:
            with self._lock:
                self._piece = None
                self._note(piece, ended=ended)

    def abandon(self) -> bool:
        """Cancel the jobs of the piece that is at work, unless it is to go on to its end; whether that was done."""
        with self._lock:
            piece = self._piece
            if piece is None or piece.abandoned or not self._may_lose(piece):
                return False
            piece.abandoned = True
        self._tags.cancel(piece.tag)
        return True

    def check(self) -> None:
        """Called before the job of a piece by its thread: a job that has not begun is not cancelled."""
        with self._lock:
            piece = self._piece
        if piece is not None and piece.abandoned and self._tags.current == piece.tag:
            raise AbandonedError

    def _note(self, piece: _Piece, *, ended: bool) -> None:
        """What a piece took that is over. Under the lock."""
        took_s = self._clock() - piece.began_s
        if ended:
            self._credit_s = min(CREDIT_S, self._credit_s + took_s)
            self._row_s = took_s / max(1, piece.rows)
        elif piece.abandoned:
            self._credit_s -= took_s

    def _may_lose(self, piece: _Piece) -> bool:
        """Whether others have earned what a piece has taken, and most of it is left to do. Under the lock."""
        took_s = self._clock() - piece.began_s
        return took_s <= self._credit_s and (self._row_s is None or took_s <= EARLY * self._row_s * piece.rows)
