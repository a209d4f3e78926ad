"""Rows of a relation by values of any columns, read from its runs with DuckDB: no Spark job, pruned row groups."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ebla.errors import CorruptRunError
from ebla.model.relation import DELETED, Column, Relation
from ebla.model.snapshot import Snapshot
from ebla.spark import scan as sscan
from ebla.spark.session import local_frame
from ebla.storage import runs as rf
from ebla.storage.rows import TooLarge
from ebla.tables.context import Context
from ebla.tables.lookup import READ, files_of, quoted
from ebla.values import token as tokens
from ebla.values import types

LEVEL0_TIMES = 5
"""A lookup merges this many times more level 0 on the driver than a scan does: the other way reads every file."""


def named(relation: Relation, names: Sequence[str]) -> list[Column]:
    by_name = {c.name.lower(): c for c in relation.columns}
    return [by_name[n.lower()] for n in names]


def rows_by(
    context: Context,
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


def replaced_rows(context: Context, old: Snapshot, mutations: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows that an older snapshot has of the keys of some mutations."""
    key = old.relation.key
    keys = mutations.select([k.physical for k in key]).rename_columns([f"c{i}" for i in range(len(key))])
    return rows_by(context, old, [k.name for k in key], keys, columns)


def _rows_by(
    context: Context,
    snapshot: Snapshot,
    by: Sequence[str],
    values: pa.Table,
    columns: Sequence[str],
    most: int | None,
) -> pa.Table:
    relation = snapshot.relation
    keyed, outputs = named(relation, by), named(relation, columns)
    if not on_driver(context, snapshot):
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
    """One lookup: first in level 0, which is in memory, then in the files, without what level 0 replaced."""

    def __init__(
        self,
        context: Context,
        snapshot: Snapshot,
        keyed: Sequence[Column],
        values: pa.Table,
        outputs: Sequence[Column],
        most: int | None,
    ) -> None:
        self._snapshot = snapshot
        self._most = most
        self._keyed = keyed
        self._values = fitting(values, keyed)
        self._outputs = ", ".join(f"r.{quoted(c.physical)} AS {quoted(c.name)}" for c in outputs)
        self._read = ", ".join(
            quoted(p) for p in dict.fromkeys(c.physical for c in (*keyed, *outputs, *snapshot.relation.identity))
        )
        self._roots = context.nodes.of(snapshot.roots)
        self._changed = rf.mutations(
            snapshot.relation, snapshot.level0, self._roots, context.cache, snapshot, self._tokens()
        )
        self._cursor = context.duck()

    def _tokens(self) -> npt.NDArray[np.int64] | None:
        """Of the keys that are looked up, where they are whole keys: nothing else of level 0 matters then."""
        position = {c.physical: f"c{i}" for i, c in enumerate(self._keyed)}
        relation = self._snapshot.relation
        placed = relation.identity
        if set(position) != {c.physical for c in placed}:
            return None
        names = [position[c.physical] for c in placed]
        kinds = pa.schema([pa.field(n, types.to_arrow(c.type)) for n, c in zip(names, placed, strict=True)])
        keys = types.normalize_keys(self._values.select(names).cast(kinds), names)
        return np.unique(tokens.tokens(keys, names))

    def parts(self) -> list[pa.Table]:
        found: list[pa.Table] = []
        try:
            self._cursor.register("wanted", self._values)
            if self._changed.num_rows:
                self._cursor.register("changed", self._changed)
                found.append(self._arrow(
                    f"SELECT {self._outputs} FROM changed r SEMI JOIN wanted v ON {self._match('v')} "
                    f"WHERE NOT coalesce(r.{DELETED}, false){self._limit()}"
                ))  # fmt: skip
            found += self._from_files()
        finally:
            self._cursor.close()
        return found

    def _from_files(self) -> list[pa.Table]:
        key = self._snapshot.relation.identity
        position = {c.physical: f"c{i}" for i, c in enumerate(self._keyed)}
        by_key = set(position) == {c.physical for c in key}
        wanted = "wanted"
        if by_key and self._changed.num_rows:
            # Keys that level 0 has are settled: the files need not be asked for them.
            same = " AND ".join(f"u.{position[c.physical]} IS NOT DISTINCT FROM n.{quoted(c.physical)}" for c in key)
            left = self._arrow(f"SELECT u.* FROM wanted u ANTI JOIN changed n ON {same}")
            self._cursor.register("unsettled", left)
            wanted = "unsettled"
        else:
            left = self._values
        keys = left.select([position[c.physical] for c in key]) if by_key else None
        files = files_of(self._snapshot, self._roots, keys) if left.num_rows else []
        if not files:
            return []
        rows = f"SELECT * FROM (SELECT {self._read} FROM {READ}) r SEMI JOIN {wanted} v ON {self._match('v')}"
        if by_key or not self._changed.num_rows:
            return [self._arrow(f"SELECT {self._outputs} FROM ({rows}) r{self._limit()}", files)]
        rows += self._limit(self._changed.num_rows)  # this many may be replaced
        same = " AND ".join(f"r.{quoted(c.physical)} IS NOT DISTINCT FROM n.{quoted(c.physical)}" for c in key)
        text = f"WITH found AS MATERIALIZED ({rows}) SELECT {self._outputs} FROM found r ANTI JOIN changed n ON {same}"
        return [self._arrow(text, files)]

    def _limit(self, more: int = 0) -> str:
        """One row more than wanted tells that there are too many."""
        return "" if self._most is None else f" LIMIT {self._most + more + 1}"

    def _match(self, values: str) -> str:
        """Plain equality where no value is NULL: DuckDB then skips row groups that cannot have one.

        Statistics leave NaN out, and DuckDB believes them, so binary fractions are compared row by row.
        """

        def equals(column: Column, given: pa.ChunkedArray) -> str:
            is_plain = not given.null_count and column.type not in ("float", "double")
            return "=" if is_plain else "IS NOT DISTINCT FROM"

        return " AND ".join(
            f"r.{quoted(c.physical)} {equals(c, self._values[i])} {values}.c{i}" for i, c in enumerate(self._keyed)
        )

    def _arrow(self, text: str, files: Sequence[str] | None = None) -> pa.Table:
        return self._cursor.sql(text, params=[] if files is None else [list(files)]).to_arrow_table()


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


