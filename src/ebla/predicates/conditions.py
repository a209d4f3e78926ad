"""What a reader asks for: conditions on columns, an order, a page. Values only; checked against the relation.

`where={"status": "open", "total": ebla.between(10, 20)}` is a conjunction. NULL fulfils no condition but `is_null()`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ebla.errors import DuplicateNameError, TypeMismatchError, UnknownNameError, UsageError
from ebla.model.relation import Column, Relation
from ebla.predicates import values as v
from ebla.values import types

LIMIT_MAX = 10_000
LIMIT_DEFAULT = 100


# ---- conditions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Equals:
    value: Any

    def __str__(self) -> str:
        return f"= {self.value!r}"


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`; `None` is no bound."""

    low: Any
    high: Any
    low_in: bool = True
    high_in: bool = True

    def __str__(self) -> str:
        if self.low is not None and self.high is not None and self.low_in and self.high_in:
            return f"BETWEEN {self.low!r} AND {self.high!r}"
        low = "" if self.low is None else f"{'>=' if self.low_in else '>'} {self.low!r}"
        high = "" if self.high is None else f"{'<=' if self.high_in else '<'} {self.high!r}"
        return f"{low} AND {high}" if low and high else low or high


@dataclass(frozen=True, slots=True)
class Prefix:
    text: str

    def __str__(self) -> str:
        return f"LIKE {self.text + '%'!r}"


@dataclass(frozen=True, slots=True)
class OneOf:
    values: tuple[Any, ...]

    def __str__(self) -> str:
        values = ", ".join(repr(value) for value in self.values[:5])
        return f"IN ({values}{', …' if len(self.values) > 5 else ''})"


@dataclass(frozen=True, slots=True)
class IsNull:
    def __str__(self) -> str:
        return "IS NULL"


@dataclass(frozen=True, slots=True)
class NotNull:
    def __str__(self) -> str:
        return "IS NOT NULL"


Condition = Equals | Range | Prefix | OneOf | IsNull | NotNull


def between(low: object, high: object) -> Range:
    """From `low` to `high`, both included; `None` leaves a side open."""
    if low is None and high is None:
        raise UsageError("between: expected a bound, found two of None; use not_null() for any value")
    return Range(low, high)


def prefix(text: str) -> Prefix:
    """Strings that begin with this one."""
    if not isinstance(text, str):
        raise TypeMismatchError(f"prefix: expected a string, found {type(text).__name__}")
    return Prefix(text)


def one_of(*values: object) -> OneOf:
    """Any of these values, given one by one or as one list."""
    if len(values) == 1 and isinstance(values[0], Collection) and not isinstance(values[0], str | bytes):
        values = tuple(values[0])
    if not values:
        raise UsageError("one_of: expected at least one value, found none")
    return OneOf(values)


def is_null() -> IsNull:
    return IsNull()


def not_null() -> NotNull:
    return NotNull()


# ---- a request ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on a column, with comparable values."""

    column: Column
    condition: Condition
    text: str = field(default="", compare=False)
    """The normalized text of the condition in a SELECT: a partial index may have the same."""

    def __str__(self) -> str:
        return f"{self.column.name} {self.condition}"


