"""Values at the ends of every type, and beside them: where engines differ if they differ."""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ebla.values import types

D = decimal.Decimal
DAY_US = 86_400_000_000
YEAR_10000 = 253_402_300_800
"""Seconds from 1970 to the first moment that Python's types cannot hold."""
YEAR_1 = -62_135_596_800
"""Seconds from 1970 to the first moment that they can."""
END_OF_TIME_US = (YEAR_10000 + 28_799) * 10**6
"""9999-12-31 23:59:59-08:00."""

_DAYS = [
    *(0, -1, 1, -141_428, 19_782, 2**31 - 1, 2**31 - 2, -(2**31), 1 - 2**31, 2 - 2**31),
    *(YEAR_1 // 86_400, YEAR_1 // 86_400 - 1, YEAR_10000 // 86_400, YEAR_10000 // 86_400 - 1, -719_528, -719_529),
]
_MICROS = [
    *(0, -1, 1, 1_711_845_000_000_001, 2**63 - 1, 2**63 - 2, -(2**63), 1 - 2**63, 2 - 2**63, 9 * 10**18),
    *(YEAR_1 * 10**6, YEAR_1 * 10**6 - 1, YEAR_10000 * 10**6, YEAR_10000 * 10**6 - 1, END_OF_TIME_US),
]
_FRACTIONS = [0.0, -0.0, 1.0, -1.0, 0.1, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 2.0**53]
_TEXTS = [
    *("", " ", "  ", "a", "A", "a ", " a", "a\t", "a\x00", "ä", "a\u0308", "Ä", "ß", "ss", "İ"),
    *("z", "Zz", "\U0001d11e", "\uffff", "it's", '"', "10", "9", "-0", "NaN", "infinity", "NULL", "a%b_"),
]


def _whole(bits: int) -> list[Any]:
    most = 2 ** (bits - 1)
    return [0, 1, -1, 7, most - 1, most - 2, -most, 1 - most, most // 2]


def _decimals(precision: int, scale: int) -> list[Any]:
    most = D(10**precision - 1).scaleb(-scale, context=decimal.Context(prec=60))
    least = D(1).scaleb(-scale)
    found = [
        D(0),
        least,
        least.copy_negate(),
        most,
        most.copy_negate(),
        most.next_minus(decimal.Context(prec=precision)),
        D(5).scaleb(-scale),
    ]
    return [*found, D(1)] if precision > scale else found


def edges(kind: str) -> list[Any]:
    """The values of a type that are tried, NULL first; dates in days and timestamps in microseconds since 1970."""
    found: list[Any]
    match kind.partition("(")[0]:
        case "tinyint" | "smallint" | "int" | "bigint":
            found = _whole({"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}[kind])
        case "decimal":
            precision, scale = map(int, kind[8:-1].split(","))
            found = _decimals(precision, scale)
        case "date":
            found = list(_DAYS)
        case "timestamp" | "timestamp_ntz":
            found = list(_MICROS)
        case "float":
            found = [*_FRACTIONS[:-3], 1.401298464324817e-45, 3.4028234663852886e38]
        case "double":
            found = list(_FRACTIONS)
        case "boolean":
            found = [True, False]
        case "binary":
            found = [b"", b"\x00", b"a", b"a\x00", b"\xff" * 9, b" "]
        case _:
            found = list(_TEXTS)
    return [None, *found]


def column(kind: str, values: Sequence[Any]) -> pa.Array:
    """Values as `edges` gives them, in the column's type."""
    arrow = types.to_arrow(kind)
    if kind == "date":
        return pa.array(values, pa.int32()).cast(arrow)
    if kind.startswith("timestamp"):
        return pa.array(values, pa.int64()).cast(arrow)
    return pa.array(values, arrow)


def raw(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values that compare bit by bit and that Python can hold: dates and times as numbers, fractions by `repr`."""
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    found: list[Any] = array.to_pylist()
    return [repr(v) for v in found] if pa.types.is_floating(array.type) else found
