"""The view after an incremental epoch equals its query recomputed, for random queries and random changes.

The plan is executed on DuckDB: affected values, narrowed inputs, the query on them, and the exchange of the rows in
scope. Several inputs change at once, keys move, rows repeat, NULLs are everywhere.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, event, given, note, settings
from hypothesis import strategies as st

from ebla.algebra.merge import Call, Role, merge, sketch
from ebla.algebra.merge import settled as settled_roles
from ebla.algebra.nodes import NotUnderstood, Shape
from ebla.algebra.plan import (
    Difference,
    Followed,
    FullRefresh,
    IncrementalPlan,
    Merge,
    TailPlan,
    Term,
    plan,
    settled,
)
from ebla.algebra.shape import shape
from ebla.algebra.tails import Course
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.storage.positions import POSITION, Position, first_position, from_on, in_order, is_before
from ebla.storage.rows import TooLarge, distinct
from ebla.values import types
from ebla.views.epoch.continuation import carried_on, moved_back, tail_of
from ebla.views.epoch.key_changes import needs_keys_alone
from ebla.views.epoch.narrow import Side, affected, bound, narrowed_to, sides
from support.duck import DuckEngine, Row, State
from support.spellings import PLAIN, Naming, Spelled, naming, spelled
from support.view_queries import KEYS, TABLES, Sql, queries
from support.view_states import plain_sketch, states
from support.window_queries import moving_states, windowed

EXAMPLES = int(os.environ.get("EBLA_EXAMPLES", "700"))


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(sql=queries(), both=states(), seed=st.integers(0, 2**16))
def test_an_epoch_leaves_the_view_as_recomputed(sql: Sql, both: tuple[State, State], seed: int) -> None:
    names = naming(seed % 64)
    note(sql.text)
    check_plan(sql, spelled(sql, names, seed), names, *both)


CLOSED = [
    "SELECT a.id AS o1, (SELECT max(b.x) FROM b) AS o2 FROM a",
    "SELECT a.id AS o1, a.x AS o2 FROM a WHERE a.x >= (SELECT min(t.y) FROM a AS t WHERE t.x > 1)",
    "SELECT c.k1 AS o1, t.m AS o2 FROM c CROSS JOIN (SELECT max(b.x) AS m FROM b) AS t",
    "WITH m AS (SELECT min(x) AS m FROM b) SELECT a.id AS o1, m.m AS o2 FROM a, m",
    "WITH m AS (SELECT x FROM b) SELECT a.id AS o1, (SELECT max(m.x) FROM m) AS o2 FROM a",
    "SELECT a.x AS o1, count(*) AS o2 FROM a WHERE a.y < (SELECT max(b.x) FROM b) GROUP BY a.x",
    "SELECT a.id AS o1, b.x AS o2 FROM a JOIN b ON a.x = b.x WHERE EXISTS (SELECT max(c.x) FROM c)",
    "SELECT a.id AS o1, b.y AS o2 FROM a JOIN b ON a.x = b.x WHERE b.y <= (SELECT max(t.m) FROM (SELECT max(y) AS m "
    "FROM b GROUP BY x) AS t)",
]


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(text=st.sampled_from(CLOSED), both=states())
def test_a_subquery_that_gives_the_same_spares_the_view(text: str, both: tuple[State, State]) -> None:
    sql = Sql(text, (("o1", "bigint"), ("o2", "bigint")))
    check_plan(sql, Spelled(text, sql, sql.columns), PLAIN, *both)


NOT_IN = [
    "SELECT a.id AS o1, a.x AS o2 FROM a WHERE a.x NOT IN (SELECT b.x FROM b)",
    "SELECT a.id AS o1, a.x AS o2 FROM a WHERE a.x NOT IN (SELECT b.id FROM b)",
    "SELECT a.id AS o1, a.x AS o2 FROM a WHERE a.y > 1 OR a.x NOT IN (SELECT b.id FROM b)",
    "SELECT a.id AS o1, a.x AS o2 FROM a WHERE a.x NOT IN (SELECT b.x FROM b WHERE b.y = a.y)",
    "SELECT a.id AS o1, a.x AS o2 FROM a WHERE (a.x, a.y) NOT IN (SELECT b.x, b.y FROM b)",
    "SELECT a.x AS o1, max(a.y) AS o2 FROM a WHERE a.x NOT IN (SELECT b.id FROM b) GROUP BY a.x",
]


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(text=st.sampled_from(NOT_IN), both=states(), empty=st.sampled_from(["", "old", "new"]))
def test_a_row_with_null_is_not_in_an_empty_list_alone(text: str, both: tuple[State, State], empty: str) -> None:
    old, new = both
    (old if empty == "old" else new if empty == "new" else {})["b"] = {}
    sql = Sql(text, (("o1", "bigint"), ("o2", "bigint")))
    check_plan(sql, Spelled(text, sql, sql.columns), PLAIN, old, new)


def check_plan(sql: Sql, written: Spelled, names: Naming, old: State, new: State) -> None:
    """The view after an epoch by its plan, whichever it is."""
    engine = DuckEngine(old, new, names)
    note(written.text)
    query = parse(written.text)
    assert isinstance(query, Query)
    try:
        understood = shape(query, names.schema)
    except NotUnderstood as reason:
        event(f"not understood: {reason}")
        return
    shown = [n for n, _ in written.columns]
    assert [n for n, _ in understood.outputs] == [n.lower() for n in shown]
    understood = replace(understood, outputs=tuple((n, v) for n, (_, v) in zip(shown, understood.outputs, strict=True)))
    drawn, plain = sketch(query, understood, shown), plain_sketch(sql)
    assert (drawn is None) == (plain is None)
    roles = None if plain is None else settled_roles(plain.roles, engine.kinds(plain.query.text, len(shown), sql))
    made = plan(understood, engine.changed_tables(), names.keys, merges=roles is not None)
    event(type(made).__name__)
    note(repr(made))
    followed = spared(engine, sql, made) if isinstance(made, FullRefresh) else made
    try:
        match followed:
            case None:
                event("nothing is followed")
            case "unchanged":
                assert engine.evaluate(sql.text, old) == engine.evaluate(sql.text, new)
            case IncrementalPlan():
                check_incremental(engine, written, followed, old, new)
                told = [t for t in engine.changed_tables() if needs_keys_alone(followed, t, names.keys[t])]
                event(f"told by keys: {bool(told)}")
                check_incremental(KeysAlone(engine, told), written, followed, old, new)
            case TailPlan():
                check_tail(engine, written, followed, old, new)
            case Difference():
                change = difference(engine, sql.text, followed.terms)
                before = engine.evaluate(sql.text, old)
                before.update(change)
                assert +before == engine.evaluate(sql.text, new)
                assert not -before
            case Merge():
                assert plain is not None
                assert roles is not None
                check_merge(engine, plain.query.text, roles, followed, old, new)
    except TooLarge as reason:
        event(f"too wide: {reason}")


def spared(engine: DuckEngine, sql: Sql, made: FullRefresh) -> Followed | Literal["unchanged"] | None:
    """What is followed because the subqueries that every row reads give what they gave."""
    event(f"full refresh: {made.reason.split(' of ')[0]}")
    if made.unless is None:
        return None
    query = parse(sql.text)
    assert isinstance(query, Query)
    texts = {part.leaves: part.query.text for part in shape(query, TABLES).closed}
    for one in made.unless.subqueries:
        rows = [engine.evaluate(texts[one.leaves], state) for state in (engine.old, engine.new)]
        if rows[0] != rows[1] or rows[0].total() > 1:
            return None
    event("spared")
    return made.unless.rows or "unchanged"


TOLD = [
    "SELECT id, x FROM a WHERE y > 1",
    "SELECT a.id, b.s FROM a JOIN b ON a.x = b.id",
    "SELECT a.id, b.s FROM a LEFT JOIN b ON a.x = b.id",
    "SELECT c.k1, c.k2, a.s, b.y FROM c JOIN a ON c.k1 = a.id LEFT JOIN b ON a.x = b.id",
    "SELECT id FROM a WHERE x IN (SELECT id FROM b)",
    "SELECT id FROM a WHERE id NOT IN (SELECT x FROM b)",
    "SELECT k1, k2, x FROM c WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = c.x)",
]


@cache
def shaped(text: str) -> tuple[Query, Shape]:
    query = parse(text)
    assert isinstance(query, Query)
    return query, shape(query, TABLES)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(text=st.sampled_from(TOLD), both=states())
def test_keys_alone_tell_which_rows_a_change_touches(text: str, both: tuple[State, State]) -> None:
    old, new = both
    engine = DuckEngine(old, new)
    query, understood = shaped(text)
    moved = [t for t in engine.changed_tables() if t in {ref.name for ref in query.refs}]
    assume(moved)
    made = plan(understood, moved, KEYS)
    assert isinstance(made, IncrementalPlan)
    told = [t for t in moved if needs_keys_alone(made, t, KEYS[t])]
    assume(told)
    columns = tuple((name, "") for name, _ in understood.outputs)
    with contextlib.suppress(TooLarge):
        check_incremental(KeysAlone(engine, told), Spelled(text, Sql(text, columns), columns), made, old, new)


class KeysAlone(DuckEngine):
    """Of what changed in some tables it knows the keys, and takes one row that did not change for changed."""

    def __init__(self, engine: DuckEngine, told: Sequence[str]) -> None:
        super().__init__(engine.old, engine.new, engine.naming)
        self._whole = engine._whole
        self._told = told

    def changed(self, table: str) -> pa.Table:
        found = super().changed(table)
        if table not in self._told:
            return found
        name = self.naming.plain_tables[table]
        same = [row for key, row in self._new[name].items() if self._old[name].get(key) == row]
        return distinct(pa.concat_tables([found, self.stored(name, same[:1])]).select(list(self.naming.keys[table])))


def check_incremental(engine: DuckEngine, written: Spelled, made: IncrementalPlan, old: State, new: State) -> None:
    bounds = bound(made, engine, rows_max=1000)
    sql, places = written.plain, [[n for n, _ in written.columns].index(c) for c in bounds.scope]
    affected = set(zip(*[c.to_pylist() for c in bounds.values.columns], strict=True))

    def in_scope(row: tuple[object, ...]) -> bool:
        return tuple(row[p] for p in places) in affected

    fresh = engine.evaluate(sql.text, new, bounds.leaves)
    kept = Counter({row: n for row, n in engine.evaluate(sql.text, old).items() if not in_scope(row)})
    gained = Counter({row: n for row, n in fresh.items() if in_scope(row)})
    assert kept + gained == engine.evaluate(sql.text, new)


def check_tail(engine: DuckEngine, written: Spelled, plan: TailPlan, old: State, new: State) -> None:
    """What lies before the first changed position stays; the rest is as the query gives it, for all or for a part."""
    found = affected(plan, engine, rows_max=1000)
    text = written.plain.text
    before, after = engine.evaluate(text, old), engine.evaluate(text, new)
    if found.num_rows == 0:
        assert before == after
        return
    made = settled(plan, dict(written.columns), {"spark.sql.ansi.enabled": "true"})
    values = found.cast(pa.schema([("c0", types.to_arrow(dict(written.columns)[made.course.column]))]))
    cursor = engine.connection.cursor()
    rows = RowsAtHand(written, before, made.course)
    start = moved_back(rows, first_position(cursor, values, made.course), made.ahead)

    def behind(every: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
        return counted(from_on(cursor, arrow_rows(written, every), made.course, start))

    event(f"rows stay: {behind(before) != before}")
    assert before - behind(before) + behind(after) == after
    event(f"goes on: {made.onward is not None}")
    if made.onward is None:
        return
    tail = tail_of(cursor, rows, made.course, values, start, made.onward)
    part = IncrementalPlan(scope=made.scope, affected=(), narrowed=made.onward.narrowed, whole=made.onward.whole)
    leaves = narrowed_to(part, tail.values, engine, rows_max=1000).leaves
    alone = arrow_rows(written, engine.evaluate(text, new, leaves))
    whole = carried_on(cursor, made.onward.running, alone, tail.last)
    event(f"goes on from rows: {tail.last.num_rows > 0}")
    assert before - counted(tail.old) + counted(from_on(cursor, whole, made.course, start)) == after


class RowsAtHand:
    """The rows of a view in the order of a column."""

    def __init__(self, written: Spelled, rows: Counter[tuple[object, ...]], course: Course) -> None:
        self._rows = arrow_rows(written, rows)
        self._course = course

    def value_before(self, position: Position, count: int) -> Position | None:
        cursor = duckdb.connect()
        cursor.register("every", pa.table({"c0": self._rows[self._course.column]}))
        cursor.register("given", pa.table({POSITION: pa.array([position], position.type)}))
        condition = is_before(self._course, "c0", POSITION if position.is_valid else None)
        order = in_order(self._course, "c0", backwards=True)
        found = cursor.sql(f"SELECT c0 FROM every, given WHERE {condition} ORDER BY {order} LIMIT {count}")
        nearest = found.to_arrow_table()["c0"].cast(position.type)
        return nearest[count - 1] if len(nearest) == count else None

    def rows_from(self, position: Position | None) -> pa.Table:
        return from_on(duckdb.connect(), self._rows, self._course, position)


def arrow_rows(written: Spelled, rows: Counter[tuple[object, ...]]) -> pa.Table:
    every = list(rows.elements())
    return pa.table(
        {
            name: pa.array([row[i] for row in every], types.to_arrow(kind))
            for i, (name, kind) in enumerate(written.columns)
        }
    )


def counted(rows: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*[column.to_pylist() for column in rows.columns], strict=True))


WINDOWS = [
    "SELECT id AS o1, row_number() OVER (ORDER BY id) AS o2 FROM a",
    "SELECT id AS o1, row_number() OVER (ORDER BY id DESC) AS o2 FROM a",
    "SELECT x AS o1, sum(y) OVER (ORDER BY x, id) AS o2 FROM a",
    "SELECT x AS o1, rank() OVER (ORDER BY x DESC) AS o2 FROM a WHERE y > 0",
    "SELECT x AS o1, dense_rank() OVER w + count(*) OVER (w ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS o2 FROM a "
    "WINDOW w AS (ORDER BY x, id)",
    "SELECT a.y AS o1, max(b.x) OVER (ORDER BY a.y, a.id, b.id) AS o2 FROM a LEFT JOIN b ON a.x = b.id",
    "SELECT b.y AS o1, count(*) OVER (ORDER BY b.y DESC, a.id, b.id) AS o2 FROM a JOIN b ON a.x = b.x",
    "SELECT x AS o1, sum(count(*)) OVER (ORDER BY x) AS o2 FROM a GROUP BY x",
    "SELECT y AS o1, lag(x, 2) OVER (PARTITION BY s ORDER BY y, id) + lag(x) OVER (ORDER BY y, id) AS o2 FROM a",
    "SELECT id AS o1, count(x) FILTER (WHERE y > 1) OVER (ORDER BY id ROWS 1 PRECEDING) AS o2 FROM a QUALIFY o2 > 0",
    "SELECT id AS o1, sum(x) OVER (ORDER BY id NULLS LAST) AS o2 FROM a",
    "SELECT id AS o1, lead(x) OVER (ORDER BY id) AS o2 FROM a",
    "SELECT x AS o1, sum(y) OVER (ORDER BY x DESC, id ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS o2 FROM a",
    "SELECT id AS o1, last_value(x) OVER (ORDER BY id) AS o2 FROM a",
    "SELECT id AS o1, count_if(x > 1) OVER (ORDER BY id) AS o2 FROM a",
]
GOING_ON = [
    "SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM a",
    "SELECT x, rank() OVER (ORDER BY x) AS n, dense_rank() OVER (ORDER BY x) AS m FROM a WHERE y > 0",
    "SELECT x, id, sum(y) OVER (ORDER BY x NULLS LAST, id) AS n FROM a",
    "SELECT x, id, min(y) OVER w AS n, max(y) OVER w AS m, first_value(y) OVER w AS f FROM a "
    "WINDOW w AS (ORDER BY x, id)",
    "SELECT id, lag(x, 2) OVER (ORDER BY id) + lead(x) OVER (ORDER BY id) AS n FROM a",
    "SELECT id, avg(x) OVER (ORDER BY id ROWS 6 PRECEDING) AS n FROM a",
    "SELECT t.id, b.s, count(*) OVER (ORDER BY t.id, b.id) AS n FROM a AS t LEFT JOIN b ON t.x = b.id",
    "SELECT x, sum(count(*)) OVER (ORDER BY x) AS n FROM a GROUP BY x",
    "SELECT id, count(*) OVER (ORDER BY id, s) AS n FROM (SELECT id, s FROM a UNION ALL SELECT id, s FROM b)",
]
NOT_GOING_ON = [
    "SELECT id, row_number() OVER (ORDER BY id) + 1 AS n FROM a",
    "SELECT id, avg(x) OVER (ORDER BY id) AS n FROM a",
    "SELECT id, sum(x) OVER (ORDER BY id RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS n FROM a",
    "SELECT id, sum(x) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS n FROM a",
    "SELECT id, row_number() OVER (ORDER BY id) AS n FROM a QUALIFY n > 2",
    "SELECT * FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM a) WHERE n > 2",
    "SELECT id, row_number() OVER (ORDER BY id) AS n, lag(x) OVER (PARTITION BY s ORDER BY id) AS l FROM a",
    "WITH w AS (SELECT * FROM a) SELECT t.y, count(*) OVER (ORDER BY t.y) AS n FROM w AS t JOIN w AS u ON t.x = u.id",
    "SELECT b.y, count(*) OVER (ORDER BY b.y) AS n FROM a RIGHT JOIN b ON a.x = b.id UNION ALL SELECT 1, 1 FROM c",
]


@pytest.mark.parametrize("text", WINDOWS)
def test_windows_that_look_back_are_followed_from_a_position_on(text: str) -> None:
    query, understood = shaped(text)
    for table in {ref.name for ref in query.refs}:
        assert isinstance(plan(understood, [table], KEYS), TailPlan), table


@pytest.mark.parametrize(("text", "goes_on"), [(t, True) for t in GOING_ON] + [(t, False) for t in NOT_GOING_ON])
def test_rows_go_on_from_those_in_front_where_these_tell_all(text: str, goes_on: bool) -> None:
    made = plan(shaped(text)[1], ["a"], KEYS)
    assert (isinstance(made, TailPlan) and made.onward is not None) is goes_on


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, lag(x, -1) OVER (ORDER BY id) AS n FROM a",
        "SELECT id, ntile(4) OVER (ORDER BY id) AS n FROM a",
        "SELECT id, percent_rank() OVER (ORDER BY id) AS n FROM a",
        "SELECT id, sum(x) OVER () AS n FROM a",
        "SELECT id, cume_dist() OVER (ORDER BY id) AS n FROM a",
        "SELECT id, last_value(x) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS n FROM a",
        "SELECT id, sum(x) OVER (ORDER BY id RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS n FROM a",
        "SELECT id, sum(x) OVER (ORDER BY id RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS n FROM a",
        "SELECT id, lead(x) OVER (PARTITION BY s ORDER BY id) + rank() OVER (ORDER BY id) AS n FROM a",
        "SELECT id, lead(x) OVER (ORDER BY id) AS n FROM a QUALIFY n > 1",
        "SELECT * FROM (SELECT id, lead(x) OVER (ORDER BY id) AS n FROM a) WHERE n > 1",
        "SELECT id, sum(x) OVER (ORDER BY id) + sum(x) OVER (ORDER BY y) AS n FROM a",
        "SELECT id, sum(x) OVER (ORDER BY y) AS n FROM a",
        "SELECT DISTINCT id, sum(x) OVER (ORDER BY id) AS n FROM a",
        "SELECT x, rank() OVER (ORDER BY sum(y)) AS n FROM a GROUP BY x",
    ],
)
def test_other_windows_over_all_rows_are_recomputed(text: str) -> None:
    assert isinstance(plan(shaped(text)[1], ["a"], KEYS), FullRefresh)


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(text=st.sampled_from(WINDOWS), both=moving_states())
def test_rows_before_the_first_changed_position_stay(text: str, both: tuple[State, State]) -> None:
    sql = Sql(text, (("o1", "bigint"), ("o2", "bigint")))
    check_plan(sql, Spelled(text, sql, sql.columns), PLAIN, *both)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(sql=windowed(), both=moving_states())
def test_windows_over_all_rows_are_as_recomputed(sql: Sql, both: tuple[State, State]) -> None:
    check_plan(sql, Spelled(sql.text, sql, sql.columns), PLAIN, *both)


def all_sides(engine: DuckEngine, terms: tuple[Term, ...]) -> list[Side]:
    moved = [n for term in terms for n in term.moved]
    return [side for term in terms for side in sides(term, moved, engine, rows_max=1000)]


def difference(engine: DuckEngine, text: str, terms: tuple[Term, ...]) -> Counter[tuple[object, ...]]:
    total: Counter[tuple[object, ...]] = Counter()
    for side in all_sides(engine, terms):
        for row in engine.evaluate_side(text, side).fetchall():
            total[tuple(row)] += side.sign
    return total


def check_merge(engine: DuckEngine, text: str, roles: tuple[Role, ...], made: Merge, old: State, new: State) -> None:
    names = [r.column for r in roles]
    came: list[Row] = []
    went: list[Row] = []
    for side in all_sides(engine, made.terms):
        rows = engine.evaluate_side(text, side).fetchall()
        (came if side.sign > 0 else went).extend(dict(zip(names, row, strict=True)) for row in rows)
    stored = [dict(zip(names, row, strict=True)) for row in engine.evaluate(text, old)]
    after = {tuple(row) for row in engine.evaluate(text, new)}
    done = merge(roles, stored, came, went, steps=len(made.terms))
    by = [n for n, r in zip(names, roles, strict=True) if r.call is Call.GROUP]

    def group(row: Mapping[str, Any]) -> tuple[object, ...]:
        return tuple(row[c] for c in by)

    groups = {group(r): r for r in stored}
    for gone in done.gone:
        del groups[group(gone)]
    groups.update({group(r): r for r in done.rows})
    stale = set(done.stale)
    event(f"stale: {len(stale)}")
    merged = {tuple(r[n] for n in names) for g, r in groups.items() if g not in stale}
    expected = {row for row in after if group(dict(zip(names, row, strict=True))) not in stale}
    assert merged == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, x FROM a WHERE y > 1",
        "SELECT a.id, b.s FROM a JOIN b ON a.x = b.id",
        "SELECT a.id, b.s FROM a LEFT JOIN b ON a.x = b.id",
        "SELECT b.id, a.s FROM a RIGHT JOIN b ON a.x = b.id",
        "SELECT p.id, q.id AS other FROM a p JOIN a q ON p.x = q.id",
        "SELECT a.id, c.k2, d.s FROM a JOIN c ON c.k1 = a.id LEFT JOIN d ON d.x = a.x",
        "SELECT a.id, c.k2, b.s FROM a, b, c WHERE c.k1 = a.id AND b.id = c.x",
        "SELECT a.id, b.s FROM a, b WHERE (a.x = b.id AND a.y > 1) OR (b.y > 1 AND a.x = b.id)",
        "SELECT id FROM a WHERE x IN (SELECT id FROM b)",
        "SELECT id FROM a WHERE x NOT IN (SELECT id FROM b)",
        "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.k1 = a.id)",
        "SELECT x, count(*) AS n FROM a GROUP BY x HAVING count(*) > 1",
        "SELECT DISTINCT x, s FROM a",
        "SELECT id, x, count(*) OVER (PARTITION BY x) AS n FROM a",
        "SELECT id FROM a UNION ALL SELECT id FROM b",
        "SELECT x FROM a UNION SELECT x FROM b",
        "SELECT x FROM a INTERSECT SELECT x FROM b",
        "SELECT x FROM a EXCEPT ALL SELECT x FROM b",
        "WITH w AS (SELECT k1, count(*) AS n FROM c GROUP BY k1) SELECT a.id, w.n FROM a JOIN w ON w.k1 = a.id",
        "SELECT a.id, v.word FROM a JOIN (VALUES (1, 'p'), (2, 'q')) AS v(number, word) ON v.number = a.x",
        "SELECT a.id, t.n FROM a, LATERAL (SELECT count(*) AS n FROM b WHERE b.x = a.x) AS t",
        "SELECT a.id, t.y FROM a LEFT JOIN LATERAL (SELECT y FROM b WHERE b.x = a.x ORDER BY id LIMIT 2) AS t ON true",
        "SELECT a.id, t.part FROM a, LATERAL explode(split(a.s, ' ')) AS t(part)",
        "SELECT id, sum(y) OVER w AS s, max(y) OVER (w ORDER BY id) AS m FROM a WINDOW w AS (PARTITION BY x)",
        "SELECT t.id FROM (SELECT a.*, b.id FROM a JOIN b ON a.x = b.id) AS t(id, x, y, s, other)",
        "SELECT t.y FROM (SELECT a.y, a.id, b.id FROM a JOIN b ON a.x = b.id) AS t",
        "SELECT y % 2 AS rest, count(DISTINCT x) AS n FROM a GROUP BY y % 2",
        "SELECT upper(s) AS s, max(y) AS m FROM a GROUP BY upper(s) HAVING count(*) > 1",
        "SELECT coalesce(s, 'none') AS s, count(DISTINCT x) AS n FROM a GROUP BY coalesce(s, 'none')",
        "SELECT CASE WHEN y > 1 THEN 'big' ELSE 'small' END AS size, count(DISTINCT x) AS n FROM a GROUP BY 1",
        "SELECT a.id, b.id AS other FROM a JOIN b ON lower(a.s) = lower(b.s)",
        "SELECT a.id, b.y FROM a LEFT JOIN b ON a.x + 1 = b.id",
        "SELECT id FROM a WHERE upper(s) IN (SELECT upper(s) FROM b)",
        "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM c WHERE lower(c.k2) = lower(a.s))",
        "SELECT id, count(*) OVER (PARTITION BY y % 2) AS n FROM a",
        "SELECT upper(s) AS s FROM a UNION SELECT lower(s) FROM b",
        "SELECT x, s, max(y) AS m FROM a GROUP BY x, ROLLUP (s) HAVING count(*) > 1",
    ],
)
def test_what_can_be_followed_is_followed(text: str) -> None:
    """Guards against a plan that is right because it gives up."""
    query = parse(text)
    assert isinstance(query, Query)
    understood = shape(query, TABLES)
    for table in {ref.name for ref in query.refs}:
        assert not isinstance(plan(understood, [table], KEYS), FullRefresh), table


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.id, c.k2, b.s FROM a, b, c WHERE c.k1 = a.id AND b.id = c.x",
        "SELECT a.id, c.k2, b.s FROM a CROSS JOIN b JOIN c ON c.k1 = a.id WHERE b.id = c.x",
        "SELECT a.id, b.s FROM a, b WHERE (a.x = b.id AND a.y > 1) OR (b.y > 1 AND a.x = b.id)",
    ],
)
def test_inputs_are_narrowed_in_whatever_order_the_text_lists_them(text: str) -> None:
    query = parse(text)
    assert isinstance(query, Query)
    understood = shape(query, TABLES)
    for table in {ref.name for ref in query.refs}:
        made = plan(understood, [table], KEYS)
        assert isinstance(made, IncrementalPlan), table
        assert made.whole == (), table


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x, s, count(*) AS n FROM a GROUP BY ROLLUP (x, s)",
        "SELECT x, s, sum(y) AS n FROM a GROUP BY x, s WITH CUBE",
        "SELECT x, grouping(x) AS g, avg(y) AS n FROM a GROUP BY GROUPING SETS ((x, s), x)",
        "SELECT upper(s) AS s, x + 1 AS x, count(y) AS n FROM a GROUP BY CUBE (upper(s), x + 1)",
    ],
)
def test_groups_of_several_sets_are_merged(text: str) -> None:
    query = parse(text)
    assert isinstance(query, Query)
    understood = shape(query, TABLES)
    drawn = sketch(query, understood, [n for n, _ in understood.outputs])
    shown = {n for n, _ in understood.outputs}
    assert (drawn is None) == ("s" not in shown)
    made = plan(understood, ["a"], KEYS, merges=drawn is not None)
    assert isinstance(made, IncrementalPlan if drawn is None else Merge)


def test_sets_that_repeat_are_not_followed() -> None:
    """Their groups come twice, and nothing tells one from the other."""
    query = parse("SELECT x, count(*) AS n FROM a GROUP BY x, ROLLUP (x)")
    assert isinstance(query, Query)
    with pytest.raises(NotUnderstood, match="repeat"):
        shape(query, TABLES)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n FROM (SELECT count(*) AS n FROM a) AS w",
        "WITH w AS (SELECT max(x) AS n FROM a) SELECT n + 1 AS n FROM w",
        "SELECT b.id, w.n FROM b CROSS JOIN (SELECT count(x) FILTER (WHERE y > 1) AS n FROM a) AS w",
        "SELECT b.id, w.n FROM b JOIN (SELECT sum(x) AS n FROM a) AS w ON w.n = b.x",
    ],
)
def test_an_aggregate_over_all_rows_is_seen_in_a_subquery(text: str) -> None:
    """One row of it depends on every row, so that no rows alone tell how it changes."""
    query = parse(text)
    assert isinstance(query, Query)
    assert isinstance(plan(shape(query, TABLES), ["a"], KEYS), FullRefresh)
