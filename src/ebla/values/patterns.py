"""Patterns for dates and times that a user gives, such as `dd.MM.yyyy HH:mm`: those letters of Spark's that are exact.

    y u year (yy is 2000 to 2099)    M month    d day    H hour to 23    m minute    s second    S digits of the second
    X x Z an offset such as +01:00, +0100, +01 (X also Z)    V a zone such as Europe/Berlin    'text' and '' a quote

As many letters as the text has digits; one letter stands for one or two, of a year for any number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ebla.errors import UsageError
from ebla.values.calendar import Clock, offset_of
from ebla.values.grammar import Unfit

_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])")
_NAMES = {"y": "year", "u": "year", "M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    text: str
    expression: re.Pattern[str]
    short_year: bool = False

    def read(self, text: str) -> Clock:
        match = self.expression.fullmatch(text)
        if match is None:
            raise Unfit(f"not of the form {self.text}")
        parts = match.groupdict()
        fraction = parts.get("fraction") or ""
        if fraction[6:].strip("0"):
            raise Unfit("more than microseconds")
        year, month, day = (int(parts.get(name) or least) for name, least in (("year", 1970), ("month", 1), ("day", 1)))
        hour, minute, second = (int(parts.get(name) or 0) for name in ("hour", "minute", "second"))
        if hour > 23 or minute > 59 or second > 59:
            raise Unfit("no such time of the day")
        us = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
        zone = parts.get("zone")
        if zone is not None:
            offset_of(zone)
        return Clock(year=year + 2000 * self.short_year, month=month, day=day, us=us, zone=zone)


@lru_cache(maxsize=64)
def pattern(option: str, text: str) -> Pattern:
    """The pattern of an option; a UsageError says which letter cannot be read exactly."""
    made, at, short, seen = "", 0, False, set[str]()
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise _refused(option, text, text[at])
        quoted, letter, other = piece.groups()
        count, at = piece.end() - at, piece.end()
        if letter is None:
            made += re.escape(other if other is not None else quoted.replace("''", "'") or "'")
            continue
        name = _NAMES.get(letter, "fraction" if letter == "S" else "zone" if letter in "XxZV" else "")
        if not name or name in seen or (letter == "M" and count > 2):
            raise _refused(option, text, letter * count)
        seen.add(name)
        short = short or (name == "year" and count == 2)
        made += f"(?P<{name}>{_digits(name, letter, count)})"
    return Pattern(text=text, expression=re.compile(made), short_year=short)


def _digits(name: str, letter: str, count: int) -> str:
    match name:
        case "zone" if letter == "V":
            return "[A-Za-z]+(?:/[A-Za-z0-9_+-]+)*"
        case "zone":
            return r"Z|[+-][0-9]{1,2}(?::?[0-9]{2}){0,2}" if letter == "X" else r"[+-][0-9]{1,2}(?::?[0-9]{2}){0,2}"
        case "fraction":
            return f"[0-9]{{{count}}}"
        case "year" if count == 1:
            return "[0-9]{1,7}"
        case _ if count == 1:
            return "[0-9]{1,2}"
        case _:
            return f"[0-9]{{{count}}}"


def _refused(option: str, text: str, found: str) -> UsageError:
    return UsageError(
        f"{option}: expected a pattern of y, M, d, H, m, s, S, X, x, Z and V, each once, M at most twice, "
        f"found {found!r} in {text!r}"
    )
