"""Values of columns as JSON has them. What JSON cannot hold exactly is a string: decimals, times, bytes, NaN."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def to_json(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _not_finite(value)
        case Decimal():
            return f"{value:f}"
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case dt.datetime():
            return instant(value).isoformat()
        case dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return duration(value)
        case Mapping():
            return {_key(k): to_json(v) for k, v in value.items()}
        case list() | tuple():
            return [to_json(v) for v in value]
        case _:
            return str(value)


def _key(value: Any) -> str:
    """A map's key: JSON has only strings there."""
    made = to_json(value)
    return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def instant(value: dt.datetime) -> dt.datetime:
    """A moment in UTC; one without a zone as it is."""
    return value if value.tzinfo is None else value.astimezone(dt.UTC)


def duration(value: dt.timedelta) -> str:
    """ISO 8601, in seconds: `PT90.5S`."""
    micros = value // dt.timedelta(microseconds=1)
    whole, part = divmod(abs(micros), 1_000_000)
    fraction = f".{part:06d}".rstrip("0") if part else ""
    return f"{'-' if micros < 0 else ''}PT{whole}{fraction}S"
