"""What texts say: one grammar for files, literals and the command line."""

from __future__ import annotations

import datetime as dt
import math
import zoneinfo
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebla.errors import TypeMismatchError, UsageError
from ebla.values import calendar, texts
from ebla.values.grammar import Unfit, parse
from ebla.values.patterns import pattern

EPOCH = dt.date(1970, 1, 1)
DAY = (dt.date(2024, 1, 5) - EPOCH).days
NOON = DAY * calendar.DAY_US + 12 * 3_600_000_000


def refusal(text: str, sql_type: str, how: texts.TextFormat = texts.FILES) -> str:
    with pytest.raises(Unfit) as caught:
        texts.value(text, parse(sql_type), how)
    return str(caught.value)


@pytest.mark.parametrize(
    ("sql_type", "text", "value"),
    [
        ("boolean", " TRUE", True),
        ("boolean", "n", False),
        ("int", " 12 ", 12),
        ("int", "+12", 12),
        ("int", "12.00", 12),
        ("int", "1.2e1", 12),
        ("int", "120e-1", 12),
        ("int", "-0", 0),
        ("int", "0" * 5000 + "7", 7),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("decimal(5,2)", ".5", Decimal("0.50")),
        ("decimal(5,2)", "1E+2", Decimal("100.00")),
        ("decimal(3,1)", "1.5000", Decimal("1.5")),
        ("decimal(38,38)", "-0." + "9" * 38, Decimal("-0." + "9" * 38)),
        ("double", "0.1", 0.1),
        ("double", "123456789012345680000", 123456789012345680000.0),
        ("double", "-INF", -math.inf),
        ("double", "+infinity", math.inf),
        ("double", "0e-400", 0.0),
        ("float", "16777217", 16777216.0),
        ("string", " 12 ", " 12 "),
        ("binary", "QUI=", b"AB"),
        ("binary", "QUI", b"AB"),
        ("date", "2024-01-05", DAY),
        ("date", "2024-1-5", DAY),
        ("date", "2024-01-05T00:00:00.000", DAY),
        ("date", "1969-12-31", -1),
        ("timestamp", "2024-01-05", DAY * calendar.DAY_US),
        ("timestamp", "2024-01-05 12:00", NOON),
        ("timestamp", "2024-01-05T12:00:00.0000010000Z", NOON + 1),
        ("timestamp", "2024-01-05 13:00:00+01:00", NOON),
        ("timestamp", "2024-01-05 17:00:00 UTC+5", NOON),
        ("timestamp", "2024-01-05 13:00:00 Europe/Berlin", NOON),
        ("timestamp", "9999-12-31 23:59:59-08:00", 253402329599000000),
        ("timestamp_ntz", "2024-01-05 12:00:00.000001", NOON + 1),
    ],
)
def test_a_text_that_says_a_value(sql_type: str, text: str, value: Any):
    found = texts.value(text, parse(sql_type))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("sql_type", "text", "why"),
    [
        ("boolean", "maybe", "neither true nor false"),
        ("int", "", "not a number"),
        ("int", "1_000", "not a number"),
        ("int", "1,000", "not a number"),
        ("int", "0x10", "not a number"),
        ("int", "१२", "not a number"),
        ("int", "1 2", "not a number"),
        ("int", "NaN", "not a number"),
        ("int", "3.5", "not a whole number"),
        ("int", "2147483648", "out of range"),
        ("tinyint", "1e999999999", "out of range"),
        ("bigint", "1e99999999999999999999", "out of range"),
        ("decimal(5,2)", "1.239", "more than 2 digits behind the point"),
        ("decimal(5,2)", "1000", "out of range"),
        ("decimal(38,0)", "1.4", "not a whole number"),
        ("decimal(38,0)", "1" * 40, "out of range"),
        ("double", "1e400", "out of range"),
        ("double", "1e-400", "too small: it would become 0"),
        ("double", "1d", "not a number"),
        ("double", "0x1p3", "not a number"),
        ("float", "1e39", "out of range"),
        ("float", "1e-50", "too small: it would become 0"),
        ("string", "a\ud800", "half of a surrogate pair, \\ud800, is no character"),
        ("binary", "@@@", "not Base64"),
        ("date", "2024", "not of the form yyyy-mm-dd"),
        ("date", "2024-01", "not of the form yyyy-mm-dd"),
        ("date", "24-01-05", "not of the form yyyy-mm-dd"),
        ("date", "today", "not of the form yyyy-mm-dd"),
        ("date", "2024-01-05T", "not of the form yyyy-mm-dd"),
        ("date", "2024-02-30", "no such day"),
        ("date", "2024-13-01", "no such month"),
        ("date", "2024-01-05 13:45:00", "not a whole day"),
        ("date", "2024-01-05 00:00:00Z", "not a whole day"),
        ("timestamp", "13:45", "not of the form yyyy-mm-dd hh:mm:ss"),
        ("timestamp", "2024-01-05 24:00", "no such time of the day"),
        ("timestamp", "2024-01-05 23:59:60", "no such time of the day"),
        ("timestamp", "2024-01-05 13:45:00.1234567", "more than microseconds"),
        ("timestamp", "2024-01-05 13:45:00 Nowhere/City", "no such time zone: Nowhere/City"),
        ("timestamp", "2024-01-05 13:45:00+19:00", "no such time zone: +19:00"),
        ("timestamp", "2024-03-31 02:30:00 Europe/Berlin", "no such time in Europe/Berlin: its clocks skip it"),
        ("timestamp", "999999-01-01", "out of range"),
        ("timestamp_ntz", "2024-01-05 13:45:00+05:00", "has a time zone"),
        ("timestamp_ntz", "2024-01-05 13:45:00Z", "has a time zone"),
        ("array<int>", "[1]", "a text says no nested value"),
    ],
)
def test_a_text_that_says_none(sql_type: str, text: str, why: str):
    assert why in refusal(text, sql_type)


