"""The view after an incremental epoch equals its query recomputed, for random queries and random changes.

The plan is executed on DuckDB: affected values, narrowed inputs, the query on them, and the exchange of the rows in
scope. Several inputs change at once, keys move, rows repeat, NULLs are everywhere.
"""

from __future__ import annotations

import copy
from collections import Counter

import pytest
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from ebla.sql.parse import parse
from ebla.sql.statements import Query
from ebla.views.epoch import TooWide, bound
from ebla.views.nodes import NotUnderstood
from ebla.views.plan import FullRefresh, plan
from ebla.views.shape import shape
from support.duck import DuckEngine, Row, State
from support.view_queries import KEYS, TABLES, Sql, queries, rows_of


def key_of(table: str, row: Row) -> tuple[object, ...]:
    return tuple(row[c] for c in KEYS[table])


@st.composite
def states(draw: st.DrawFn) -> tuple[State, State]:
    """A state of the tables, and the same after some inserts, updates and deletes."""
    old: State = {}
    for table in TABLES:
        rows = draw(st.lists(rows_of(table), max_size=6))
        old[table] = {key_of(table, r): r for r in rows}
    new = copy.deepcopy(old)
    changed = draw(st.lists(st.sampled_from(sorted(TABLES)), min_size=1, max_size=3, unique=True))
    for table in changed:
        for row in draw(st.lists(rows_of(table), max_size=2)):
            new[table][key_of(table, row)] = row
        for key in draw(st.lists(st.sampled_from(sorted(old[table], key=repr) or [()]), max_size=2)):
            new[table].pop(key, None)
    return old, new


@settings(max_examples=1500, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(sql=queries(), both=states())
def test_an_epoch_leaves_the_view_as_recomputed(sql: Sql, both: tuple[State, State]) -> None:
    old, new = both
    engine = DuckEngine(TABLES, old, new)
    note(sql.text)
    before = engine.evaluate(sql.text, old)
    after = engine.evaluate(sql.text, new)
    query = parse(sql.text)
    assert isinstance(query, Query)
    try:
        understood = shape(query, TABLES)
    except NotUnderstood as reason:
        event(f"not understood: {reason}")
        return
    assert [n for n, _ in understood.outputs] == [n for n, _ in sql.columns]
    made = plan(understood, engine.changed_tables(), KEYS)
    if isinstance(made, FullRefresh):
        event("full refresh")
        return
    event("incremental")
    note(repr(made))
    try:
        bounds = bound(made, engine, rows_max=1000)
    except TooWide as reason:
        event(f"too wide: {reason}")
        return
    places = [[n for n, _ in sql.columns].index(c) for c in bounds.scope]
    affected = set(zip(*[c.to_pylist() for c in bounds.values.columns], strict=True))

    def in_scope(row: tuple[object, ...]) -> bool:
        return tuple(row[p] for p in places) in affected

    fresh = engine.evaluate(sql.text, new, bounds.leaves)
    kept = Counter({row: n for row, n in before.items() if not in_scope(row)})
    gained = Counter({row: n for row, n in fresh.items() if in_scope(row)})
    assert kept + gained == after


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, x FROM a WHERE y > 1",
        "SELECT a.id, b.s FROM a JOIN b ON a.x = b.id",
        "SELECT a.id, b.s FROM a LEFT JOIN b ON a.x = b.id",
        "SELECT b.id, a.s FROM a RIGHT JOIN b ON a.x = b.id",
        "SELECT p.id, q.id AS other FROM a p JOIN a q ON p.x = q.id",
        "SELECT a.id, c.k2, d.s FROM a JOIN c ON c.k1 = a.id LEFT JOIN d ON d.x = a.x",
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
    ],
)
def test_what_can_be_followed_is_followed(text: str) -> None:
    """Guards against a plan that is right because it gives up."""
    query = parse(text)
    assert isinstance(query, Query)
    understood = shape(query, TABLES)
    for table in {ref.name for ref in query.refs}:
        assert not isinstance(plan(understood, [table], KEYS), FullRefresh), table
