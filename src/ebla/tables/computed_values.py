"""Rows of VALUES that Spark computes a part of: each cell is brought to its column's type by itself.

Spark unites the types of a column over the rows: beside one DOUBLE every BIGINT is a DOUBLE, and 9007199254740993 is
another number. So a column of the table is several columns of VALUES, one for each type that its cells have, of which
each row fills one. Each of them is brought to the table's type as any value is, or stops the job, and then they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F

from ebla.errors import EblaError, SqlError
from ebla.model.relation import Relation
from ebla.model.snapshot import Snapshot
from ebla.spark.write import assigned, fitted
from ebla.sql.literals import Dialect
from ebla.sql.query import Query
from ebla.sql.refs import find
from ebla.sql.statements import Insert
from ebla.sql.target import comma
from ebla.tables.batch import INSERT, KIND, UPSERT, ArrowBatch, FrameBatch
from ebla.tables.literals import Values, literal_batch
from ebla.values import types

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T

_FIXED = ""
"""The type of a cell that is of its column's type already."""


class SnapshotQuery(Protocol):
    """A query over one snapshot."""

    @property
    def frame(self) -> DataFrame: ...
    @property
    def snapshots(self) -> Sequence[Snapshot]: ...


def values_batch(
    statement: Insert, relation: Relation, dialect: Dialect, read: Callable[[Query], SnapshotQuery]
) -> ArrowBatch | FrameBatch | None:
    """Rows of VALUES; `None` for any other source, or if Spark takes them for something else. Two analyses, no job."""
    values = literal_batch(statement, relation, dialect)
    if values is None or isinstance(values, ArrowBatch):
        return values
    try:
        made = spread(values, read(find(types_query(values))).frame.schema)
        rows = read(find(made.text))
    except EblaError:
        return None
    cells = stored(rows.frame, made, values, relation, UPSERT if statement.upsert else INSERT)
    frame = fitted(cells, relation, keep=[KIND], hidden=True, utf8=True)
    return FrameBatch(frame=frame, kind=None, reads=rows.snapshots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A query of VALUES with a column for each slot: a place in the row, and a type of cells."""

    text: str
    slots: Mapping[tuple[int, str], int]


def types_query(values: Values) -> str:
    """One row that holds all computed cells: Spark gives each the type that it has by itself."""
    return "SELECT " + comma(values.rows[number][i] for number, i in sorted(values.computed))


def spread(values: Values, row: T.StructType) -> Spread:
    """The rows, given the type of what `types_query` says."""
    if len(row.fields) != len(values.computed):
        raise SqlError(f"VALUES: expected {len(values.computed)} expressions, found {len(row.fields)}")
    found = {place: field.dataType.json() for place, field in zip(sorted(values.computed), row.fields, strict=True)}
    slots: dict[tuple[int, str], int] = {}
    for number, cells in enumerate(values.rows):
        for i in range(len(cells)):
            slots.setdefault((i, found.get((number, i), _FIXED)), len(slots))
    return Spread(text=_text(values, slots, found), slots=slots)


def stored(frame: DataFrame, made: Spread, values: Values, relation: Relation, kind: str) -> DataFrame:
    """The rows under the table's names, in its types, with their kind; one projection."""
    columns = {column.name: column for column in relation.visible}

    def gathered(i: int, name: str) -> SparkColumn:
        target, what = types.to_spark(columns[name].type), f"{relation.name}.{name}"
        names = [frame.columns[slot] for (of, _), slot in made.slots.items() if of == i]
        return F.coalesce(*[assigned(F.col(one), frame.schema[one].dataType, target, what) for one in names])

    given = [gathered(i, name).alias(name) for i, name in enumerate(values.given)]
    return frame.select(*given, F.lit(kind).alias(KIND))


def _text(values: Values, slots: Mapping[tuple[int, str], int], found: Mapping[tuple[int, int], str]) -> str:
    """VALUES with a column for each slot; `NULL` has every type."""
    rows = []
    for number, row in enumerate(values.rows):
        cells = ["NULL"] * len(slots)
        for i, text in enumerate(row):
            cells[slots[i, found.get((number, i), _FIXED)]] = text
        rows.append(f"({', '.join(cells)})")
    names = ", ".join(f"`_ebla_{slot}`" for slot in range(len(slots)))
    return f"SELECT * FROM VALUES {comma(rows)} AS `_ebla_values`({names})"
