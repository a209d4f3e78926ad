"""Ranges of tokens: maps of tablets, pieces, forks, and what a split and a merge leave of segments and tasks."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ebla.base.ids import NodeId, RelationId, TaskId, Token, Version
from ebla.catalog.forks import above, fork
from ebla.model.chunks import covers, cut_at, next_piece, position_of, share
from ebla.model.segments import Segment, Segments, covering
from ebla.model.snapshot import cutoffs_of, superseded
from ebla.model.tablets import (
    ALL,
    TokenRange,
    joined,
    number_of,
    pieces,
    resized,
    tablet_around,
    tablet_of,
    tablets_over,
    token_range,
    token_ranges,
)
from ebla.model.task_maps import in_map
from ebla.model.tasks import Replica, Task, TaskKind

LOWEST, HIGHEST = ALL
TOKENS = st.integers(LOWEST, HIGHEST) | st.integers(-20, 20) | st.integers(0, 20).map(lambda n: LOWEST + n)
RANGES = st.tuples(TOKENS, TOKENS).map(lambda ends: TokenRange(Token(min(ends)), Token(max(ends))))
COUNTS = st.integers(0, 6).map(lambda bits: 2**bits)


@given(COUNTS, TOKENS)
def test_the_tablets_of_a_map_hold_every_token_once(tablets: int, token: int) -> None:
    ranges = token_ranges(tablets)
    assert joined(ranges) == [ALL]
    assert [n for n, one in enumerate(ranges) if one.first <= token <= one.last] == [tablet_of(token, tablets)]
    assert [number_of(one) for one in ranges] == list(range(tablets))


@given(RANGES, COUNTS)
def test_the_tablets_over_a_range_are_those_that_overlap_it(tokens: TokenRange, tablets: int) -> None:
    found = [n for n, one in enumerate(token_ranges(tablets)) if one.overlaps(tokens)]
    assert tablets_over(tokens, tablets) == found
    assert tablet_around(tokens, tablets) == (found[0] if len(found) == 1 else None)


@given(st.integers(0, 5), st.integers(0, 5))
def test_what_is_known_of_tablets_stays_where_they_were(before: int, after: int) -> None:
    known = resized(range(2**before), 2**after)
    for number, old in enumerate(known):
        assert token_range(number, 2**after).first >= token_range(old, 2**before).first
        assert token_range(number, 2**after).overlaps(token_range(old, 2**before))
    assert resized((), 4) == ()


@given(RANGES, RANGES)
def test_ranges_that_overlap_are_found_by_their_forks(stored: TokenRange, asked: TokenRange) -> None:
    node = fork(stored)
    assert stored.first <= node <= stored.last
    near = asked.first <= node <= asked.last or node in above((asked,))
    assert near or not stored.overlaps(asked)
    assert len(above((asked,))) <= 2 * 64
    if asked.first <= node <= asked.last:
        assert stored.overlaps(asked)


@given(st.lists(st.tuples(COUNTS, st.integers(0, 63)), max_size=6), COUNTS, st.integers(0, 63))
def test_pieces_are_the_range(apart: list[tuple[int, int]], tablets: int, number: int) -> None:
    within = token_range(number % tablets, tablets)
    known: list[TokenRange] = []
    for count, one in apart:
        tokens = token_range(one % count, count)
        if not any(tokens.overlaps(other) for other in known):
            known.append(tokens)
    found = pieces(within, known)
    assert joined(found) == [within]
    assert all(one.last < other.first for one, other in itertools.pairwise(found))
    assert {one for one in known if within.holds(one)} <= {*found}


# ---- segments -------------------------------------------------------------------------------------------


@st.composite
def coverages(draw: st.DrawFn, tablets: int = 8) -> dict[TokenRange, Segments[str]]:
    """Of tablets, and of what lies between tablets that were covered before they became one."""
    covered: dict[TokenRange, Segments[str]] = {}
    borders = sorted({0, tablets, *draw(st.sets(st.integers(1, tablets - 1)))})
    ranges = token_ranges(tablets)
    for first, behind in itertools.pairwise(borders):
        tokens = TokenRange(ranges[first].first, ranges[behind - 1].last)
        ends = sorted({draw(st.integers(tokens.first, tokens.last - 1)) for _ in range(draw(st.integers(0, 2)))})
        found = [Segment(up_to=position_of(end), since=Version(n + 1), rows=10) for n, end in enumerate(ends)]
        if draw(st.booleans()):
            found.append(Segment(up_to=None, since=Version(9), rows=10))
        if found:
            covered[tokens] = tuple(found)
    return covered


def since(covered: dict[TokenRange, Segments[str]], token: int) -> Version | None:
    around = [found for tokens, found in covered.items() if tokens.first <= token <= tokens.last]
    assert len(around) <= 1
    found = covering(around[0], position_of(token)) if around else None
    return None if found is None else found.since


@given(coverages(), st.lists(COUNTS, min_size=1, max_size=4), st.lists(TOKENS, max_size=30))
def test_splits_and_merges_leave_every_token_covered_at_the_version_it_had(
    covered: dict[TokenRange, Segments[str]], maps: list[int], tokens: list[int]
) -> None:
    after = covered
    for tablets in maps:
        after = cut_at(after, token_ranges(tablets))
    edges = [
        edge + by for one in {*covered, *after} for edge in one for by in (-1, 0, 1) if LOWEST <= edge + by <= HIGHEST
    ]
    for token in (*tokens, *edges):
        assert since(after, token) == since(covered, token)
    assert abs(share(after) - share(covered)) < 1e-9
    assert covers(after) == covers(covered)
    for tablet in token_ranges(maps[-1]):
        left = next_piece(after, tablet)
        assert (left is None) == all(since(after, edge) is not None for edge in (tablet.first, tablet.last, *edges)
                                     if tablet.first <= edge <= tablet.last)  # fmt: skip
        assert left is None or tablet.holds(left)
    assert all(any(tablet.holds(one) for tablet in token_ranges(maps[-1])) for one in after)


# ---- tasks ----------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from([11, 12, None])), unique=True, max_size=8),
    st.lists(COUNTS, min_size=1, max_size=3),
)
def test_splits_and_merges_leave_one_task_for_each_tablet_view_and_kind(
    places: list[tuple[int, int | None]], maps: list[int]
) -> None:
    numbers = itertools.count()

    def new_id() -> TaskId:
        return TaskId(f"t{next(numbers)}")

    tasks = [
        Task(
            id=new_id(),
            kind=TaskKind.PROCESS_STAGING if view is None else TaskKind.BUILD_RANGE,
            base=RelationId(1),
            view=None if view is None else RelationId(view),
            tokens=token_range(tablet, 8),
            replica=Replica(NodeId("a"), 0),
            created=Version(3),
        )
        for tablet, view in places
    ]
    after = tasks
    for tablets in maps:
        after = in_map(after, [[Replica(NodeId("a"), 0)]] * tablets, lambda _, __: new_id())
    found = [(t.view, t.tokens) for t in after]
    assert len(set(found)) == len(found)
    assert {t.tokens for t in after} <= {*token_ranges(maps[-1])}
    assert all(any(t.view == old.view and t.tokens.overlaps(old.tokens) for t in after) for old in tasks)
    for view in {t.view for t in tasks}:
        before = joined(t.tokens for t in tasks if t.view == view)
        now = joined(t.tokens for t in after if t.view == view)
        assert all(any(one.holds(old) for one in now) for old in before)
    assert not {t.id for t in after} & {t.id for t in tasks}


TABLETS = st.tuples(COUNTS, st.integers(0, 63)).map(lambda drawn: token_range(drawn[1] % drawn[0], drawn[0]))


@given(st.dictionaries(TABLETS, st.integers(1, 4).map(Version), max_size=40), COUNTS)
def test_forgotten_folds_say_nothing_of_any_map_that_can_be_read(folds: dict[TokenRange, Version], fewest: int) -> None:
    left = {tokens: cutoff for tokens, cutoff in folds.items() if tokens not in superseded(folds, fewest)}
    for bits in range(7):
        if 2**bits >= fewest:
            assert cutoffs_of(left.items(), 2**bits) == cutoffs_of(folds.items(), 2**bits)
    assert len(left) <= 2 * 64
    assert superseded(left, fewest) == set()
