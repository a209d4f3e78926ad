"""What a text says: the one grammar by which every door reads texts as values of a type.

    type            texts, with blanks around them
    boolean         true t yes y 1, false f no n 0, in any case
    integers        a number that is whole and in range: 12, +12, 12.0, 1.2e1
    decimal(p,s)    a number whose digits all fit: 1.50 goes into decimal(3,1), 1.55 does not
    float, double   a number, stored as the nearest one; NaN, Infinity, Inf in any case, with a sign. One that would
                    become infinite, or zero without being it, is refused
    string          the text itself, blanks too
    binary          Base64, or what `TextFormat.binary` says
    date            2024-01-05, 2024-1-5, -0044-03-15, 12345-01-01; also with a time of midnight and without a zone
    timestamp       a date, or a date and a time: 2024-01-05 13:45, 2024-01-05T13:45:07.123456+01:00, … Europe/Berlin.
                    Without a zone it is in `TextFormat.zone`; a time that the zone's clocks skip is refused
    timestamp_ntz   the same without a zone

    number          digits 0 to 9, a sign, a point, an exponent: no blanks, underscores, commas, 0x10, 1d
    time            hours to 23, minutes and seconds to 59, at most microseconds: more digits are zeros

A value is what Arrow's arrays of the type are made of: a date is its days since 1970, a time its microseconds, so that
no calendar is too small for them. What the text says otherwise is `Unfit`, with the reason.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ebla.errors import TypeMismatchError
from ebla.values.calendar import DAY_US, UTC, Clock, days, instant, offset_of
from ebla.values.fractions import single
from ebla.values.grammar import Type, Unfit, parse
from ebla.values.patterns import Pattern
from ebla.values.types import to_arrow

FINER = "more than microseconds"
SMALLER = "too small: it would become 0"
BLANKS = " \t\r\n\f\v"
TRUTHS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS = re.compile("-?[0-9]{1,18}")
_INFINITE = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE)
_MOMENT = re.compile(
    r"(?P<date>(?P<year>[+-]?[0-9]{4,7})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2}))"
    r"(?:[T ](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]*))?)?"
    r" ?(?P<zone>[A-Za-z+-].*)?)?"
)
_EXPECTED = {"date": "yyyy-mm-dd", "timestamp": "yyyy-mm-dd hh:mm:ss", "timestamp_ntz": "yyyy-mm-dd hh:mm:ss"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """How a door's texts are read, where doors differ."""

    zone: str = UTC
    """Where the clock hangs that shows times without a zone."""
    binary: Literal["base64", "utf-8", "hex"] = "base64"
    date: Pattern | None = None
    """A pattern that the user gave for dates, in place of the grammar's; so for both kinds of times."""
    timestamp: Pattern | None = None
    timestamp_ntz: Pattern | None = None
    words: tuple[tuple[str, str], ...] = ()
    """Words of the user's own for NaN and the infinities, and what they mean."""


FILES = TextFormat()
LITERALS = TextFormat(binary="utf-8")


# ---- one text -------------------------------------------------------------------------------------------


def literal(text: str, sql_type: str, *, zone: str = UTC) -> pa.Scalar:
    """The value of a type that a string literal in SQL says exactly; a TypeMismatchError says why there is none."""
    tree = parse(sql_type)
    try:
        return as_array([value(text, tree, TextFormat(zone=zone, binary="utf-8"))], tree)[0]
    except Unfit as error:
        raise TypeMismatchError(f"expected {tree}, found {text!r} ({error})") from None


def value(text: str, tree: Type, how: TextFormat = FILES) -> Any:
    """What a text says, as Arrow takes it; raises `Unfit`."""
    match tree.kind:
        case "string":
            return unicode(text)
        case "binary":
            return _binary(text, how)
        case "boolean":
            found = TRUTHS.get(text.strip(BLANKS).lower())
            if found is None:
                raise Unfit("neither true nor false")
            return found
        case "tinyint" | "smallint" | "int" | "bigint":
            return in_range(int(text) if _DIGITS.fullmatch(text) else unscaled(number(text), 0), BITS[tree.kind])
        case "decimal":
            return _decimal(number(text), tree)
        case "float" | "double":
            return _binary_fraction(text, tree.kind, how)
        case "date":
            return _date(text, how)
        case "timestamp" | "timestamp_ntz":
            return _time(text, tree.kind, how)
        case _:
            raise Unfit("a text says no nested value")


