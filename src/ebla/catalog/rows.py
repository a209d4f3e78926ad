"""Rows of the catalog's tables, read and changed in the same words in a database and in dictionaries.

Theory of operation. The catalog's rules (`building`, `indexing`, `ddl`, `runs`, `sessions`, `handlers`, `topology`) are
functions of a state. Checking a requirement reads rows. An update is answered with the changes of rows that it means,
as values; `write` carries them out. A state is a database connection inside a transaction, or any `Tables`, such as the
dictionaries of the simulation: rules and reads do not know which.

Columns are named by keywords. A value means equality, `None` that there is none, a set any of its values;
`Above`, `AtLeast`, `AtMost`, `Within`, `Overlapping` and `Not` say the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from typing import Any, Protocol, TypeVar, assert_never

import sqlalchemy as sa
from sqlalchemy import Column, ColumnElement, Connection, Table

from ebla.catalog import forks
from ebla.model.tablets import TokenRange

Where = Mapping[str, object]
Found = TypeVar("Found")

CHUNK = 500
"""Values in one `IN (…)`; both databases allow more, but plans stay small."""


@dataclass(frozen=True, slots=True)
class Above:
    value: int


@dataclass(frozen=True, slots=True)
class AtLeast:
    value: int


@dataclass(frozen=True, slots=True)
class AtMost:
    value: int


@dataclass(frozen=True, slots=True)
class Within:
    """Above the first, and at most the second."""

    above: int
    at_most: int


@dataclass(frozen=True, slots=True)
class Overlapping:
    """Of forks (`ebla.catalog.forks`): those of ranges that may overlap one of these, which lie in order and apart."""

    ranges: tuple[TokenRange, ...]


@dataclass(frozen=True, slots=True)
class Not:
    value: str | None


# ---- changes --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    table: Table
    rows: Sequence[Where]


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """The row of its primary key, whether there is one already or not."""

    table: Table
    row: Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    table: Table
    values: Where
    where: Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    table: Table
    where: Where


Change = Insert | Put | Update | Delete


class Tables(Protocol):
    """Tables that are not in a database."""

    def find(self, table: Table, where: Where) -> Sequence[Any]:
        """Rows, whose columns are attributes."""

    def write(self, change: Change) -> int:
        """How many rows it met."""

    def remembered(self, key: Hashable, read: Callable[[], Found]) -> Found:
        """What `read` returns, or returned before, if nothing has changed since but what rows alone change."""


State = Connection | Tables


def insert(table: Table, rows: Sequence[Where]) -> Insert:
    return Insert(table=table, rows=rows)


def put(table: Table, /, **row: object) -> Put:
    return Put(table=table, row=row)


def update(table: Table, values: Where, /, **where: object) -> Update:
    return Update(table=table, values=values, where=where)


def delete(table: Table, /, **where: object) -> Delete:
    return Delete(table=table, where=where)


# ---- reads ----------------------------------------------------------------------------------------------


def find(state: State, table: Table, /, *order: str, **where: object) -> Sequence[Any]:
    """Rows in the order of some columns."""
    if not isinstance(state, Connection):
        found = state.find(table, where)
        return sorted(found, key=attrgetter(*order)) if order else found
    query = sa.select(table).order_by(*(table.c[name] for name in order))
    parts = [state.execute(query.where(condition)).all() for condition in _conditions(table, where)]
    return parts[0] if len(parts) == 1 else [row for part in parts for row in part]


def one(state: State, table: Table, /, **where: object) -> Any | None:
    """The first row that there is."""
    return next(iter(find(state, table, **where)), None)


def values(state: State, column: Column[Any], /, **where: object) -> set[Any]:
    """The different values of a column."""
    if not isinstance(state, Connection):
        return {getattr(row, column.name) for row in state.find(column.table, where)}
    query = sa.select(column).distinct()
    return {
        value
        for condition in _conditions(column.table, where)
        for value in state.execute(query.where(condition)).scalars()
    }


def greatest(state: State, column: Column[Any], /, **where: object) -> int | None:
    return max(_bounds(state, column, sa.func.max(column), where), default=None)


def least(state: State, column: Column[Any], /, **where: object) -> int | None:
    return min(_bounds(state, column, sa.func.min(column), where), default=None)


def _bounds(state: State, column: Column[Any], bound: ColumnElement[Any], where: Where) -> list[int]:
    """A bound of each part that is asked for, or all values: those that are not NULL."""
    if isinstance(state, Connection):
        asked = (state.execute(sa.select(bound).where(one)).scalar() for one in _conditions(column.table, where))
        return [found for found in asked if found is not None]
    return [found for found in values(state, column, **where) if found is not None]


def extremes(
    state: State, column: Column[Any], /, *, by: Sequence[Column[Any]], **where: object
) -> dict[tuple[Any, ...], tuple[int, int]]:
    """The least and the greatest value of a column, for each value of others."""
    if isinstance(state, Connection):
        query = sa.select(*by, sa.func.min(column), sa.func.max(column)).group_by(*by)
        parts = (state.execute(query.where(condition)) for condition in _conditions(column.table, where))
        return {tuple(key): (low, high) for part in parts for *key, low, high in part}
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in state.find(column.table, where):
        found.setdefault(tuple(getattr(row, one.name) for one in by), []).append(getattr(row, column.name))
    return {key: (min(those), max(those)) for key, those in found.items()}


# ---- writing --------------------------------------------------------------------------------------------


def write(state: State, change: Change) -> int:
    """Carry out a change; returns how many rows it met."""
    if not isinstance(state, Connection):
        return state.write(change)
    match change:
        case Insert(table=table, rows=new):
            if new:
                state.execute(sa.insert(table), new)
            return len(new)
        case Put(table=table, row=row):
            mine = sa.and_(*(key == row[key.name] for key in table.primary_key))
            if not state.execute(sa.update(table).where(mine).values(row)).rowcount:
                state.execute(sa.insert(table), row)
            return 1
        case Update(table=table, values=changed, where=where):
            query = sa.update(table).values(changed)
            return sum(state.execute(query.where(condition)).rowcount for condition in _conditions(table, where))
        case Delete(table=table, where=where):
            those = _conditions(table, where)
            return sum(state.execute(sa.delete(table).where(condition)).rowcount for condition in those)
        case _:
            assert_never(change)


def _conditions(table: Any, where: Where) -> Iterator[ColumnElement[bool]]:
    """One condition; of a long set several, each with a part of it."""
    several = (AbstractSet, Overlapping)
    rest = [_compared(table.c[name], value) for name, value in where.items() if not isinstance(value, several)]
    parts = []
    for name, value in where.items():
        if isinstance(value, AbstractSet):
            parts.append(_of_set(table.c[name], value))
        elif isinstance(value, Overlapping):
            inside = [table.c[name].between(one.first, one.last) for one in value.ranges]
            # A condition for each range: neither database would use an index for all of them together.
            parts.append([*inside, *_of_set(table.c[name], _above(value))])
    return (sa.and_(sa.true(), *rest, *part) for part in product(*parts))


def _of_set(column: ColumnElement[Any], value: AbstractSet[Any]) -> list[ColumnElement[bool]]:
    ordered = sorted(value)
    return [column.in_(ordered[i : i + CHUNK]) for i in range(0, len(ordered), CHUNK)]


def _above(value: Overlapping) -> frozenset[int]:
    """The forks above the ranges, without those that lie in another of them."""
    nodes = forks.above(value.ranges)
    return frozenset(node for node in nodes if not any(one.first <= node <= one.last for one in value.ranges))


def _compared(column: ColumnElement[Any], value: object) -> ColumnElement[bool]:
    match value:
        case None | Not(value=None):
            return column.is_(None) if value is None else column.is_not(None)
        case Not(value=other):
            return column != other
        case Above(value=limit):
            return column > limit
        case AtLeast(value=limit):
            return column >= limit
        case AtMost(value=limit):
            return column <= limit
        case Within(above=above, at_most=limit):
            return sa.and_(column > above, column <= limit)
        case _:
            return column == value


def holds(found: Any, value: object) -> bool:
    """Whether a column's value is the one that is meant, as the databases find out."""
    match value:
        case AbstractSet():
            return found in value
        case Not(value=other):
            return found is not None and found != other
        case Overlapping(ranges=ranges):
            return any(one.first <= found <= one.last for one in ranges) or found in forks.above(ranges)
        case Above(value=limit):
            return found is not None and found > limit
        case AtLeast(value=limit):
            return found is not None and found >= limit
        case AtMost(value=limit):
            return found is not None and found <= limit
        case Within(above=above, at_most=limit):
            return found is not None and above < found <= limit
        case _:
            return bool(found == value)
