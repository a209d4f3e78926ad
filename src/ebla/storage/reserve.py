"""The first rows of a query in its order, more of them than a view shows, so that a change need not read the rest.

A reserve has all rows that come before `beyond`, a row of the query, and nothing of what comes with it or behind it.
Rows that leave make it shorter, rows that come before `beyond` make it longer; what comes behind is left out, because
rows that were never read may lie before it. With no row in `beyond` the reserve has all rows that there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ebla.algebra.nodes import OrderedLimit, Ordering
from ebla.base.ids import RelationId

if TYPE_CHECKING:
    import duckdb

ROWS_MIN = 1_000
"""The least number of rows that a reserve has beyond the view's own; it has at least as many as the view, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    first: OrderedLimit
    rows: pa.Table
    beyond: pa.Table
    ranks: Sequence[int]
    """The rank of each row; rows that the order leaves equal have one rank."""
    versions: Mapping[RelationId, int] = field(default_factory=dict)
    """The inputs at which the query has these rows."""

    @property
    def first_rows(self) -> pa.Table:
        """The rows of the view."""
        return self.rows.slice(self.first.offset, self.first.count)

    @property
    def unfit(self) -> str | None:
        """Why it does not tell the view's rows, if so."""
        first, ranks = self.first, self.ranks
        if len(ranks) < first.end and self.beyond.num_rows:
            return f"fewer than {first.end} rows are left of those that are kept"
        for place in (first.offset, first.end):
            if 0 < place < len(ranks) and ranks[place - 1] == ranks[place]:
                return f"ORDER BY does not tell rows {place} and {place + 1} apart"
        return None


def rows_wanted(first: OrderedLimit) -> int:
    """How many rows to read for a new reserve; the last of them is where it ends."""
    return first.end + max(first.end, ROWS_MIN) + 1


def reserve(cursor: duckdb.DuckDBPyConnection, first: OrderedLimit, rows: pa.Table, beyond: pa.Table) -> Reserve:
    """The rows that come before `beyond`, as many as are worth keeping.

    `rows` has all rows of the query that come before `beyond`, and perhaps some that do not.
    """
    places, ranks = _ranked(cursor, first.order, pa.concat_tables([rows, beyond]))
    end = next((rank for place, rank in zip(places, ranks, strict=True) if place >= rows.num_rows), None)
    count = len(ranks) if end is None else ranks.index(end)
    most = rows_wanted(first) - 1
    if count > 2 * most and ranks[most] > ranks[first.end]:
        beyond = rows.slice(places[most], 1)
        count = ranks.index(ranks[most])
    return Reserve(
        first=first, rows=rows.take(pa.array(places[:count], pa.int64())), beyond=beyond, ranks=tuple(ranks[:count])
    )


def comes_before(cursor: duckdb.DuckDBPyConnection, first: OrderedLimit, rows: pa.Table, beyond: pa.Table) -> bool:
    """Whether one of the rows comes before `beyond`."""
    return rows.num_rows > 0 and bool(reserve(cursor, first, rows, beyond).ranks)


def _ranked(
    cursor: duckdb.DuckDBPyConnection, order: Sequence[Ordering], rows: pa.Table
) -> tuple[list[int], list[int]]:
    """The places of rows in their order, and their ranks. Zero is zero, whatever its sign."""
    keys = {f"k{i}": _key(rows.column(one.place)) for i, one in enumerate(order)}
    cursor.register("ordered_rows", pa.table({**keys, "number": pa.array(range(rows.num_rows), pa.int64())}))
    terms = ", ".join(
        f"k{i} {'DESC' if one.descending else 'ASC'} NULLS {'FIRST' if one.nulls_first else 'LAST'}"
        for i, one in enumerate(order)
    )
    text = f"SELECT number, rank() OVER (ORDER BY {terms}) AS place FROM ordered_rows ORDER BY place, number"
    found = cursor.sql(text).to_arrow_table()
    return found["number"].to_pylist(), found["place"].to_pylist()


def _key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.add(column, 0.0) if pa.types.is_floating(column.type) else column