@dataclass(frozen=True, slots=True)
class SortColumn:
    column: Column
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.column.name}{' DESC' if self.descending else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    relation: Relation
    where: tuple[Filter, ...] = ()
    order: tuple[SortColumn, ...] = ()
    """The whole order: what was asked for, then the rest of the key, so that no two rows are equal in it."""
    asked: int = 0
    """How many columns of the order were asked for."""
    columns: tuple[Column, ...] = ()
    limit: int = LIMIT_DEFAULT
    after: tuple[Any, ...] | None = None
    """Comparable values of `order`: only rows behind them are wanted."""
    any_order: bool = False
    """The order does not matter, as in a SELECT without ORDER BY."""
    said: frozenset[str] = frozenset()
    """More conditions, which only Spark understands, normalized: an index whose every row fulfils them can answer."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the session in which the request's expressions are evaluated, if it has any."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The physical names of all columns that are shown, filtered or sorted by."""
        used = (
            *self.columns,
            *(f.column for f in self.where),
            *(() if self.any_order else (b.column for b in self.order)),
        )
        return tuple(dict.fromkeys(c.physical for c in used))

    @property
    def texts(self) -> frozenset[str]:
        """All conditions as they were written, normalized."""
        return self.said | {f.text for f in self.where if f.text}

    def without(self, promises: frozenset[str]) -> Request:
        """The same where every row fulfils these conditions."""
        if not promises:
            return self
        left = tuple(f for f in self.where if f.text not in promises)
        return replace(self, where=left, said=self.said - promises)


def request(
    relation: Relation,
    *,
    where: Mapping[str, object] | None = None,
    order_by: str | Sequence[str] | None = None,
    limit: int = LIMIT_DEFAULT,
    columns: Sequence[str] | None = None,
    after: object = None,
) -> Request:
    """Check what a user asks for against the relation as it is now."""
    order, asked = _order(relation, order_by)
    output = relation.visible if columns is None else _columns(relation, columns)
    return Request(
        relation=relation,
        where=tuple(_filters(relation, {} if where is None else where)),
        order=order,
        asked=asked,
        columns=output,
        limit=_limit(limit),
        after=None if after is None else _after(relation, order, after),
    )


def column_of(relation: Relation, name: object, what: str) -> Column:
    found = relation.column(name) if isinstance(name, str) else None
    if found is None or found.hidden:
        have = ", ".join(c.name for c in relation.visible)
        raise UnknownNameError(f"{what}: expected a column of {relation.name} ({have}), found {name!r}")
    return found


def _limit(limit: object) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= LIMIT_MAX:
        raise UsageError(
            f"limit: expected a whole number from 1 to {LIMIT_MAX}, found {limit!r}; "
            "read more in pages with after=, or with a SELECT"
        )
    return limit


def _columns(relation: Relation, names: Sequence[str]) -> tuple[Column, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise UsageError(f"columns: expected a list of names, found {names!r}")
    found = tuple(column_of(relation, name, "columns") for name in names)
    if not found:
        raise UsageError("columns: expected at least one name, found none")
    if len({c.physical for c in found}) < len(found):
        raise DuplicateNameError(f"columns: expected each column once, found {', '.join(map(str, names))}")
    return found


def _order(relation: Relation, order_by: str | Sequence[str] | None) -> tuple[tuple[SortColumn, ...], int]:
    if order_by is not None and not isinstance(order_by, str | list | tuple):
        raise UsageError(f"order_by: expected a name such as 'total' or '-total', or a list, found {order_by!r}")
    names = [order_by] if isinstance(order_by, str) else list(order_by or ())
    found: list[SortColumn] = []
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"order_by: expected names such as 'total' or '-total', found {name!r}")
        column = column_of(relation, name.removeprefix("-"), "order_by")
        if not types.is_key_type(column.type):
            raise TypeMismatchError(f"order_by: expected a type that has an order, found {column.name} {column.type}")
        if any(by.column == column for by in found):
            raise DuplicateNameError(f"order_by: expected each column once, found {column.name} twice")
        found.append(SortColumn(column, name.startswith("-")))
    return whole_order(relation, found), len(found)


def whole_order(relation: Relation, asked: Sequence[SortColumn]) -> tuple[SortColumn, ...]:
    """What was asked for, and the key behind it."""
    have = {by.column.physical for by in asked}
    return (*asked, *(SortColumn(c) for c in relation.key if c.physical not in have))


def _filters(relation: Relation, where: Mapping[str, object]) -> list[Filter]:
    if not isinstance(where, Mapping):
        raise UsageError(f"where: expected a dict of columns and conditions, found {type(where).__name__}")
    found: list[Filter] = []
    for name, wanted in where.items():
        column = column_of(relation, name, "where")
        wanted_list = wanted if isinstance(wanted, list) else [wanted]
        if isinstance(wanted, list) and not (wanted and all(isinstance(w, Condition) for w in wanted)):
            raise TypeMismatchError(
                f"where: expected a value for {column.name}, or a list of conditions, found {wanted!r}; use one_of(…)"
            )
        found += [checked(relation, column, one if isinstance(one, Condition) else Equals(one)) for one in wanted_list]
    return found


def checked(relation: Relation, column: Column, condition: Condition) -> Filter:
    """The condition with comparable values of the column's type."""
    if isinstance(condition, IsNull | NotNull):
        return Filter(column, condition)
    if not types.is_key_type(column.type):
        raise TypeMismatchError(
            f"{relation.name}.{column.name}: expected is_null() or not_null() for {column.type}, found {condition}"
        )

    def value(given: object) -> Any:
        if given is None:
            raise TypeMismatchError(
                f"{relation.name}.{column.name}: expected a value, found None, which equals nothing; use is_null()"
            )
        return v.comparable(given, column, relation.name)

    def side(given: object) -> Any:
        return None if given is None else value(given)

    match condition:
        case Equals(given):
            return Filter(column, Equals(value(given)))
        case OneOf(given):
            return Filter(
                column, OneOf(tuple(sorted({v.rank(value(g)): value(g) for g in given}.values(), key=v.rank)))
            )
        case Range(low, high, low_in, high_in):
            return Filter(column, Range(side(low), side(high), low_in, high_in))
        case Prefix(text):
            if column.type != "string":
                raise TypeMismatchError(
                    f"{relation.name}.{column.name}: expected a string column for prefix(), found {column.type}"
                )
            return Filter(column, Prefix(text))


# ---- pages ----------------------------------------------------------------------------------------------


def _after(relation: Relation, order: Sequence[SortColumn], after: object) -> tuple[Any, ...]:
    if isinstance(after, str):
        return parse_cursor(relation, order, after)
    if not isinstance(after, Mapping):
        raise UsageError(
            "after: expected the `next` of a result, or a dict of the last row's order and key columns, "
            f"found {type(after).__name__}"
        )
    given = {column_of(relation, name, "after").name.lower(): value for name, value in after.items()}
    missing = [by.column.name for by in order if by.column.name.lower() not in given]
    if missing:
        wanted = ", ".join(by.column.name for by in order)
        raise UsageError(f"after: expected values of {wanted}, found none of {missing[0]}")

    def value(column: Column) -> Any:
        found = given[column.name.lower()]
        return None if found is None else v.comparable(found, column, relation.name)

    return tuple(value(by.column) for by in order)


def cursor(relation: Relation, order: Sequence[SortColumn], last: Sequence[Any]) -> str:
    """Where a page ended, as text that only `parse_cursor` reads."""
    content = [relation.id, _signature(order), [v.to_json(value) for value in last]]
    return base64.urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).decode("ascii")


