"""Rows are found and changed in dictionaries as a database finds and changes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine

from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Above, AtLeast, AtMost, Not, Within
from support.tables import Tables

NUMBERS = st.integers(0, 4)
STATES = st.sampled_from(["open", "aborted", "committed"])


def transaction(number: int, state: str, version: int, ended: int | None) -> dict[str, object]:
    return {
        "transaction_id": number,
        "state": state,
        "reason": "test",
        "relation_id": None if version == 0 else version,
        "host_id": "node1",
        "holder": "me",
        "snapshot_version": version,
        "schema_version": 1,
        "topology_version": 0,
        "session_id": None,
        "started_at": 0,
        "expires_at": number,
        "ended_at": ended,
        "committed_version": None,
    }


ROWS = st.builds(transaction, st.integers(0, 9), STATES, NUMBERS, st.none() | NUMBERS)
KNOWN = st.lists(ROWS, unique_by=lambda row: row["transaction_id"])
BOUNDS = (
    st.builds(Above, NUMBERS)
    | st.builds(AtLeast, NUMBERS)
    | st.builds(AtMost, NUMBERS)
    | st.builds(Within, NUMBERS, NUMBERS)
)
WHERE = st.fixed_dictionaries(
    {},
    optional={
        "transaction_id": st.integers(0, 9) | st.frozensets(st.integers(0, 9)),
        "state": STATES | st.frozensets(STATES) | st.builds(Not, STATES),
        "snapshot_version": NUMBERS | BOUNDS | st.frozensets(NUMBERS),
        "relation_id": st.none() | NUMBERS | BOUNDS | st.just(Not(None)),
        "ended_at": st.none() | BOUNDS | st.just(Not(None)),
    },
)
CHANGES = (
    st.builds(lambda where: rows.delete(s.transactions, **where), WHERE)
    | st.builds(lambda where, ended: rows.update(s.transactions, {"ended_at": ended}, **where), WHERE, NUMBERS)
    | st.builds(lambda row: rows.put(s.transactions, **row), ROWS)
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = create_engine("sqlite://")
    with made.begin() as connection:
        s.transactions.create(connection)
    yield made
    made.dispose()


@given(known=KNOWN, changes=st.lists(CHANGES, max_size=3), where=WHERE)
def test_dictionaries_say_what_a_database_says(
    engine: Engine, known: list[dict[str, object]], changes: list[rows.Change], where: dict[str, object]
) -> None:
    tables = Tables()
    with engine.connect() as connection:
        states: tuple[rows.State, ...] = (connection, tables)
        for change in (rows.insert(s.transactions, known), *changes):
            met = [rows.write(state, change) for state in states]
            assert met[0] == met[1]
        answers = [_answers(state, where) for state in states]
        connection.rollback()
    assert answers[0] == answers[1]


def _answers(state: rows.State, where: dict[str, object]) -> list[Any]:
    table = s.transactions
    version, ended = table.c.snapshot_version, table.c.ended_at
    return [
        [tuple(row) for row in rows.find(state, table, "state", "transaction_id", **where)],
        rows.values(state, ended, **where),
        [bound(state, column, **where) for bound in (rows.greatest, rows.least) for column in (version, ended)],
        rows.extremes(state, version, by=(table.c.state,), **where) if "transaction_id" not in where else {},
    ]
