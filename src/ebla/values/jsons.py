"""JSON texts as values of columns: read whole, with every digit, each name once, and nothing behind them.

    JSON            goes into
    null            every column that may be NULL
    true, false     boolean
    number          integers if it is whole, decimals if all digits fit, float and double as the nearest one
    text            string; date, timestamp, timestamp_ntz, decimal and binary (Base64) by `ebla.values.texts`;
                    float and double if it is NaN or Infinity
    list            array
    object          struct, by names whatever their case; map, whose keys are texts of the key's type

Anything else is refused. The standard's grammar is read by Python's own decoder; what it refuses, and an option allows,
by `LenientReader`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from ebla.values import texts, types
from ebla.values.grammar import Type, Unfit

_NUMBERS = frozenset({*texts.BITS, "decimal", "float", "double"})
_BY_TEXT = frozenset({"date", "timestamp", "timestamp_ntz", "binary", "decimal"})
_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])")
_LEADING_ZEROS = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])")
_WORDS = {"NaN": "NaN", "Infinity": "Infinity", "+Infinity": "Infinity", "-Infinity": "-Infinity", "INF": "Infinity",
          "+INF": "Infinity", "-INF": "-Infinity"}  # fmt: skip
_WORD = re.compile(r"[+-]?[A-Za-z]+")
_NAME = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
TEXT_MAX = 60


class Number(str):
    """A number with every digit that was written."""

    __slots__ = ()


class Unreadable(Exception):
    """The text is no JSON; `at` is where that shows."""

    def __init__(self, message: str, at: int = 0) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True, kw_only=True)
class Leniency:
    """What is read beyond the standard; the defaults are Spark's."""

    allow_comments: bool = False
    allow_unquoted_field_names: bool = False
    allow_single_quotes: bool = True
    allow_numeric_leading_zeros: bool = False
    allow_non_numeric_numbers: bool = True
    allow_backslash_escaping_any_character: bool = False
    allow_unquoted_control_chars: bool = False


LENIENT_OPTIONS = {re.sub("_([a-z])", lambda match: match[1].upper(), one.name): one.name for one in fields(Leniency)}
"""Spark's names of them."""


# ---- reading --------------------------------------------------------------------------------------------


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise Unreadable(f"expected each name of an object once, found {json.dumps(twice)} twice")
    return found


def _refuse_word(word: str) -> Any:
    raise ValueError(word)  # whether it is allowed, an option says


_STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=_refuse_word)


def read(text: str, leniency: Leniency) -> Any:
    """The one value of a text: dict, list, str, `Number`, bool or None."""
    try:
        return _STRICT.decode(text)
    except (ValueError, RecursionError):
        pass
    try:
        return LenientReader(text, leniency).whole()
    except RecursionError:
        raise Unreadable("expected lists and objects nested less deep") from None


class LenientReader:
    """A reader by hand, which says what it expected."""

    def __init__(self, text: str, leniency: Leniency) -> None:
        self._text = text
        self._allow = leniency
        self._at = 0

    def whole(self) -> Any:
        found = self._value()
        self._skip()
        if self._at < len(self._text):
            raise self._unexpected(f"nothing behind the first {_kind(found).split(' ', 1)[-1]}")
        return found

    def _skip(self) -> None:
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
            if not self._allow.allow_comments or self._text[self._at : self._at + 2] not in ("/*", "//"):
                return
            closing = "*/" if self._text[self._at + 1] == "*" else "\n"
            end = self._text.find(closing, self._at + 2)
            if end < 0 and closing == "*/":
                raise self._unexpected("*/ to close a comment")
            self._at = len(self._text) if end < 0 else end + len(closing)

    def _unexpected(self, expected: str) -> Unreadable:
        rest = self._text[self._at :]
        beginning = rest if len(rest) <= TEXT_MAX else rest[: TEXT_MAX - 3] + "..."
        return Unreadable(f"expected {expected}, found {beginning or 'the end'}", self._at)

    def _take(self, character: str) -> bool:
        self._skip()
        if not self._text.startswith(character, self._at):
            return False
        self._at += len(character)
        return True

    def _value(self) -> Any:
        self._skip()
        match self._text[self._at : self._at + 1]:
            case "{":
                return self._pairs()
            case "[":
                return self._list()
            case '"':
                return self._string('"')
            case "'" if self._allow.allow_single_quotes:
                return self._string("'")
            case _:
                return self._scalar()

    def _scalar(self) -> Any:
        numbers = _LEADING_ZEROS if self._allow.allow_numeric_leading_zeros else _NUMBER
        if match := numbers.match(self._text, self._at):
            self._at = match.end()
            return Number(match[0])
        word = _WORD.match(self._text, self._at)
        found = word[0] if word else ""
        words: dict[str, Any] = {"null": None, "true": True, "false": False}
        if self._allow.allow_non_numeric_numbers:
            words |= {name: Number(value) for name, value in _WORDS.items()}
        if found not in words:
            raise self._unexpected("a value")
        self._at += len(found)
        return words[found]

    def _list(self) -> list[Any]:
        self._at += 1
        found: list[Any] = []
        if self._take("]"):
            return found
        while True:
            found.append(self._value())
            if self._take("]"):
                return found
            if not self._take(","):
                raise self._unexpected(", or ]")

    def _pairs(self) -> dict[str, Any]:
        self._at += 1
        found: list[tuple[str, Any]] = []
        if self._take("}"):
            return {}
        while True:
            name = self._name()
            if not self._take(":"):
                raise self._unexpected(":")
            found.append((name, self._value()))
            if self._take("}"):
                return _object(found)
            if not self._take(","):
                raise self._unexpected(", or }")

    def _name(self) -> str:
        self._skip()
        first = self._text[self._at : self._at + 1]
        if first == '"' or (first == "'" and self._allow.allow_single_quotes):
            return self._string(first)
        match = _NAME.match(self._text, self._at) if self._allow.allow_unquoted_field_names else None
        if match is None:
            raise self._unexpected("a name in quotes")
        self._at = match.end()
        return match[0]

    def _string(self, quote: str) -> str:
        begin, at = self._at, self._at + 1
        made: list[str] = []
        while True:
            character = self._text[at : at + 1]
            if character == quote:
                self._at = at + 1
                return _joined("".join(made))
            if character == "" or (character < " " and not self._allow.allow_unquoted_control_chars):
                self._at = begin
                raise self._unexpected(
                    f"{quote} to close a text" if not character else "no control character in a text"
                )
            if character == "\\":
                escaped, at = self._escaped(at + 1)
                made.append(escaped)
            else:
                made.append(character)
                at += 1

    def _escaped(self, at: int) -> tuple[str, int]:
        letter = self._text[at : at + 1]
        if letter == "u" and re.fullmatch("[0-9a-fA-F]{4}", self._text[at + 1 : at + 5]):
            return chr(int(self._text[at + 1 : at + 5], 16)), at + 5
        escaped = _ESCAPES.get(letter)
        allow = self._allow
        if letter and (allow.allow_backslash_escaping_any_character or (letter == "'" and allow.allow_single_quotes)):
            escaped = escaped or letter
        if escaped is None:
            self._at = at - 1
            raise self._unexpected("an escape that JSON has")
        return escaped, at + 1


