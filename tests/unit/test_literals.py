"""Literals of SQL: what each one is, and the value that a column gets of it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from ebla.sql import literals as lit
from ebla.values.grammar import Unfit, parse

DAY = 19737  # 2024-01-15
NOON = DAY * 86_400_000_000 + 43_200_000_000
PLAIN = lit.Dialect()
NAIVE = dt.datetime(2024, 1, 15, 12)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("42", "number", 42),
        ("-42", "number", -42),
        ("+ 42L", "number", 42),
        ("-128Y", "number", -128),
        ("-9223372036854775808", "number", -(2**63)),
        ("9223372036854775808", "number", Decimal(2**63)),
        ("1.50", "number", Decimal("1.50")),
        (".5", "number", Decimal("0.5")),
        ("15e-1", "number", 1.5),
        ("1.5D", "number", 1.5),
        ("0.1F", "number", np.float32(0.1)),
        ("1BD", "number", Decimal(1)),
        ("NULL", "null", None),
        ("true", "boolean", True),
        ("'it''s' \"!\"", "string", "it's!"),
        ("r'\\n'", "string", "\\n"),
        ("X'1f'", "binary", b"\x1f"),
        ("DATE '2024-01-15'", "date", DAY),
        ("TIMESTAMP '2024-01-15 12:00:00'", "timestamp", NOON),
        ("timestamp_ntz '2024-01-15T12:00'", "timestamp_ntz", NOON),
        ("CAST('2024-01-15' AS DATE)", "date", DAY),
        ("'2024-01-15'::DATE::TIMESTAMP", "timestamp", DAY * 86_400_000_000),
        ("CAST(NULL AS MAP<STRING, INT>)", "null", None),
        ("CAST(1.50 AS DECIMAL(5, 1))", "number", Decimal("1.5")),
        ("CAST('q' AS BINARY)", "binary", b"q"),
        (":n", "number", 7),
        (":day", "date", DAY),
        (":at", "timestamp", NOON),
        (":naive", "naive", NOON),
        (":nothing", "null", None),
        ("TIMESTAMP '2024-01-15 12:00:00.1234567'", "unfit", "more than microseconds"),
        ("1e-400", "unfit", "too small: it would become 0"),
    ],
)
def test_what_a_literal_is(text: str, kind: str, value: Any):
    given = {"n": 7, "day": NAIVE.date(), "at": NAIVE.replace(tzinfo=dt.UTC), "naive": NAIVE, "nothing": None}
    found = lit.whole(text, lit.Dialect(parameters=given))
    assert (found.kind, found.value, found.text) == (kind, value, text)
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    "text",
    ["1 + 1", "- -1", "x", "current_date()", "(1)", "DATE 'today'", "DATE '2024'", "300Y", "1e400", "X'1'", ":other",
     ":list", "CAST('1.55' AS DECIMAL(3,1))", "CAST('3.0' AS INT)", "CAST(3.5 AS INT)", "INTERVAL '1' DAY",
     "'a' || 'b'",
     "try_cast('1' AS INT)", "'a' COLLATE x"],
)  # fmt: skip
def test_what_is_left_to_spark(text: str):
    with pytest.raises(lit.NotPlain):
        lit.whole(text, lit.Dialect(parameters={"list": [1]}))


def test_a_dialect_says_what_strings_and_times_are():
    assert lit.whole("TIMESTAMP '2024-01-15 13:00'", lit.Dialect(zone="Europe/Berlin")).value == NOON
    for text, dialect in (
        ("'a\\n'", lit.Dialect(escaped=True)),
        ('"a"', lit.Dialect(quoted_names=True)),
        ("TIMESTAMP '2024-01-15'", lit.Dialect(naive=True)),
        ("CAST('2024-01-15' AS TIMESTAMP)", lit.Dialect(naive=True)),
    ):
        with pytest.raises(lit.NotPlain):
            lit.whole(text, dialect)


@pytest.mark.parametrize(
    ("text", "sql_type", "value"),
    [
        ("'2024-01-15'", "date", DAY),
        ("'2024-01-15 13:00'", "timestamp", NOON),
        ("DATE '2024-01-15'", "timestamp", NOON - 13 * 3_600_000_000),
        ("DATE '2024-01-15'", "timestamp_ntz", NOON - 12 * 3_600_000_000),
        ("'abc'", "binary", b"abc"),
        ("'1.5'", "decimal(5,2)", Decimal("1.50")),
        ("'7'", "bigint", 7),
        ("7.0", "int", 7),
        ("0.1F", "decimal(5,2)", Decimal("0.1")),
        ("NULL", "array<int>", None),
    ],
)
def test_the_value_that_a_column_gets(text: str, sql_type: str, value: Any):
    assert lit.stored(lit.whole(text, PLAIN), parse(sql_type), "Europe/Berlin") == value


def test_a_decimal_has_one_zero():
    assert str(lit.stored(lit.whole("-0.0", PLAIN), parse("double"), "UTC")) == "0.0"
    assert str(lit.stored(lit.whole("-0e0", PLAIN), parse("double"), "UTC")) == "-0.0"


@pytest.mark.parametrize(
    ("text", "sql_type", "why"),
    [
        ("'2024-01-15 13:00'", "date", "not a whole day"),
        ("TIMESTAMP '2024-01-15 13:00'", "date", "a timestamp; cast it if that is meant"),
        ("DATE '2024-01-15'", "int", "a date"),
        ("DATE '2024-01-05 13:45'", "date", "not a whole day"),
        ("TIMESTAMP_NTZ '2024-01-05 13:45:00+05:00'", "timestamp_ntz", "zone"),
        ("DATE '2024-02-30'", "date", "no such"),
        ("'x'", "int", "not a number"),
        ("5", "string", "a int"),
        ("3.5", "int", "not a whole number"),
        ("TRUE", "int", "a bool"),
        ("'\\ud800'", "string", "half of a surrogate pair"),
    ],
)
def test_the_value_that_a_column_refuses(text: str, sql_type: str, why: str):
    with pytest.raises(Unfit, match=why):
        lit.stored(lit.whole(text, PLAIN), parse(sql_type), "UTC")


def test_rows_of_values_and_what_is_more_than_that():
    rows = lit.rows_of("VALUES (1, 'a'), (f(2, 3), NULL)", PLAIN)
    assert rows is not None
    assert [[cell.literal and cell.literal.value for cell in row] for row in rows] == [[1, "a"], [None, None]]
    assert [[cell.literal is None for cell in row] for row in rows] == [[False, False], [True, False]]
    one = lit.rows_of("VALUES 1, -2", PLAIN)
    assert one is not None
    assert len(one) == 2
    for text in (
        "VALUES (1) AS t(a)",
        "VALUES (1) LIMIT 1",
        "VALUES 1 + 2 LIMIT 1",
        "SELECT 1",
        "VALUES struct(1, 2), struct(3",
        "VALUES ()",
    ):
        assert lit.rows_of(text, PLAIN) is None, text


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("VALUES (1) + 2, 3", [["(1) + 2"], ["3"]]),
        ("VALUES 9, CAST(1 AS DOUBLE) + 1", [["9"], ["CAST(1 AS DOUBLE) + 1"]]),
        ("VALUES STRUCT(1, f(2)), (3, x)", [["1", "f(2)"], ["3", "x"]]),
        ("VALUES (f(1)::MAP<STRING, INT>, 2)", [["f(1)::MAP<STRING, INT>", "2"]]),
        ("VALUES (CASE WHEN a IN (1, 2) THEN b[c(1, 2)] END, 2)", [["CASE WHEN a IN (1, 2) THEN b[c(1, 2)] END", "2"]]),
    ],
)
def test_cells_of_rows(text: str, cells: list[list[str]]):
    rows = lit.rows_of(text, PLAIN)
    assert rows is not None
    assert [[text[cell.start : cell.end] for cell in row] for row in rows] == cells
