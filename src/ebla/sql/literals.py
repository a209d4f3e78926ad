"""Literals: what their text says, by Spark's grammar of them, and the value of a column that each one is.

    42  42L 42S 42Y      whole numbers; one that no BIGINT holds is a decimal
    1.5  .5  5.  1.5BD   decimals            1e3  1.5D  1.5F   binary fractions
    'text'  "text"       strings, read by `ebla.values.texts` where the column is of another type
    X'1F'  TRUE  NULL    DATE '…'  TIMESTAMP '…'  TIMESTAMP_NTZ '…'  TIMESTAMP_LTZ '…'
    - and + before a number, CAST(literal AS type), literal::type, and :parameter

A literal goes into a column exactly or not at all, as every value does. What is not plainly one of these, or depends on
more than `Dialect` says, is `NotPlain`: an expression, which Spark computes.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from ebla.errors import EblaError
from ebla.model.relation import Default
from ebla.sql.cursor import Cursor
from ebla.sql.lex import Kind, StatementText, quote_string, unquote_string
from ebla.values import texts, types
from ebla.values.calendar import DAY_US, UTC, Clock, civil, instant
from ebla.values.defaults import stored_form
from ebla.values.fractions import single
from ebla.values.grammar import Type, Unfit, parse
from ebla.values.python_values import stored_value

_WHOLE = {"L": 64, "S": 16, "Y": 8}
_TYPED = {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP_LTZ": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz"}
_VALUES = (bool, int, float, Decimal, str, bytes, bytearray, dt.date)
"""Parameters that mean one thing; Spark is asked for any other."""


_BEHIND_VALUES = frozenset(
    {"AS", "LIMIT", "OFFSET", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "WINDOW"}
    | {"UNION", "EXCEPT", "MINUS", "INTERSECT"}
)
"""Words that end the rows of VALUES and begin the rest of a query."""


class NotPlain(Exception):
    """An expression, or a literal whose meaning only Spark knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What literals mean in a session."""

    zone: str = UTC
    naive: bool = False
    """Whether TIMESTAMP is TIMESTAMP_NTZ."""
    escaped: bool = False
    """Whether backslashes in strings are themselves."""
    quoted_names: bool = False
    """Whether "…" is a name."""
    parameters: Mapping[str, object] = field(default_factory=dict)
    """What `:name` stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """`kind` is null, boolean, number, string, binary, date, timestamp or timestamp_ntz; the last three in days or
    microseconds. That of a time without zone as a parameter is naive; that of one that Spark would change is unfit, and
    its value says why. That of the word DEFAULT is default, and its value the column's."""

    kind: str
    value: Any
    text: str
    at: int = 0
    """Where it begins in the statement's text."""

    def __repr__(self) -> str:
        return self.text


# ---- reading --------------------------------------------------------------------------------------------


def whole(text: str, dialect: Dialect) -> Literal:
    """The text as one literal."""
    try:
        cursor = Cursor(StatementText(text=text))
        found = Reader(cursor, dialect).literal()
    except EblaError:
        raise NotPlain from None
    if cursor.peek().kind is not Kind.END:
        raise NotPlain
    return found


