"""Adding and subtracting many groups at once gives what adding them one by one gives."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ebla.algebra.merge import ROWS, Call, Role, merge
from ebla.views.epoch.sums import added

ROLES = (
    Role(column="g", call=Call.GROUP, type="string"),
    Role(column="m", call=Call.GROUP, type="int"),
    Role(column="n", call=Call.COUNT, type="bigint"),
    Role(column="s", call=Call.SUM, counted="cs", type="decimal(20,2)"),
    Role(column="i", call=Call.SUM, counted="ci", type="bigint"),
    Role(column=ROWS, call=Call.ROWS, type="bigint"),
    Role(column="cs", call=Call.COUNT, type="bigint"),
    Role(column="ci", call=Call.COUNT, type="bigint"),
)
SCHEMA = pa.schema(
    [
        ("g", pa.string()),
        ("m", pa.int32()),
        ("n", pa.int64()),
        ("s", pa.decimal128(20, 2)),
        ("i", pa.int64()),
        (ROWS, pa.int64()),
        ("cs", pa.int64()),
        ("ci", pa.int64()),
    ]
)


@st.composite
def groups(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows as an aggregation gives them: one for each group, NULL where nothing was counted."""
    keys = draw(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([None, 1, 2])), unique=True))
    made = []
    for g, m in keys:
        rows = draw(st.integers(1, 3))
        cs, ci = draw(st.integers(0, rows)), draw(st.integers(0, rows))
        total = Decimal(draw(st.integers(-500, 500))).scaleb(-2) if cs else None
        whole = draw(st.integers(-5, 5)) if ci else None
        made.append({"g": g, "m": m, "n": draw(st.integers(0, rows)), "s": total, "i": whole, ROWS: rows})
        made[-1] |= {"cs": cs, "ci": ci}
    return made


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def bag(rows: Any) -> Counter[tuple[str, ...]]:
    return Counter(tuple(repr(row[name]) for name in SCHEMA.names) for row in rows)


def by(row: Any) -> tuple[Any, ...]:
    return row["g"], row["m"]


@given(stored=groups(), came=groups(), went=groups())
def test_all_at_once_is_one_by_one(
    stored: list[dict[str, Any]], came: list[dict[str, Any]], went: list[dict[str, Any]]
) -> None:
    with duckdb.connect() as cursor:
        found = added(cursor, ROLES, table(stored), table(came), table(went))
    expected = merge(ROLES, stored, came, went)
    counts = ("n", ROWS, "cs", "ci")
    below = any(row[c] < 0 for row in expected.rows for c in counts)
    if expected.stale or below:
        assert found is None
        return
    if found is None:
        left = Counter[tuple[Any, ...]]()
        for sign, rows in ((1, stored), (1, came), (-1, went)):
            for row in rows:
                left.update({(by(row), c): sign * row[c] for c in counts})
        assert any(value < 0 for value in left.values())
        return
    gained, gone = found
    assert bag(gained.to_pylist()) == bag(expected.rows)
    assert Counter(by(row) for row in gone.to_pylist()) == Counter(by(row) for row in expected.gone)


def test_a_sum_that_does_not_fit_is_left_to_the_other_way() -> None:
    row = {"g": "a", "m": 1, "n": 1, "s": None, "i": 2**63 - 1, ROWS: 1, "cs": 0, "ci": 1}
    with duckdb.connect() as cursor:
        assert added(cursor, ROLES, table([row]), table([row]), table([])) is None


def test_minima_are_left_to_the_other_way() -> None:
    roles = (*ROLES, Role(column="x", call=Call.MIN, counted="cs", type="int"))
    with duckdb.connect() as cursor:
        assert added(cursor, roles, table([]), table([]), table([])) is None
