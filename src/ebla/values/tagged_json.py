"""Python's values through JSON and back, the same value in the same type.

What JSON has no word for is an object of one name that begins with `$`: `{"$decimal": "1.50"}`,
`{"$date": "2026-11-18"}`, `{"$timestamp": "2026-11-18T06:00:00+00:00"}`, `{"$binary": "AAE="}` (Base64),
`{"$float": "NaN"}`, `{"$duration": 90000000}` (microseconds), `{"$map": [[1, "one"]]}`.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from ebla.errors import TypeMismatchError

_NULLS = frozenset({"NoneType", "NAType", "NaTType"})
_MICROSECOND = dt.timedelta(microseconds=1)


def encode(value: Any) -> Any:
    if type(value).__name__ in _NULLS:
        return None
    match value:
        case bool() | int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else {"$float": str(float(value))}
        case Decimal():
            return {"$decimal": str(value)}
        case bytes() | bytearray() | memoryview():
            return {"$binary": base64.b64encode(value).decode("ascii")}
        case dt.datetime():
            if getattr(value, "nanosecond", 0):  # pandas.Timestamp
                raise TypeMismatchError(f"expected a time in microseconds, found {value}")
            return {"$timestamp": value.isoformat()}
        case dt.date():
            return {"$date": value.isoformat()}
        case dt.timedelta():
            return {"$duration": value // _MICROSECOND}
        case Mapping():
            if all(isinstance(key, str) and not key.startswith("$") for key in value):
                return {key: encode(one) for key, one in value.items()}
            return {"$map": [[encode(key), encode(one)] for key, one in value.items()]}
        case list() | tuple():
            return [encode(one) for one in value]
    if hasattr(value, "tolist") and type(value).__module__ == "numpy":
        return encode(value.tolist())
    raise TypeMismatchError(f"expected a value that a column can hold, found {type(value).__name__}")


def _map(pairs: Any) -> dict[Any, Any]:
    return {decode(key): decode(one) for key, one in pairs}


_READERS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$decimal": Decimal,
    "$binary": lambda text: base64.b64decode(text, validate=True),
    "$timestamp": dt.datetime.fromisoformat,
    "$date": dt.date.fromisoformat,
    "$duration": lambda micros: dt.timedelta(microseconds=micros),
    "$map": _map,
}


def is_tagged(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _READERS


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return [decode(one) for one in value]
    if not isinstance(value, dict):
        return value
    if not is_tagged(value):
        return {key: decode(one) for key, one in value.items()}
    [(tag, content)] = value.items()
    try:
        return _READERS[tag](content)
    except (ValueError, TypeError, InvalidOperation, OverflowError) as error:
        raise TypeMismatchError(f"{tag}: expected a value of this type, found {content!r}") from error
