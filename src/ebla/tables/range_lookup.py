"""Rows of a relation from a position on, in the order of one column, and the positions in front of it.

Read from its runs with DuckDB: no Spark job, and row groups that lie elsewhere are skipped, as far as the column's
values lie together in the files. Otherwise that one column is read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import duckdb
import pyarrow as pa

from ebla.algebra.tails import Course
from ebla.errors import CorruptRunError
from ebla.model.relation import Column
from ebla.model.snapshot import Snapshot
from ebla.spark import scan as sscan
from ebla.spark.session import local_frame
from ebla.storage import runs as rf
from ebla.storage.duck import READ, quoted
from ebla.storage.positions import (
    POSITION,
    Position,
    as_position,
    from_on,
    in_order,
    is_before,
    is_behind,
    literal,
)
from ebla.storage.rows import TooLarge
from ebla.storage.runs import VERSION
from ebla.tables.level0 import LevelZero, on_driver
from ebla.tables.lookup import files_of
from ebla.tables.read_access import ReadAccess
from ebla.tables.value_lookup import STALE_TIMES, named, register_newest, united
from ebla.values import types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

FIRST_LOOK = 64
"""The number of rows that are looked at beside those that are wanted: some of them may have been replaced."""
LOOKS_GROW = 16


def rows_from(
    context: ReadAccess,
    snapshot: Snapshot,
    course: Course,
    position: Position | None,
    columns: Sequence[str],
    *,
    most: int,
) -> pa.Table:
    """Rows at a position or behind it; `None`: all rows. `TooLarge` if there are more than `most`."""
    outputs = named(snapshot.relation, columns)
    if not _is_for_duck(context, snapshot, course, position):
        found = _on_spark(context, snapshot, course, position, is_behind).limit(most + 1)
        parts = [found.selectExpr(*sscan.renamed([(c.physical, c.name) for c in outputs])).toArrow()]
    else:
        parts = _read(context, snapshot, course, lambda lookup: lookup.rows_from(position, outputs, most))
    schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in outputs])
    rows = pa.concat_tables([p.cast(schema) for p in parts]) if parts else schema.empty_table()
    if rows.num_rows > most:
        raise TooLarge(f"more than {most} rows of {snapshot.relation.name} from a changed position on")
    return rows


def value_before(
    context: ReadAccess, snapshot: Snapshot, course: Course, position: Position, count: int
) -> Position | None:
    """Where the row is that lies `count` rows in front of a position; `None`: there are fewer."""
    if _is_for_duck(context, snapshot, course, position):
        return _read(context, snapshot, course, lambda lookup: lookup.value_before(position, count))
    from pyspark.sql import functions as F

    [column] = named(snapshot.relation, [course.column])
    key = F.col(sscan.quoted(column.physical))
    if course.descending:  # backwards
        key = key.asc_nulls_last() if course.nulls_first else key.asc_nulls_first()
    else:
        key = key.desc_nulls_last() if course.nulls_first else key.desc_nulls_first()
    rows = _on_spark(context, snapshot, course, position, is_before)
    found = rows.orderBy(key).limit(count).select(sscan.quoted(column.physical)).toArrow()
    return None if found.num_rows < count else as_position(found.column(0)[count - 1], column.type)


def _is_for_duck(context: ReadAccess, snapshot: Snapshot, course: Course, position: Position | None) -> bool:
    [column] = named(snapshot.relation, [course.column])
    return on_driver(context.settings, snapshot) and (position is None or literal(position, column.type) is not None)


def _read(context: ReadAccess, snapshot: Snapshot, course: Course, work: Callable[[_RangeLookup], T]) -> T:
    while True:
        cursor = context.duck()
        try:
            return work(_RangeLookup(context, snapshot, course, cursor))
        except duckdb.Error as error:
            if not rf.distrust_damaged(snapshot, context.roots()):
                name = snapshot.relation.name
                raise CorruptRunError(f"{name}: expected readable runs, found: {error}") from error
        finally:
            cursor.close()


class _RangeLookup:
    """Lookups in one snapshot along one of its columns, with one cursor."""

    def __init__(
        self, context: ReadAccess, snapshot: Snapshot, course: Course, cursor: duckdb.DuckDBPyConnection
    ) -> None:
        self._snapshot = snapshot
        self._course = course
        self._cursor = cursor
        roots = context.nodes.of(snapshot.roots)
        self._files = files_of(snapshot, roots)
        self._level0 = LevelZero.of(context.storage, context.settings, snapshot, roots, cursor)
        self._identity = [column.physical for column in snapshot.relation.identity]
        [self._column] = named(snapshot.relation, [course.column])
        self._name = f"r.{quoted(self._column.physical)}"

    def rows_from(self, position: Position | None, outputs: Sequence[Column], most: int) -> list[pa.Table]:
        where = ""
        if position is not None:
            where = f"WHERE {is_behind(self._course, self._name, self._written(position))}"
        parts = self._parts(where, outputs, STALE_TIMES * most + self._level0.rows + 1)
        if any(cut for _, cut in parts):
            raise TooLarge(f"more than {most} rows of {self._snapshot.relation.name} from a changed position on")
        return self._newest([part for part, _ in parts], outputs)

    def value_before(self, position: Position, count: int) -> Position | None:
        """Of each file the rows that are nearest to the position are read, more of them until there are enough.

        What a file has beyond those lies no nearer than the last of them.
        """
        where = f"WHERE {is_before(self._course, self._name, self._written(position))}"
        limit = count + FIRST_LOOK
        while True:
            parts = self._parts(where, [self._column], limit, in_order(self._course, self._name, backwards=True))
            found = self._nearest([part for part, _ in parts], count)
            cuts = [part[self._column.physical] for part, cut in parts if cut]
            if not cuts or (found is not None and all(len(cut) and self._is_as_near(found, cut[-1]) for cut in cuts)):
                return found
            limit *= LOOKS_GROW

    def _nearest(self, parts: Sequence[pa.Table], count: int) -> Position | None:
        for rows in self._newest(parts, [self._column]):
            self._cursor.register("rows_before", rows.rename_columns(["c0"]))
            order = in_order(self._course, "c0", backwards=True)
            text = f"SELECT c0 FROM rows_before ORDER BY {order} LIMIT 1 OFFSET {count - 1:d}"
            found = self._cursor.sql(text).to_arrow_table()
            if found.num_rows:
                return as_position(found["c0"][0], self._column.type)
        return None

    def _is_as_near(self, found: Position, last: Position) -> bool:
        row = pa.table({self._course.column: pa.array([found], found.type)})
        return bool(from_on(self._cursor, row, self._course, as_position(last, self._column.type)).num_rows)

    def _written(self, position: Position) -> str | None:
        return literal(position, self._column.type) if position.is_valid else None

    def _parts(self, where: str, outputs: Sequence[Column], limit: int, order: str = "") -> list[tuple[pa.Table, bool]]:
        """Rows of level 0 and of files, replaced ones too; beside those of one file whether it may have more."""
        columns = [self._column, *outputs]
        parts = list(self._level0.candidates(where, columns, limit, order)) if self._snapshot.level0 else []
        if self._files:
            names = list(dict.fromkeys([*self._identity, *(column.physical for column in columns)]))
            text = (
                f"SELECT {', '.join(f'r.{quoted(name)}' for name in names)}, CAST(0 AS BIGINT) AS {VERSION} "
                f"FROM {READ} r {where}{order and ' ORDER BY '}{order} LIMIT {limit:d}"
            )
            rows = self._cursor.sql(text, params=[list(self._files)]).to_arrow_table()
            parts.append((rows, rows.num_rows >= limit))
        return parts

    def _newest(self, parts: Sequence[pa.Table], outputs: Sequence[Column]) -> list[pa.Table]:
        """The rows that were not replaced, under their names; none, or one table."""
        if not parts:
            return []
        names = list(dict.fromkeys([*self._identity, self._column.physical, *(c.physical for c in outputs)]))
        found = united([part.select([*names, VERSION]) for part in parts], self._snapshot.relation)
        if self._snapshot.level0 and found.num_rows:
            register_newest(self._cursor, self._level0, found, self._identity)
            found = united([self._cursor.sql("SELECT * FROM newest_rows").to_arrow_table()], self._snapshot.relation)
        return [found.select([c.physical for c in outputs]).rename_columns([c.name for c in outputs])]


def _on_spark(
    context: ReadAccess, snapshot: Snapshot, course: Course, position: Position | None, condition: Callable[..., str]
) -> DataFrame:
    """The same on Spark, for files of an older schema, a large level 0, or a type that DuckDB does not skip by.

    Rows have their physical names.
    """
    from pyspark.sql import functions as F

    [column] = named(snapshot.relation, [course.column])
    rows = sscan.merged(
        context.spark, snapshot, context.roots(), context.storage.level0, rows_max=context.settings.level0_rows_max
    )
    if position is None:
        return rows
    text = condition(course, sscan.quoted(column.physical), POSITION if position.is_valid else None)
    if not position.is_valid:
        return rows.filter(text)
    given = local_frame(context.spark, pa.table({POSITION: pa.array([position], position.type)}))
    return rows.join(F.broadcast(given), F.expr(text), "left_semi")
