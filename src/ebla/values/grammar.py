"""The spelling of types: Spark's grammar of them, read into a tree and written in one form."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ebla.errors import DuplicateNameError, TypeMismatchError
from ebla.model.relation import unprinted

SUPPORTED = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp, "
    "timestamp_ntz, array<t>, map<k,v>, struct<name:t,...>"
)
ATOMS = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
         "timestamp_ntz")  # fmt: skip
_ALIASES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_ALIASES |= {"timestamp_ltz": "timestamp"} | {kind: kind for kind in ATOMS}
_HINTS = dict.fromkeys(("varchar", "char", "character", "text", "uuid", "json", "variant"), "; use STRING")
_HINTS |= dict.fromkeys(("bytes", "blob", "varbinary"), "; use BINARY")
_HINTS |= {"bool": "; use BOOLEAN", "datetime": "; use TIMESTAMP", "interval": "; use BIGINT"}
DEPTH_MAX = 31
"""How deep types may be nested. Arrow's messages, by which rows come from Spark, hold 63 levels, and a map is two."""

_Words = deque[tuple[str, bool]]
"""The words of a type that are still to be read, and whether each was quoted."""


class Unfit(Exception):
    """This value, or this spelling, cannot be taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """A parsed type. `parts` are the named children: element; key and value; the fields of a struct."""

    kind: str
    precision: int = 0
    scale: int = 0
    parts: tuple[tuple[str, Type], ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case "decimal":
                return f"decimal({self.precision},{self.scale})"
            case "array" | "map":
                return f"{self.kind}<{','.join(str(part) for _, part in self.parts)}>"
            case "struct":
                return f"struct<{','.join(f'{quoted_name(name)}:{part}' for name, part in self.parts)}>"
            case _:
                return self.kind


@lru_cache(maxsize=4096)
def parse(sql_type: str) -> Type:
    """Spark's grammar of types over sqlglot's tokens.

    sqlglot's own parser of types is built to accept: `int int`, `struct<a:int` and `string collate x` pass,
    and `timestamp without time zone` becomes its opposite. A column's type must not be guessed.
    """
    try:
        words = _words_of(sql_type)
        _refuse_deep(words)
        tree = _read_type(words)
        if words:
            raise Unfit(f"unexpected {words[0][0]!r}")
    except Unfit as error:
        text = sql_type if len(sql_type) <= 200 else f"{sql_type[:197]}..."
        raise TypeMismatchError(f"type {text!r}: {error}; supported: {SUPPORTED}") from None
    return tree


def misnamed_field(sql_type: str) -> tuple[str, str] | None:
    """The first struct field in a type with a name that no column may have, and what is wrong with it."""
    left = [parse(sql_type)]
    while left:
        tree = left.pop()
        for name, part in tree.parts:
            if tree.kind == "struct" and (wrong := unprinted(name)) is not None:
                return name, wrong
            left.append(part)
    return None


def _refuse_deep(words: _Words) -> None:
    depth = 0
    for word, quoted in words:
        depth += 0 if quoted else word.count("<") - word.count(">")
        if depth > DEPTH_MAX:
            raise too_deep()


def too_deep() -> Unfit:
    return Unfit(f"expected a type nested at most {DEPTH_MAX} deep, found a deeper one")


_PLAIN = re.compile(r"[A-Za-z]+(?:\(\d+(?:,\d+)?\))?\Z", re.ASCII)


def _words_of(sql_type: str) -> _Words:
    """Most types are a word and perhaps numbers: they are read without sqlglot, whose import takes long."""
    if _PLAIN.match(sql_type):
        return deque((word, False) for word in re.findall(r"\w+|\W", sql_type))
    from sqlglot import TokenType, tokenize
    from sqlglot.errors import SqlglotError

    quotes = (TokenType.IDENTIFIER, TokenType.STRING)
    try:
        return deque((t.text, t.token_type in quotes) for t in tokenize(sql_type, read="spark"))
    except SqlglotError as error:
        raise Unfit(str(error)) from error


def _read_type(words: _Words) -> Type:
    word, quoted = words.popleft() if words else ("", False)
    match "" if quoted else word.lower():
        case name if name in _ALIASES:
            return Type(kind=_ALIASES[name])
        case "decimal" | "dec" | "numeric":
            sizes = _read_list(words, "()", _read_number, 1, 2) if words and words[0][0] == "(" else [10]
            precision, scale = sizes if len(sizes) == 2 else (sizes[0], 0)
            if not 1 <= precision <= 38 or not 0 <= scale <= precision:
                raise Unfit("expected a precision from 1 to 38 and a scale from 0 to the precision")
            return Type(kind="decimal", precision=precision, scale=scale)
        case "array":
            [element] = _read_list(words, "<>", _read_type, 1, 1)
            return Type(kind="array", parts=(("element", element),))
        case "map":
            key, value = _read_list(words, "<>", _read_type, 2, 2)
            if "map<" in str(key):
                raise Unfit("the key of a map cannot be or hold a map")
            return Type(kind="map", parts=(("key", key), ("value", value)))
        case "struct":
            fields = _read_list(words, "<>", _read_field, 1)
            if len({name.lower() for name, _ in fields}) < len(fields):
                raise DuplicateNameError(f"a struct names a field twice: {[name for name, _ in fields]}")
            return Type(kind="struct", parts=tuple(fields))
        case other:
            raise Unfit(f"expected a type, found {word or 'the end'!r}" + _HINTS.get(other, ""))


def _read_field(words: _Words) -> tuple[str, Type]:
    name, quoted = words.popleft() if words else ("", False)
    if not quoted and not re.fullmatch(r"\w+", name):
        raise Unfit(f"expected the name of a field, found {name!r}; backticks quote names")
    _take(words, ":")
    tree = _read_type(words)
    if _take(words, "comment") and words:
        words.popleft()
    return name, tree


def _read_number(words: _Words) -> int:
    if not words or not words[0][0].isdecimal() or len(words[0][0]) > 9:
        raise Unfit("expected a number")
    return int(words.popleft()[0])


def _read_list(
    words: _Words, brackets: str, read: Callable[[_Words], Any], least: int, most: int = sys.maxsize
) -> list[Any]:
    _expect(words, brackets[0])
    items = [read(words)]
    while _take(words, ","):
        items.append(read(words))
    _expect(words, brackets[1])
    if not least <= len(items) <= most:
        raise Unfit(f"expected {least} between {brackets}, found {len(items)}")
    return items


def _expect(words: _Words, word: str) -> None:
    if not _take(words, word):
        raise Unfit(f"expected {word!r}, found {words[0][0] if words else 'the end'!r}")


def _take(words: _Words, word: str) -> bool:
    if not words or words[0][1] or words[0][0].lower() != word:
        return False
    words.popleft()
    return True


def quoted_name(name: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
    return name if plain else "`" + name.replace("`", "``") + "`"
