"""Rows that a statement's condition fixes by values of the key or of an index's columns, found without Spark.

Of the conditions that AND joins, those that compare a column with values (`=`, `IN`) say where rows can be: their
values are looked up in the relation, or in an index and then in the relation. What else must hold is not looked at
here. So the rows found may be more than are meant, and never fewer.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ebla.model.relation import Relation
from ebla.model.snapshot import Snapshot
from ebla.predicates import values as v
from ebla.predicates.access import AccessPath, base_path
from ebla.predicates.conditions import Equals, Filter, OneOf, Request
from ebla.query.paths import path_of
from ebla.query.plan import lacks
from ebla.storage.rows import TooLarge
from ebla.tables.level0 import on_driver
from ebla.tables.read_access import ReadAccess
from ebla.tables.transaction import OpenTransaction
from ebla.tables.value_lookup import rows_by

VALUES_MAX = 1_000
"""More combinations of values than this are for Spark."""
ROWS_MAX = 10_000
"""A condition that more rows fulfil than this fixes too little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Where the rows of a condition can be."""

    path: AccessPath
    columns: tuple[str, ...]
    """Leading columns of the path's key, as its own relation names them."""
    values: pa.Table
    """Every combination of their values: `c0`, `c1`, …"""


def points(transaction: OpenTransaction, filters: Sequence[Filter]) -> Points | None:
    """The path that these conditions fix most of: the key wholly, an index, or a part of the key."""
    relation = transaction.relation
    request = Request(relation=relation, where=tuple(filters))
    paths = [base_path(relation)] if not relation.keyless else []
    paths += [path_of(index) for index in transaction.upkeep.indexes if index.readable]
    found = [_fixed(path, request) for path in paths if lacks(path, request) is None]
    best = [one for one in found if one is not None]
    return max(best, key=lambda one: (_is_whole(one), len(one.columns)), default=None)


def _is_whole(one: Points) -> bool:
    return one.path.is_base and len(one.columns) == len(one.path.key)


def _fixed(path: AccessPath, request: Request) -> Points | None:
    by_path = {column.physical: column for column in path.relation.columns}
    choices: list[tuple[str, str, list[Any]]] = []
    combinations = 1
    for column in path.key:
        kind = by_path[column.path].type
        given = [
            _values(f) for f in request.where if f.column.physical == column.base and isinstance(f.condition, _FIXING)
        ]
        if not given or kind in ("float", "double"):  # equal to the engines is not equal bit by bit
            break
        best = min(given, key=len)
        if combinations * len(best) > VALUES_MAX:
            break
        combinations *= len(best)
        choices.append((by_path[column.path].name, kind, best))
    if not choices:
        return None
    rows = list(itertools.product(*(values for _, _, values in choices)))
    arrays = [v.array([row[i] for row in rows], kind) for i, (_, kind, _) in enumerate(choices)]
    return Points(
        path=path,
        columns=tuple(name for name, _, _ in choices),
        values=pa.table(arrays, names=[f"c{i}" for i in range(len(arrays))]),
    )


_FIXING = (Equals, OneOf)


def _values(f: Filter) -> list[Any]:
    return [f.condition.value] if isinstance(f.condition, Equals) else list(f.condition.values)  # type: ignore[union-attr]


def of_keys(relation: Relation, keys: pa.Table) -> Points:
    """Where the rows of whole keys are; `keys` has the key's columns under their names."""
    names = tuple(column.name for column in relation.key)
    values = keys.select(list(names)).rename_columns([f"c{i}" for i in range(len(names))])
    return Points(path=base_path(relation), columns=names, values=values)


def rows_at(transaction: OpenTransaction, there: Points) -> pa.Table | None:
    """Whole rows, under the names of all columns; `None` if they are too many, or only Spark reads their files."""
    context, base = transaction.context, transaction.relation
    names = [column.name for column in base.columns]
    stored = transaction.snapshot_of(base)
    try:
        if there.path.is_base:
            return _looked_up(context, stored, there.columns, there.values, names)
        own = {column.physical: column.name for column in there.path.relation.columns}
        key = [own[there.path.columns[column.physical]] for column in base.key]
        index = transaction.snapshot_of(there.path.relation)
        keys = _looked_up(context, index, there.columns, there.values, key)
        if keys is None:
            return None
        numbered = keys.rename_columns([f"c{i}" for i in range(len(key))])
        return _looked_up(context, stored, [column.name for column in base.key], numbered, names)
    except TooLarge:
        return None


def _looked_up(
    context: ReadAccess, snapshot: Snapshot, by: Sequence[str], values: pa.Table, names: Sequence[str]
) -> pa.Table | None:
    if not on_driver(context.settings, snapshot):
        return None
    return rows_by(context, snapshot, by, values, names, most=ROWS_MAX)
