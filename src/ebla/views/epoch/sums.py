"""Counts and sums of many groups added and subtracted at once, by DuckDB.

The same as `ebla.algebra.merge` for the plain case, without a Python object for every value. Where anything is not
plain (averages, minima and maxima, a group that lost more than it had, a sum that does not fit) there is no answer, and
`merge` decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ebla.algebra.merge import ROWS, Call, Role
from ebla.storage.duck import quoted

_HAD = "_ebla_had"
_DIFFERS = "_ebla_differs"
_SIGN = "_ebla_sign"


def added(
    cursor: duckdb.DuckDBPyConnection, roles: Sequence[Role], stored: pa.Table, came: pa.Table, went: pa.Table
) -> tuple[pa.Table, pa.Table] | None:
    """The groups that differ, as they are now, and the groups that are gone; `None`: ask `merge`."""
    by = [role.column for role in roles if role.call is Call.GROUP]
    if not by or any(role.call in (Call.AVG, Call.MIN, Call.MAX) for role in roles):
        return None
    for name, table in (("stored", stored), ("came", came), ("went", went)):
        cursor.register(name, table)
    try:
        found = cursor.sql(_text(roles, by)).to_arrow_table()
    except duckdb.Error:
        return None  # a sum too large: `merge` knows for which group
    counts = [role.column for role in roles if role.call in (Call.COUNT, Call.ROWS)]
    if any(pc.any(pc.less(found[name], 0)).as_py() for name in counts):
        return None
    empty = pc.equal(found[ROWS], 0)
    differs = pc.and_(found[_DIFFERS], pc.invert(empty))
    names = stored.schema.names
    return (
        found.filter(differs).select(names).cast(stored.schema),
        found.filter(pc.and_(empty, found[_HAD])).select(names).cast(stored.schema),
    )


def _text(roles: Sequence[Role], by: Sequence[str]) -> str:
    keys = ", ".join(quoted(name) for name in by)
    numbers = [role for role in roles if role.call is not Call.GROUP]
    moved = ", ".join(
        f"coalesce(sum({quoted(r.column)}) FILTER (WHERE {_SIGN} > 0), 0)"
        f" - coalesce(sum({quoted(r.column)}) FILTER (WHERE {_SIGN} < 0), 0) AS {quoted(r.column)}"
        for r in numbers
    )

    def stored(rows: str) -> str:
        same = " AND ".join(f"{rows}.{quoted(name)} IS NOT DISTINCT FROM s.{quoted(name)}" for name in by)
        return f"LEFT JOIN stored s ON {same}"

    now = ", ".join(f"{_now(r)} AS {quoted(r.column)}" for r in numbers)
    differs = " OR ".join(f"s.{quoted(r.column)} IS DISTINCT FROM n.{quoted(r.column)}" for r in numbers)
    return f"""
        WITH moved AS (
            SELECT {keys}, {moved}
            FROM (SELECT *, 1 AS {_SIGN} FROM came UNION ALL SELECT *, -1 AS {_SIGN} FROM went) GROUP BY {keys}
        ), n AS (
            SELECT {", ".join(f"d.{quoted(name)}" for name in by)}, s.{quoted(ROWS)} IS NOT NULL AS {_HAD}, {now}
            FROM moved d {stored("d")}
        )
        SELECT n.*, NOT n.{_HAD} OR {differs} AS {_DIFFERS}
        FROM n {stored("n")}"""


def _now(role: Role) -> str:
    column = quoted(role.column)
    total = f"CAST(coalesce(s.{column}, 0) + d.{column} AS {role.type.upper()})"
    if role.counted is None:
        return total
    counted = quoted(role.counted)
    return f"CASE WHEN coalesce(s.{counted}, 0) + d.{counted} = 0 THEN NULL ELSE {total} END"
