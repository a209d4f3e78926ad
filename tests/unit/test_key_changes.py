"""When an epoch takes a change by its keys alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ebla.algebra.plan import IncrementalPlan, plan
from ebla.algebra.shape import shape
from ebla.model.relation import TOKEN
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.values import token as tokens
from ebla.views.epoch.key_changes import SOME_KEYS, costs_more, needs_keys_alone, neighbours
from support.view_queries import KEYS, TABLES


@pytest.mark.parametrize(
    ("text", "table", "told"),
    [
        ("SELECT id, x FROM a", "a", True),
        ("SELECT c.k1, c.k2, a.s FROM c JOIN a ON c.k1 = a.id", "c", True),
        # Which rows of `c` are affected is found by the key of `a`: what else `a` was does not matter.
        ("SELECT c.k1, c.k2, a.s FROM c JOIN a ON c.k1 = a.id", "a", True),
        # Rows of `a` are affected that the old `x` names.
        ("SELECT a.id, b.s FROM a LEFT JOIN b ON a.id = b.x", "b", False),
        ("SELECT x, max(y + 1) AS top FROM a GROUP BY x", "a", False),
    ],
)
def test_keys_tell_a_change_where_nothing_else_of_it_names_rows(text: str, table: str, told: bool) -> None:
    query = parse(text)
    assert isinstance(query, Query)
    made = plan(shape(query, TABLES), [table], KEYS)
    assert isinstance(made, IncrementalPlan)
    assert needs_keys_alone(made, table, KEYS[table]) is told


@pytest.mark.parametrize(
    ("stored", "written", "so"),
    [
        (6_000_000, 6_000, True),
        (12_000_000, 6_000, True),
        (12_000_000, 60_000, True),
        (12_000_000, 600_000, False),  # to compute all of them again costs more
        (500_000, 100, False),  # so few are read in a moment
        (6_000_000, 1, False),  # one key, one row group
        (0, 10, False),
    ],
)
def test_old_rows_are_read_where_that_costs_less_than_it_may_save(stored: int, written: int, so: bool) -> None:
    assert costs_more(stored, written) is so


def test_a_few_keys_are_the_first_of_the_first_tablet() -> None:
    chance = np.random.default_rng(1)
    keys = pa.table({"a": chance.permutation(400) // 2, "b": chance.permutation(400)})
    token = tokens.tokens(keys, ["a", "b"])
    rows = keys.append_column(TOKEN, pa.array(token))
    first = sorted(
        tuple(row.values()) for row, t in zip(keys.to_pylist(), tokens.tablets_of(token, 8), strict=True) if t == 0
    )
    found = neighbours(rows, ["a", "b"], 8).select(["a", "b"]).to_pylist()
    assert [tuple(row.values()) for row in found] == first[:SOME_KEYS]
    assert neighbours(rows.slice(0, 0), ["a", "b"], 8).num_rows == 0
