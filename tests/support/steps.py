"""Lets a test act at the named places of a build, between one step and the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from ebla.build import chunks as build_chunk
from ebla.build import engine, leader, node, settlement
from ebla.indexes import chunk_fill, tablet_commits, validate, walk
from ebla.views.epoch import coverage as covering
from ebla.views.epoch import whole_epoch
from ebla.views.fill import backfill, chunk_commit, chunk_write


class Steps:
    """Calls a function at a named place of a build, each time it is passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed: Counter[str] = Counter()
        self._actions: dict[str, Callable[[int], object]] = {}
        builds = (engine, build_chunk, leader, node, settlement)
        for module in (
            *builds,
            backfill,
            chunk_commit,
            chunk_write,
            covering,
            whole_epoch,
            chunk_fill,
            tablet_commits,
            validate,
            walk,
        ):
            monkeypatch.setattr(module, "hit", self._hit)

    def at(self, point: str, action: Callable[[int], object]) -> None:
        """The action is given how often the place was passed before."""
        self._actions[point] = action

    def _hit(self, point: str) -> None:
        self.passed[point] += 1
        action = self._actions.get(point)
        if action is not None:
            action(self.passed[point] - 1)
