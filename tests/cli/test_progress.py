"""What is printed about builds where no terminal is there."""

from __future__ import annotations

import itertools

import pytest

from ebla.cli.progress import Lines


def test_lines_tell_of_long_builds_in_growing_distances(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    lines = Lines(lambda: now)
    for _ in range(400):
        lines("writing tablets", None)
        lines(f"building card: scanning, second {now:.0f}", now / 400)
        now += 1.0
    told = [int(line.rsplit(" ", 1)[1]) for line in capsys.readouterr().err.splitlines()]
    assert told[0] == 5
    assert [b - a for a, b in itertools.pairwise(told)] == [10, 20, 40, 60, 60, 60, 60, 60]


def test_short_builds_are_not_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(lambda: 4.9)
    lines("building card: scanning", 0.5)
    assert capsys.readouterr().err == ""
