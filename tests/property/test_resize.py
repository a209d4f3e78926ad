"""Sizes that go anywhere: resizes follow them, end, and are not done and undone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ebla.model.topology import Layout, Resize, ResizeType
from ebla.topology.resize import MERGE_BELOW, ask, decide, tablets_after
from support.topologies import layout

TARGET = 1000


def table(tablets: int, total: int, resize: Resize) -> Layout:
    parts = [total // tablets + (tablet < total % tablets) for tablet in range(tablets)]
    return layout([["a"]] * tablets, sizes=parts, resize=resize)


def settled(one: Layout) -> tuple[Layout, int]:
    """Decide and finalize until nothing is left to decide; how many maps it took."""
    total, maps = sum(one.bytes), 0
    while (found := decide(one, TARGET)) is not None:
        resize = found.resize
        assert resize.number == one.resize.number + (resize.type is not ResizeType.NONE)
        after = tablets_after(one.tablets, resize.type)
        maps += after != one.tablets
        assert maps <= 21, "it does not end"
        one = table(after, total, replace(resize, type=ResizeType.NONE))
    return one, maps


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 5_000_000))
def test_a_relation_comes_to_tablets_of_the_target_size(bits: int, least: int, total: int) -> None:
    start = table(2**bits, total, Resize(tablets=2**least))
    after, _ = settled(start)
    average = total / after.tablets
    assert average <= TARGET
    assert average >= MERGE_BELOW * TARGET or after.tablets <= 2**least
    if start.tablets >= 2**least:
        assert after.tablets >= 2**least


@given(st.integers(0, 8), st.lists(st.integers(0, 500_000), min_size=1, max_size=20))
def test_no_map_is_made_twice_unless_the_size_has_changed_by_a_quarter(bits: int, totals: list[int]) -> None:
    one = table(2**bits, totals[0], Resize(tablets=1))
    last: tuple[int, int] | None = None
    """The size at the last change of the map, and whether it grew (1) or shrank (-1)."""
    for total in totals:
        before = one.tablets
        one, maps = settled(table(before, total, one.resize))
        if maps:
            direction = 1 if one.tablets > before else -1
            assert maps == abs(one.tablets.bit_length() - before.bit_length()), "there and back"
            if last is not None and last[1] != direction:
                assert not 0.75 < total / max(last[0], 1) < 4 / 3
            last = total, direction


@given(st.integers(0, 10), st.integers(0, 10), st.integers(0, 300_000))
def test_a_request_is_fulfilled_and_kept_or_refused(before: int, after: int, total: int) -> None:
    one = table(2**before, total, Resize())
    asked = ask(one, 2**after, 5, TARGET)
    if isinstance(asked, str):
        assert after < before
        assert total / 2**after > TARGET
        return
    last, _ = settled(replace(one, resize=asked))
    assert last.tablets == 2**after or (last.tablets > 2**after and total / 2**after > TARGET)
