"""Which rows have one of some keys: by tokens, where that is enough to tell."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ebla.tables.by_key import among

KEY = ["a", "b"]
keys = st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from("xyz")), max_size=8)


def table(rows: list[tuple[int | None, str | None]]) -> pa.Table:
    return pa.table({"a": pa.array([a for a, _ in rows], pa.int64()), "b": pa.array([b for _, b in rows], pa.string())})


def tokens(rows: list[tuple[int | None, str | None]], spread: int) -> np.ndarray:
    """Of equal keys the same; with a small spread, of other keys too."""
    return np.array([hash((a or 9, b or "-")) % spread for a, b in rows], np.int64)


@given(keys, keys.map(lambda k: list(dict.fromkeys(k))), st.sampled_from([2, 7, 2**40]))
def test_rows_with_a_key_are_those_and_no_others(rows, wanted, spread):
    of_keys = tokens(wanted, spread)
    found = among(table(rows), tokens(rows, spread), table(wanted), of_keys, KEY)
    if rows and len(set(of_keys.tolist())) < len(wanted):
        assert found is None  # two keys have one token
    else:
        assert found is not None
        assert found.tolist() == [row in wanted for row in rows]


def test_numbers_with_a_point_are_left_to_the_join():
    rows = pa.table({"a": [0.0, -0.0]})
    same = np.zeros(1, np.int64)
    assert among(rows, np.zeros(2, np.int64), pa.table({"a": [0.0]}), same, ["a"]) is None
