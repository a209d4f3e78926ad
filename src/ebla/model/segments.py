"""How far a view covers a range of its base's tokens, and what an epoch does with what is covered.

Theory of operation (arrangement backfill). A range is read in chunks, in the order of its keys. Each chunk reads the
newest snapshot there is, so that no old one must be kept. A chunk that read the keys `(a, b]` at version *t* leaves
the segment `(up to b, since t)`: for these keys, the view shows the base as of *t*. Behind the last segment, the
*position*, the view has nothing.

An epoch that brings the view to version *v* looks at each change of the base. Inside a segment whose version is older
it is applied. Beyond the position it is ignored: the chunk that gets there will read its effect. A segment that is
newer than *v* already holds it and is left alone, because computing its rows at *v* would bring them back to the past.
All other segments are then at *v*, and neighbours at one version are one segment.

A chunk and an epoch may run at the same time. The chunk adds a segment behind the position that it started from; the
epoch replaces only the segments that it has seen, which lie before that. So both may commit, in either order.

Keys are whatever can be compared; a key of `None` stands for the end of the range.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ebla.base.ids import Version


class Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Ordered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(Generic[K]):
    up_to: K | None
    """The last key that is covered; `None`: to the end of the range."""
    since: Version
    """The version of the base that the view shows for these keys."""
    rows: int = 0
    """Rows of the base that were read for it."""

    def holds(self, key: K) -> bool:
        """Whether the key lies at or before the end of this segment."""
        return self.up_to is None or not self.up_to < key


Segments = tuple[Segment[K], ...]


def is_covered(segments: Segments[K]) -> bool:
    """Whether there is nothing left to read."""
    return bool(segments) and segments[-1].up_to is None


def position(segments: Segments[K]) -> K | None:
    """The key behind which the next chunk reads; `None` before the first chunk. Not for covered ranges."""
    if is_covered(segments):
        raise ValueError("expected a range that is not covered, found one at its end")
    return segments[-1].up_to if segments else None


def covering(segments: Segments[K], key: K) -> Segment[K] | None:
    """The segment in which a key lies; `None` beyond the position."""
    return next((s for s in segments if s.holds(key)), None)


def applies(segments: Segments[K], key: K, changed: Version) -> bool:
    """Whether a change must be applied: its key is covered, and what was read for it is older."""
    found = covering(segments, key)
    return found is not None and changed > found.since


def cover(segments: Segments[K], chunk: Segment[K]) -> Segments[K]:
    """The segments behind a chunk. Every chunk advances, so that no build stands still without saying so."""
    if is_covered(segments):
        raise ValueError("expected a range that is not covered, found one at its end")
    if segments and chunk.up_to is not None and not _after(segments[-1].up_to, chunk.up_to):
        raise ValueError(f"expected a chunk that ends behind {segments[-1].up_to!r}, found {chunk.up_to!r}")
    return _joined((*segments, chunk))


def advance(segments: Segments[K], version: Version) -> Segments[K]:
    """The segments behind an epoch that applied all changes up to a version."""
    return _joined(Segment(up_to=s.up_to, since=version, rows=s.rows) if s.since < version else s for s in segments)


def rows(segments: Segments[K]) -> int:
    return sum(s.rows for s in segments)


def _after(before: K | None, key: K) -> bool:
    return before is not None and before < key


def _joined(segments: Iterable[Segment[K]]) -> Segments[K]:
    """Neighbours at one version are one segment."""
    joined: list[Segment[K]] = []
    for segment in segments:
        if joined and joined[-1].since == segment.since:
            segment = Segment(up_to=segment.up_to, since=segment.since, rows=joined.pop().rows + segment.rows)
        joined.append(segment)
    return tuple(joined)
