"""Which rows of the base the next chunk reads.

Theory of operation. A range of tokens is read in the order of tokens: a *position* is a token, as a text whose order is
that of the tokens. Tokens are spread evenly and have one order whatever the key's type, so a chunk is the same range
for Python, for Spark and for the catalog. Two keys with one token are read together.

Ranges are the tablets that the base had when they were begun. Where tablets are split, what is covered is cut with them
(`cut_at`). Where tablets become one, it stays apart: a task reads its tablet piece by piece (`next_piece`).

A chunk takes the next ranges of the batch, whole where they fit the number of rows, and else a stretch of one. All
views of the batch that stand at the same positions there take part: one scan feeds them all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ebla.base.ids import RelationId, Token
from ebla.model import segments as sg
from ebla.model.segments import Segment, Segments
from ebla.model.tablets import ALL, TokenRange, joined, pieces

Covered: TypeAlias = Mapping[TokenRange, Segments[str]]
"""What a view covers of ranges of its base's tokens, which do not overlap."""

CHUNK_ROWS = 20_000_000
"""Rows of the base in a chunk, unless the build says otherwise."""

_LOWEST = -(2**63)


def position_of(token: int) -> str:
    return f"{token - _LOWEST:016x}"


def token_at(position: str) -> int:
    return int(position, 16) + _LOWEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Rows of one range, behind `after` and up to `up_to`; `None`: from its beginning, to its end."""

    tokens: TokenRange
    after: str | None
    up_to: str | None
    rows: int
    """How many there are, as far as that is known before they are read."""

    @property
    def span(self) -> TokenRange | None:
        """The tokens themselves; `None` if there are none."""
        first = self.tokens.first if self.after is None else token_at(self.after) + 1
        last = self.tokens.last if self.up_to is None else token_at(self.up_to)
        return None if first > last else TokenRange(Token(first), Token(last))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    views: tuple[RelationId, ...]
    stretches: tuple[Stretch, ...]

    @property
    def rows(self) -> int:
        return sum(stretch.rows for stretch in self.stretches)


Cut = Callable[[TokenRange, str | None, int], tuple[str | None, int]]
"""Where this many rows of a range behind a position end (`None`: at the range's end), and how many there are."""


def next_chunk(
    covered: Mapping[RelationId, Covered],
    ranges: Mapping[RelationId, Sequence[TokenRange]],
    rows_max: Mapping[RelationId, int],
    cut: Cut,
    tablets_max: int | None = None,
) -> Chunk | None:
    """The next rows of the first view (they come in the order of turns), and who reads them with it.

    `ranges` are those that each view has to read; `rows_max` is what each would like to read at once, `tablets_max` of
    how many ranges at most.
    """
    for view, mine in ranges.items():
        left = [tokens for tokens in mine if not sg.is_covered(covered[view].get(tokens, ()))]
        if not left:
            continue
        first = (left[0], position_in(covered[view], left[0]))
        sharing = [v for v in ranges if v == view or _stands(covered[v], ranges[v], [first])]
        stretches = _stretches(covered[view], left[:tablets_max], min(rows_max[v] for v in sharing), cut)
        ends = [(stretch.tokens, stretch.after) for stretch in stretches]
        return Chunk(
            views=tuple(v for v in sharing if _stands(covered[v], ranges[v], ends)), stretches=tuple(stretches)
        )
    return None


def _stretches(covered: Covered, left: Iterable[TokenRange], rows_max: int, cut: Cut) -> list[Stretch]:
    stretches: list[Stretch] = []
    room = rows_max
    for tokens in left:
        after = position_in(covered, tokens)
        up_to, rows = cut(tokens, after, room)
        if up_to is not None and stretches:
            break  # a range that does not fit whole begins a chunk of its own
        stretches.append(Stretch(tokens=tokens, after=after, up_to=up_to, rows=rows))
        room -= rows
        if up_to is not None or room <= 0:
            break
    return stretches


def position_in(covered: Covered, tokens: TokenRange) -> str | None:
    """The position behind which the next chunk reads a range, which must not be covered to its end."""
    return sg.position(covered.get(tokens, ()))


def _stands(covered: Covered, ranges: Sequence[TokenRange], at: Iterable[tuple[TokenRange, str | None]]) -> bool:
    """Whether a view has these ranges to read, from these positions on."""
    return all(
        tokens in ranges and not sg.is_covered(covered.get(tokens, ())) and position_in(covered, tokens) == after
        for tokens, after in at
    )


def cut_evenly(tokens: TokenRange, after: str | None, rows: int, rows_max: int) -> tuple[str | None, int]:
    """Where to cut a range with more rows than are sorted by token: the cut takes tokens as evenly spread."""
    first, last = tokens
    start = first if after is None else token_at(after) + 1
    left = round(rows * (last - start + 1) / (last - first + 1))
    if left <= rows_max or start > last:
        return None, left
    end = start + max(1, (last - first + 1) * rows_max // rows) - 1
    return (None, left) if end >= last else (position_of(end), rows_max)


def cut_exactly(tokens: Sequence[int], after: str | None, rows_max: int) -> tuple[str | None, int]:
    """Where to cut a range whose rows' tokens are given, sorted."""
    start = 0 if after is None else bisect_right(tokens, token_at(after))
    if len(tokens) - start <= rows_max:
        return None, len(tokens) - start
    end = tokens[start + max(1, rows_max) - 1]
    stop = bisect_right(tokens, end)  # all rows of one token are read together
    return (None if stop == len(tokens) else position_of(end)), stop - start


def spans(stretches: Iterable[Stretch]) -> list[TokenRange]:
    """The tokens of some stretches, in order; neighbours are one range."""
    return joined(span for stretch in stretches if (span := stretch.span) is not None)


# ---- what is covered ------------------------------------------------------------------------------------


def next_piece(covered: Covered, within: TokenRange) -> TokenRange | None:
    """The first piece of a range that is not covered to its end; `None` if all of it is."""
    found = [within] if within in covered else pieces(within, covered)  # mostly a range is covered as a whole
    return next((one for one in found if not sg.is_covered(covered.get(one, ()))), None)


def covers(covered: Covered, within: TokenRange = ALL) -> bool:
    """Whether nothing of a range is left to read."""
    return next_piece(covered, within) is None


def share(covered: Covered) -> float:
    """How much of a base is covered, 0 to 1, by its tokens: they are spread evenly, and writes do not add any."""
    return sum(_up_to(tokens, found) - tokens.first + 1 for tokens, found in covered.items() if found) / ALL.width


def cut_at(covered: Covered, tablets: Iterable[TokenRange]) -> dict[TokenRange, Segments[str]]:
    """The same tokens covered at the same versions, in ranges none of which lies in two of these tablets."""
    found: dict[TokenRange, Segments[str]] = {}
    left = sorted(covered)
    for tablet in tablets:
        while left and left[0].last < tablet.first:
            left.pop(0)
        for tokens in left:
            if tokens.first > tablet.last:
                break
            shared = TokenRange(max(tokens.first, tablet.first), min(tokens.last, tablet.last))
            segments = covered[tokens] if shared == tokens else _cut_out(tokens, covered[tokens], shared)
            if segments:
                found[shared] = segments
    return found


def _cut_out(tokens: TokenRange, segments: Segments[str], part: TokenRange) -> Segments[str]:
    """What segments of a range cover of a part of it. Its rows are taken to be spread evenly."""
    found: list[Segment[str]] = []
    start: int = tokens.first
    for segment in segments:
        end = tokens.last if segment.up_to is None else token_at(segment.up_to)
        shared = min(end, part.last) - max(start, part.first) + 1
        if shared > 0:
            up_to = None if end >= part.last else position_of(end)
            rows = round(segment.rows * shared / (end - start + 1))
            found.append(Segment(up_to=up_to, since=segment.since, rows=rows))
        start = end + 1
    return tuple(found)


def _up_to(tokens: TokenRange, segments: Segments[str]) -> int:
    up_to = segments[-1].up_to
    return tokens.last if up_to is None else token_at(up_to)
