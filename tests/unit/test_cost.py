"""Which way an epoch takes."""

from __future__ import annotations

import pytest

from ebla.views.epoch.cost import LARGE_ROWS, Way, estimate, is_large


@pytest.mark.parametrize(
    ("written", "way"),
    [
        ({"big": 1, "small": 0}, Way.DRIVER),
        ({"big": 1000, "small": 0}, Way.DRIVER),
        ({"big": 300_000, "small": 0}, Way.SPARK),
        ({"big": 5_000_000, "small": 0}, Way.RECOMPUTE),
        ({"big": 300_000, "small": 25}, Way.RECOMPUTE),
        ({"big": 0, "small": 1}, Way.DRIVER),
        ({"big": 0, "small": 25}, Way.RECOMPUTE),
    ],
)
def test_the_share_of_an_input_that_changed_decides(written: dict[str, int], way: Way) -> None:
    sizes = {"big": 6_000_000, "small": 25}
    found = estimate(written, sizes, rows_max=200_000, view_rows=6_000_000)
    assert found.way is way


def test_a_small_view_is_followed_whatever_the_share() -> None:
    assert estimate({"t": 5}, {"t": 5}, rows_max=200_000, view_rows=5).way is Way.DRIVER


@pytest.mark.parametrize("rows", [1, LARGE_ROWS, LARGE_ROWS + 1, 1_000_000])
def test_an_epoch_is_large_by_the_rows_that_it_follows_or_computes(rows: int) -> None:
    followed = estimate({"t": rows}, {"t": 10_000_000}, rows_max=200_000, view_rows=6_000_000)
    assert followed.way is not Way.RECOMPUTE
    assert is_large({"t": rows}, followed, 6_000_000) == (rows > LARGE_ROWS)
    anew = estimate({"t": 1_000_000}, {"t": 1_000_000}, rows_max=200_000, view_rows=rows)
    assert anew.way is Way.RECOMPUTE
    assert is_large({"t": 1_000_000}, anew, rows) == (rows > LARGE_ROWS)
