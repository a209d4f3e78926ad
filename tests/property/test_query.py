"""Reads of first rows against a plain scan: whatever was written, compacted and asked, both give the same rows.

The scan is DuckDB's over the rows of a model, which knows nothing of runs, paths or levels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

import ebla
from ebla.predicates import conditions as c
from ebla.query.answer import Answer
from support.first_rows import ARROW, COLUMNS, ROWS, STEPS, Row, costs, expected, key_of, requests, values_of
from support.folding import allow_null_keys, fold
from support.warehouse import connect

pytestmark = pytest.mark.slow

INDEX = ("n", "s", "a", "b")
EXAMPLES = int(os.environ.get("EBLA_EXAMPLES", "25"))


@dataclass
class World:
    """A table, an index kept beside it as another table, and what both should hold."""

    db: ebla.Database
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    down: tuple[str, ...] = ()

    def upsert(self, rows: list[Row]) -> None:
        entries_gone = [self._entry(self.rows[key_of(row)]) for row in rows if key_of(row) in self.rows]
        for row in rows:
            self.rows[key_of(row)] = row
        self.db.table("t").upsert(pa.Table.from_pylist(rows, schema=ARROW))
        self._index(entries_gone, [self.rows[key_of(row)] for row in rows])

    def delete(self, keys: list[Row]) -> None:
        gone = [self._entry(self.rows.pop(key_of(key))) for key in keys if key_of(key) in self.rows]
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


@contextmanager
def world(down: tuple[str, ...] = (), rows_max: int = 200_000, *, has_room: bool = True) -> Iterator[World]:
    """`has_room`: whether anything read is kept in memory; if not, rows are picked one by one."""
    given: dict[str, Any] = {"auto_refresh": False, "level0_rows_max": rows_max}
    if not has_room:
        given["read_cache_bytes"] = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        TemporaryDirectory() as folder,
        connect(Path(folder) / "w", **given) as db,
    ):
        patch.setattr("ebla.query.picking.SPARSE_ROWS", 0)
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
    rows_max=st.sampled_from([0, 8, 200_000]),
    has_room=st.booleans(),
)
def test_answers_equal_a_plain_scan(down, steps, asked, collected, scan_us, rows_max, has_room):
    with world(down, rows_max, has_room=has_room) as one, costs(collected, scan_us):
        for what, argument in steps:
            one.step(what, argument)
        for request in asked:
            wanted = expected(one.rows, request)
            for indexed in (False, True):
                answer = one.ask(indexed=indexed, **request)
                event("scan" if answer.plan.scan else f"seek {answer.plan.fitted.path.name}")
                assert values_of(answer.table) == wanted[: request["limit"]], (request, answer.plan)
                assert (answer.next is not None) == (len(wanted) > request["limit"])


@COMMON
@given(down=WORLDS, steps=st.lists(STEPS, min_size=2, max_size=6), request=requests(), indexed=st.booleans(),
       scan_us=st.sampled_from([0.0, 1e9]))  # fmt: skip
def test_pages_join_to_the_whole(down, steps, request, indexed, scan_us):
    with world(down) as one, costs(20_000, scan_us):
        for what, argument in steps:
            one.step(what, argument)
        wanted = expected(one.rows, request)
        shown: list[tuple[Any, ...]] = []
        after: str | None = None
        while True:
            answer = one.ask(indexed=indexed, after=after, **request)
            shown += values_of(answer.table)
            assert shown == wanted[: len(shown)], answer.plan
            after = answer.next
            if after is None:
                break
        assert shown == wanted


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
            shown += values_of(answer.table)
            after = answer.next
            if after is None:
                break
            step = next(turn, None)
            if step is not None:
                one.step(*step)
                stays = {key: row for key, row in stays.items() if one.rows.get(key) == row}
        order = list(COLUMNS)
        stayed = [
            row for row in expected(one.rows, request) if stays.get((row[order.index("a")], row[order.index("b")]))
        ]
        for row in stayed:
            assert shown.count(row) == 1
