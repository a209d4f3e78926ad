"""First rows in an order, kept with a reserve, equal the query recomputed, for random queries, orders and changes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from ebla.algebra.nodes import NotUnderstood, OrderedLimit, Shape
from ebla.algebra.plan import Difference, FirstRows, FullRefresh, IncrementalPlan, plan
from ebla.algebra.shape import shape
from ebla.sql.items import unordered
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.storage import reserve as reserves
from ebla.storage.reserve import Reserve, comes_before, reserve
from ebla.storage.rows import TooLarge, difference, matching
from ebla.values import types
from ebla.views.epoch.narrow import bound, sides
from support.duck import DuckEngine, State
from support.view_queries import KEYS, TABLES, Sql, queries
from support.view_states import states

EXAMPLES = int(os.environ.get("EBLA_EXAMPLES", "200"))

PLAIN = [
    Sql(text, (("o1", "bigint"), ("o2", "bigint")))
    for text in (
        "SELECT t1.id AS o1, t1.x AS o2 FROM a AS t1",
        "SELECT t1.x + 1 AS o1, t1.y AS o2 FROM a AS t1",
        "SELECT t1.x AS o1, count(t1.y) AS o2 FROM a AS t1 GROUP BY t1.x",
        "SELECT t1.id AS o1, t2.y AS o2 FROM a AS t1 JOIN b AS t2 ON t1.x = t2.x",
    )
]
"""Queries of several rows."""


@st.composite
def first_rows(draw: st.DrawFn) -> tuple[Sql, str]:
    """A query, and the same with an order and a limit."""
    sql = draw(st.one_of(st.sampled_from(PLAIN), queries(depth=1)))
    places = [i for i, (_, kind) in enumerate(sql.columns) if kind != "double"]
    if not places:
        return sql, sql.text
    order = []
    for place in draw(st.lists(st.sampled_from(places), min_size=1, max_size=3, unique=True)):
        name = draw(st.sampled_from([sql.columns[place][0], str(place + 1)]))
        order.append(f"{name} {draw(st.sampled_from(['', 'ASC', 'DESC', 'DESC NULLS FIRST', 'ASC NULLS LAST']))}")
    offset = draw(st.sampled_from(["", "", " OFFSET 1", " OFFSET 2"]))
    return sql, f"{sql.text} ORDER BY {', '.join(order)} LIMIT {draw(st.integers(0, 3))}{offset}"


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """A reserve that is used up soon."""
    before, reserves.ROWS_MIN = reserves.ROWS_MIN, 0
    yield
    reserves.ROWS_MIN = before


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(written=first_rows(), both=states())
def test_first_rows_are_as_recomputed(written: tuple[Sql, str], both: tuple[State, State]) -> None:
    sql, text = written
    old, new = both
    note(text)
    query = parse(text)
    assert isinstance(query, Query)
    try:
        understood = shape(query, TABLES)
    except NotUnderstood as reason:
        event(f"not understood: {reason}")
        return
    first = understood.first
    if first is None:
        return
    rest = unordered(query)
    assert rest is not None
    assert rest.text.strip() == sql.text
    kept = _anew(DuckEngine(old, new), sql, first, old)
    for before, after in ((old, new), (new, old)):
        if kept.unfit is not None:
            event(f"unfit: {kept.unfit.split(' rows')[0]}")
            return
        engine = DuckEngine(before, after)
        assert _bag(kept.first_rows) == engine.evaluate(text, before)
        try:
            found = _followed(engine, understood, sql, kept)
        except TooLarge as reason:
            event(f"too large: {reason}")
            return
        if found is None:
            event("full refresh")
            return
        kept = found
        event(f"followed, {'all rows' if kept.beyond.num_rows == 0 else 'some rows'} kept")
    if kept.unfit is None:
        assert _bag(kept.first_rows) == DuckEngine(new, old).evaluate(text, old)


def _anew(engine: DuckEngine, sql: Sql, first: OrderedLimit, state: State) -> Reserve:
    every = _table(sql, engine.evaluate(sql.text, state))
    ordered = reserve(engine.connection.cursor(), first, every, every.slice(0, 0)).rows
    if ordered.num_rows < every.num_rows:  # the reserve has fewer rows: the order of the others does not matter
        ordered = pa.concat_tables([ordered, difference(every, ordered)[0]])
    wanted = first.end + 1  # so short that it ends before the last row of most results
    return reserve(engine.connection.cursor(), first, ordered.slice(0, wanted - 1), ordered.slice(wanted - 1, 1))


def _followed(engine: DuckEngine, understood: Shape, sql: Sql, kept: Reserve) -> Reserve | None:
    made = plan(understood, engine.changed_tables(), KEYS)
    if isinstance(made, FullRefresh):
        return None
    assert isinstance(made, FirstRows)
    event(type(made.rows).__name__)
    cursor = engine.connection.cursor()
    rows = _by_scope(engine, made.rows, sql, kept) if isinstance(made.rows, IncrementalPlan) else None
    if isinstance(made.rows, Difference):
        moved = [n for term in made.rows.terms for n in term.moved]
        came, went = Counter[tuple[object, ...]](), Counter[tuple[object, ...]]()
        for term in made.rows.terms:
            for side in sides(term, moved, engine, rows_max=1000):
                (came if side.sign > 0 else went).update(map(tuple, engine.evaluate_side(sql.text, side).fetchall()))
        gained, lost = difference(_table(sql, came), _table(sql, went))
        rows, missing = difference(pa.concat_tables([kept.rows, gained]), lost)
        assert not comes_before(cursor, kept.first, missing, kept.beyond)
    assert rows is not None
    return reserve(cursor, kept.first, rows, kept.beyond)


def _by_scope(engine: DuckEngine, made: IncrementalPlan, sql: Sql, kept: Reserve) -> pa.Table:
    bounds = bound(made, engine, rows_max=1000)
    if bounds.values.num_rows == 0:
        return kept.rows
    cursor = engine.connection.cursor()
    fresh = _table(sql, engine.evaluate(sql.text, engine.new, bounds.leaves))
    new = matching(cursor, fresh, bounds.scope, bounds.values)
    return pa.concat_tables([matching(cursor, kept.rows, bounds.scope, bounds.values, negated=True), new])


def _table(sql: Sql, rows: Counter[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows.elements(), strict=True)) or [()] * len(sql.columns)
    kinds = [(name, types.to_arrow(kind)) for name, kind in sql.columns]
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(columns, kinds, strict=True)]
    return pa.table(arrays, schema=pa.schema(kinds))


def _bag(rows: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*[column.to_pylist() for column in rows.columns], strict=True))
