"""States of the tables that random views read, before and after random changes; on DuckDB and in a warehouse."""

from __future__ import annotations

import decimal
import math
from collections import Counter
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

import ebla
from ebla.algebra.merge import Sketch, sketch
from ebla.algebra.shape import shape
from ebla.sql.parse import parse
from ebla.sql.query import Query
from support.duck import Row, State
from support.spellings import PLAIN, Naming
from support.view_queries import KEYS, ROWS, TABLES, Sql


def key_of(table: str, row: Row) -> tuple[object, ...]:
    return tuple(row[c] for c in KEYS[table])


@st.composite
def states(draw: st.DrawFn) -> tuple[State, State]:
    """A state of the tables, and the same after some inserts, updates and deletes."""
    old: State = {}
    for table in TABLES:
        rows = draw(st.lists(ROWS[table], max_size=6))
        old[table] = {key_of(table, r): r for r in rows}
    new = {table: dict(rows) for table, rows in old.items()}
    changed = draw(st.lists(st.sampled_from(sorted(TABLES)), min_size=1, max_size=3, unique=True))
    for table in changed:
        if draw(st.integers(0, 9)) == 9:
            new[table] = {}
        for row in draw(st.lists(ROWS[table], max_size=2)):
            new[table][key_of(table, row)] = row
        for key in draw(st.lists(st.sampled_from(sorted(old[table], key=repr) or [()]), max_size=2)):
            new[table].pop(key, None)
    return old, new


@lru_cache(maxsize=1024)
def plain_sketch(sql: Sql) -> Sketch | None:
    """The sketch of a plain query, for DuckDB to run."""
    query = parse(sql.text)
    assert isinstance(query, Query)
    return sketch(query, shape(query, TABLES), [n for n, _ in sql.columns])


def plain(value: Any) -> Any:
    """Spark and DuckDB give some numbers different types."""
    if isinstance(value, decimal.Decimal):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, float) and not math.isnan(value):
        return round(value, 9)
    return value


def bag(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(plain(v) for v in row) for row in rows)


def put(db: ebla.Database, old: State, new: State, names: Naming = PLAIN) -> None:
    for table, stored in names.tables.items():
        upserts = [names.stored_row(table, row) for key, row in new[table].items() if old[table].get(key) != row]
        keys = [dict(zip(KEYS[table], key, strict=True)) for key in old[table] if key not in new[table]]
        gone = [names.stored_row(table, key) for key in keys]
        if upserts:
            db.table(stored).upsert(upserts)
        if gone:
            db.table(stored).delete(gone)