def unicode(text: str) -> str:
    """The text, if UTF-8 can hold it: half of a surrogate pair is no character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        raise Unfit(f"half of a surrogate pair, \\u{half:04x}, is no character") from None
    return text


def number(text: str) -> Decimal:
    """The number that a text says, all digits of it."""
    found = text.strip(BLANKS)
    if not _NUMBER.fullmatch(found):
        raise Unfit("not a number")
    try:
        return Decimal(found)
    except ArithmeticError:
        raise Unfit("out of range") from None


def unscaled(exact: Decimal, scale: int) -> int:
    """The number times 10 to the scale, if that is whole and has at most 38 digits."""
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int), "a text of digits is finite"
    text, shift = "".join(map(str, digits)).lstrip("0"), exponent + scale
    if shift < 0:
        text, rest = text[:shift], text[shift:]
        if rest.strip("0"):
            raise Unfit("not a whole number" if scale == 0 else f"more than {scale} digits behind the point")
    if text and len(text) + max(shift, 0) > 38:
        raise Unfit("out of range")
    whole = int(text + "0" * max(shift, 0)) if text else 0
    return -whole if sign else whole


def _decimal(exact: Decimal, tree: Type) -> Decimal:
    found = unscaled(exact, tree.scale)
    digits = str(abs(found))
    if len(digits) > tree.precision:
        raise Unfit("out of range")
    return Decimal((found < 0, tuple(map(int, digits)), -tree.scale))


def _binary_fraction(text: str, kind: str, how: TextFormat) -> float:
    found = text.strip(BLANKS)
    found = dict(how.words).get(found, found)
    if found.lower() == "nan":
        return float("nan")
    if infinite := _INFINITE.fullmatch(found):
        return float(f"{infinite[1]}inf")
    if not _NUMBER.fullmatch(found):
        raise Unfit("not a number")
    return nearest(found, kind, is_zero=not re.search("[1-9]", re.split("[eE]", found)[0]))


def is_word(text: str, how: TextFormat = FILES) -> bool:
    """Whether a text is a word for NaN or an infinity."""
    return text in dict(how.words) or text.lower() == "nan" or _INFINITE.fullmatch(text) is not None


def nearest(number: str, kind: str, *, is_zero: bool) -> float:
    """The digits of a number as a binary fraction that is neither infinite nor, unless the number is, zero."""
    try:
        found = single(number) if kind == "float" else float(number)
    except OverflowError:
        raise Unfit("out of range") from None
    if found in (float("inf"), float("-inf")):
        raise Unfit("out of range")
    if found == 0 and not is_zero:
        raise Unfit(SMALLER)
    return found


def _binary(text: str, how: TextFormat) -> bytes:
    match how.binary:
        case "utf-8":
            return unicode(text).encode()
        case "hex":
            found = text.strip(BLANKS)
            try:
                return bytes.fromhex(found[2:] if found[:2].lower() == "0x" else found)
            except ValueError:
                raise Unfit("not hexadecimal") from None
        case "base64":
            found = "".join(text.split())
            try:
                return base64.b64decode(found + "=" * (-len(found) % 4 if "=" not in found else 0), validate=True)
            except (binascii.Error, ValueError):
                raise Unfit("not Base64") from None


# ---- dates and times ------------------------------------------------------------------------------------


def _date(text: str, how: TextFormat) -> int:
    found = how.date.read(text) if how.date is not None else _clock(text, "date")
    if found.zone is not None or found.us:
        raise Unfit("not a whole day")
    return in_range(days(found.year, found.month, found.day), 32)


def _time(text: str, kind: str, how: TextFormat) -> int:
    pattern = how.timestamp if kind == "timestamp" else how.timestamp_ntz
    found = pattern.read(text) if pattern is not None else _clock(text, kind)
    if kind == "timestamp":
        return in_range(instant(found, how.zone), 64)
    if found.zone is not None:
        raise Unfit("has a time zone; remove it, or declare the column as timestamp")
    return in_range(days(found.year, found.month, found.day) * DAY_US + found.us, 64)


def in_range(found: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= found < 1 << (bits - 1):
        raise Unfit("out of range")
    return found


def is_moment(text: str) -> bool:
    """Whether a text is written as a date or a time, be there such a one or not."""
    return _MOMENT.fullmatch(text.strip(BLANKS)) is not None


def _clock(text: str, kind: str) -> Clock:
    match = _MOMENT.fullmatch(text.strip(BLANKS))
    if match is None:
        raise Unfit(f"not of the form {_EXPECTED[kind]}")
    parts = match.groupdict()
    fraction = parts["fraction"] or ""
    if fraction[6:].strip("0"):
        raise Unfit(FINER)
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise Unfit("no such time of the day")
    micros = int(fraction[:6].ljust(6, "0"))
    us = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros
    zone = parts["zone"]
    if zone is not None:
        offset_of(zone)  # known, or an error
    return Clock(year=int(parts["year"]), month=int(parts["month"]), day=int(parts["day"]), us=us, zone=zone)


# ---- many texts -----------------------------------------------------------------------------------------


_WHOLE = "^-?[0-9]{1,18}$"
_FRACTION = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"
_CLOCK = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_PLAIN = {
    **dict.fromkeys(BITS, _WHOLE),
    **dict.fromkeys(("decimal", "float", "double"), _FRACTION),
    "date": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "timestamp_ntz": f"^{_CLOCK}$",
}
"""Spellings that Arrow's own cast reads exactly as `value` does, and far faster."""
_ZONED = f"^{_CLOCK}(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])$"


