"""Rows of a relation by values of any columns, read from its runs with DuckDB: no Spark job, pruned row groups."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ebla.errors import CorruptRunError
from ebla.model.relation import DELETED, Column, Relation
from ebla.model.snapshot import Snapshot
from ebla.spark import scan as sscan
from ebla.spark.session import local_frame
from ebla.storage import runs as rf
from ebla.storage.duck import READ, quoted
from ebla.storage.rows import TooLarge, distinct
from ebla.storage.runs import VERSION
from ebla.tables.level0 import LevelZero, equal, on_driver
from ebla.tables.lookup import files_of
from ebla.tables.read_access import ReadAccess
from ebla.values import types

STALE_TIMES = 4
"""Of rows that match, this many times more are looked at than are wanted: most of them may have been replaced."""


def named(relation: Relation, names: Sequence[str]) -> list[Column]:
    by_name = {c.name.lower(): c for c in relation.columns}
    return [by_name[n.lower()] for n in names]


def rows_by(
    context: ReadAccess,
    snapshot: Snapshot,
    by: Sequence[str],
    values: pa.Table,
    columns: Sequence[str],
    *,
    most: int | None = None,
) -> pa.Table:
    """Rows whose `by` columns are among the values (columns `c0`, `c1`, … of the table), NULL equal to NULL.

    The result has the columns asked for, under their names, in today's types. If there are more than `most` rows it is
    `TooLarge`, and no more than those were brought here.
    """
    found = _rows_by(context, snapshot, by, values, columns, most)
    if most is not None and found.num_rows > most:
        raise TooLarge(f"more than {most} rows of {snapshot.relation.name} to read")
    return found


def replaced_rows(context: ReadAccess, old: Snapshot, mutations: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows that an older snapshot has of the keys of some mutations."""
    key = old.relation.key
    keys = mutations.select([k.physical for k in key]).rename_columns([f"c{i}" for i in range(len(key))])
    return rows_by(context, old, [k.name for k in key], keys, columns)


def _rows_by(
    context: ReadAccess,
    snapshot: Snapshot,
    by: Sequence[str],
    values: pa.Table,
    columns: Sequence[str],
    most: int | None,
) -> pa.Table:
    relation = snapshot.relation
    keyed, outputs = named(relation, by), named(relation, columns)
    if not on_driver(context.settings, snapshot):
        return _by_spark(context, snapshot, keyed, values, outputs, most)
    while True:
        try:
            parts = _Lookup(context, snapshot, keyed, values, outputs, most).parts()
            break
        except duckdb.Error as error:
            if not rf.distrust_damaged(snapshot, context.roots()):
                raise CorruptRunError(f"{relation.name}: expected readable runs, found: {error}") from error
    schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in outputs])
    return pa.concat_tables([p.cast(schema) for p in parts]) if parts else schema.empty_table()


