"""The reserve behind a view that shows the first rows of its query: kept by the process, at the versions it is of.

Another process, or one that begins, has none. It recomputes such a view once, by a query for as many rows as the
reserve wants, and follows changes from then on.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import pyarrow as pa

from ebla.algebra.nodes import OrderedLimit
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.sql.items import unordered
from ebla.storage.reserve import Reserve, reserve, rows_wanted
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.rows import Rows, unchanged

ROWS_MAX = 50_000
"""The most rows that a reserve may want."""
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_ORDERED = frozenset({*_NUMBERS, "string", "boolean", "date", "timestamp", "timestamp_ntz"})


def without_limit(operands: Operands) -> Operands:
    """The same for the query without its order and limit."""
    query = unordered(operands.view.kept)
    assert query is not None, "a query that is understood to end with ORDER BY … LIMIT"
    view = replace(operands.view, kept=query)
    return replace(operands, evaluation=Evaluation(view, operands.inputs))


def kept_reserve(operands: Operands) -> Reserve | None:
    """The reserve of the view's rows as they are, if this process has it."""
    inputs = operands.inputs
    found = operands.context.storage.store.reserves.get(_name(operands))
    if found is None:
        return None
    for name, relation in inputs.relations.items():
        have, before = found.versions.get(relation.id), inputs.before[name]
        if have is None or before is None or have > before:
            return None
        if have < before:
            with operands.context.catalog.reading() as connection:
                since = Version(have)
                if since < reads.horizon(connection, relation) or reads.truncated_between(
                    connection, relation, since, before
                ):
                    return None
                if reads.writes_between(connection, relation, since, before):
                    return None
    return found


def as_it_is(operands: Operands) -> Rows:
    """A view of which nothing changed, with the reserve of its rows if it has one."""
    is_first = operands.shape is not None and operands.shape.first is not None
    return replace(unchanged(operands.view), reserve=kept_reserve(operands) if is_first else None)


def keep(operands: Operands, made: Reserve) -> None:
    """Keep the reserve of the view's rows as the epoch left them."""
    now = operands.inputs.versions()
    versions = {relation.id: now[name] for name, relation in operands.inputs.relations.items()}
    size = made.rows.nbytes + made.beyond.nbytes
    operands.context.storage.store.reserves.put(_name(operands), replace(made, versions=versions), size)


def _name(operands: Operands) -> Hashable:
    return operands.view.relation.id, operands.view.kept


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRead:
    """The view's rows, and the reserve behind them unless the order leaves open which rows are the first."""

    rows: pa.Table
    reserve: Reserve | None


def first_anew(operands: Operands) -> FirstRead | None:
    """The view's rows, computed together with a reserve; `None` if the query without its limit does not tell them."""
    first = None if operands.shape is None else operands.shape.first
    if first is None or rows_wanted(first) > ROWS_MAX or not is_ordered(operands, first):
        return None
    wanted = rows_wanted(first)
    rows = without_limit(operands).evaluation.first(first.order, wanted)
    beyond = rows.slice(wanted - 1)
    cursor = operands.context.duck()
    try:
        made = reserve(cursor, first, rows.slice(0, wanted - 1), beyond)
    finally:
        cursor.close()
    return FirstRead(rows=rows.slice(first.offset, first.count), reserve=made if made.unfit is None else None)


def is_ordered(operands: Operands, first: OrderedLimit) -> bool:
    """Whether the driver orders the values as Spark does."""
    kinds = [operands.view.columns[one.place].type for one in first.order]
    return all(kind in _ORDERED or kind.startswith("decimal") for kind in kinds)
