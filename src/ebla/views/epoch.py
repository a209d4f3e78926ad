"""One epoch's computation: from changed rows to the rows that the view gains and loses.

Pure in the sense that matters: all reading goes through `Engine`, so the same code runs on Spark with DuckDB lookups,
and on DuckDB alone in thousands of generated tests. Only rows that a bounded plan needs are brought here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from ebla.views.follow import Changed, Either, Looked, Narrowed, Picked, Scope, Values, WithoutNull
from ebla.views.plan import Incremental


class Engine(Protocol):
    """What an epoch reads, all at the epoch's version except `changed`."""

    def changed(self, table: str) -> pa.Table:
        """Old and new rows of the keys of an input that changed, with the columns that the view uses."""
        ...

    def lookup(self, table: str, by: Sequence[str], values: pa.Table, columns: Sequence[str] | None) -> pa.Table:
        """Rows of an input that have these columns among the values, NULL equal to NULL; `None`: all used columns."""
        ...


class TooWide(Exception):
    """The change touches so much that recomputing the view is cheaper, or the only way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the epoch's query is run on: the values of the scope, and the rows of each mention that is narrowed."""

    scope: tuple[str, ...]
    values: pa.Table
    leaves: Mapping[int, pa.Table]


def bound(plan: Incremental, engine: Engine, *, rows_max: int) -> Bounds:
    """Collect the affected values, then the input rows that the affected result rows are made of."""
    width = len(plan.scope)
    collector = _Collector(engine, pa.table({}), rows_max)
    parts = [collector.values(a.values) for a in plan.affected]
    affected = _distinct(pa.concat_tables(parts)) if parts else _empty(width)
    if affected.num_rows > rows_max:
        raise TooWide(f"{affected.num_rows} affected values")
    if affected.num_rows == 0:
        return Bounds(scope=plan.scope, values=affected, leaves={})
    collector = _Collector(engine, affected, rows_max)
    rows: dict[int, list[pa.Table]] = {}
    for one in plan.narrowed:
        rows.setdefault(one.leaf, []).append(collector.rows(one))
    leaves = {leaf: parts[0] if len(parts) == 1 else _merged(parts) for leaf, parts in rows.items()}
    if sum(t.num_rows for t in leaves.values()) > 4 * rows_max:
        raise TooWide("the affected rows are made of too many input rows")
    return Bounds(scope=plan.scope, values=affected, leaves=leaves)


class _Collector:
    """Evaluates `Values`; each distinct one once."""

    def __init__(self, engine: Engine, scope: pa.Table, rows_max: int) -> None:
        self._engine = engine
        self._scope = scope
        self._rows_max = rows_max
        self._known: dict[Values, pa.Table] = {}

    def values(self, wanted: Values) -> pa.Table:
        """Distinct values, in columns `c0`, `c1`, …"""
        if wanted not in self._known:
            found = _distinct(self._compute(wanted))
            if found.num_rows > self._rows_max:
                raise TooWide(f"{found.num_rows} values to follow")
            self._known[wanted] = found
        return self._known[wanted]

    def _compute(self, wanted: Values) -> pa.Table:
        match wanted:
            case Changed(table=table, columns=columns):
                return _numbered(self._engine.changed(table).select(list(columns)))
            case Looked(table=table, by=by, source=source, columns=columns):
                keys = self.values(source)
                if keys.num_rows == 0:
                    return _numbered(self._engine.changed(table).slice(0, 0).select(list(columns)))
                return _numbered(self._engine.lookup(table, by, keys, columns))
            case Picked(source=source, positions=positions):
                return _numbered(self.values(source).select([f"c{p}" for p in positions]))
            case Either(sources=sources):
                return pa.concat_tables([self.values(s) for s in sources], promote_options="permissive")
            case Scope():
                return self._scope
            case WithoutNull(source=source):
                found = self.values(source)
                if any(column.null_count for column in found.columns):
                    raise TooWide("a NULL came to, or left, the list of NOT IN")
                return found

    def rows(self, narrowed: Narrowed) -> pa.Table:
        return self._engine.lookup(narrowed.table, narrowed.by, self.values(narrowed.source), None)


def _numbered(table: pa.Table) -> pa.Table:
    return table.rename_columns([f"c{i}" for i in range(table.num_columns)])


def _distinct(table: pa.Table) -> pa.Table:
    if table.num_rows < 2:
        return table
    return table.group_by(table.schema.names, use_threads=False).aggregate([])


def _empty(width: int) -> pa.Table:
    return pa.table({f"c{i}": pa.array([], pa.null()) for i in range(width)})


def _merged(parts: Sequence[pa.Table]) -> pa.Table:
    """Rows that several uses of one mention need, each row once.

    A row that two lookups found must not count twice, so rows carry their identity in the input's hidden or declared
    key, which is part of every lookup of whole rows.
    """
    table = pa.concat_tables(parts)
    flat = [n for n in table.schema.names if not pa.types.is_nested(table.schema.field(n).type)]
    marked = table.append_column("_at", pa.array(range(table.num_rows), pa.int64()))
    firsts = marked.group_by(flat, use_threads=False).aggregate([("_at", "min")])["_at_min"]
    return table.take(firsts)
