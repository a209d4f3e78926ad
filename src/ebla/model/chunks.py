"""Which rows of the base the next chunk reads.

Theory of operation. A tablet is a range of tokens, and it is read in the order of tokens: a *position* is a token, as a
text whose order is that of the tokens. Tokens are spread evenly and have one order whatever the key's type, so a chunk
is the same range for Python, for Spark and for the catalog. Two keys with one token are read together.

A chunk takes the next tablets of the batch, whole where they fit the number of rows, and else a stretch of one tablet.
All views of the batch that stand at the same positions there take part: one scan feeds them all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ebla.base.ids import RelationId, TabletId
from ebla.model import segments as sg
from ebla.model.segments import Segments

CHUNK_ROWS = 20_000_000
"""Rows of the base in a chunk, unless the build says otherwise."""

_LOWEST = -(2**63)


def position_of(token: int) -> str:
    return f"{token - _LOWEST:016x}"


def token_at(position: str) -> int:
    return int(position, 16) + _LOWEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Rows of one tablet, behind `after` and up to `up_to`; `None`: from its beginning, to its end."""

    tablet: TabletId
    after: str | None
    up_to: str | None
    rows: int
    """How many there are, as far as that is known before they are read."""

    @property
    def whole(self) -> bool:
        return self.after is None and self.up_to is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    views: tuple[RelationId, ...]
    stretches: tuple[Stretch, ...]

    @property
    def rows(self) -> int:
        return sum(stretch.rows for stretch in self.stretches)


Cut = Callable[[TabletId, str | None, int], tuple[str | None, int]]
"""Where this many rows of a tablet behind a position end (`None`: at the tablet's end), and how many there are."""


def next_chunk(
    covered: Mapping[RelationId, Mapping[TabletId, Segments[str]]],
    tablets: Mapping[RelationId, Sequence[TabletId]],
    rows_max: Mapping[RelationId, int],
    cut: Cut,
    tablets_max: int | None = None,
) -> Chunk | None:
    """The next rows of the first view (they come in the order of turns), and who reads them with it.

    `tablets` are those that each view has a task for; `rows_max` is what each would like to read at once, `tablets_max`
    of how many tablets at most.
    """
    for view, mine in tablets.items():
        left = [tablet for tablet in mine if not sg.is_covered(covered[view].get(tablet, ()))]
        if not left:
            continue
        first = (left[0], _at(covered[view], left[0]))
        sharing = [v for v in tablets if v == view or _stands(covered[v], tablets[v], [first])]
        stretches = _stretches(covered[view], left[:tablets_max], min(rows_max[v] for v in sharing), cut)
        ends = [(stretch.tablet, stretch.after) for stretch in stretches]
        return Chunk(
            views=tuple(v for v in sharing if _stands(covered[v], tablets[v], ends)), stretches=tuple(stretches)
        )
    return None


def _stretches(
    covered: Mapping[TabletId, Segments[str]], left: Iterable[TabletId], rows_max: int, cut: Cut
) -> list[Stretch]:
    stretches: list[Stretch] = []
    room = rows_max
    for tablet in left:
        after = _at(covered, tablet)
        up_to, rows = cut(tablet, after, room)
        if up_to is not None and stretches:
            break  # a tablet that does not fit whole begins a chunk of its own
        stretches.append(Stretch(tablet=tablet, after=after, up_to=up_to, rows=rows))
        room -= rows
        if up_to is not None or room <= 0:
            break
    return stretches


def _at(covered: Mapping[TabletId, Segments[str]], tablet: TabletId) -> str | None:
    return sg.position(covered.get(tablet, ()))


def _stands(
    covered: Mapping[TabletId, Segments[str]], tablets: Sequence[TabletId], at: Iterable[tuple[TabletId, str | None]]
) -> bool:
    """Whether a view has these tablets to read, from these positions on."""
    return all(
        tablet in tablets and not sg.is_covered(covered.get(tablet, ())) and _at(covered, tablet) == after
        for tablet, after in at
    )


def cut_evenly(span: tuple[int, int], after: str | None, rows: int, rows_max: int) -> tuple[str | None, int]:
    """Where to cut a tablet of so many rows that its tokens are not looked at: they are spread evenly."""
    first, last = span
    start = first if after is None else token_at(after) + 1
    left = round(rows * (last - start + 1) / (last - first + 1))
    if left <= rows_max or start > last:
        return None, left
    end = start + max(1, (last - first + 1) * rows_max // rows) - 1
    return (None, left) if end >= last else (position_of(end), rows_max)


def cut_exactly(tokens: Sequence[int], after: str | None, rows_max: int) -> tuple[str | None, int]:
    """The same from the sorted tokens of the tablet's rows."""
    start = 0 if after is None else bisect_right(tokens, token_at(after))
    if len(tokens) - start <= rows_max:
        return None, len(tokens) - start
    end = tokens[start + max(1, rows_max) - 1]
    stop = bisect_right(tokens, end)  # all rows of one token are read together
    return (None if stop == len(tokens) else position_of(end)), stop - start


def spans(stretches: Iterable[Stretch], range_of: Callable[[TabletId], tuple[int, int]]) -> list[tuple[int, int]]:
    """The tokens of some stretches, first and last; neighbours are one range."""
    found: list[tuple[int, int]] = []
    for stretch in sorted(stretches, key=lambda p: p.tablet):
        first, last = range_of(stretch.tablet)
        start = first if stretch.after is None else token_at(stretch.after) + 1
        end = last if stretch.up_to is None else token_at(stretch.up_to)
        if start > end:
            continue
        if found and found[-1][1] + 1 == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def share(
    covered: Mapping[TabletId, Segments[str]], tablets: int, range_of: Callable[[TabletId], tuple[int, int]]
) -> float:
    """How much of a base is covered, 0 to 1, by its tokens: they are spread evenly, and writes do not add any."""
    done = 0.0
    for number in range(tablets):
        segments = covered.get(TabletId(number), ())
        if segments:
            first, last = range_of(TabletId(number))
            up_to = segments[-1].up_to
            done += 1.0 if up_to is None else (token_at(up_to) - first + 1) / (last - first + 1)
    return done / tablets