def _joined(text: str) -> str:
    """Pairs of surrogates as the characters that they are; a half stays, and is refused when it is stored."""
    if not re.search("[\ud800-\udfff]", text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if _paired(text) else text


def _paired(text: str) -> bool:
    return not re.search("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]", text)


# ---- storing --------------------------------------------------------------------------------------------


def store(values: Sequence[Any], tree: Type, how: texts.TextFormat) -> pa.Array:
    """A column's values as Arrow's array of its type; raises `Unfit`, or what Arrow raises."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {Number} and tree.kind in _NUMBERS:
        return texts.array(pa.array(values, pa.string()), tree, how)
    if kinds == {str} and tree.kind in ("date", "timestamp", "timestamp_ntz"):
        return texts.array(
            pa.array(map(texts.unicode, values) if None not in values else values, pa.string()), tree, how
        )
    made = texts.as_array([value(one, tree, how) for one in values], tree)
    return types.checked_maps(made, tree)


def value(found: Any, tree: Type, how: texts.TextFormat) -> Any:
    """The value of the type that a JSON value is, as Arrow takes it; raises `Unfit`."""
    if found is None:
        return None
    match tree.kind:
        case "boolean" if isinstance(found, bool):
            return found
        case "array" if isinstance(found, list):
            return [_part("element", one, tree.parts[0][1], how) for one in found]
        case "struct" if isinstance(found, dict):
            return _struct(found, tree, how)
        case "map" if isinstance(found, dict):
            (_, key), (_, item) = tree.parts
            return [(texts.value(name, key, how), _part(name, one, item, how)) for name, one in found.items()]
    if isinstance(found, Number) and tree.kind in _NUMBERS:
        return texts.value(found, tree, how)
    if isinstance(found, str) and not isinstance(found, Number):
        if tree.kind == "string":
            return texts.unicode(found)
        if tree.kind in _BY_TEXT or (tree.kind in ("float", "double") and texts.is_word(found, how)):
            return texts.value(found, tree, how)
    raise Unfit(_kind(found))


def _part(name: str, found: Any, tree: Type, how: texts.TextFormat) -> Any:
    try:
        return value(found, tree, how)
    except Unfit as why:
        raise Unfit(f"{name}: expected {tree}, found {text_of(found)}: {why}") from None


def _struct(found: dict[str, Any], tree: Type, how: texts.TextFormat) -> dict[str, Any]:
    declared_names = {name.lower(): name for name, _ in tree.parts}
    given: dict[str, Any] = {}
    for name, one in found.items():
        declared = declared_names.get(name.lower())
        if declared is None:
            raise Unfit(f"field {name}: expected one of {', '.join(declared_names.values())}")
        if declared in given:
            raise Unfit(f"field {name}: expected each field once, found it in two spellings")
        given[declared] = one
    return {name: _part(f"field {name}", given.get(name), part, how) for name, part in tree.parts}


def _kind(found: Any) -> str:
    match found:
        case dict():
            return "an object"
        case list():
            return "a list"
        case bool():
            return "true or false"
        case Number():
            return "a number"
        case None:
            return "a null"
        case _:
            return "a text"


def text_of(found: Any) -> str:
    """The value as JSON."""
    match found:
        case Number():
            return str(found)
        case dict():
            return "{" + ", ".join(f"{json.dumps(name)}: {text_of(one)}" for name, one in found.items()) + "}"
        case list():
            return "[" + ", ".join(map(text_of, found)) + "]"
        case _:
            return json.dumps(found)
