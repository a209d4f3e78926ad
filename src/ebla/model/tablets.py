"""Ranges of tokens, and the tablet maps that cut all tokens into tablets; see `ebla.values.token`.

Theory of operation. What the catalog keeps of a part of a relation (runs, folds, segments, tasks) is keyed by a range
of tokens, which means the same whatever tablets there are. A *tablet map* says into which tablets the tokens of a
relation are cut: equal ranges, a power of two of them, numbered from 0. So a map is its number of tablets. A relation
has one map at each version (`tablet_maps`), and a split or a merge is the next map. The tablets of two maps lie inside
each other: tablet n of the one is 2n and 2n+1 of the map with twice as many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from ebla.base.ids import TabletId, Token

TABLETS_MAX = 2**20
_TOKEN_MIN = -(2**63)

T = TypeVar("T")


class TokenRange(NamedTuple):
    """The first and the last token, both inclusive."""

    first: Token
    last: Token

    def holds(self, other: TokenRange) -> bool:
        return self.first <= other.first and other.last <= self.last

    def overlaps(self, other: TokenRange) -> bool:
        return self.first <= other.last and other.first <= self.last

    @property
    def width(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"tokens {self.first} to {self.last}"


ALL = TokenRange(Token(_TOKEN_MIN), Token(2**63 - 1))


# ---- one map --------------------------------------------------------------------------------------------


def bits_of(tablets: int) -> int:
    if not 1 <= tablets <= TABLETS_MAX or tablets & (tablets - 1):
        raise ValueError(f"expected a power of two from 1 to {TABLETS_MAX} tablets, found {tablets}")
    return tablets.bit_length() - 1


def tablet_of(token: int, tablets: int) -> TabletId:
    return TabletId((token - _TOKEN_MIN) >> (64 - bits_of(tablets)))


def token_range(tablet: int, tablets: int) -> TokenRange:
    """The tokens of a tablet."""
    width = 2 ** (64 - bits_of(tablets))
    if not 0 <= tablet < tablets:
        raise ValueError(f"expected a tablet from 0 to {tablets - 1}, found {tablet}")
    first = _TOKEN_MIN + tablet * width
    return TokenRange(Token(first), Token(first + width - 1))


def token_ranges(tablets: int) -> list[TokenRange]:
    return [token_range(tablet, tablets) for tablet in range(tablets)]


def tablets_over(tokens: TokenRange, tablets: int) -> list[TabletId]:
    """The tablets that have tokens of a range."""
    first, last = tablet_of(tokens.first, tablets), tablet_of(tokens.last, tablets)
    return [TabletId(tablet) for tablet in range(first, last + 1)]


def tablet_around(tokens: TokenRange, tablets: int) -> TabletId | None:
    """The tablet that holds a whole range; `None` if several have tokens of it."""
    first = tablet_of(tokens.first, tablets)
    return first if tablet_of(tokens.last, tablets) == first else None


def tablets_around(tokens: TokenRange) -> list[TokenRange]:
    """The tablets, one of each map at most, that hold a whole range; the shortest first."""
    first, last = tokens.first - _TOKEN_MIN, tokens.last - _TOKEN_MIN
    found = []
    for bits in range(max((first ^ last).bit_length(), 64 - bits_of(TABLETS_MAX)), 65):
        start = (first >> bits << bits) + _TOKEN_MIN
        found.append(TokenRange(Token(start), Token(start + 2**bits - 1)))
    return found


def number_of(tokens: TokenRange) -> TabletId:
    """The number of a tablet in the map that has it."""
    return TabletId((tokens.first - _TOKEN_MIN) // tokens.width)


def joined(ranges: Iterable[TokenRange]) -> list[TokenRange]:
    """The same tokens in order; neighbours, and ranges that overlap, are one."""
    found: list[TokenRange] = []
    for one in sorted(ranges):
        if found and found[-1].last + 1 >= one.first:
            found[-1] = TokenRange(found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return found


def spread_of(of_rows: Iterable[int], tablets: int) -> str:
    """Which tablets of a map have rows, as text: how many tablets there are, and a bit for each, the first lowest."""
    return f"{tablets}:{sum(1 << tablet for tablet in set(of_rows)):x}"


def spread_over(spread: str, tablets: int) -> list[TabletId]:
    """The tablets of a map that may have the rows of a spread, which was made with the same map or another."""
    count, bits = spread.split(":")
    before, having = int(count), int(bits, 16)
    ranges = (token_range(tablet, before) for tablet in range(before) if having >> tablet & 1)
    return sorted({tablet for one in ranges for tablet in tablets_over(one, tablets)})


# ---- from one map to another ----------------------------------------------------------------------------


def resized(of_tablets: Sequence[T], tablets: int) -> tuple[T, ...]:
    """The values of each tablet, for a map of `tablets` tablets. The halves of a tablet have its value, and
    tablets that become one have the value of the first."""
    if not of_tablets:
        return ()
    return tuple(of_tablets[tablet * len(of_tablets) // tablets] for tablet in range(tablets))


def pieces(within: TokenRange, apart: Iterable[TokenRange]) -> list[TokenRange]:
    """A range in pieces: those ranges that lie inside it, which do not overlap, and what is between them."""
    found: list[TokenRange] = []
    start = within.first
    for one in sorted(one for one in apart if within.holds(one)):
        if start < one.first:
            found.append(TokenRange(start, Token(one.first - 1)))
        found.append(one)
        start = Token(one.last + 1)
    if start <= within.last:
        found.append(TokenRange(start, within.last))
    return found
