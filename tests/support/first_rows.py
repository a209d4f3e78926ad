"""Requests for first rows, drawn at random, and their answers by a plain scan: DuckDB's, over the rows of a model."""

from __future__ import annotations

import atexit
import datetime as dt
import functools
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

import ebla
from ebla.predicates import conditions as c
from ebla.query import plan as planning
from support.edges import END_OF_TIME_US, raw

Row = dict[str, Any]
KEY = ("a", "b")
COLUMNS = {
    "a": "STRING",
    "b": "INT",
    "s": "STRING",
    "n": "INT",
    "f": "DOUBLE",
    "d": "DECIMAL(6,2)",
    "day": "DATE",
    "t": "TIMESTAMP",
}
ARROW = pa.schema(
    [
        ("a", pa.string()),
        ("b", pa.int32()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("d", pa.decimal128(6, 2)),
        ("day", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
    ]
)
POOLS: dict[str, list[Any]] = {
    "a": ["", "a", "ab", "é", "🙂"],
    "b": [0, 1, 2, 3, 4],
    "s": [None, "", "A", "a", "a ", "a\x00", "aa", "ab", "b\uffff", "😀"],
    "n": [None, -1, 0, 1, 2, 2**31 - 1, -(2**31)],
    "f": [None, -1.5, 0.0, -0.0, 2.5, math.inf, -math.inf, math.nan, 5e-324],
    "d": [None, Decimal("-1.00"), Decimal("0.50"), Decimal("12.25"), Decimal("9999.99"), Decimal("-9999.99")],
    "day": [None, dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date.max, 2**31 - 1, 1 - 2**31, -(2**31)],
    "t": [
        *(None, dt.datetime(1969, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, 12, 0, 0, 1, dt.UTC)),
        *(END_OF_TIME_US, 2**63 - 1, 1 - 2**63, -(2**63)),
    ],
}
"""What columns hold. Days and microseconds are numbers where Python's years end."""
ROWS = st.fixed_dictionaries({name: st.sampled_from(pool) for name, pool in POOLS.items()})
KEYS = st.fixed_dictionaries({name: st.sampled_from(POOLS[name]) for name in KEY})


@st.composite
def conditions(draw: st.DrawFn, name: str) -> object:
    whole = name in ("b", "n")
    values = st.sampled_from([v for v in POOLS[name] if v is not None and (whole or not isinstance(v, int))])
    kinds = ["equals", "between", "one_of", "is_null", "not_null", *(["prefix"] if name in "as" else [])]
    match draw(st.sampled_from(kinds)):
        case "equals":
            return draw(values)
        case "between":
            low, high = draw(st.none() | values), draw(st.none() | values)
            return ebla.not_null() if low is None and high is None else ebla.between(low, high)
        case "one_of":
            return ebla.one_of(*draw(st.lists(values, min_size=1, max_size=3)))
        case "is_null":
            return ebla.is_null()
        case "not_null":
            return ebla.not_null()
        case _:
            return ebla.prefix(draw(st.sampled_from(["", "a", "aa", "b", "😀", "z"])))


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    filtered = draw(st.lists(st.sampled_from(list(COLUMNS)), max_size=3, unique=True))
    ordered = draw(st.lists(st.sampled_from(list(COLUMNS)), max_size=3, unique=True))
    return {
        "where": {name: draw(conditions(name)) for name in filtered},
        "order_by": [draw(st.sampled_from(["", "-"])) + name for name in ordered],
        "limit": draw(st.sampled_from([1, 2, 3, 7, 100])),
        "columns": draw(st.none() | st.lists(st.sampled_from(list(COLUMNS)), min_size=1, unique=True)),
    }


STEPS = st.one_of(
    st.tuples(st.just("upsert"), st.lists(ROWS, min_size=1, max_size=12)),
    st.tuples(st.just("delete"), st.lists(KEYS, min_size=1, max_size=4)),
    st.tuples(st.just("fold"), st.integers(1, 4)),
    st.tuples(st.just("fold one"), st.integers(0, 3)),
)


@functools.cache
def _duck() -> duckdb.DuckDBPyConnection:
    """One for all requests: DuckDB takes longer to start than to scan these rows."""
    duck = duckdb.connect(config={"threads": 1})
    duck.execute("SET GLOBAL TimeZone = 'UTC'")
    return duck


atexit.register(_duck.cache_clear)  # DuckDB complains of connections that outlive it


def expected(rows: Mapping[tuple[Any, ...], Row], request: dict[str, Any]) -> list[tuple[Any, ...]]:
    """All rows that the request's pages should show, by a plain scan."""
    table = pa.Table.from_pylist(list(rows.values()), schema=ARROW)
    parameters: list[Any] = []
    where = [_condition(name, wanted, parameters) for name, wanted in request["where"].items()]
    order = [name.removeprefix("-") for name in request["order_by"]]
    sort = [f"{n.removeprefix('-')} {'DESC NULLS LAST' if n[0] == '-' else 'NULLS FIRST'}" for n in request["order_by"]]
    sort += [name for name in KEY if name not in order]
    shown = request["columns"] or list(COLUMNS)
    text = f"SELECT {', '.join(shown)} FROM model"
    text += f" WHERE {' AND '.join(where)}" if where else ""
    with _duck().cursor() as duck:
        duck.register("model", table)
        found = duck.sql(f"{text} ORDER BY {', '.join(sort)}", params=parameters).to_arrow_table()
    return values_of(found.cast(pa.schema([ARROW.field(name) for name in shown])))


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def values_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*[raw(column) for column in table.columns], strict=True))


def _condition(name: str, wanted: Any, parameters: list[Any]) -> str:
    def value(given: Any) -> str:
        parameters.append(given)
        return f"CAST(? AS {'TIMESTAMPTZ' if COLUMNS[name] == 'TIMESTAMP' else COLUMNS[name]})"

    match wanted:
        case c.IsNull():
            return f"{name} IS NULL"
        case c.NotNull():
            return f"{name} IS NOT NULL"
        case c.Prefix(text):
            parameters.append(text)
            return f"starts_with({name}, ?)"
        case c.OneOf(values):
            return f"{name} IN ({', '.join(value(one) for one in values)})"
        case c.Range(low, high):
            parts = [f"{name} {sign} {value(v)}" for sign, v in ((">=", low), ("<=", high)) if v is not None]
            return " AND ".join(parts)
        case _:
            return f"{name} = {value(wanted)}"


@contextmanager
def costs(collected: int, scan_us: float, fetch_us: float = planning.US_PER_FETCH) -> Iterator[None]:
    """Costs that make the planner take every way."""
    before = planning.COLLECTED_MAX, planning.EXAMINED_MAX, planning.US_PER_SCAN, planning.US_PER_FETCH
    planning.COLLECTED_MAX, planning.EXAMINED_MAX, planning.US_PER_SCAN = collected, collected * 3, scan_us
    planning.US_PER_FETCH = fetch_us
    try:
        yield
    finally:
        planning.COLLECTED_MAX, planning.EXAMINED_MAX, planning.US_PER_SCAN, planning.US_PER_FETCH = before
