"""Columns as Python values: beyond the years that Python knows they are text, and nothing fails."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from ebla.values import columns as v
from support.edges import END_OF_TIME_US, column, edges, raw


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (0, dt.date(1970, 1, 1)),
        (2_932_896, dt.date(9999, 12, 31)),
        (2_932_897, "+10000-01-01"),
        (2**31 - 1, "+5881580-07-11"),
        (-719_162, dt.date(1, 1, 1)),
        (-719_163, "0000-12-31"),
        (-719_529, "-0001-12-31"),
        (-(2**31), "-5877641-06-23"),
    ],
)
def test_days_beyond_the_calendar_are_text(days: int, expected: object) -> None:
    assert v.python_values(column("date", [days, None])) == [expected, None]


def test_instants_beyond_the_calendar_are_text_in_utc() -> None:
    zoned = column("timestamp", [END_OF_TIME_US, 2**63 - 1, -(2**63)]).cast(pa.timestamp("us", "America/Los_Angeles"))
    assert v.python_values(zoned) == [
        "+10000-01-01 07:59:59+00:00",
        "+294247-01-10 04:00:54.775807+00:00",
        "-290308-12-21 19:59:05.224192+00:00",
    ]
    assert v.python_values(column("timestamp_ntz", [END_OF_TIME_US])) == ["+10000-01-01 07:59:59"]


def test_nested_values_are_reached() -> None:
    days = column("date", [0, 2**31 - 1])
    rows = pa.StructArray.from_arrays([days, pa.array([1, 2])], ["d", "n"])
    assert v.python_values(rows) == [{"d": dt.date(1970, 1, 1), "n": 1}, {"d": "+5881580-07-11", "n": 2}]
    listed = pa.ListArray.from_arrays([0, 2], days)
    assert v.python_values(listed) == [[dt.date(1970, 1, 1), "+5881580-07-11"]]
    mapped = pa.MapArray.from_arrays([0, 2], ["a", "b"], days)
    assert v.python_values(mapped) == [{"a": dt.date(1970, 1, 1), "b": "+5881580-07-11"}]


KINDS = ["tinyint", "bigint", "decimal(38,10)", "date", "timestamp", "timestamp_ntz", "string", "boolean", "binary"]


@pytest.mark.parametrize("kind", [*KINDS, "float", "double"])
def test_no_value_is_lost(kind: str) -> None:
    """Different values stay different, and plain values lead back to the column."""
    given = column(kind, edges(kind))
    python = v.python_values(given)
    assert len({repr(value) for value in python}) == len({repr(value) for value in raw(given)})
    table = pa.table({"c": given})
    assert raw(v.from_plain(v.plain_rows(table), table.schema)["c"]) == raw(given)
    plain = [row["c"] for row in v.plain_rows(table) if row["c"] is not None]
    if kind in KINDS:
        assert sorted(plain)[0] == min(plain), "plain values compare"
