"""Text from the command line as values: parameters of statements, and durations."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal

from ebla.errors import UsageError

_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_WHOLE = re.compile(r"[+-]?(?:0|[1-9]\d*)\Z")
_FLOAT = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?\Z")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_LONG = 2**63

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])\Z")


def parameter(text: str) -> tuple[str, object]:
    """`name=value` with the value in its type."""
    name, found, raw = text.partition("=")
    if not found or not _NAME.match(name):
        raise UsageError(f"--param {text!r}: expected name=value, as in --param id=5")
    return name, value(raw)


def value(raw: str) -> object:
    """A whole number, a decimal, a float, true, false or null; anything else, or in single quotes, is a string.

    `007` is a string, as it is not how a number is written. A whole number beyond 64 bits is a decimal.
    """
    if len(raw) >= 2 and raw[0] == raw[-1] == "'":
        return raw[1:-1]
    if raw.lower() in _WORDS:
        return _WORDS[raw.lower()]
    if _WHOLE.match(raw):
        number = int(raw)
        return number if -_LONG <= number < _LONG else Decimal(raw)
    if _FLOAT.match(raw):
        return _fraction(raw)
    return raw


def _fraction(raw: str) -> Decimal | float:
    """A number with a point is a decimal, one with an exponent a binary fraction, as in SQL."""
    exact = Decimal(raw)
    if "e" not in raw.lower():
        return exact
    found = float(raw)
    if math.isinf(found) or (found == 0 and exact != 0):
        raise UsageError(f"{raw}: expected a number that a binary fraction can hold, found one out of its range")
    return found


def parameters(texts: Sequence[str]) -> dict[str, object]:
    """All `name=value` texts of a command, each name once."""
    found: dict[str, object] = {}
    for text in texts:
        name, bound = parameter(text)
        if name in found:
            raise UsageError(f"--param {name}: expected each name once, found it twice")
        found[name] = bound
    return found


def duration_s(text: str) -> float:
    """`90s`, `30m`, `24h`, `7d` or `2w` in seconds."""
    found = _DURATION.match(text.strip().lower())
    if found is None:
        raise UsageError(f"--retain {text!r}: expected a number and s, m, h, d or w, as in 24h, 7d or 0s")
    return float(found.group(1)) * _SECONDS[found.group(2)]