def parse_cursor(relation: Relation, order: Sequence[SortColumn], text: str) -> tuple[Any, ...]:
    try:
        number, signature, last = json.loads(base64.urlsafe_b64decode(text.encode("ascii")))
    except (ValueError, TypeError):
        raise UsageError(f"after: expected the `next` of a result, found {text!r}") from None
    same = number == relation.id and signature == _signature(order) and isinstance(last, list)
    if not same or len(last) != len(order):
        raise UsageError(
            f"after: expected a cursor of {relation.name} in the order {', '.join(map(str, order))}, "
            "found one of another query; begin with its first page"
        )
    return tuple(v.from_json(value, by.column) for value, by in zip(last, order, strict=True))


def _signature(order: Sequence[SortColumn]) -> list[str]:
    return [("-" if by.descending else "") + by.column.physical for by in order]


# ---- truth ----------------------------------------------------------------------------------------------


def after_prefix(text: str) -> str | None:
    """The first string behind all that begin with this one; `None` if there is none."""
    for at in range(len(text) - 1, -1, -1):
        code = ord(text[at]) + 1
        if code == 0xD800:
            code = 0xE000  # the halves of surrogate pairs are no characters
        if code <= 0x10FFFF:
            return text[:at] + chr(code)
    return None


def in_range(found: v.Rank, wanted: Range) -> bool:
    if wanted.low is not None:
        low = v.rank(wanted.low)
        if found < low or (found == low and not wanted.low_in):
            return False
    if wanted.high is not None:
        high = v.rank(wanted.high)
        if high < found or (found == high and not wanted.high_in):
            return False
    return True