class Reader:
    """Reads literals where a cursor stands."""

    def __init__(self, cursor: Cursor, dialect: Dialect) -> None:
        self._cursor = cursor
        self._dialect = dialect

    def literal(self) -> Literal:
        cursor, first = self._cursor, self._cursor.at
        kind, value = self._cast() if cursor.sees("CAST", "(") else self._plain()
        while cursor.accept("::"):
            kind, value = self._as_type(kind, value)
        return Literal(kind=kind, value=value, text=cursor.text(first), at=cursor.tokens[first].start)

    def _plain(self) -> tuple[str, Any]:
        cursor = self._cursor
        token = cursor.next()
        match token.kind, token.key:
            case Kind.STRING, _:
                cursor.at -= 1
                return "string", self._string()
            case Kind.NUMBER, _:
                return _number(token.text, 1)
            case Kind.OP, "-" | "+" if cursor.peek().kind is Kind.NUMBER:
                return _number(cursor.next().text, -1 if token.key == "-" else 1)
            case Kind.OP, ":" if cursor.peek().kind is Kind.WORD and cursor.peek().start == token.end:
                return self._parameter(cursor.next().text)
            case Kind.WORD, "NULL":
                return "null", None
            case Kind.WORD, "TRUE" | "FALSE":
                return "boolean", token.key == "TRUE"
            case Kind.WORD, "X" if cursor.peek().kind is Kind.STRING:
                return "binary", _bytes(self._string())
            case Kind.WORD, key if key in _TYPED and cursor.peek().kind is Kind.STRING:
                return self._moment(_TYPED[key], self._string(), is_timestamp=key == "TIMESTAMP")
        raise NotPlain

    def _string(self) -> str:
        """Adjacent strings are one."""
        cursor, value = self._cursor, ""
        while cursor.peek().kind is Kind.STRING:
            raw = cursor.next().text
            if (self._dialect.escaped and "\\" in raw) or (self._dialect.quoted_names and raw[0] == '"'):
                raise NotPlain
            value += unquote_string(raw)
        return value

    def _parameter(self, name: str) -> tuple[str, Any]:
        value = self._dialect.parameters.get(name, ...)
        if value is None:
            return "null", None
        if not isinstance(value, _VALUES):
            raise NotPlain
        match value:
            case bool():
                return "boolean", value
            case str():
                return "string", value
            case bytes() | bytearray():
                return "binary", bytes(value)
            case dt.datetime():
                return _instant(value)
            case dt.date():
                return "date", (value - dt.date(1970, 1, 1)).days
            case _:
                return "number", value

    def _moment(self, kind: str, text: str, *, is_timestamp: bool) -> tuple[str, Any]:
        """A typed literal, if the strict grammar takes its text; Spark knows more spellings."""
        if is_timestamp and self._dialect.naive:
            raise NotPlain
        try:
            return kind, texts.value(text, parse(kind), texts.TextFormat(zone=self._dialect.zone))
        except Unfit as why:
            if texts.is_moment(text):
                return "unfit", str(why)  # Spark would cut it, or move it
            raise NotPlain from None

    def _cast(self) -> tuple[str, Any]:
        cursor = self._cursor
        cursor.at += 2
        found = self.literal()
        if not cursor.accept("AS"):
            raise NotPlain
        made = self._as_type(found.kind, found.value)
        if not cursor.accept(")"):
            raise NotPlain
        return made

    def _as_type(self, kind: str, value: Any) -> tuple[str, Any]:
        """A cast that changes nothing; Spark is asked for any other."""
        cursor, first = self._cursor, self._cursor.at
        cursor.skip_type()
        tree = parse(cursor.text(first))
        if self._dialect.naive and tree.kind == "timestamp":
            raise NotPlain
        if kind == "string" and tree.kind in texts.BITS and not value.strip().lstrip("+-").isdigit():
            raise NotPlain
        try:
            made = stored(Literal(kind=kind, value=value, text=""), tree, self._dialect.zone)
            made = types.as_stored(made, tree)
        except (Unfit, ValueError, TypeError, OverflowError):
            raise NotPlain from None
        if made is None:
            return "null", None
        if tree.kind == "float":
            return "number", np.float32(made)
        return tree.kind if tree.kind in ("boolean", "string", "binary", *_TYPED.values()) else "number", made


def _number(text: str, sign: int) -> tuple[str, Any]:
    """The number in the Python type that stands for Spark's: int, Decimal, float, or numpy's narrow float."""
    upper = text.upper()
    if upper.endswith("BD"):
        return "number", _decimal(upper[:-2], sign)
    suffix = upper[-1] if upper[-1] in "LSYDF" else ""
    digits = upper.removesuffix(suffix)
    if suffix in _WHOLE:
        found = sign * int(digits) if digits.isdigit() else None
        if found is None or not -(1 << (_WHOLE[suffix] - 1)) <= found < 1 << (_WHOLE[suffix] - 1):
            raise NotPlain
        return "number", found
    if suffix or "E" in digits:
        exact = Decimal(digits)
        try:
            found_float = sign * (single(digits) if suffix == "F" else float(digits))
        except OverflowError:
            raise NotPlain from None
        if math.isinf(found_float):
            raise NotPlain
        if found_float == 0 and exact != 0:
            return "unfit", texts.SMALLER
        return "number", np.float32(found_float) if suffix == "F" else found_float
    if "." in digits:
        return "number", _decimal(digits, sign)
    found = sign * int(digits) if len(digits) <= 38 else None
    if found is None:
        raise NotPlain
    return "number", found if -(2**63) <= found < 2**63 else Decimal(found)


def _decimal(text: str, sign: int) -> Decimal:
    found = Decimal(("-" if sign < 0 else "") + text)
    _, digits, exponent = found.as_tuple()
    if not isinstance(exponent, int) or len(digits) > 38 or not -38 <= exponent <= 0:
        raise NotPlain
    return found if found else abs(found)  # a decimal has one zero


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text) if text.isalnum() or not text else _not_plain()
    except ValueError:
        raise NotPlain from None


def _not_plain() -> bytes:
    raise NotPlain


