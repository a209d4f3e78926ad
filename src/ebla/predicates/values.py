"""Values as reads compare them, in the order that Spark gives them.

A value is *comparable* once it is a plain Python value: dates are days and times are microseconds, both as integers,
so that no calendar is too small for them. It is *ranked* once it is a tuple that sorts as Spark's `ASC NULLS FIRST`:
NULL first, NaN behind every number, strings by code point (which is the order of their UTF-8 bytes). `Desc` turns a
rank around, which is Spark's `DESC NULLS LAST`.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ebla.errors import TypeMismatchError, UsageError
from ebla.model.relation import Column
from ebla.values import texts, types
from ebla.values.grammar import Unfit, parse

Rank = tuple[int, Any]
Ranks = tuple[Any, ...]
"""Ranks of several columns, some of them turned around."""

TYPED = texts.TextFormat(binary="hex")
"""How what is typed at a command line is read."""

NULL: Rank = (0, 0)
NAN: Rank = (2, 0)


class Desc:
    """A rank in the opposite order."""

    __slots__ = ("rank",)

    def __init__(self, rank: Any) -> None:
        self.rank = rank

    def __lt__(self, other: Desc) -> bool:
        return bool(other.rank < self.rank)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Desc) and bool(self.rank == other.rank)

    def __hash__(self) -> int:
        return hash(self.rank)

    def __repr__(self) -> str:
        return f"Desc({self.rank!r})"


def rank(value: Any) -> Rank:
    if value is None:
        return NULL
    if value != value:
        return NAN
    return (1, value)


def descending(value: Any) -> Desc:
    return Desc(rank(value))


def ranker(is_descending: bool) -> Callable[[Any], Any]:
    return descending if is_descending else rank


def merge_ranker(sql_type: str, is_descending: bool) -> Callable[[Any], Any]:
    """Ranks of one column that are compared with each other alone: numbers are turned around faster than `Desc` is."""
    if not is_descending:
        return rank
    return _descending_number if sql_type in _NEGATED else descending


_NEGATED = frozenset(["tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz"])
"""Types whose comparable values Python negates exactly, which it does not do with decimals."""


def _descending_number(value: Any) -> Rank:
    if value is None:
        return (2, 0)
    if value != value:
        return (0, 0)
    return (1, -value)


# ---- Arrow ----------------------------------------------------------------------------------------------


def plain(array: pa.Array) -> pa.Array:
    """The array with comparable values."""
    kind = array.type
    if pa.types.is_date32(kind):
        return array.view(pa.int32())
    if pa.types.is_timestamp(kind):
        return array.view(pa.int64())
    return array


def array(values: Sequence[Any], sql_type: str) -> pa.Array:
    """Comparable values as Arrow's array of the type."""
    kind = types.to_arrow(sql_type)
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).view(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)


def scalar(value: Any, sql_type: str) -> pa.Scalar:
    return array([value], sql_type)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class ExactValue:
    """A value that is comparable already."""

    value: Any


def comparable(value: object, column: Column, relation: str) -> Any:
    """A user's value, if the column could hold it; an error says what was expected and found."""
    if isinstance(value, ExactValue):
        return value.value
    found: pa.Array
    try:
        spec = _Spec(name=column.name, type=column.type)
        found = types.from_rows([{column.name: value}], [spec], relation=relation).column(0)
    except TypeMismatchError as error:
        raise TypeMismatchError(str(error).replace(", row 1:", ":")) from None
    return plain(found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found)[0].as_py()


# ---- text -----------------------------------------------------------------------------------------------


def to_json(value: Any) -> Any:
    """A comparable value in a cursor."""
    match value:
        case float() if not math.isfinite(value):
            return {"f": str(value)}
        case Decimal():
            return {"d": str(value)}
        case bytes():
            return {"b": base64.b64encode(value).decode("ascii")}
        case _:
            return value


_COMPARABLE: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "decimal": (Decimal,),
    "float": (float, int),
    "double": (float, int),
    "binary": (bytes,),
}
"""What comparable values are; whole numbers, dates and times are `int`."""


def from_json(value: Any, column: Column) -> Any:
    """A comparable value of the column, from a cursor."""
    found: Any = ()
    try:
        match value:
            case {"f": str(text)}:
                found = float(text)
            case {"d": str(text)}:
                found = Decimal(text)
            case {"b": str(text)}:
                found = base64.b64decode(text, validate=True)
            case None | bool() | int() | float() | str():
                found = value
    except (ValueError, ArithmeticError, binascii.Error):
        pass
    kinds = _COMPARABLE.get(column.type.partition("(")[0], (int,))
    if found is None or (isinstance(found, kinds) and (bool in kinds or not isinstance(found, bool))):
        return found
    raise UsageError(
        f"after: expected a cursor that a result gave as `next`, found {value!r} for {column.name} {column.type} in it"
    )


def from_text(text: str, column: Column, relation: str, how: texts.TextFormat = TYPED) -> ExactValue:
    """What a user typed, as a value of the column's type."""
    tree = parse(column.type)
    try:
        return ExactValue(texts.value(text, tree, how))
    except Unfit as error:
        raise TypeMismatchError(f"{relation}.{column.name}: expected {tree}, found {text!r} ({error})") from None
