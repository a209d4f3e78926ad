"""Bounds of a run's keys, as short texts for the manifest.

A bound is a JSON array of the first columns of a key, at most. The keys of a run lie between its two bounds in the
run's order, where only as many columns are compared as the bound has. A value that is too long is cut: below, to a
prefix, which comes before it; above, to the prefix that follows all that begin with the same characters. Where there is
no such prefix the bound ends before that column. Columns behind one that was cut say nothing more. An empty bound, and
NULL, leave that side open.

Text is compared by its UTF-8 bytes, which is the order of code points. A column that descends has its larger values
first, so above and below change places.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Sequence
from decimal import Decimal

VALUE_LENGTH = 64
"""Characters of text and bytes of binary that a bound keeps of a value."""
BOUND_CHARS = 1024
"""A bound of more characters ends with fewer columns."""
MESSAGE_CHARS = 200
"""A value in a message is cut to this many characters."""

LAST_CHARACTER = 0x10FFFF
SURROGATES = range(0xD800, 0xE000)


def key_json(values: Sequence[object]) -> str:
    """A key as text, whole."""
    return json.dumps([as_json(v) for v in values], ensure_ascii=False)


def as_json(value: object) -> object:
    """A value as JSON has it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal() | dt.date():
            return str(value)
        case _:
            return str(value)


def in_message(value: object) -> str:
    """A value as messages show it: a long one by its beginning and its length."""
    return short(repr(as_json(value)))


def short(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARS else f"{text[:MESSAGE_CHARS]}… ({len(text)} characters)"


def below(values: Sequence[object], descending: Sequence[bool] = ()) -> str:
    """A bound that no key of a run comes before whose first key has these values."""
    return _bound(values, descending, above=False)


def above(values: Sequence[object], descending: Sequence[bool] = ()) -> str:
    """A bound that no key of a run comes after whose last key has these values."""
    return _bound(values, descending, above=True)


def _bound(values: Sequence[object], descending: Sequence[bool], *, above: bool) -> str:
    kept: list[object] = []
    for number, value in enumerate(values):
        downwards = number < len(descending) and descending[number]
        short = is_short(value)
        if not short:
            value = following(value) if above != downwards else _prefix(value)
            if value is None:
                break
        text = key_json([*kept, value])
        if len(text) > BOUND_CHARS:
            break
        kept.append(value)
        if not short:
            break
    return key_json(kept)


def is_short(value: object) -> bool:
    return not isinstance(value, str | bytes) or len(value) <= VALUE_LENGTH


def _prefix(value: object) -> str | bytes:
    assert isinstance(value, str | bytes)
    return value[:VALUE_LENGTH]


def following(value: object) -> str | bytes | None:
    """The first prefix that comes after everything that begins like this value; `None` if there is none."""
    prefix = _prefix(value)
    if isinstance(prefix, bytes):
        kept = prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    text = prefix.rstrip(chr(LAST_CHARACTER))
    if not text:
        return None
    code = ord(text[-1]) + 1
    return text[:-1] + chr(SURROGATES.stop if code in SURROGATES else code)
