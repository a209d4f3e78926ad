"""One epoch's computation: from changed rows to the input rows that the affected result rows are made of.

Pure in the sense that matters: all reading goes through `Engine`, so the same code runs on Spark with DuckDB lookups,
and on DuckDB alone in thousands of generated tests. Only rows that a bounded plan needs are brought here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

from ebla.algebra.follow import (
    ChangedValues,
    LookupValues,
    NarrowedLeaf,
    PickedValues,
    Scope,
    Values,
    ValueUnion,
    WithoutNull,
)
from ebla.algebra.nodes import Column, stored
from ebla.algebra.plan import AffectedValues, IncrementalPlan, TailPlan, Term
from ebla.storage.rows import TooLarge, distinct, numbered

NULLABLE_MAX = 3
"""A list of NOT IN with more columns is not followed: each of them may be NULL in a row that it is compared with."""


class State(Enum):
    OLD = "old"
    NEW = "new"


class Engine(Protocol):
    """What an epoch reads: inputs as they were when the view last read them, and as they are at the epoch's version."""

    def changed(self, table: str) -> pa.Table:
        """Old and new rows of the keys of an input that changed, with the columns that the view uses."""
        ...

    def lookup(
        self, table: str, by: Sequence[Column], values: pa.Table, columns: Sequence[str] | None, state: State
    ) -> pa.Table:
        """Rows of an input that have these columns among the values, NULL equal to NULL; `None`: all used columns."""
        ...

    def evaluated(self, table: str, rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
        """Some columns of rows of an input, expressions among them, as `c0`, `c1`, …"""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the epoch's query is run on: the values of the scope, and the rows of each mention that is narrowed."""

    scope: tuple[str, ...]
    values: pa.Table
    leaves: Mapping[int, pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One run of the query: rows of the mentions that are narrowed, and in which state the others are read."""

    sign: int
    leaves: Mapping[int, pa.Table]
    old: frozenset[int]
    """Mentions that are read as they were."""
    unread: tuple[int, ...] = ()
    """Mentions that are taken for empty."""


def bound(plan: IncrementalPlan, engine: Engine, *, rows_max: int) -> Bounds:
    """Collect the affected values, then the input rows that the affected result rows are made of."""
    values = affected(plan, engine, rows_max=rows_max)
    if values.num_rows == 0:
        return Bounds(scope=plan.scope, values=values, leaves={})
    return narrowed_to(plan, values, engine, rows_max=rows_max)


def affected(plan: IncrementalPlan | TailPlan, engine: Engine, *, rows_max: int) -> pa.Table:
    """The values of the scope that changes affect, in columns `c0`, `c1`, …"""
    return _affected(plan.affected, engine, rows_max, len(plan.scope))


def narrowed_to(plan: IncrementalPlan, values: pa.Table, engine: Engine, *, rows_max: int) -> Bounds:
    """The input rows that result rows with these values of the scope are made of."""
    collector = _Collector(engine, values, rows_max)
    leaves = _narrowed(plan.narrowed, collector, frozenset(), rows_max)
    return Bounds(scope=plan.scope, values=values, leaves=leaves)


def sides(term: Term, all_moved: Sequence[int], engine: Engine, *, rows_max: int) -> list[Side]:
    """The two runs of the query whose difference is what this term changes; none if it changes nothing.

    A mention that moved in an earlier term is new on both sides, one that will move in a later term is old on both.
    Lookups that lead from one mention to the next are made in both states of what moves now, so that both sides are
    narrowed by the same values.
    """
    before = frozenset(term.moved)
    later = frozenset(n for n in all_moved if n not in term.done and n not in before)
    values = _affected(term.affected, engine, rows_max, 1, old=later)
    if values.num_rows == 0:
        return []
    collector = _Collector(engine, values, rows_max, old=later, both=before)
    return [
        Side(sign=sign, leaves=_narrowed(term.narrowed, collector, old, rows_max), old=old, unread=term.unread)
        for sign, old in ((1, later), (-1, later | before))
    ]


def _affected(
    parts: Sequence[AffectedValues],
    engine: Engine,
    rows_max: int,
    width: int,
    old: frozenset[int] = frozenset(),
) -> pa.Table:
    collector = _Collector(engine, pa.table({}), rows_max, old=old)
    found = [collector.values(a.values) for a in parts]
    values = distinct(pa.concat_tables(found, promote_options="permissive")) if found else _empty(width)
    if values.num_rows > rows_max:
        raise TooLarge(f"{values.num_rows} affected values")
    return values


def _narrowed(
    parts: Sequence[NarrowedLeaf], collector: _Collector, old: frozenset[int], rows_max: int
) -> dict[int, pa.Table]:
    rows: dict[int, list[pa.Table]] = {}
    for one in parts:
        rows.setdefault(one.leaf, []).append(collector.rows(one, State.OLD if one.leaf in old else State.NEW))
    leaves = {leaf: tables[0] if len(tables) == 1 else _merged(tables) for leaf, tables in rows.items()}
    if sum(t.num_rows for t in leaves.values()) > 4 * rows_max:
        raise TooLarge("the affected rows are made of too many input rows")
    return leaves


class _Collector:
    """Evaluates `Values`; each distinct one once. Mentions in `old` are read as they were, those in `both` twice."""

    def __init__(
        self,
        engine: Engine,
        scope: pa.Table,
        rows_max: int,
        *,
        old: frozenset[int] = frozenset(),
        both: frozenset[int] = frozenset(),
    ) -> None:
        self._engine = engine
        self._scope = scope
        self._rows_max = rows_max
        self._old = old
        self._both = both
        self._found: dict[Values, pa.Table] = {}
        self._rows: dict[tuple[NarrowedLeaf, State], pa.Table] = {}

    def values(self, wanted: Values) -> pa.Table:
        """Distinct values, in columns `c0`, `c1`, …"""
        if wanted not in self._found:
            found = distinct(self._compute(wanted))
            if found.num_rows > self._rows_max:
                raise TooLarge(f"{found.num_rows} values to follow")
            self._found[wanted] = found
        return self._found[wanted]

    def _compute(self, wanted: Values) -> pa.Table:
        match wanted:
            case ChangedValues(table=table, columns=columns):
                return self._columns(table, self._engine.changed(table), columns)
            case LookupValues(leaf=leaf, table=table, by=by, source=source, columns=columns):
                keys = self.values(source)
                states = [State.OLD] if leaf in self._old else [State.NEW]
                if leaf in self._both:
                    states = [State.OLD, State.NEW]
                names = stored(columns)
                looked = [self._engine.lookup(table, by, keys, names, state) for state in states]
                found = [self._columns(table, rows, columns) for rows in looked]
                return found[0] if len(found) == 1 else pa.concat_tables(found)
            case PickedValues(source=source, positions=positions):
                return numbered(self.values(source).select([f"c{p}" for p in positions]))
            case ValueUnion(sources=sources):
                return pa.concat_tables([self.values(s) for s in sources], promote_options="permissive")
            case Scope():
                return self._scope
            case WithoutNull(source=source):
                found_values = self.values(source)
                if any(column.null_count for column in found_values.columns):
                    raise TooLarge("a NULL came to, or left, the list of NOT IN")
                return _or_null(found_values)

    def _columns(self, table: str, rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
        names = [column for column in columns if isinstance(column, str)]
        if len(names) == len(columns):
            return numbered(rows.select(names))
        return self._engine.evaluated(table, rows, columns)

    def rows(self, narrowed: NarrowedLeaf, state: State) -> pa.Table:
        if (narrowed, state) not in self._rows:
            values = self.values(narrowed.source)
            self._rows[narrowed, state] = self._engine.lookup(narrowed.table, narrowed.by, values, None, state)
        return self._rows[narrowed, state]


def _or_null(values: pa.Table) -> pa.Table:
    """Values, and the same with NULL in place of some of them: `NULL NOT IN (…)` holds for an empty list alone."""
    if values.num_columns > NULLABLE_MAX:
        raise TooLarge(f"a list of NOT IN with {values.num_columns} columns")
    nothing = [pa.nulls(values.num_rows, column.type) for column in values.columns]
    choices = itertools.product(*zip(values.columns, nothing, strict=True))
    return pa.concat_tables([pa.table(list(chosen), schema=values.schema) for chosen in choices])


def _empty(width: int) -> pa.Table:
    return pa.table({f"c{i}": pa.array([], pa.null()) for i in range(width)})


def _merged(parts: Sequence[pa.Table]) -> pa.Table:
    """Rows that several uses of one mention need, each row once.

    A row that two lookups found must not count twice, so rows carry their identity in the input's hidden or declared
    key, which is part of every lookup of whole rows.
    """
    table = pa.concat_tables(parts)
    flat = numbered(table.select([f.name for f in table.schema if not pa.types.is_nested(f.type)]))
    marked = flat.append_column("at", pa.array(range(table.num_rows), pa.int64()))
    firsts = marked.group_by(flat.schema.names, use_threads=False).aggregate([("at", "min")])["at_min"]
    return table.take(firsts)