def test_bytes_are_base64_in_files_the_text_itself_in_literals_and_hexadecimal_when_typed():
    assert texts.value("QUI=", parse("binary")) == b"AB"
    assert texts.value("QUI=é", parse("binary"), texts.LITERALS) == "QUI=é".encode()
    assert texts.value("0x4142", parse("binary"), texts.TextFormat(binary="hex")) == b"AB"
    assert refusal("AB=", "binary", texts.TextFormat(binary="hex")) == "not hexadecimal"


def test_a_literal_is_a_scalar_in_the_zone_of_its_session():
    assert texts.literal("2024-01-05 13:00", "timestamp", zone="Europe/Berlin").value == NOON
    assert texts.literal("1.5", "decimal(5,2)").as_py() == Decimal("1.50")
    with pytest.raises(TypeMismatchError, match=r"expected date, found '2024' \(not of the form yyyy-mm-dd\)"):
        texts.literal("2024", "date")


@given(st.dates(), st.integers(-20, 20))
def test_days_of_any_year_are_those_of_the_calendar(day: dt.date, cycles: int):
    """Every 400 years the calendar comes again."""
    assert calendar.days(day.year, day.month, day.day) == (day - EPOCH).days
    far = calendar.days(day.year + 400 * cycles, day.month, day.day)
    assert far == (day - EPOCH).days + 146_097 * cycles


ZONES = [
    "Europe/Berlin",
    "America/Los_Angeles",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Etc/GMT+5",
]


