"""Bounds of runs: however long the keys are, they are short, and no key lies outside of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cmp_to_key

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ebla.storage import runs as rf
from ebla.values import bounds

Value = str | bytes | int | None

# Few characters, so that prefixes are shared; the last of all, and those around what UTF-8 has no bytes for.
CHARACTERS = st.sampled_from(["a", "b", "\0", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"])
SHARED = st.sampled_from([0, 1, bounds.VALUE_LENGTH - 1, bounds.VALUE_LENGTH, bounds.VALUE_LENGTH + 1, 200])


@st.composite
def texts(draw: st.DrawFn) -> str:
    return draw(CHARACTERS) * draw(SHARED) + draw(st.text(CHARACTERS, max_size=4))


@st.composite
def binaries(draw: st.DrawFn) -> bytes:
    one = st.sampled_from([b"\x00", b"a", b"\xfe", b"\xff"])
    return draw(one) * draw(SHARED) + b"".join(draw(st.lists(one, max_size=4)))


COLUMNS = {"string": texts(), "binary": binaries(), "bigint": st.integers(-3, 3)}


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[str], list[bool], list[tuple[Value, ...]]]:
    """Types and directions of a key, and keys of a run."""
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4))
    down = draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    key = st.tuples(*(st.none() | COLUMNS[kind] for kind in kinds))
    return kinds, down, draw(st.lists(key, min_size=1, max_size=8))


def place(value: Value) -> tuple[int, bytes | int]:
    """NULL first; text by its bytes, as Spark and Arrow compare it."""
    if value is None:
        return 0, 0
    return 1, value.encode() if isinstance(value, str) else value


def compare(one: Sequence[Value], other: Sequence[Value], down: Sequence[bool]) -> int:
    """In the run's order, over the columns that both have."""
    for a, b, downwards in zip(one, other, down, strict=False):
        if place(a) != place(b):
            return (1 if place(a) > place(b) else -1) * (-1 if downwards else 1)
    return 0


def parsed(text: str, kinds: Sequence[str]) -> list[Value]:
    values: list[Value] = json.loads(text)
    pairs = zip(values, kinds, strict=False)
    return [base64.b64decode(v) if k == "binary" and isinstance(v, str) else v for v, k in pairs]


def in_order(keys: Sequence[tuple[Value, ...]], down: Sequence[bool]) -> list[tuple[Value, ...]]:
    def compared(one: tuple[Value, ...], other: tuple[Value, ...]) -> int:
        return compare(one, other, down)

    return sorted(keys, key=cmp_to_key(compared))


@given(runs())
def test_no_key_lies_outside_of_the_bounds(drawn: tuple[list[str], list[bool], list[tuple[Value, ...]]]) -> None:
    kinds, down, keys = drawn
    ordered = in_order(keys, down)
    low, high = bounds.below(ordered[0], down), bounds.above(ordered[-1], down)
    assert max(len(low), len(high)) <= bounds.BOUND_CHARS
    for key in keys:
        assert compare(parsed(low, kinds), key, down) <= 0, (low, key)
        assert compare(key, parsed(high, kinds), down) <= 0, (key, high)


@given(runs())
def test_short_keys_are_kept_whole(drawn: tuple[list[str], list[bool], list[tuple[Value, ...]]]) -> None:
    _, down, keys = drawn
    for key in keys:
        if all(bounds.is_short(value) for value in key) and len(bounds.key_json(key)) <= bounds.BOUND_CHARS:
            assert bounds.below(key, down) == bounds.above(key, down) == bounds.key_json(key)


@given(runs(), st.data())
def test_what_pruning_leaves_out_is_not_there(
    drawn: tuple[list[str], list[bool], list[tuple[Value, ...]]], data: st.DataObject
) -> None:
    """Runs cut out of one sorted list, each with its bounds: a key is found in those that the bounds leave."""
    kinds, down, keys = drawn
    ordered = in_order(keys, down)
    cut = data.draw(st.integers(0, len(ordered)))
    parts = [part for part in (ordered[:cut], ordered[cut:]) if part]
    wanted = data.draw(st.sampled_from(keys) | st.tuples(*(st.none() | COLUMNS[kind] for kind in kinds)))

    def may_hold(part: list[tuple[Value, ...]]) -> bool:
        low, high = parsed(bounds.below(part[0], down), kinds), parsed(bounds.above(part[-1], down), kinds)
        return compare(low, wanted, down) <= 0 and compare(wanted, high, down) <= 0

    assert [key for part in parts if may_hold(part) for key in part if key == wanted] == [
        key for key in ordered if key == wanted
    ]


@given(runs())
def test_arrow_sorts_as_the_bounds_are_compared(
    drawn: tuple[list[str], list[bool], list[tuple[Value, ...]]],
) -> None:
    kinds, down, keys = drawn
    arrow = {"string": pa.string(), "binary": pa.binary(), "bigint": pa.int64()}
    table = pa.table({str(i): pa.array([k[i] for k in keys], arrow[kind]) for i, kind in enumerate(kinds)})
    order = rf.in_order(table, [(str(i), d) for i, d in enumerate(down)]).to_pylist()
    # In a run NULL comes first, or last where the column descends.
    assert [keys[i] for i in order] == in_order(keys, down)
