"""The other way, where no order of a path fits: DuckDB reads every row group that can hold rows, and sorts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebla.model.relation import DELETED, Run
from ebla.predicates.access import AccessPath
from ebla.predicates.conditions import By, Equals, Filter, IsNull, NotNull, OneOf, Prefix, Range, Request
from ebla.query.streams import Source
from ebla.storage import runs as rf
from ebla.tables.lookup import READ, literally, quoted
from ebla.values import types

if TYPE_CHECKING:
    import duckdb

_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}


_DAYS = range(-(2**31) + 2, 2**31 - 1)
_MICROSECONDS = range(-(2**63) + 2 * 86_400_000_000, 2**63 - 1)
"""The numbers of which DuckDB makes a date or a timestamp. It takes others for infinity, or refuses them."""


class _Statement:
    """A text and the values of its question marks, in order; `extremes` are the values that DuckDB cannot make."""

    def __init__(self, extremes: list[pa.Scalar[Any]]) -> None:
        self.parameters: list[Any] = []
        self._extremes = extremes

    def value(self, value: Any, kind: str) -> str:
        """A comparable value as an expression of exactly the column's type, so that DuckDB can prune by it."""
        match kind.partition("(")[0]:
            case "date" if value not in _DAYS:
                return self._extreme(value, kind)
            case "timestamp" | "timestamp_ntz" if value not in _MICROSECONDS:
                return self._extreme(value, kind)
            case "date":
                return f"(DATE '1970-01-01' + CAST({value:d} AS INTEGER))"
            case "timestamp":
                return f"make_timestamptz({value:d})"
            case "timestamp_ntz":
                return f"make_timestamp({value:d})"
            case "decimal":
                return f"CAST('{value:f}' AS {kind})"
            case "float" | "double":
                return f"CAST('{value!r}' AS {_TYPES[kind]})"
            case "boolean":
                return "true" if value else "false"
            case "string" | "binary":
                self.parameters.append(value)
                return f"CAST(? AS {_TYPES[kind]})"
            case whole:
                return f"CAST({value:d} AS {_TYPES[whole]})"

    def _extreme(self, value: int, kind: str) -> str:
        """A column of the one row of `extremes`: DuckDB takes any value from Arrow."""
        of_kind = types.to_arrow(kind)
        self._extremes.append(pa.scalar(value, pa.int32() if kind == "date" else pa.int64()).cast(of_kind))
        return f"(SELECT e{len(self._extremes) - 1} FROM extremes)"

    def condition(self, f: Filter) -> str:
        name, kind = quoted(f.column.physical), f.column.type
        match f.condition:
            case IsNull():
                return f"{name} IS NULL"
            case NotNull():
                return f"{name} IS NOT NULL"
            case Equals(value):
                return f"{name} = {self.value(value, kind)}"
            case OneOf(values):
                return f"{name} IN ({', '.join(self.value(value, kind) for value in values)})"
            case Prefix(text):
                self.parameters.append(text)
                return f"starts_with({name}, ?)"
            case Range(low, high, low_in, high_in):
                parts = []
                if low is not None:
                    parts.append(f"{name} {'>=' if low_in else '>'} {self.value(low, kind)}")
                if high is not None:
                    parts.append(f"{name} {'<=' if high_in else '<'} {self.value(high, kind)}")
                return " AND ".join(parts)

    def behind(self, order: Sequence[By], after: Sequence[Any]) -> str:
        """Rows behind the last page: `(a > x OR (a = x AND (b > y OR …)))`, NULLs where the order has them."""
        by, value = order[0], after[0]
        name, kind = quoted(by.column.physical), by.column.type
        if value is None:
            more = "false" if by.descending else f"{name} IS NOT NULL"
        elif by.descending:
            more = f"{name} < {self.value(value, kind)} OR {name} IS NULL"
        else:
            more = f"{name} > {self.value(value, kind)}"
        if len(order) == 1:
            return f"({more})"
        # In the order of the text, as question marks count.
        same = f"{name} IS NULL" if value is None else f"{name} = {self.value(value, kind)}"
        return f"({more} OR ({same} AND {self.behind(order[1:], after[1:])}))"


