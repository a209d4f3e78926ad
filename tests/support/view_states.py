"""States of the tables that random views read, before and after random changes."""

from __future__ import annotations

import copy

from hypothesis import strategies as st

from support.duck import Row, State
from support.view_queries import KEYS, TABLES, rows_of


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
