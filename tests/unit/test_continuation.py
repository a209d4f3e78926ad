"""What running windows come to in the last rows in front of a position, and how rows go on from there."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ebla.algebra.nodes import Carry
from ebla.algebra.tails import Course, RunningColumn
from ebla.storage.rows import TooLarge
from ebla.views.epoch.continuation import carried_on

MONEY = pa.decimal128(12, 2)


def course(column: str, *, descending: bool = False, nulls_first: bool = True) -> Course:
    return Course(column=column, descending=descending, nulls_first=nulls_first)


Order = dict[str, tuple[Course, list[Any]]]


def gone_on(
    carry: Carry, last: list[Any], new: list[Any], order: Order | None = None, kind: pa.DataType | None = None
) -> list[Any]:
    """The column behind some last rows. `order`: columns of its order, with what the last rows have there."""
    kind, order = kind or pa.int64(), order or {}
    there = {name: pa.array(values, pa.int64()) for name, (_, values) in order.items()}
    one = RunningColumn(column="n", carry=carry, order=tuple(part for part, _ in order.values()))
    rows = pa.table({"n": pa.array(new, kind), "other": pa.array(range(len(new)))})
    found = carried_on(duckdb.connect(), (one,), rows, pa.table({"n": pa.array(last, kind), **there}))
    assert found.schema == rows.schema
    assert found["other"].to_pylist() == list(range(len(new)))
    return list(found["n"].to_pylist())


@pytest.mark.parametrize(
    ("carry", "last", "new", "expected"),
    [
        (Carry.COUNT, [7, 9, 8], [1, 2], [10, 11]),
        (Carry.COUNT, [], [1, 2], [1, 2]),
        (Carry.RANK, [4, 6, 6, 6], [1, 1, 3], [9, 9, 11]),  # three rows of rank 6 are 6, 7 and 8
        (Carry.LEAST, [3, 2, None], [5, 1, None], [2, 1, 2]),
        (Carry.LEAST, [None], [5, None], [5, None]),
        (Carry.GREATEST, [3, 4, None], [5, 1, None], [5, 4, 4]),
        (Carry.FIRST, [3, 3], [5, None], [3, 3]),
        (Carry.FIRST, [None], [5, 6], [None, None]),
    ],
)
def test_rows_go_on_from_what_the_last_rows_show(
    carry: Carry, last: list[Any], new: list[Any], expected: list[Any]
) -> None:
    assert gone_on(carry, last, new) == expected


@pytest.mark.parametrize(
    ("descending", "nulls_first", "come_to"),
    [(False, True, 30), (False, False, 10), (True, True, 20), (True, False, 10)],
)
def test_a_sum_goes_on_from_the_last_row_of_its_order(descending: bool, nulls_first: bool, come_to: int) -> None:
    """By the columns behind the first one, where the rows have the same in that."""
    day, at = course("day"), course("at", descending=descending, nulls_first=nulls_first)
    last: Order = {"day": (day, [1, 1, 1]), "at": (at, [None, 4, 5])}
    assert gone_on(Carry.SUM, [10, 20, 30], [1, None], last) == [come_to + 1, come_to]


def test_a_sum_of_nothing_so_far_is_that_of_the_rows() -> None:
    last: Order = {"at": (course("at"), [1])}
    assert gone_on(Carry.SUM, [None], [1, None], last) == [1, None]
    money = [Decimal("0.10"), None]
    assert gone_on(Carry.SUM, [Decimal("5.05")], money, last, MONEY) == [Decimal("5.15"), Decimal("5.05")]


def test_rows_that_the_order_leaves_equal_tell_no_sum_unless_it_is_the_same() -> None:
    last: Order = {"at": (course("at"), [1, 2, 2])}
    assert gone_on(Carry.SUM, [0, 7, 7], [1], last) == [8]
    with pytest.raises(TooLarge, match="does not tell which n is the last"):
        gone_on(Carry.SUM, [0, 7, 8], [1], last)
    with pytest.raises(TooLarge):
        gone_on(Carry.FIRST, [3, None], [1])


def test_what_does_not_fit_is_left_to_the_whole_query() -> None:
    last: Order = {"at": (course("at"), [1])}
    with pytest.raises(TooLarge, match="does not fit"):
        gone_on(Carry.SUM, [2**63 - 1], [1], last)
    with pytest.raises(TooLarge, match="does not fit"):
        gone_on(Carry.SUM, [Decimal("9999999999.99")], [Decimal("0.01")], last, MONEY)