def on_driver(context: Context, snapshot: Snapshot) -> bool:
    """Whether rows are looked up without a Spark job: all files are of today's schema, and level 0 is not large."""
    of_today = all(r.schema_version == snapshot.relation.schema_version for r in snapshot.level1)
    return of_today and sum(r.rows for r in snapshot.level0) <= LEVEL0_TIMES * context.settings.level0_rows_max


def _by_spark(
    context: Context,
    snapshot: Snapshot,
    keyed: Sequence[Column],
    values: pa.Table,
    outputs: Sequence[Column],
    most: int | None,
) -> pa.Table:
    """The same on Spark, for files of an older schema or a large level 0: a broadcast semi join."""
    from pyspark.sql import functions as F

    rows = sscan.merged(
        context.spark, snapshot, context.roots(), context.cache, rows_max=context.settings.level0_rows_max
    )
    marked = values.rename_columns([f"_ebla_v{i}" for i in range(values.num_columns)])
    on = " AND ".join(f"{sscan.quoted(c.physical)} <=> _ebla_v{i}" for i, c in enumerate(keyed))
    found = rows.join(F.broadcast(local_frame(context.spark, marked)), F.expr(on), "left_semi")
    if most is not None:
        found = found.limit(most + 1)
    shaped = found.selectExpr(*sscan.renamed([(c.physical, c.name) for c in outputs])).toArrow()
    schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in outputs])
    return shaped.cast(schema)
