"""Which rows a chunk reads: positions, cuts, stretches of tablets, and who shares a scan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebla.base.ids import RelationId, Version
from ebla.model.chunks import Chunk, Stretch, cut_evenly, cut_exactly, next_chunk, position_of, share, spans, token_at
from ebla.model.segments import Segment, Segments
from ebla.model.tablets import TokenRange, token_range, token_ranges

TOKENS = st.integers(-(2**63), 2**63 - 1)
ONE, TWO = RelationId(1), RelationId(2)
T0, T1, T2, T3 = token_ranges(4)


@given(TOKENS, TOKENS)
def test_positions_have_the_order_of_tokens(a: int, b: int) -> None:
    assert token_at(position_of(a)) == a
    assert (position_of(a) < position_of(b)) == (a < b)


@given(st.lists(TOKENS, max_size=30), st.integers(1, 10))
def test_chunks_by_tokens_read_every_row_once_and_always_advance(tokens: list[int], rows_max: int) -> None:
    ordered, after, read = sorted(tokens), None, 0
    for _ in range(len(ordered) + 1):
        up_to, rows = cut_exactly(ordered, after, rows_max)
        read += rows
        if up_to is None:
            break
        assert after is None or up_to > after
        assert rows >= min(rows_max, len(ordered))
        after = up_to
    assert read == len(ordered)


@given(st.integers(0, 10**9), st.integers(1, 10**9), st.integers(0, 3))
def test_even_cuts_advance_and_reach_the_end(rows: int, rows_max: int, tablet: int) -> None:
    span, after = token_range(tablet, 4), None
    for _ in range(50):
        up_to, _ = cut_evenly(span, after, rows, rows_max)
        if up_to is None:
            return
        assert after is None or up_to > after
        assert span[0] <= token_at(up_to) < span[1]
        after = up_to
    assert rows > 40 * rows_max


def covered(*ends: str | None) -> Segments[str]:
    return tuple(Segment(up_to=end, since=Version(5), rows=1) for end in ends)


def of_ten(tokens: TokenRange, after: str | None, rows_max: int) -> tuple[str | None, int]:
    """Tablets of ten rows, at the positions 0 to 9."""
    start = 0 if after is None else int(after) + 1
    left = 10 - start
    return (None, left) if left <= rows_max else (str(start + rows_max - 1), rows_max)


def test_whole_tablets_as_long_as_they_fit() -> None:
    chunk = next_chunk({ONE: {}}, {ONE: [T0, T1, T2]}, {ONE: 25}, of_ten)
    stretches = [Stretch(tokens=t, after=None, up_to=None, rows=10) for t in (T0, T1)]
    assert chunk == Chunk(views=(ONE,), stretches=tuple(stretches))
    assert chunk is not None
    assert chunk.rows == 20


def test_a_tablet_that_does_not_fit_is_read_in_parts() -> None:
    first = next_chunk({ONE: {}}, {ONE: [T0, T1]}, {ONE: 4}, of_ten)
    assert first == Chunk(views=(ONE,), stretches=(Stretch(tokens=T0, after=None, up_to="3", rows=4),))
    last = next_chunk({ONE: {T0: covered("3", "7")}}, {ONE: [T0, T1]}, {ONE: 4}, of_ten)
    assert last == Chunk(views=(ONE,), stretches=(Stretch(tokens=T0, after="7", up_to=None, rows=2),))
    assert next_chunk({ONE: {T0: covered("7", None)}}, {ONE: [T0]}, {ONE: 4}, of_ten) is None


@pytest.mark.parametrize(
    ("other", "tablets", "shares"),
    [
        ({}, [T0, T1], True),
        ({T0: covered("3")}, [T0, T1], False),
        ({T1: covered(None)}, [T0], False),
        ({T0: covered(None)}, [T0, T1], False),
    ],
)
def test_views_at_the_same_positions_share_a_scan(
    other: dict[TokenRange, Segments[str]], tablets: list[TokenRange], shares: bool
) -> None:
    chunk = next_chunk({ONE: {}, TWO: other}, {ONE: [T0, T1], TWO: tablets}, {ONE: 20, TWO: 20}, of_ten)
    assert chunk is not None
    assert chunk.views == ((ONE, TWO) if shares else (ONE,))


def test_a_shared_chunk_is_as_small_as_the_slowest_view_wants() -> None:
    chunk = next_chunk({ONE: {}, TWO: {}}, {ONE: [T0], TWO: [T0]}, {ONE: 20, TWO: 2}, of_ten)
    assert chunk is not None
    assert (chunk.views, chunk.rows) == ((ONE, TWO), 2)


def test_ranges_of_neighbours_are_one() -> None:
    stretches = [Stretch(tokens=t, after=None, up_to=None, rows=0) for t in (T2, T0, T1)]
    assert spans(stretches) == [(T0.first, T2.last)]
    cut = Stretch(tokens=T0, after=position_of(-(2**63) + 9), up_to=position_of(-(2**63) + 19), rows=10)
    assert spans([cut, stretches[0]]) == [(-(2**63) + 10, -(2**63) + 19), T2]


@given(st.lists(TOKENS, min_size=1, max_size=6))
def test_the_share_that_is_covered_grows_with_every_chunk_and_ends_at_one(tokens: list[int]) -> None:
    covered: dict[TokenRange, Segments[str]] = {}
    seen = [share(covered)]
    for half in token_ranges(2):
        for token in sorted({t for t in tokens if half.first <= t < half.last}):
            segment = Segment(up_to=position_of(token), since=Version(1))
            covered[half] = (*covered.get(half, ()), segment)
            seen.append(share(covered))
        covered[half] = (*covered.get(half, ()), Segment(up_to=None, since=Version(1)))
        seen.append(share(covered))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)