def array(found: pa.Array, tree: Type, how: TextFormat = FILES) -> pa.Array:
    """What an array of strings says; raises `Unfit` if one of them says no value of the type.

    Arrow reads those in a plain spelling together; only the others are read one by one.
    """
    target = to_arrow(str(tree))
    if tree.kind == "string":
        return found.cast(target)
    made, left = pa.nulls(len(found), target), pc.is_valid(found)
    for spelling, through in _spellings(tree, how):
        fits = pc.and_(left, pc.fill_null(pc.match_substring_regex(found, spelling), False))
        try:
            read = found.filter(fits).cast(through).cast(target)
        except pa.ArrowInvalid:
            continue  # one of them: `value` says which and why
        if len(read) == len(found):
            return read
        made, left = pc.replace_with_mask(made, fits, read), pc.and_not(left, fits)
    odd = found.filter(left).to_pylist()
    if not odd:
        return made
    values = as_array([value(text, tree, how) for text in odd], tree)
    return values if len(values) == len(found) else pc.replace_with_mask(made, left, values)


def _spellings(tree: Type, how: TextFormat) -> list[tuple[str, pa.DataType]]:
    """Expressions for plain texts, and what Arrow reads them as."""
    kind, target = tree.kind, to_arrow(str(tree))
    own = {"date": how.date, "timestamp": how.timestamp, "timestamp_ntz": how.timestamp_ntz}.get(kind)
    if own is not None or tree.scale > 20:  # Arrow's cast overflows in a larger scale, without an error
        return []
    if kind == "timestamp":
        naive = [(_PLAIN["timestamp_ntz"], pa.timestamp("us"))] if how.zone == UTC else []
        return [*naive, (_ZONED, target)]
    return [(_PLAIN[kind], target)] if kind in _PLAIN else []


def as_array(values: list[Any], tree: Type) -> pa.Array:
    """Values as `value` gives them, as Arrow's array of the type."""
    return pa.array(values, to_arrow(str(tree)))
