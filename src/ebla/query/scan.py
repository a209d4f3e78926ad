"""The other way, where no order of a path fits: DuckDB reads every row group that can hold rows, and sorts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ebla.base.ids import Version
from ebla.model.relation import DELETED, SPANS_TABLETS, TOKEN, Run
from ebla.predicates.access import AccessPath
from ebla.predicates.conditions import Equals, Filter, IsNull, NotNull, OneOf, Prefix, Range, Request, SortColumn
from ebla.query.overlay import Source
from ebla.storage import runs as rf
from ebla.storage.duck import READ, literally, quoted
from ebla.storage.files import Root
from ebla.storage.rows import distinct
from ebla.storage.runs import VERSION
from ebla.tables.level0 import LevelZero, in_memory
from ebla.values import types
from ebla.values.token import token_range

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

    def behind(self, order: Sequence[SortColumn], after: Sequence[Any]) -> str:
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


class _Rows(NamedTuple):
    """A query, and the values of its question marks."""

    text: str
    parameters: list[Any]


def _union(parts: Sequence[_Rows]) -> _Rows:
    return _Rows(
        " UNION ALL ".join(part.text for part in parts), [value for part in parts for value in part.parameters]
    )


FEW = 20_000
"""Rows that level 0 is asked for one by one; of more, the newest mutation of every row is found."""


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
        self._rows_max = source.level0_rows_max
        self._source = source
        self._roots = source.roots
        self._path = path
        self._request = request
        self._order = () if request.any_order else request.order
        self._outputs = {c.physical: c for c in (*request.columns, *(by.column for by in self._order))}
        self._used = {**self._outputs, **{f.column.physical: f.column for f in request.where}}
        self._here = {c.physical: c for c in path.relation.columns}
        self._extremes: list[pa.Scalar[Any]] = []
        self._has_files = False
        """Whether a part of level 0 is not in memory."""

    def rows(self, runs: Sequence[Run]) -> pa.Table:
        """The first rows, one more than the limit: output and ordering columns under their physical names.

        A mutation in level 0, and a row of level 1, counts if no newer mutation of the same row is there. DuckDB finds
        that out for all rows together, or, where few fulfil the conditions, level 0 is asked for those.
        """
        mutations = self._mutations()
        parts = [self._level1(files, stored) for stored, files in self._files(runs)]
        parts += [self._matching(one, live=True) for one in mutations]
        schema = rf.physical_schema(list(self._outputs.values()))
        if not parts:
            return schema.empty_table()
        if self._extremes:
            row = {f"e{i}": pa.array([value]) for i, value in enumerate(self._extremes)}
            self._cursor.register("extremes", pa.table(row))
        found = _union(parts)
        newest = self._newest(mutations) if mutations else None
        if newest is not None and self._request.where and self._has_files:
            candidates = self._run(_Rows(f"{found.text} LIMIT {FEW + 1:d}", found.parameters))
            if candidates.num_rows <= FEW:
                self._cursor.register("candidates", candidates)
                self._cursor.register("newest", self._newest_of(candidates))
                found, newest = _Rows("SELECT * FROM candidates", []), _Rows("SELECT * FROM newest", [])
        return self._run(self._first(found, newest)).cast(schema)

    def _run(self, rows: _Rows) -> pa.Table:
        return self._cursor.sql(rows.text, params=rows.parameters).to_arrow_table()

    def _first(self, found: _Rows, newest: _Rows | None) -> _Rows:
        """The first of the rows that no newer mutation replaced, in the order asked for."""
        outputs = ", ".join(f"r.{quoted(name)}" for name in self._outputs) or "1"
        text, parameters = f"SELECT {outputs} FROM ({found.text}) r", found.parameters
        if newest is not None:
            key = [quoted(k.base) for k in self._path.identity]
            same = " AND ".join(f"r.{name} IS NOT DISTINCT FROM n.{name}" for name in key)
            text += f" LEFT JOIN ({newest.text}) n ON {same} WHERE coalesce(n.{VERSION}, 0) = r.{VERSION}"
            parameters = [*parameters, *newest.parameters]
        if self._order:
            text += " ORDER BY " + ", ".join(
                f"r.{quoted(by.column.physical)} {'DESC NULLS LAST' if by.descending else 'ASC NULLS FIRST'}"
                for by in self._order
            )
        return _Rows(f"{text} LIMIT {self._request.limit + 1:d}", parameters)

    # ---- level 0 ----------------------------------------------------------------------------------------

    def _mutations(self) -> list[_Rows]:
        """All mutations of level 0, those in memory and those in files, with `_deleted` and `_version`."""
        snapshot, found = self._source.snapshot, []
        kept, files = in_memory(snapshot.level0, self._rows_max)
        # Of a run without tokens that a change of the tablet map has cut, the rows that count are found in memory.
        cut = [run for run in files if self._counting(run) and not self._has_tokens(run)]
        kept, files = [*kept, *cut], [run for run in files if run not in cut]
        if kept:
            table = rf.all_mutations(self._path.relation, kept, self._roots, self._source.cache, snapshot)
            self._cursor.register("kept_mutations", table)
            names = ", ".join(f"{quoted(name)} AS {quoted(base)}" for base, name in self._names().items())
            found.append(
                _Rows(f"SELECT {names}, coalesce({DELETED}, false) AS {DELETED}, {VERSION} FROM kept_mutations", [])
            )
        self._has_files = bool(files)
        together: dict[tuple[Version, str, str], list[Run]] = {}
        for run in files:
            deleted = f"coalesce({DELETED}, false)" if run.tombstones else "false"
            together.setdefault((run.begin_version, deleted, self._counting(run)), []).append(run)
        for (version, deleted, counting), runs in together.items():
            for stored, paths in self._files(runs):
                names = ", ".join(f"{text} AS {quoted(base)}" for base, text in stored)
                text = f"SELECT {names}, {deleted} AS {DELETED}, {version:d} AS {VERSION} FROM {READ}{counting}"
                found.append(_Rows(text, [paths]))
        return found

    def _newest(self, mutations: Sequence[_Rows]) -> _Rows:
        """The version of the newest mutation of every row that level 0 has."""
        key = ", ".join(quoted(k.base) for k in self._path.identity)
        each = _union([_Rows(f"SELECT {key}, {VERSION} FROM ({one.text})", one.parameters) for one in mutations])
        return _Rows(f"SELECT {key}, max({VERSION}) AS {VERSION} FROM ({each.text}) GROUP BY {key}", each.parameters)

    def _newest_of(self, candidates: pa.Table) -> pa.Table:
        """The same of some rows, by lookup."""
        names = [k.base for k in self._path.identity]
        identity = self._path.relation.identity
        kinds = pa.schema([pa.field(c.physical, types.to_arrow(c.type)) for c in identity])
        keys = distinct(candidates.select(names)).rename_columns(kinds.names).cast(kinds)
        source = self._source
        level0 = LevelZero(source.snapshot, source.roots, source.cache, self._cursor, self._rows_max)
        found = level0.of_keys(keys, ())
        return found.select([*kinds.names, VERSION]).rename_columns([*names, VERSION])

    def _has_tokens(self, run: Run) -> bool:
        return TOKEN in self._source.store.footer(self._roots, run).schema.names

    def _counting(self, run: Run) -> str:
        """The condition that leaves out rows of tablets that have folded the run."""
        snapshot = self._source.snapshot
        if snapshot.uniform_cutoff or run.tablet != SPANS_TABLETS:
            return ""
        ranges = [token_range(tablet, snapshot.relation.tablets) for tablet in snapshot.tablets_of(run)]
        return f" WHERE {' OR '.join(f'{TOKEN} BETWEEN {low:d} AND {high:d}' for low, high in ranges) or 'false'}"

    def _matching(self, rows: _Rows, *, live: bool) -> _Rows:
        """Rows that fulfil the conditions, with what tells which rows they are."""
        one = _Statement(self._extremes)
        names = ", ".join(map(quoted, dict.fromkeys([*self._outputs, *(k.base for k in self._path.identity)])))
        inner = f"SELECT * FROM ({rows.text}) WHERE NOT {DELETED}" if live else rows.text
        text = f"SELECT {names}, {VERSION} FROM ({inner}) r{self._where(one)}"
        return _Rows(text, [*rows.parameters, *one.parameters])

    # ---- files ------------------------------------------------------------------------------------------

    def _names(self) -> dict[str, str]:
        """Columns that matter: the name in the asked relation to the name here."""
        return {**{base: self._path.columns[base] for base in self._used}, **{k.base: k.path for k in self._path.key}}

    def _files(self, runs: Sequence[Run]) -> list[tuple[tuple[tuple[str, str], ...], list[str]]]:
        """Files by what they store of the columns: the name here and whether it has today's type."""
        names = self._names()
        found: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for run, path in zip(runs, rf.paths(self._roots, runs, Root.inner), strict=True):
            schema = self._source.store.footer(self._roots, run).schema
            stored = tuple((base, self._expression(name, schema)) for base, name in names.items())
            found.setdefault(stored, []).append(literally(path))
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

    def _level1(self, files: list[str], stored: tuple[tuple[str, str], ...]) -> _Rows:
        names = ", ".join(f"{text} AS {quoted(base)}" for base, text in stored)
        return self._matching(_Rows(f"SELECT {names}, 0 AS {VERSION} FROM {READ}", [files]), live=False)

    def _where(self, one: _Statement) -> str:
        parts = [one.condition(f) for f in self._request.where]
        if self._request.after is not None:
            parts.append(one.behind(self._order, self._request.after))
        return f" WHERE {' AND '.join(parts)}" if parts else ""
