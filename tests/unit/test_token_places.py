"""Rows of a level 0 run are found by their tokens, one by one or in an order that is kept."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebla.base.caches import Lru
from ebla.base.ids import RelationId
from ebla.storage import runs as rf
from support.catalogs import run

FOUND = st.lists(st.integers(-9, 9), max_size=40)
ONLY = st.sets(st.integers(-12, 12), max_size=12)


@given(found=FOUND, only=ONLY, kept=st.booleans())
def test_places_are_those_that_a_walk_finds(found: list[int], only: set[int], kept: bool) -> None:
    cache = rf.LevelZeroCache(Lru("level 0", 2**20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rf, "FEW", 0)
        for _ in range(2):
            order = partial(cache.order, "r") if kept else None
            places = rf._places(np.array(found, np.int64), np.array(sorted(only), np.int64), order)
            assert places.tolist() == [at for at, token in enumerate(found) if token in only]


def test_the_order_of_a_run_goes_with_the_run() -> None:
    kept: Lru[object] = Lru("level 0", 2**20)
    cache = rf.LevelZeroCache(kept)
    first, second = (replace(run(RelationId(1)), path=name) for name in ("a", "b"))
    assert cache.order("a", np.array([3, 1])).to_pydict() == {"token": [1, 3], "place": [1, 0]}
    cache.end(RelationId(1), [first])
    assert kept.get("a" + rf.ORDER) is not None  # epochs may follow it
    cache.end(RelationId(1), [second])
    assert kept.get("a" + rf.ORDER) is None
