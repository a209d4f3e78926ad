"""Parameters and durations as typed on a command line."""

from __future__ import annotations

from decimal import Decimal

import pytest

from ebla.cli import values
from ebla.errors import UsageError


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("5", 5),
        ("-5", -5),
        ("0", 0),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", Decimal(2**63)),
        ("1.5", Decimal("1.5")),
        ("-.5", Decimal("-.5")),
        ("12345678901234567.89", Decimal("12345678901234567.89")),
        ("1e3", 1000.0),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("Ada", "Ada"),
        ("007", "007"),
        ("1_000", "1_000"),
        ("nan", "nan"),
        ("", ""),
        ("'5'", "5"),
        ("'it''", "it'"),
        ("2024-01-01", "2024-01-01"),
    ],
)
def test_a_value_has_the_type_it_looks_like(raw, expected):
    found = values.value(raw)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("raw", ["1e400", "-1e400", "1e-400"])
def test_a_number_out_of_range_is_refused(raw):
    with pytest.raises(UsageError, match="out of its range"):
        values.value(raw)


def test_a_value_may_hold_an_equals_sign():
    assert values.parameters(["a=b=c", "n=1"]) == {"a": "b=c", "n": 1}


@pytest.mark.parametrize("text", ["id", "=5", "1x=5", "a b=5"])
def test_a_parameter_needs_a_name_and_a_value(text):
    with pytest.raises(UsageError, match="expected name=value"):
        values.parameter(text)


def test_a_parameter_is_given_once():
    with pytest.raises(UsageError, match="id: expected each name once"):
        values.parameters(["id=1", "id=2"])


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("90s", 90), ("1.5m", 90), ("24h", 86_400), ("7D", 604_800), ("2w", 1_209_600)]
)
def test_durations(text, seconds):
    assert values.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "-1h", "1y", "1h30m"])
def test_a_duration_without_its_unit_is_refused(text):
    with pytest.raises(UsageError, match="expected a number and s, m, h, d or w"):
        values.duration_s(text)
