"""Groups kept by adding and subtracting, so that a change costs what it holds and not what its groups hold.

A view that is one aggregation of counts, sums, averages, minima and maxima is stored with hidden columns: how many rows
a group has, and for each aggregate how many of them counted. The query run on the rows that came, and on those that
went, gives two small results; they are added to and subtracted from the stored groups. A group without rows disappears;
one without counted values shows NULL. Numbers are exact: whole numbers and decimals only. A minimum whose rows left
cannot be computed from the rest, so its group is *stale* and is computed again from its rows.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ebla.algebra.nodes import GROUPING_SETS, Group, Pass, Shape
from ebla.sql.items import SelectList, extended, says, select_list, without
from ebla.sql.lex import quote
from ebla.sql.query import Query
from ebla.values.grammar import parse

ROWS = "_ebla_rows"
SET = "_ebla_set"
"""Which grouping set a group is of."""
_EXACT = frozenset({"tinyint", "smallint", "int", "bigint"})
_ORDERED = _EXACT | {"date", "timestamp", "timestamp_ntz", "string", "boolean"}
_LONGS = range(-(2**63), 2**63)
_DOUBLES_MAX = 2**53
"""Whole numbers up to here are exact as doubles, whatever the order in which Spark adds them."""

Row = Mapping[str, Any]
_DECIMALS = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)


class Call(StrEnum):
    GROUP = "group"
    ROWS = "rows"
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What an output column is: `counted` names the hidden count beside it, `total` the hidden sum of an average."""

    column: str
    call: Call
    counted: str | None = None
    total: str | None = None
    type: str = ""

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Role:
        return cls(**{**value, "call": Call(value["call"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A query that may be kept by merging: with its hidden items, and each item's role, types unknown yet."""

    query: Query
    roles: tuple[Role, ...]


def sketch(query: Query, shape: Shape, names: Sequence[str]) -> Sketch | None:
    """The query with hidden columns, if it is one aggregation of mergeable calls. `names` are its output columns."""
    listed = select_list(query)
    group = shape.root
    while isinstance(group, Pass):
        if group.multiplies:
            return None
        group = group.child
    if not isinstance(group, Group) or group.keeps_rows or listed is None:
        return None
    if listed.distinct is not None and group.what == "DISTINCT" and not says(query, "LIMIT"):
        return _distinct(without(query, listed.distinct), names)
    if listed.distinct is not None or len(listed.items) != len(names):
        return None
    if says(query, "HAVING", "QUALIFY", "WINDOW", "LIMIT") or group.what not in ("aggregation", GROUPING_SETS):
        return None
    if not says(query, "GROUP") and all(item.call is None for item in listed.items):
        return None  # the aggregation is that of a subquery
    roles, more = _roles(listed, shape, names, group)
    if roles is None:
        return None
    sets = group.what == GROUPING_SETS
    if len(group.by - {value for _, value in shape.outputs}) > sets:
        return None  # a group that the view does not show cannot be found there
    if sets:
        roles.append(Role(column=SET, call=Call.GROUP))
        more.append(f"grouping_id() AS {SET}")
    return Sketch(query=extended(query, listed.end, "".join(f", {item}" for item in more)), roles=tuple(roles))


def _distinct(query: Query, names: Sequence[str]) -> Sketch:
    """`SELECT DISTINCT` as groups with the number of their rows."""
    columns = ", ".join(quote(n) for n in names)
    counted = query.within(f"SELECT {columns}, count(*) AS {ROWS} FROM (", f") GROUP BY {columns}")
    roles = [*(Role(column=n, call=Call.GROUP) for n in names), Role(column=ROWS, call=Call.ROWS)]
    return Sketch(query=counted, roles=tuple(roles))


def _roles(listed: SelectList, shape: Shape, names: Sequence[str], group: Group) -> tuple[list[Role] | None, list[str]]:
    roles: list[Role] = []
    hidden: list[Role] = [Role(column=ROWS, call=Call.ROWS)]
    more = [f"count(*) AS {ROWS}"]
    for place, (item, name, (_, value)) in enumerate(zip(listed.items, names, shape.outputs, strict=True)):
        if item.call is None:
            if value not in group.by:
                return None, []
            roles.append(Role(column=name, call=Call.GROUP))
            continue
        call = Call(item.call.lower())
        counted = total = None
        if call is not Call.COUNT:
            counted = f"_ebla_count_{place}"
            more.append(f"count({item.argument}) {item.filter} AS {counted}")
            hidden.append(Role(column=counted, call=Call.COUNT))
        if call is Call.AVG:
            total = f"_ebla_sum_{place}"
            more.append(f"sum({item.argument}) {item.filter} AS {total}")
            hidden.append(Role(column=total, call=Call.SUM, counted=counted))
        roles.append(Role(column=name, call=call, counted=counted, total=total))
    return [*roles, *hidden], more


def settled(roles: Sequence[Role], kinds: Sequence[str]) -> tuple[Role, ...] | None:
    """The roles with the types that Spark gives the columns, if all of them can be merged exactly."""
    made = [
        Role(column=r.column, call=r.call, counted=r.counted, total=r.total, type=kind)
        for r, kind in zip(roles, kinds, strict=True)
    ]
    by_name = {r.column: r for r in made}
    for role in made:
        exact = role.type in _EXACT or role.type.startswith("decimal")
        match role.call:
            case Call.SUM if not exact:
                return None
            case Call.AVG:
                total = by_name[str(role.total)].type
                if not (total in _EXACT or total.startswith("decimal")):
                    return None
            case Call.MIN | Call.MAX if role.type not in _ORDERED and not role.type.startswith("decimal"):
                return None
            case Call.GROUP if parse(role.type).parts or role.type in ("float", "double"):
                return None
            case _:
                pass
    return tuple(made)


# ---- adding and subtracting -----------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class MergeResult:
    """Groups as they are now (`rows`, only those that differ), groups that are gone, groups to compute again."""

    rows: list[dict[str, Any]]
    gone: list[Row]
    stale: list[tuple[Any, ...]]


def merge(
    roles: Sequence[Role], stored: Sequence[Row], came: Sequence[Row], went: Sequence[Row], *, steps: int = 1
) -> MergeResult:
    """Stored groups, plus the groups of what came, less the groups of what went.

    With several `steps`, a row may come in one and go in the next, so that what came need not be there now.
    """
    by = [r.column for r in roles if r.call is Call.GROUP]
    groups = {tuple(row[c] for c in by): row for row in stored}
    parts: dict[tuple[Any, ...], tuple[list[Row], list[Row]]] = {}
    for place, rows in enumerate((came, went)):
        for row in rows:
            parts.setdefault(tuple(row[c] for c in by), ([], []))[place].append(row)
    result = MergeResult(rows=[], gone=[], stale=[])
    for group, (plus, minus) in parts.items():
        before = groups.get(group)
        count = _sum(ROWS, before, plus, minus)
        if count < 0:
            result.stale.append(group)
            continue
        if count == 0 and by:
            if before is not None:
                result.gone.append(before)
            continue
        made = _merged(roles, group, before, plus, minus, steps)
        if made is None:
            result.stale.append(group)
        elif before is None or any(made[r.column] != before[r.column] for r in roles):
            result.rows.append(made)
    return result


def _merged(
    roles: Sequence[Role],
    group: tuple[Any, ...],
    before: Row | None,
    plus: Sequence[Row],
    minus: Sequence[Row],
    steps: int,
) -> dict[str, Any] | None:
    row: dict[str, Any] = dict(zip((r.column for r in roles if r.call is Call.GROUP), group, strict=True))
    for role in roles:
        if role.call in (Call.COUNT, Call.ROWS):
            row[role.column] = _sum(role.column, before, plus, minus)
    for role in roles:
        if role.call is Call.SUM:
            total = _sum(role.column, before, plus, minus) if row[str(role.counted)] else None
            if total is not None and not _fits(total, role.type):
                return None  # Spark would refuse it: let it say so
            row[role.column] = total
    for role in roles:
        if role.call is Call.AVG:
            count, total = row[str(role.counted)], row[str(role.total)]
            if count and role.type == "double" and abs(total) >= _DOUBLES_MAX:
                return None
            row[role.column] = _average(total, count, role.type) if count else None
        elif role.call in (Call.MIN, Call.MAX):
            found = _extreme(role, before, plus, minus, steps) if row[str(role.counted)] else None
            if found is _LOST:
                return None
            row[role.column] = found
    return row


def _sum(column: str, before: Row | None, plus: Sequence[Row], minus: Sequence[Row]) -> Any:
    """Exact for whole numbers and decimals; NULL counts nothing."""
    total: Any = 0
    for sign, rows in ((1, [before] if before is not None else []), (1, plus), (-1, minus)):
        for row in rows:
            value = row[column]
            if isinstance(value, decimal.Decimal):
                total = _DECIMALS.add(decimal.Decimal(total), value if sign > 0 else value.copy_negate())
            elif value is not None:
                total += sign * value
    return total


def _fits(total: Any, kind: str) -> bool:
    if kind == "bigint":
        return int(total) in _LONGS
    precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
    return bool(abs(total) < decimal.Decimal(10) ** (precision - scale))


def _average(total: Any, count: int, kind: str) -> Any:
    """As Spark: doubles divided; a decimal first to 38 places, then to the places of its type, half up each time."""
    if kind == "double":
        return float(total) / float(count)
    scale = int(kind.removesuffix(")").split(",")[1])
    exact = _DECIMALS.divide(decimal.Decimal(total), decimal.Decimal(count))
    for places in (38, scale):
        exact = exact.quantize(decimal.Decimal(1).scaleb(-places), context=_DECIMALS)
    return exact


_LOST = object()


def _extreme(role: Role, before: Row | None, plus: Sequence[Row], minus: Sequence[Row], steps: int) -> Any:
    """The new minimum or maximum, or `_LOST` if only the group's rows can tell."""
    least = min if role.call is Call.MIN else max

    def of(rows: Sequence[Row]) -> Any:
        values = [r[role.column] for r in rows if r[role.column] is not None]
        return least(values) if values else None

    stored = None if before is None else before[role.column]
    came, went = of(plus), of(minus)
    values = [v for v in (stored, came) if v is not None]
    if not values:
        return None
    best = least(values)
    if went is None or least(went, best) != went:
        return best
    # What went may have been the stored extreme. What came stands in for it if it surely is there.
    if came is not None and came == best and (steps == 1 or came != went):
        return best
    return _LOST
