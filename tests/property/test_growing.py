"""Rows of a base that appear chunk by chunk: what the query makes of a chunk alone is what the chunk adds.

On DuckDB, for random queries: the base is cut in two at random, everything else is there.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, assume, event, given, note, settings
from hypothesis import strategies as st

from ebla.algebra.build_method import adding
from ebla.algebra.merge import Call, merge, settled, sketch
from ebla.algebra.nodes import NotUnderstood, leaves
from ebla.algebra.shape import shape
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.views.epoch.narrow import Side
from support.duck import DuckEngine, State
from support.spellings import naming, spelled
from support.view_queries import Sql, queries
from support.view_states import plain_sketch, states

EXAMPLES = int(os.environ.get("EBLA_EXAMPLES", "500"))


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(sql=queries(), both=states(), chosen=st.integers(0, 2**12), seed=st.integers(0, 2**16))
def test_a_chunk_adds_what_the_query_makes_of_it_alone(
    sql: Sql, both: tuple[State, State], chosen: int, seed: int
) -> None:
    state = both[0]
    naming_ = naming(seed % 64)
    written = spelled(sql, naming_, seed)
    note(sql.text)
    note(written.text)
    query = parse(written.text)
    assert isinstance(query, Query)
    try:
        understood = shape(query, naming_.schema)
    except NotUnderstood:
        return
    table = next(leaves(understood.root)).table
    assume(table)  # else it begins with VALUES, and is not built in chunks
    base = naming_.plain_tables[table]
    known = {key: row for at, (key, row) in enumerate(state[base].items()) if chosen >> at & 1}
    before: State = {**state, base: known}
    engine = DuckEngine(before, state, naming_)
    chunk = engine.table(base, [row for key, row in state[base].items() if key not in known])
    names = [n for n, _ in sql.columns]
    drawn = plain_sketch(sql)
    assert (drawn is None) == (sketch(query, understood, [n for n, _ in written.columns]) is None)
    roles = None if drawn is None else settled(drawn.roles, engine.kinds(drawn.query.text, len(names), sql))
    found = adding(understood, table, merges=roles is not None)
    if found is None:
        event("not one by one")
        return
    leaf, others = found
    text = sql.text if roles is None or drawn is None else drawn.query.text
    alone = Side(sign=1, leaves={leaf.number: chunk}, old=frozenset(), unread=others)
    added = engine.evaluate_side(text, alone).fetchall()
    if roles is None:
        event(f"rows, other branches: {bool(others)}")
        after = engine.evaluate(text, before)
        after.update(tuple(row) for row in added)
        assert after == engine.evaluate(text, state)
        return
    event("sums")
    columns = [role.column for role in roles]
    by = [columns.index(role.column) for role in roles if role.call is Call.GROUP]
    stored = [dict(zip(columns, row, strict=True)) for row in engine.evaluate(text, before)]
    done = merge(roles, stored, [dict(zip(columns, row, strict=True)) for row in added], [])
    assert not done.gone, "rows that come take nothing away"
    assert not done.stale
    groups = {tuple(row[columns[i]] for i in by): row for row in (*stored, *done.rows)}
    assert {tuple(row[n] for n in columns) for row in groups.values()} == set(engine.evaluate(text, state))
