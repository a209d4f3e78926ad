"""Reads of first rows against a plain scan: whatever was written, compacted and asked, both give the same rows.

The scan is DuckDB's over the rows of a model, which knows nothing of runs, paths or levels.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

import ebla
from ebla.query import conditions as c
from ebla.query import plan as planning
from ebla.query.execute import Answer
from support.folding import allow_null_keys, fold
from support.warehouse import connect

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("EBLA_EXAMPLES", "25"))

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
INDEX = ("n", "s", "a", "b")
POOLS: dict[str, list[Any]] = {
    "a": ["", "a", "ab", "é", "🙂"],
    "b": [0, 1, 2, 3, 4],
    "s": [None, "", "A", "a", "aa", "ab", "b\uffff", "😀"],
    "n": [None, -1, 0, 1, 2],
    "f": [None, -1.5, 0.0, 2.5, math.inf, math.nan],
    "d": [None, Decimal("-1.00"), Decimal("0.50"), Decimal("12.25")],
    "day": [None, dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    "t": [None, dt.datetime(1969, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, 12, 0, 0, 1, dt.UTC)],
}
ROWS = st.fixed_dictionaries({name: st.sampled_from(pool) for name, pool in POOLS.items()})
KEYS = st.fixed_dictionaries({name: st.sampled_from(POOLS[name]) for name in KEY})


@st.composite
def conditions(draw: st.DrawFn, name: str) -> object:
    values = st.sampled_from([value for value in POOLS[name] if value is not None])
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


@dataclass
class World:
    """A table, an index kept beside it as another table, and what both should hold."""

    db: ebla.Database
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    down: tuple[str, ...] = ()

    def upsert(self, rows: list[Row]) -> None:
        entries_gone = [self._entry(self.rows[_key(row)]) for row in rows if _key(row) in self.rows]
        for row in rows:
            self.rows[_key(row)] = row
        self.db.table("t").upsert(pa.Table.from_pylist(rows, schema=ARROW))
        self._index(entries_gone, [self.rows[_key(row)] for row in rows])

    def delete(self, keys: list[Row]) -> None:
        gone = [self._entry(self.rows.pop(_key(key))) for key in keys if _key(key) in self.rows]
        self.db.table("t").delete(keys)
        self._index(gone, [])

    def _entry(self, row: Row) -> Row:
        return {name: row[name] for name in INDEX}

    def _index(self, gone: list[Row], new: list[Row]) -> None:
        if gone:
            self.db.table("i").delete(gone)
        if new:
            self.db.table("i").upsert([self._entry(row) for row in new])

    def fold(self, row_group_rows: int, tablets: list[int] | None = None) -> None:
        for name, down in (("t", ()), ("i", self.down)):
            fold(self.db, name, row_group_rows=row_group_rows, descending=down, tablets=tablets)

    def step(self, what: str, argument: Any) -> None:
        match what:
            case "upsert":
                self.upsert(argument)
            case "delete":
                self.delete(argument)
            case "fold":
                self.fold(argument)
            case _:
                self.fold(2, [argument])

    def ask(self, *, indexed: bool, after: object = None, **request: Any) -> Answer:
        return self.db.reader.query(
            "t",
            lambda relation: c.request(relation, after=after, **request),
            also=("i",) if indexed else (),
            down=self.down if indexed else (),
        )

    def expected(self, request: dict[str, Any]) -> list[tuple[Any, ...]]:
        """All rows that the request's pages should show, by a plain scan."""
        table = pa.Table.from_pylist(list(self.rows.values()), schema=ARROW)
        parameters: list[Any] = []
        where = [_condition(name, wanted, parameters) for name, wanted in request["where"].items()]
        order = [name.removeprefix("-") for name in request["order_by"]]
        sort = [
            f"{n.removeprefix('-')} {'DESC NULLS LAST' if n[0] == '-' else 'NULLS FIRST'}" for n in request["order_by"]
        ]
        sort += [name for name in KEY if name not in order]
        shown = request["columns"] or list(COLUMNS)
        text = f"SELECT {', '.join(shown)} FROM model"
        text += f" WHERE {' AND '.join(where)}" if where else ""
        with duckdb.connect() as duck:
            duck.execute("SET TimeZone = 'UTC'")
            duck.register("model", table)
            found = duck.sql(f"{text} ORDER BY {', '.join(sort)}", params=parameters).to_arrow_table()
        return _values(found.cast(pa.schema([ARROW.field(name) for name in shown])))


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def _values(table: pa.Table) -> list[tuple[Any, ...]]:
    lists = [["NaN" if value != value else value for value in column.to_pylist()] for column in table.columns]
    return list(zip(*lists, strict=True))


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
def world(down: tuple[str, ...] = ()) -> Iterator[World]:
    with TemporaryDirectory() as folder, connect(Path(folder) / "w", auto_refresh=False) as db:
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        db.sql(f"CREATE TABLE t ({columns}, PRIMARY KEY (a, b))")
        entries = ", ".join(f"{name} {COLUMNS[name]}" for name in INDEX)
        db.sql(f"CREATE TABLE i ({entries}, PRIMARY KEY ({', '.join(INDEX)}))")
        allow_null_keys(db, "i")
        yield World(db, down=down)