def _instant(value: dt.datetime) -> tuple[str, int]:
    if getattr(value, "nanosecond", 0):  # pandas.Timestamp
        raise NotPlain
    if value.tzinfo is None:
        # Spark takes it for a time of the machine's own zone; as a time without zone it is one thing.
        return "naive", (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    return "timestamp", (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


# ---- storing --------------------------------------------------------------------------------------------


def stored(literal: Literal, tree: Type, zone: str) -> Any:
    """The value of the type that a literal is, as Arrow takes it. Raises `Unfit`, or `NotPlain`."""
    match literal.kind, tree.kind:
        case "null", _:
            return None
        case "default", _:
            return literal.value
        case "unfit", _:
            raise Unfit(literal.value)
        case "string", _:
            return texts.value(literal.value, tree, texts.TextFormat(zone=zone, binary="utf-8"))
        case "date", "timestamp":
            year, month, day = civil(literal.value)
            return texts.in_range(instant(Clock(year=year, month=month, day=day), zone), 64)
        case "date", "timestamp_ntz":
            return texts.in_range(literal.value * DAY_US, 64)
        case (kind, target) if kind == target and kind in _TYPED.values():
            return literal.value
        case "naive", "timestamp_ntz":
            return literal.value
        case ("timestamp" | "timestamp_ntz" | "naive", "timestamp" | "timestamp_ntz"):
            raise NotPlain
        case ("date" | "timestamp" | "timestamp_ntz" | "naive") as kind, _:
            found = "timestamp" if kind == "naive" else kind
            raise Unfit(f"a {found}; cast it if that is meant")
        case _:
            return stored_value(literal.value, tree)


def default_sql(default: Default, kind: str) -> str:
    """An expression of Spark's that is the value of a default in a column of the type."""
    tree = parse(kind)
    return sql_of(stored_form(default, tree), tree)


def needs_reading(literal: Literal | None) -> bool:
    """Whether Spark would not store the literal as the value that it says, or not refuse it."""
    return literal is not None and literal.kind in ("string", "unfit", "default")


def sql_of(value: Any, tree: Type) -> str:
    """An expression of Spark's that is this value of the type."""
    if value is None:
        return f"CAST(NULL AS {tree})"
    match tree.kind:
        case "boolean":
            return "TRUE" if value else "FALSE"
        case "string" if value.isprintable() and "'" not in value and "\\" not in value:
            return quote_string(value)
        case "string":  # whatever the session takes a backslash for
            return f"CAST(X'{value.encode().hex()}' AS STRING)"
        case "binary":
            return f"X'{value.hex()}'"
        case "date":
            return f"date_from_unix_date({value})"
        case "timestamp":
            return f"timestamp_micros({value}L)" if value > -(2**63) else f"timestamp_micros(-{2**63 - 1}L - 1L)"
        case "timestamp_ntz":
            return f"TIMESTAMP_NTZ '{_timestamp_text(value)}'"
        case _:
            return f"CAST('{value}' AS {tree})"


def _timestamp_text(micros: int) -> str:
    day, of_day = divmod(micros, DAY_US)
    year, month, date = civil(day)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    seconds, fraction = divmod(of_day, 1_000_000)
    hours, minutes = divmod(seconds // 60, 60)
    time = f"{hours:02}:{minutes:02}:{seconds % 60:02}.{fraction:06}"
    return f"{sign}{abs(year):04}-{month:02}-{date:02} {time}"


# ---- VALUES ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value of a row: a literal, or an expression; `text[start:end]` of the query."""

    start: int
    end: int
    literal: Literal | None


def rows_of(text: str, dialect: Dialect) -> Sequence[Sequence[Cell]] | None:
    """The rows of a query that is VALUES and nothing more; `None` for any other."""
    cursor = Cursor(StatementText(text=text))
    if not cursor.accept("VALUES"):
        return None
    reader = Reader(cursor, dialect)
    rows: list[list[Cell]] = []
    try:
        while True:
            rows.append(_row(cursor, reader))
            if not cursor.accept(","):
                return rows if cursor.peek().kind is Kind.END else None
    except (NotPlain, EblaError):
        return None


def _row(cursor: Cursor, reader: Reader) -> list[Cell]:
    """`(a, b)`, `STRUCT(a, b)`, which is the same to Spark, or one expression without parentheses."""
    first = cursor.at
    if cursor.sees("STRUCT", "("):
        cursor.at += 1
    if cursor.accept("("):
        cells = [_cell(cursor, reader)]
        while cursor.accept(","):
            cells.append(_cell(cursor, reader))
        if not cursor.accept(")"):
            raise NotPlain
        if cursor.sees(",") or cursor.peek().kind is Kind.END:
            return cells
        cursor.at = first  # an expression that begins with a parenthesis
    return [_cell(cursor, reader, whole_row=True)]


def _cell(cursor: Cursor, reader: Reader, *, whole_row: bool = False) -> Cell:
    first = cursor.at

    def at_end() -> bool:
        return cursor.sees(",") or (cursor.peek().kind is Kind.END if whole_row else cursor.sees(")"))

    try:
        literal = reader.literal()
        if at_end():
            return Cell(start=literal.at, end=literal.at + len(literal.text), literal=literal)
    except (NotPlain, EblaError):
        pass
    cursor.at, depth = first, 0
    while depth or not at_end():
        token = cursor.peek()
        if token.kind is Kind.END or (whole_row and not depth and token.key in _BEHIND_VALUES):
            raise NotPlain
        if cursor.accept("::"):
            cursor.skip_type()
            continue
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.key, 0)
        if depth < 0:
            raise NotPlain
        cursor.at += 1
    if cursor.at == first:
        raise NotPlain
    return Cell(start=cursor.tokens[first].start, end=cursor.tokens[cursor.at - 1].end, literal=None)