@given(st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(9998, 1, 1)), st.sampled_from(ZONES))
def test_a_time_in_a_zone_is_the_one_that_its_clocks_show(moment: dt.datetime, zone: str):
    instant = moment.replace(tzinfo=dt.UTC)
    local = instant.astimezone(zoneinfo.ZoneInfo(zone))
    text = local.replace(tzinfo=None).isoformat(" ")
    micros = (instant - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    found = texts.value(f"{text} {zone}", parse("timestamp"))
    if local.fold:  # the second of two: a text means the first
        assert found < micros
    else:
        assert found == micros
        assert texts.value(text, parse("timestamp"), texts.TextFormat(zone=zone)) == micros


SPELLED = {
    "int": st.one_of(st.integers(-(2**33), 2**33).map(str), st.decimals(-(10**6), 10**6, places=2).map(str)),
    "bigint": st.integers(-(2**65), 2**65).map(str),
    "decimal(12,2)": st.decimals(-(10**11), 10**11, places=3).map(str),
    "double": st.floats().map(str),
    "float": st.one_of(st.floats(width=32).map(str), st.floats().map(str), st.integers(-(2**70), 2**70).map(str)),
    "date": st.dates().map(str),
    "timestamp": st.one_of(st.datetimes().map(str), st.datetimes().map(lambda d: f"{d}Z")),
    "timestamp_ntz": st.datetimes().map(lambda d: d.isoformat()),
    "boolean": st.sampled_from(["true", "F", "yes", "x"]),
    "binary": st.sampled_from(["", "QUI=", "@"]),
}
ANY = st.text("0123456789+-.eE :TZ", max_size=12)


@pytest.mark.parametrize("sql_type", SPELLED)
@given(data=st.data())
def test_many_texts_are_read_as_each_of_them_is(sql_type: str, data: st.DataObject):
    """Arrow's own casts, where they are taken, say what the grammar says."""
    tree = parse(sql_type)
    spelled = SPELLED[sql_type]
    drawn = data.draw(st.lists(data.draw(st.sampled_from([spelled, st.one_of(spelled, st.none(), ANY)])), max_size=5))
    found = pa.array(drawn, pa.string())
    try:
        each = [None if text is None else texts.value(text, tree) for text in drawn]
    except Unfit:
        with pytest.raises(Unfit):
            texts.array(found, tree)
    else:
        assert str(texts.array(found, tree)) == str(texts.as_array(each, tree))


@pytest.mark.parametrize(
    ("given_pattern", "text", "clock"),
    [
        ("dd.MM.yyyy", "05.01.2024", calendar.Clock(year=2024, month=1, day=5)),
        ("d/M/yy", "5/1/24", calendar.Clock(year=2024, month=1, day=5)),
        ("yyyyMMdd'T'HHmmss", "20240105T000001", calendar.Clock(year=2024, month=1, day=5, us=1_000_000)),
        ("yyyy-MM-dd HH:mm:ss.SSSXXX", "2024-01-05 00:00:00.001+01:00",
         calendar.Clock(year=2024, month=1, day=5, us=1_000, zone="+01:00")),
        ("yyyy-MM-dd''HH VV", "2024-01-05'00 Asia/Tokyo",
         calendar.Clock(year=2024, month=1, day=5, zone="Asia/Tokyo")),
    ],
)  # fmt: skip
def test_a_pattern_of_the_users_own(given_pattern: str, text: str, clock: calendar.Clock):
    assert pattern("dateFormat", given_pattern).read(text) == clock


def test_a_pattern_refuses_other_texts_and_letters():
    with pytest.raises(Unfit, match=r"not of the form dd\.MM\.yyyy"):
        pattern("dateFormat", "dd.MM.yyyy").read("2024-01-05")
    with pytest.raises(Unfit, match="more than microseconds"):
        pattern("timestampFormat", "yyyy SSSSSSSSS").read("2024 000000001")
    for wrong in ("dd MMM yyyy", "yyyy yyyy", "hh:mm a", "'open"):
        with pytest.raises(UsageError, match="dateFormat: expected a pattern of"):
            pattern("dateFormat", wrong)


SPELLINGS = {
    "bigint": ["12", "-9", "9223372036854775807", "999999999999999999", " 7", "1e3", "1.0", "007", "1.5", "x"],
    "tinyint": ["127", "-128", "128", " 1"],
    "decimal(12,2)": ["1.5", "-0.01", "1.500", ".5", " 7 ", "9999999999.99", "99999999999", "1.005", "1e2"],
    "decimal(38,30)": ["1.5", "0." + "1" * 30, "12345678", "123456789"],
    "double": ["0.1", "1e400", "NaN", "-inf", "123456789012345678.123456789012345678", "5e-324", "-0"],
    "float": ["0.1", "16777217.00000001", "1e39", "-0.0", " 2", "1e-46"],
    "boolean": ["true", "F", " yes", "1", "maybe"],
    "date": ["2024-01-05", "0000-01-01", "0001-01-01", "9999-12-31", "2024-1-5", "2024-02-30", "-0044-03-15"],
    "timestamp_ntz": ["2024-01-05 12:00:00", "2024-01-05T12:00:00.5", "2024-01-05", "0000-01-01 00:00:00",
                      "2024-01-05 24:00:00"],
    "timestamp": ["2024-01-05 12:00:00", "2024-01-05T12:00:00.123456Z", "2024-01-05 12:00:00+17:59",
                  "2024-01-05 12:00:00-00:30", "2024-01-05 12:00:00+18:00", "2024-01-05 12:00:00+19:00",
                  "0000-01-01 00:00:00+05:00", "9999-12-31 23:59:59-08:00", "2024-01-05 12:00:00 Europe/Berlin",
                  "2024-01-05", "2024-01-05 12:00:60Z", "1883-11-18 12:03:57"],
}  # fmt: skip
"""Plain ones, which Arrow reads, and others."""


@pytest.mark.parametrize("sql_type", SPELLINGS)
@given(st.data())
def test_many_texts_say_what_each_says(sql_type: str, data: st.DataObject):
    found = data.draw(st.lists(st.one_of(st.none(), st.sampled_from(SPELLINGS[sql_type])), max_size=6))
    how = texts.TextFormat(zone=data.draw(st.sampled_from(["UTC", "America/New_York"])))
    tree = parse(sql_type)
    try:
        each = texts.as_array([None if text is None else texts.value(text, tree, how) for text in found], tree)
    except Unfit:
        with pytest.raises(Unfit):
            texts.array(pa.array(found, pa.string()), tree, how)
        return
    assert repr(texts.array(pa.array(found, pa.string()), tree, how).to_numpy(zero_copy_only=False).tolist()) == repr(
        each.to_numpy(zero_copy_only=False).tolist()
    )