WORLDS = st.sampled_from([(), ("s",), ("n",), ("n", "s"), ("n", "s", "a", "b")])
COMMON = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # an example takes a second: it is not made smaller
)


@COMMON
@given(
    down=WORLDS,
    steps=st.lists(STEPS, min_size=1, max_size=8),
    asked=st.lists(requests(), min_size=4, max_size=10),
    collected=st.sampled_from([2, 20_000]),
    scan_us=st.sampled_from([0.0, 1e9, 4000.0]),
)
def test_answers_equal_a_plain_scan(down, steps, asked, collected, scan_us):
    with world(down) as one, _patched(collected, scan_us):
        for what, argument in steps:
            one.step(what, argument)
        for request in asked:
            expected = one.expected(request)
            for indexed in (False, True):
                answer = one.ask(indexed=indexed, **request)
                event("scan" if answer.plan.scan else f"seek {answer.plan.fitted.path.name}")
                assert _values(answer.table) == expected[: request["limit"]], (request, answer.plan)
                assert (answer.next is not None) == (len(expected) > request["limit"])


@COMMON
@given(down=WORLDS, steps=st.lists(STEPS, min_size=2, max_size=6), request=requests(), indexed=st.booleans(),
       scan_us=st.sampled_from([0.0, 1e9]))  # fmt: skip
def test_pages_join_to_the_whole(down, steps, request, indexed, scan_us):
    with world(down) as one, _patched(20_000, scan_us):
        for what, argument in steps:
            one.step(what, argument)
        expected = one.expected(request)
        shown: list[tuple[Any, ...]] = []
        after: str | None = None
        while True:
            answer = one.ask(indexed=indexed, after=after, **request)
            shown += _values(answer.table)
            assert shown == expected[: len(shown)], answer.plan
            after = answer.next
            if after is None:
                break
        assert shown == expected


@COMMON
@given(
    rows=st.lists(ROWS, min_size=4, max_size=20),
    writes=st.lists(STEPS, min_size=4, max_size=8),
    request=requests(),
    indexed=st.booleans(),
)
def test_writers_between_pages_cost_no_row_that_stays_and_repeat_none(rows, writes, request, indexed):
    request = {**request, "limit": min(request["limit"], 3), "columns": None}
    with world() as one:
        one.upsert(rows)
        stays = dict(one.rows)
        shown: list[tuple[Any, ...]] = []
        after: str | None = None
        turn = iter(writes)
        while True:
            answer = one.ask(indexed=indexed, after=after, **request)
            shown += _values(answer.table)
            after = answer.next
            if after is None:
                break
            step = next(turn, None)
            if step is not None:
                one.step(*step)
                stays = {key: row for key, row in stays.items() if one.rows.get(key) == row}
        order = list(COLUMNS)
        stayed = [row for row in one.expected(request) if stays.get((row[order.index("a")], row[order.index("b")]))]
        for row in stayed:
            assert shown.count(row) == 1


@contextmanager
def _patched(collected: int, scan_us: float) -> Iterator[None]:
    """Costs that make the planner take every way."""
    before = planning.COLLECTED_MAX, planning.EXAMINED_MAX, planning.US_PER_SCAN
    planning.COLLECTED_MAX, planning.EXAMINED_MAX, planning.US_PER_SCAN = collected, collected * 3, scan_us
    try:
        yield
    finally:
        planning.COLLECTED_MAX, planning.EXAMINED_MAX, planning.US_PER_SCAN = before
