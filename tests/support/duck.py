"""Views on DuckDB alone: an independent engine to run maintenance plans on, thousands of times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from ebla.algebra.nodes import Column, Computation
from ebla.sql.lex import quote
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.sql.refs import rewrite
from ebla.storage.duck import quoted
from ebla.values import types
from ebla.views.epoch.narrow import Side
from ebla.views.epoch.narrow import State as Which
from support.spellings import PLAIN, Naming
from support.view_queries import TABLES, Sql

Row = dict[str, object]
State = dict[str, dict[tuple[object, ...], Row]]
"""Table to key to row."""


_shared = duckdb.connect(":memory:", config={"threads": 1})


@lru_cache(maxsize=1024)
def _translated(text: str) -> tuple[str, tuple[str, ...]]:
    """A plain query for DuckDB, and the table of each of its mentions, which it reads as `input_0` and so on."""
    query = parse(text)
    assert isinstance(query, Query)
    names = {(ref.start, ref.end): f"input_{number}" for number, ref in enumerate(query.refs)}
    tree = sqlglot.parse_one(rewrite(query, lambda ref: names[ref.start, ref.end]), dialect="spark")
    for group in tree.find_all(exp.Group):  # of no rows, DuckDB makes the group of all, and Spark none
        if group.find(exp.Rollup, exp.Cube, exp.GroupingSets) and isinstance(group.parent, exp.Select):
            group.parent.having("count(*) > 0", dialect="spark", copy=False)
    for call in tree.find_all(exp.GroupingId):  # DuckDB wants to be given the columns of the groups
        forms = tree.args["group"].find_all(exp.Rollup, exp.Cube, exp.GroupingSets)
        parts = [part for form in forms for part in form.expressions]
        listed = [o for p in parts for o in (p.expressions if isinstance(p, exp.Tuple) else [p.unnest()])]
        call.set("expressions", list(dict.fromkeys(listed)))
    return tree.sql("duckdb"), tuple(ref.name for ref in query.refs)


@lru_cache(maxsize=1024)
def _expression(column: Column) -> str:
    """A column of stored rows, or what is computed of them, for DuckDB."""
    text = column.text if isinstance(column, Computation) else quote(column)
    return sqlglot.transpile(text, read="spark", write="duckdb")[0]


class DuckEngine:
    """One epoch over an old and a new state of the tables. Plans speak of stored names, texts of plain ones."""

    def __init__(self, old: State, new: State, naming: Naming = PLAIN) -> None:
        self._old = self.old = old
        self._new = self.new = new
        self.naming = naming
        self.connection = _shared
        self._whole: dict[tuple[str, bool], Counter[tuple[object, ...]]] = {}
        """What texts give of the old and of the new state, each computed once."""

    def table(self, name: str, rows: Sequence[Row]) -> pa.Table:
        columns = TABLES[name]
        return pa.table(
            {c: pa.array([r[c] for r in rows], types.to_arrow(kind)) for c, kind in columns.items()},
            schema=pa.schema([(c, types.to_arrow(kind)) for c, kind in columns.items()]),
        )

    def stored(self, name: str, rows: Sequence[Row]) -> pa.Table:
        """Rows of a table under the names that it stores."""
        return self.table(name, rows).rename_columns(self.naming.stored_columns(name))

    def changed_tables(self) -> list[str]:
        return [self.naming.tables[t].lower() for t in TABLES if self._old[t] != self._new[t]]

    def changed(self, table: str) -> pa.Table:
        name = self.naming.plain_tables[table]
        old, new = self._old[name], self._new[name]
        keys = [k for k in {**old, **new} if old.get(k) != new.get(k)]
        return self.stored(name, [state[k] for state in (old, new) for k in keys if k in state])

    def lookup(
        self,
        table: str,
        by: Sequence[Column],
        values: pa.Table,
        columns: Sequence[str] | None,
        state: Which = Which.NEW,
    ) -> pa.Table:
        name = self.naming.plain_tables[table]
        rows = self.stored(name, list((self._new if state is Which.NEW else self._old)[name].values()))
        cursor = self.connection.cursor()
        keys = self.evaluated(table, rows, by).rename_columns([f"_key_{i}" for i in range(len(by))])
        for field, column in zip(keys.schema, keys.columns, strict=True):
            rows = rows.append_column(field, column)
        cursor.register("base_rows", rows)
        cursor.register("wanted_values", values)
        match = " AND ".join(f"r._key_{i} IS NOT DISTINCT FROM v.c{i}" for i in range(len(by)))
        shown = ", ".join(f"r.{quoted(c)}" for c in (self.naming.stored_columns(name) if columns is None else columns))
        text = f"SELECT {shown} FROM base_rows r SEMI JOIN wanted_values v ON {match}"
        return cursor.sql(text).to_arrow_table()

    def evaluated(self, table: str, rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
        """Columns of some rows, in the order of the rows."""
        cursor = self.connection.cursor()
        cursor.register("given_rows", rows)
        made = [_expression(column) for column in columns]
        return cursor.sql(
            f"SELECT {', '.join(f'{text} AS c{i}' for i, text in enumerate(made))} FROM given_rows"
        ).to_arrow_table()

    def evaluate(
        self, text: str, state: State, leaves: Mapping[int, pa.Table] | None = None
    ) -> Counter[tuple[object, ...]]:
        """The rows of a plain query as a bag, with some mentions of tables replaced by other rows."""
        if leaves is not None or (state is not self.old and state is not self.new):
            return Counter(tuple(row) for row in self._run(text, lambda _: state, leaves or {}).fetchall())
        asked = text, state is self.new
        if asked not in self._whole:
            self._whole[asked] = Counter(tuple(row) for row in self._run(text, lambda _: state, {}).fetchall())
        return self._whole[asked].copy()

    def evaluate_side(self, text: str, side: Side) -> duckdb.DuckDBPyConnection:
        nothing = {n: self.table(_translated(text)[1][n], []) for n in side.unread}
        return self._run(
            text, lambda number: self._old if number in side.old else self._new, {**nothing, **side.leaves}
        )

    def _run(
        self, text: str, state_of: Callable[[int], State], leaves: Mapping[int, pa.Table]
    ) -> duckdb.DuckDBPyConnection:
        translated, tables = _translated(text)
        cursor = self.connection.cursor()
        for number, table in enumerate(tables):
            rows = leaves.get(number)
            if rows is None:
                rows = self.table(table, list(state_of(number)[table].values()))
            cursor.register(f"input_{number}", rows.rename_columns(list(TABLES[table])))
        return cursor.execute(translated)

    def kinds(self, text: str, shown: int, sql: Sql) -> list[str]:
        """The types of an extended query's columns, as Spark would have them."""
        described = self._run(text, lambda _: self._old, {}).description or []
        hidden = ["decimal(38,0)" if str(column[1]) == "HUGEINT" else "bigint" for column in described[shown:]]
        return [kind for _, kind in sql.columns] + hidden
