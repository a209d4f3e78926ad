"""Which runs may overlap a range of tokens, found by one number of each run.

Theory of operation (the relational interval tree of Kriegel, Pötke and Seidl). All tokens are the nodes of one binary
tree: of the numbers from 0 to 2⁶⁴ - 1 the root is 2⁶³, its children differ by 2⁶², and so on. The *fork* of a range is
the highest node inside it: where the ways to its two ends part. All of the range lies below its fork. So a range
overlaps another one either if its fork lies inside that other one, or if its fork lies above one of the other's ends:
one interval of an index, and at most 64 single values for each end. Of the latter some do not reach so far; their own
ends say so.
"""

from __future__ import annotations

from functools import lru_cache

from ebla.model.tablets import TokenRange

_ZERO = 2**63
_BITS = 64


def fork(tokens: TokenRange) -> int:
    first, last = tokens.first + _ZERO, tokens.last + _ZERO
    if first == last:
        return tokens.first
    height = (first ^ last).bit_length() - 1
    return (last >> height << height) - _ZERO


@lru_cache(maxsize=1024)
def above(ranges: tuple[TokenRange, ...]) -> frozenset[int]:
    """The nodes above the ends of ranges, outside the range itself."""
    return frozenset(
        node
        for one in ranges
        for end in set(one)
        for height in range(_BITS)
        if not one.first <= (node := _node(end, height)) <= one.last
    )


def _node(token: int, height: int) -> int:
    """The node of this height above a token."""
    return ((token + _ZERO) >> (height + 1) << (height + 1)) + (1 << height) - _ZERO