class _Lookup:
    """One lookup: whole keys first in level 0 and then in files, rows by other columns in both."""

    def __init__(
        self,
        context: ReadAccess,
        snapshot: Snapshot,
        keyed: Sequence[Column],
        values: pa.Table,
        outputs: Sequence[Column],
        most: int | None,
    ) -> None:
        self._context = context
        self._snapshot = snapshot
        self._most = most
        self._keyed = keyed
        self._values = fitting(values, keyed)
        self._outputs = outputs
        self._identity = snapshot.relation.identity
        self._roots = context.nodes.of(snapshot.roots)

    def parts(self) -> list[pa.Table]:
        self._cursor = self._context.duck()
        level0 = LevelZero.of(self._context.storage, self._context.settings, self._snapshot, self._roots, self._cursor)
        try:
            if {c.physical for c in self._keyed} == {c.physical for c in self._identity}:
                return self._by_key(level0)
            return self._by_values(level0)
        finally:
            self._cursor.close()

    def _by_key(self, level0: LevelZero) -> list[pa.Table]:
        """Keys that level 0 has are settled: the files need not be asked for them."""
        position = {c.physical: f"c{i}" for i, c in enumerate(self._keyed)}
        names = [position[c.physical] for c in self._identity]
        kinds = pa.schema([pa.field(c.physical, types.to_arrow(c.type)) for c in self._identity])
        keys = self._values.select(names).rename_columns(kinds.names).cast(kinds)
        found, wanted = [], keys
        changed = level0.of_keys(keys, self._outputs)
        if changed.num_rows:
            self._cursor.register("changed", changed)
            found.append(self._arrow(f"SELECT {self._names('r')} FROM changed r WHERE NOT coalesce({DELETED}, false)"))
        if changed.num_rows == keys.num_rows:
            return found
        if changed.num_rows:
            same = " AND ".join(f"u.{quoted(n)} IS NOT DISTINCT FROM c.{quoted(n)}" for n in kinds.names)
            self._cursor.register("keys", keys)
            wanted = self._arrow(f"SELECT u.* FROM keys u ANTI JOIN changed c ON {same}").cast(kinds)
        files = files_of(self._snapshot, self._roots, wanted) if wanted.num_rows else []
        if files:
            self._cursor.register("wanted", wanted)
            match = " AND ".join(equal(c, wanted[c.physical], "r", f"w.{quoted(c.physical)}") for c in self._identity)
            rows = f"SELECT {self._names('r')} FROM (SELECT {self._read()} FROM {READ}) r SEMI JOIN wanted w ON {match}"
            found.append(self._arrow(rows + self._limit(), files))
        return found

    def _by_values(self, level0: LevelZero) -> list[pa.Table]:
        """Rows that match anywhere, without those that a newer mutation of the same row replaced."""
        self._cursor.register("wanted", self._values)
        match = " AND ".join(equal(c, self._values[i], "r", f"w.c{i}") for i, c in enumerate(self._keyed))
        files = files_of(self._snapshot, self._roots) if self._values.num_rows else []
        rows = f"FROM (SELECT {self._read()} FROM {READ}) r SEMI JOIN wanted w ON {match}"
        if not self._snapshot.level0:
            return [self._arrow(f"SELECT {self._names('r')} {rows}{self._limit()}", files)] if files else []
        limit = None if self._most is None else STALE_TIMES * self._most + level0.rows + 1
        columns = [*self._keyed, *self._outputs]
        changed = list(level0.candidates(f"SEMI JOIN wanted w ON {match}", columns, limit))
        parts = [part for part, _ in changed]
        if files:
            selected = f"SELECT {self._read('r.')}, CAST(0 AS BIGINT) AS {VERSION} {rows}"
            parts.append(self._arrow(selected + ("" if limit is None else f" LIMIT {limit:d}"), files))
        if any(cut for _, cut in changed) or (limit is not None and parts and parts[-1].num_rows >= limit):
            raise TooLarge(f"more than {self._most} rows of {self._snapshot.relation.name} to read")
        found = united([part.select([*self._own(), VERSION]) for part in parts], self._snapshot.relation)
        if not found.num_rows:
            return []
        register_newest(self._cursor, level0, found, [c.physical for c in self._identity])
        return [self._arrow(f"SELECT {self._names('r')} FROM newest_rows r{self._limit()}")]

    def _own(self) -> list[str]:
        """What is read of a row: what it is found by, what is asked for, and which row it is."""
        return list(dict.fromkeys(c.physical for c in (*self._keyed, *self._outputs, *self._identity)))

    def _read(self, table: str = "") -> str:
        return ", ".join(f"{table}{quoted(name)}" for name in self._own())

    def _names(self, table: str) -> str:
        return ", ".join(f"{table}.{quoted(c.physical)} AS {quoted(c.name)}" for c in self._outputs)

    def _limit(self) -> str:
        """One row more than wanted tells that there are too many."""
        return "" if self._most is None else f" LIMIT {self._most + 1}"

    def _arrow(self, text: str, files: Sequence[str] | None = None) -> pa.Table:
        return self._cursor.sql(text, params=[] if files is None else [list(files)]).to_arrow_table()


def register_newest(cursor: duckdb.DuckDBPyConnection, level0: LevelZero, found: pa.Table, key: Sequence[str]) -> None:
    """Register, as `newest_rows`, the candidates that no newer mutation of the same row replaced."""
    newest = level0.of_keys(distinct(found.select(list(key))), ())
    cursor.register("candidates", found)
    cursor.register("newest", newest)
    same = " AND ".join(f"r.{quoted(n)} IS NOT DISTINCT FROM n.{quoted(n)}" for n in key)
    text = f"SELECT r.* FROM candidates r LEFT JOIN newest n ON {same} WHERE coalesce(n.{VERSION}, 0) = r.{VERSION}"
    cursor.register("newest_rows", cursor.sql(text).to_arrow_table())


def united(parts: Sequence[pa.Table], relation: Relation) -> pa.Table:
    """Candidates in today's types: DuckDB gives its own of strings and times."""
    kinds = {c.physical: types.to_arrow(c.type) for c in relation.columns}
    names = parts[0].schema.names
    schema = pa.schema([pa.field(name, kinds.get(name, pa.int64())) for name in names])
    return pa.concat_tables([part.cast(schema) for part in parts])


def fitting(values: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Whole numbers in the columns' own types, since a token depends on the type; without those that do not fit."""
    for index, column in enumerate(columns):
        given, kind = values.column(index), types.to_arrow(column.type)
        if given.type == kind or not (pa.types.is_integer(given.type) and pa.types.is_integer(kind)):
            continue
        cast = given.cast(kind, safe=False)
        values = values.set_column(index, values.schema.names[index], cast)
        values = values.filter(pc.or_(pc.is_null(given), pc.equal(cast.cast(given.type, safe=False), given)))
    return values


def _by_spark(
    context: ReadAccess,
    snapshot: Snapshot,
    keyed: Sequence[Column],
    values: pa.Table,
    outputs: Sequence[Column],
    most: int | None,
) -> pa.Table:
    """The same on Spark, for files of an older schema or a large level 0: a broadcast semi join."""
    from pyspark.sql import functions as F

    rows = sscan.merged(
        context.spark, snapshot, context.roots(), context.storage.level0, rows_max=context.settings.level0_rows_max
    )
    marked = values.rename_columns([f"_ebla_v{i}" for i in range(values.num_columns)])
    on = " AND ".join(f"{sscan.quoted(c.physical)} <=> _ebla_v{i}" for i, c in enumerate(keyed))
    found = rows.join(F.broadcast(local_frame(context.spark, marked)), F.expr(on), "left_semi")
    if most is not None:
        found = found.limit(most + 1)
    shaped = found.selectExpr(*sscan.renamed([(c.physical, c.name) for c in outputs])).toArrow()
    schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in outputs])
    return shaped.cast(schema)
