"""Python's values as columns take them: the same value in the type that Arrow wants, or `Unfit`."""

from __future__ import annotations

import datetime as dt
import math
import numbers
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from ebla.values.fractions import narrowed, single
from ebla.values.grammar import Type, Unfit

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = frozenset({*_INTEGERS, "float", "double", "decimal"})
_NULLS = frozenset({"NoneType", "NAType", "NaTType"})


def stored_value(value: Any, tree: Type) -> Any:
    """The value as Arrow takes it, or `Unfit`. Whether it is in range Arrow knows better."""
    if type(value).__name__ in _NULLS:
        return None
    match tree.kind:
        case "boolean" if isinstance(value, bool | np.bool_):
            return bool(value)
        case "string" if isinstance(value, str):
            return value
        case "binary" if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        case "date" | "timestamp" | "timestamp_ntz" if isinstance(value, dt.date):
            return _moment(value, tree.kind)
        case "array" if isinstance(value, list | tuple | np.ndarray):
            return [stored_value(item, tree.parts[0][1]) for item in value]
        case "map" if isinstance(value, Mapping | list):
            pairs = value.items() if isinstance(value, Mapping) else value
            return [(stored_value(key, tree.parts[0][1]), stored_value(item, tree.parts[1][1])) for key, item in pairs]
        case "struct" if isinstance(value, Mapping):
            given = {str(key).lower(): item for key, item in value.items()}
            if len(given) < len(value) or given.keys() - {name.lower() for name, _ in tree.parts}:
                raise Unfit("a field is unknown or given twice")
            return {name: stored_value(given.get(name.lower()), part) for name, part in tree.parts}
        case kind if kind in _NUMBERS and not isinstance(value, bool):
            return _number(value, tree)
        case _:
            raise Unfit(f"a {type(value).__name__}")


def _number(value: Any, tree: Type) -> Any:
    kind = tree.kind
    if isinstance(value, numbers.Integral):
        return _same_fraction(int(value), kind) if kind in ("float", "double") else int(value)
    if not isinstance(value, float | np.floating | Decimal):
        raise Unfit("not a number")
    if kind == "decimal":
        return _of_scale(shortest(value), tree.scale)
    if kind in _INTEGERS and not (math.isfinite(value) and value == int(value)):
        raise Unfit("not a whole number")
    if kind in _INTEGERS:
        return int(value)
    # An OverflowError if it is too large; Arrow would store infinity.
    stored = float(value)
    if kind == "float":
        stored = single(value) if isinstance(value, Decimal) else narrowed(stored)
    infinite = value.is_infinite() if isinstance(value, Decimal) else math.isinf(value)
    if math.isinf(stored) and not infinite:
        raise Unfit("out of range")
    if stored == 0 and value != 0:
        raise Unfit("too small: it would become 0")
    return stored


def _of_scale(number: Decimal, scale: int) -> Decimal:
    """The same number with no more digits behind the point than the scale. Arrow misreads some long exponents as 0."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or -exponent <= scale:
        return number
    kept, rest = digits[: exponent + scale], digits[exponent + scale :]
    if any(rest):
        raise Unfit("more digits than the type has")
    return Decimal((sign, kept or (0,), -scale))


def shortest(value: Any) -> Decimal:
    """A number by its shortest decimal form, in its own width: 0.1 is 0.1. A whole number must be what that form says:
    the float 2147483648 would be 2147483600."""
    found = Decimal(str(value))  # numpy's repr has a name
    if not isinstance(value, Decimal) and math.isfinite(value):
        exact = float(value)
        if abs(exact) >= 2**24 and exact == math.floor(exact) and found != Decimal(exact):
            raise Unfit(f"a binary fraction that is exactly {Decimal(exact)}; cast it to an integer or round it")
    return found


def _same_fraction(value: int, kind: str) -> float:
    """A whole number as a binary fraction, if that is the same number."""
    found = narrowed(value) if kind == "float" else float(value)
    if int(found) != value:
        raise Unfit("not the same number as a binary fraction")
    return float(found)


def _moment(value: dt.date, kind: str) -> dt.date:
    if not isinstance(value, dt.datetime):
        return value if kind == "date" else dt.datetime(value.year, value.month, value.day)
    if getattr(value, "nanosecond", 0):  # pandas.Timestamp
        raise Unfit("more than microseconds")
    if kind != "timestamp" and value.tzinfo is not None:
        raise Unfit("has a time zone; remove it, or declare the column as timestamp")
    if kind == "date" and value.time() != dt.time():
        raise Unfit("not a whole day")
    return value.date() if kind == "date" else value
