"""A view in the middle of a refresh equals its query, each part at its own dictionaries, for random queries.

Epochs and chunks are executed on DuckDB as `ebla.views.epoch.ranges` does: for each part the affected values of the cut
that lie in it, the query on narrowed inputs, and the exchange of their rows. Any columns of the view's key may be the
cut.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from ebla.algebra.keys import view_key
from ebla.algebra.nodes import NotUnderstood, Shape
from ebla.algebra.plan import of_scope
from ebla.algebra.shape import shape
from ebla.relations.cut import by_streams
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.storage.rows import TooLarge
from ebla.views.epoch.narrow import affected, narrowed_to
from support.duck import DuckEngine, State
from support.view_queries import KEYS, TABLES, Sql, queries
from support.view_states import states

Bag = Counter[tuple[object, ...]]
Inside = Callable[[tuple[object, ...]], bool]


def token(values: tuple[object, ...]) -> int:
    return zlib.crc32(repr(values).encode()) % 100


class View:
    """The rows of a view, and what moves a part of them."""

    def __init__(self, sql: Sql, understood: Shape, cut: Sequence[str]) -> None:
        self._sql = sql
        self._shape = understood
        self._cut = tuple(cut)
        self._places = [[n for n, _ in sql.columns].index(c) for c in cut]
        self.rows: Bag = Counter()

    def cut_of(self, row: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(row[p] for p in self._places)

    def query(self, state: State, inside: Inside) -> Bag:
        found = DuckEngine(state, state).evaluate(self._sql.text, state)
        return Counter({row: n for row, n in found.items() if inside(self.cut_of(row))})

    def move(self, old: State, new: State, inside: Inside) -> None:
        """Bring a part from one state of the inputs to another."""
        engine = DuckEngine(old, new)
        plan = of_scope(self._shape, engine.changed_tables(), self._cut)
        if plan is None:
            raise TooLarge("not followed")
        found = affected(plan, engine, rows_max=1000)
        keep = [inside(values) for values in zip(*[c.to_pylist() for c in found.columns], strict=True)]
        values = found.filter(pa.array(keep, pa.bool_()))
        if values.num_rows == 0:
            return
        chosen = set(zip(*[c.to_pylist() for c in values.columns], strict=True))
        bounds = narrowed_to(plan, values, engine, rows_max=1000)
        fresh = engine.evaluate(self._sql.text, new, bounds.leaves)
        self.rows = Counter({row: n for row, n in self.rows.items() if self.cut_of(row) not in chosen})
        self.rows.update({row: n for row, n in fresh.items() if self.cut_of(row) in chosen})


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), sql=queries(), both=states())
def test_every_part_of_a_view_is_exact_at_its_own_dictionaries(data: Any, sql: Sql, both: tuple[State, State]) -> None:
    note(sql.text)
    query = parse(sql.text)
    assert isinstance(query, Query)
    try:
        understood = shape(query, TABLES)
    except NotUnderstood:
        return
    key = view_key(understood, KEYS)
    if not key:
        event("a bag")
        return
    batch = data.draw(st.sets(st.sampled_from(sorted(TABLES)), min_size=1, max_size=3), "dictionaries")
    chosen = by_streams(understood, key, batch)
    event("cut by streams" if isinstance(chosen, tuple) else "not cut")
    cut = chosen if isinstance(chosen, tuple) else data.draw(st.sampled_from([(one,) for one in key] + [key]), "cut")
    first, second = sorted(data.draw(st.tuples(st.integers(0, 100), st.integers(0, 100)), "positions"))

    def at(streams: State, dictionaries: State) -> State:
        return {t: (dictionaries if t in batch else streams)[t] for t in TABLES}

    def between(low: int, high: int) -> Inside:
        return lambda values: low <= token(values) < high

    old, new = both
    view = View(sql, understood, cut)
    view.rows = view.query(at(old, new), between(0, first)) + view.query(at(old, old), between(first, 100))
    try:
        # An epoch: streams move, each part keeps its dictionaries.
        view.move(at(old, new), at(new, new), between(0, first))
        view.move(at(old, old), at(new, old), between(first, 100))
        assert view.rows == view.query(new, between(0, first)) + view.query(at(new, old), between(first, 100))
        # A chunk: dictionaries move between two positions.
        view.move(at(new, old), new, between(first, second))
        assert view.rows == view.query(new, between(0, second)) + view.query(at(new, old), between(second, 100))
        # A flush: each part goes on from where it stands.
        view.move(at(new, old), new, between(second, 100))
        assert view.rows == view.query(new, between(0, 100))
    except TooLarge:
        event("not followed")