class Scan:
    """One path of one snapshot, read by DuckDB for one request."""

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        source: Source,
        path: AccessPath,
        request: Request,
    ) -> None:
        self._cursor = cursor
        self._source = source
        self._roots = source.roots
        self._path = path
        self._request = request
        self._order = () if request.any_order else request.order
        self._outputs = {c.physical: c for c in (*request.columns, *(by.column for by in self._order))}
        self._used = {**self._outputs, **{f.column.physical: f.column for f in request.where}}
        self._here = {c.physical: c for c in path.relation.columns}
        self._extremes: list[pa.Scalar[Any]] = []

    def rows(self, runs: Sequence[Run]) -> pa.Table:
        """The first rows, one more than the limit: shown and ordering columns under their physical names."""
        relation = self._path.relation
        snapshot = self._source.snapshot
        changed = rf.mutations(relation, snapshot.level0, self._roots, self._source.cache, snapshot)
        parameters: list[Any] = []
        parts = [self._level1(files, stored, changed.num_rows > 0, parameters) for stored, files in self._files(runs)]
        if changed.num_rows:
            self._cursor.register("changed", changed)
            parts.append(self._level0(parameters))
        if self._extremes:
            row = {f"e{i}": pa.array([value]) for i, value in enumerate(self._extremes)}
            self._cursor.register("extremes", pa.table(row))
        schema = rf.physical_schema(list(self._outputs.values()))
        if not parts:
            return schema.empty_table()
        text = f"SELECT * FROM ({' UNION ALL '.join(parts)})"
        if self._order:
            text += " ORDER BY " + ", ".join(
                f"{quoted(by.column.physical)} {'DESC NULLS LAST' if by.descending else 'ASC NULLS FIRST'}"
                for by in self._order
            )
        found = self._cursor.sql(f"{text} LIMIT {self._request.limit + 1:d}", params=parameters).to_arrow_table()
        return found.cast(schema)

    def _files(self, runs: Sequence[Run]) -> list[tuple[tuple[tuple[str, str], ...], list[str]]]:
        """Files by what they store of the columns: the name here and whether it has today's type."""
        names = {**{base: self._path.columns[base] for base in self._used}, **{k.base: k.path for k in self._path.key}}
        found: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for run in runs:
            schema = self._source.store.footer(self._roots, run).schema
            stored = tuple((base, self._expression(name, schema)) for base, name in names.items())
            node = rf.readable_node(self._roots, run) or run.nodes[0]
            found.setdefault(stored, []).append(literally(self._roots[node].inner(run.path)))
        return list(found.items())

    def _expression(self, name: str, schema: pa.Schema) -> str:
        column, index = self._here[name], schema.get_field_index(name)
        kind = column.type
        kept_as = _TYPES.get(kind, kind if kind.startswith("decimal") else None)
        if index < 0:
            return "NULL" if kept_as is None else f"CAST(NULL AS {kept_as})"
        is_same = kept_as is None or schema.field(index).type == types.to_arrow(kind)
        text = quoted(name) if is_same else f"CAST({quoted(name)} AS {kept_as})"
        if kind not in ("float", "double"):
            return text
        # Statistics leave NaN out, and DuckDB believes them: it would skip NaN, or find a condition true of every row.
        # Behind an expression like this it asks no statistics.
        return f"CASE WHEN {quoted(name)} IS NULL THEN NULL ELSE {text} END"

    def _level1(
        self, files: list[str], stored: tuple[tuple[str, str], ...], merged: bool, parameters: list[Any]
    ) -> str:
        one = _Statement(self._extremes)
        one.parameters.append(files)
        names = ", ".join(f"{text} AS {quoted(base)}" for base, text in stored)
        rows = f"SELECT * FROM (SELECT {names} FROM {READ}) r{self._where(one)}"
        parameters += one.parameters
        outputs = ", ".join(map(quoted, self._outputs)) or "1"
        if not merged:
            return f"SELECT {outputs} FROM ({rows})"
        same = " AND ".join(f"r.{quoted(k.base)} IS NOT DISTINCT FROM n.{quoted(k.path)}" for k in self._path.identity)
        return f"SELECT {outputs} FROM ({rows}) r ANTI JOIN changed n ON {same}"

    def _level0(self, parameters: list[Any]) -> str:
        one = _Statement(self._extremes)
        names = ", ".join(f"{quoted(self._path.columns[base])} AS {quoted(base)}" for base in self._used)
        live = f"SELECT {names} FROM changed WHERE NOT coalesce({DELETED}, false)"
        text = f"SELECT {', '.join(map(quoted, self._outputs))} FROM ({live}) r{self._where(one)}"
        parameters += one.parameters
        return text

    def _where(self, one: _Statement) -> str:
        parts = [one.condition(f) for f in self._request.where]
        if self._request.after is not None:
            parts.append(one.behind(self._order, self._request.after))
        return f" WHERE {' AND '.join(parts)}" if parts else ""
