"""Refreshes as values: what an epoch does to each part of a view, how long a chunk is waited for, how far it is."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebla.algebra.shape import shape
from ebla.base.ids import Version
from ebla.model.failure import Failure
from ebla.model.handlers import Tuning
from ebla.model.progress import Phase, refreshed
from ebla.model.refresh import TOKEN_MAX, TOKEN_MIN, Refresh, moved
from ebla.relations.cut import by_streams
from ebla.relations.views import Position
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.views.handlers.refresh_speed import RefreshSpeed, done, planned

READ = MappingProxyType({"orders": 10, "countries": 4, "customers": 6})
BEGUN = Refresh(to={"countries": 9}, by=("id",), expected=100, started_us=7)
SECOND_US = 1_000_000


def at(**versions: int) -> dict[str, Version]:
    return {name: Version(v) for name, v in {**READ, **versions}.items()}


def test_a_refresh_reads_back_as_it_was_written():
    for refresh in (BEGUN, replace(BEGUN, up_to=-5, rows=3, values=2, rows_per_minute=0, chunk_rows=9, on_hold=True)):
        position = Position(applied_version=Version(10), read=READ, refresh=refresh)
        assert Position.parse(position.text()) == position
    assert "refresh" not in Position(applied_version=Version(10), read=READ).text()


# ---- what an epoch does ---------------------------------------------------------------------------------


def test_an_epoch_computes_each_part_with_its_own_dictionaries():
    found = moved(READ, replace(BEGUN, up_to=5), at(orders=12))
    low, high = found.moves
    assert (low.first, low.last, high.first, high.last) == (TOKEN_MIN, 5, 6, TOKEN_MAX)
    assert (low.before, low.now) == (at(countries=9), at(countries=9, orders=12))
    assert (high.before, high.now) == (at(), at(orders=12))
    assert found.read == at(orders=12)
    assert found.refresh == replace(BEGUN, up_to=5)


def test_a_chunk_moves_the_position_and_nothing_else():
    found = moved(READ, replace(BEGUN, up_to=5), at(), chunk=8)
    [chunk] = found.moves
    assert (chunk.first, chunk.last, chunk.before, chunk.now) == (6, 8, at(), at(countries=9))
    assert (found.read, found.refresh) == (at(), replace(BEGUN, up_to=8))
    assert moved(READ, BEGUN, at(), chunk=8).moves[0].first == TOKEN_MIN


def test_the_last_chunk_ends_the_refresh():
    found = moved(READ, replace(BEGUN, up_to=5), at(), chunk=TOKEN_MAX)
    assert (found.read, found.refresh) == (at(countries=9), None)


def test_an_epoch_that_moves_dictionaries_ends_the_refresh_from_where_each_part_is():
    found = moved(READ, replace(BEGUN, up_to=5), at(orders=12, countries=11))
    assert [(p.before["countries"], p.now["countries"]) for p in found.moves] == [(9, 11), (4, 11)]
    assert (found.read, found.refresh) == (at(orders=12, countries=11), None)
    exactly = moved(READ, replace(BEGUN, up_to=5), at(countries=9))
    assert [(p.first, p.before["countries"]) for p in exactly.moves] == [(6, 4)]  # the other part is there already


def test_a_part_that_nothing_moves_in_is_left_alone():
    assert moved(READ, replace(BEGUN, up_to=5), at()).moves == ()
    assert [p.first for p in moved(READ, BEGUN, at(orders=12)).moves] == [TOKEN_MIN]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("stream"), st.integers(1, 3)),
        st.tuples(st.just("chunk"), st.integers(TOKEN_MIN, TOKEN_MAX)),
        st.tuples(st.just("flush"), st.integers(1, 3)),
    ),
    max_size=12,
)


@given(STEPS)
def test_every_part_always_stands_where_the_state_says(steps: list[tuple[str, int]]):
    """Versions of some tokens, moved part by part, are those that the state names for them."""
    tokens = [TOKEN_MIN, -(2**40), -1, 0, 5, 2**62, TOKEN_MAX]
    read, refresh = dict(READ), BEGUN
    stands = {token: dict(READ) for token in tokens}
    for kind, number in steps:
        target = {name: Version(v) for name, v in read.items()}
        chunk = None
        if kind == "chunk":
            chunk = max(number, TOKEN_MIN if refresh.up_to is None else refresh.up_to)
        elif kind == "stream":
            target["orders"] = Version(target["orders"] + number)
        else:
            target = dict.fromkeys(target, Version(max(*read.values(), 9) + number))
        found = moved(read, refresh, target, chunk)
        for move in found.moves:
            for token in tokens:
                if move.first <= token <= move.last:
                    assert stands[token] == move.before
                    stands[token] = {name: int(v) for name, v in move.now.items()}
        read = {name: int(v) for name, v in found.read.items()}
        behind, ahead = ([], [(TOKEN_MIN, TOKEN_MAX)]) if found.refresh is None else found.refresh.spans()
        for token in tokens:
            if any(first <= token <= last for first, last in ahead):
                assert stands[token] == read
            else:
                assert any(first <= token <= last for first, last in behind)
                assert found.refresh is not None
                assert stands[token] == {**read, **found.refresh.to}
        if found.refresh is None:
            return
        refresh = found.refresh


# ---- pace -----------------------------------------------------------------------------------------------


def tuned(rate: float | None) -> Tuning:
    return Tuning(
        epoch_period_s=1,
        batch_rows_max=10,
        dictionary_period_s=1,
        dictionary_rows_per_scan=1000,
        dictionary_rows_per_s=rate,
    )


def test_a_refresh_goes_at_the_handlers_pace_unless_it_has_one_of_its_own():
    assert RefreshSpeed.of(tuned(None), None) == RefreshSpeed(rows_per_minute=None, chunk_rows=1000)
    assert RefreshSpeed.of(tuned(0.5), BEGUN) == RefreshSpeed(rows_per_minute=30, chunk_rows=1000)
    assert RefreshSpeed.of(tuned(0.001), None).rows_per_minute == 1
    own = replace(BEGUN, rows_per_minute=0, chunk_rows=3)
    assert RefreshSpeed.of(tuned(500), own) == RefreshSpeed(rows_per_minute=0, chunk_rows=3)


@given(
    st.integers(1, 5000),
    st.integers(1, 100_000),
    st.lists(st.floats(0.5, 3), min_size=1, max_size=20),
    st.integers(1, 2000),
)
def test_n_rows_at_r_a_second_are_never_written_before_n_r_seconds(
    rows: int, rate_per_s: int, more: list[float], chunk_rows: int
):
    """Whatever part of them each chunk turns out to have, once the last one that had too many is waited for."""
    pace = RefreshSpeed(rows_per_minute=rate_per_s * 60, chunk_rows=chunk_rows)
    now_us, written, waited, turn = 0, 0, None, 0
    while written < rows:
        waited = planned(waited, turn, rows - written, pace, now_us)
        wait_us = waited.throttle.wait_us(now_us)
        assert wait_us is not None
        now_us += wait_us
        found = max(1, round(waited.rows * more[turn % len(more)]))
        waited = done(waited, found, now_us)
        written += found
        turn += 1
    owed = waited.throttle.wait_us(now_us) if waited is not None else 0
    assert owed is not None
    assert now_us + owed >= written * SECOND_US // rate_per_s - turn


def test_what_is_done_in_one_epoch_is_waited_for_as_a_whole():
    pace = RefreshSpeed(rows_per_minute=600, chunk_rows=1000)
    cut, uncut = planned(None, "a", 5000, pace, 0), planned(None, "a", 5000, pace, 0, whole=True)
    assert (cut.rows, cut.throttle.wait_us(0)) == (20, 2 * SECOND_US)
    assert (uncut.rows, uncut.throttle.wait_us(0)) == (5000, 500 * SECOND_US)


def failure(message: str) -> Failure:
    return Failure(code="DIVIDE_BY_ZERO", message=message, at=0)


def test_only_what_fails_in_the_refresh_itself_stops_it():
    """A chunk that failed has tried the versions to which it goes; an epoch those that the view has read."""
    begun = Position(applied_version=Version(10), read=READ, refresh=BEGUN)
    chunk = begun.stopped(failure("a chunk"), {**READ, **BEGUN.to})
    epoch = begun.stopped(failure("an epoch"), {**READ, "orders": 12})
    assert (begun.failed_in_refresh, chunk.failed_in_refresh, epoch.failed_in_refresh) == (False, True, False)
    both = epoch.stopped(failure("a chunk, too"), {**READ, **BEGUN.to})
    assert (both.failed_in_refresh, both.tried) == (True, {**READ, "orders": 12, **BEGUN.to})
    behind = replace(begun, refresh=replace(BEGUN, up_to=5))
    assert behind.still_failed(begun) == behind.still_failed(chunk) == behind
    stays = behind.still_failed(epoch)
    assert (stays.failed, stays.message, stays.tried) == (True, "an epoch", {**READ, "orders": 12})


def test_another_rate_holds_for_what_is_waited_for():
    slow, fast = RefreshSpeed(rows_per_minute=1, chunk_rows=1000), RefreshSpeed(rows_per_minute=60_000, chunk_rows=1000)
    waiting = planned(None, "first", 5000, slow, 0)
    assert (waiting.rows, waiting.throttle.wait_us(0)) == (1, 60 * SECOND_US)
    assert planned(waiting, "first", 5000, slow, 5) is waiting
    sooner = planned(waiting, "first", 5000, fast, 5)
    assert (sooner.rows, sooner.throttle.wait_us(5)) == (1000, SECOND_US)
    later = planned(sooner, "first", 5000, slow, 10)
    assert later.rows == 1
    assert planned(waiting, "first", 5000, RefreshSpeed(rows_per_minute=None, chunk_rows=7), 5).throttle.wait_us(5) == 0


# ---- progress -------------------------------------------------------------------------------------------


def test_progress_is_never_100_before_the_end():
    def seen(rows: int, waiting: str | None = None):
        return refreshed(
            rows=rows,
            rows_expected=200,
            tablets=4,
            share=0.5,
            elapsed_s=10.0,
            waiting_for=waiting,
            detail="countries to version 9",
        )

    half = seen(100)
    assert (half.phase, half.percent, half.tablets, half.rows_per_s, half.eta_s) == (
        Phase.REFRESHING, 49.5, "2/4", 10.0, 10.0,
    )  # fmt: skip
    assert seen(500).percent == 99
    paused = seen(100, "RESUME: it is paused")
    assert (paused.phase, paused.rows_per_s, paused.eta_s, paused.detail) == (
        Phase.WAITING, None, None, "RESUME: it is paused",
    )  # fmt: skip


def test_rows_are_expected_by_how_many_a_value_has_had():
    assert BEGUN.rows_expected == 100
    assert replace(BEGUN, values=10, rows=30).rows_expected == 300


def test_a_refresh_that_outgrows_what_was_expected_goes_by_the_tokens_that_are_left():
    """Streams added values since the change's were counted: no end in chunks of one row."""
    half = replace(BEGUN, values=120, rows=360, up_to=0)
    assert (half.values_left, half.rows_left, half.rows_expected) == (120, 360, 720)
    assert replace(half, up_to=TOKEN_MAX - 1).rows_left == 3
    assert replace(half, values=99, rows=99).values_left == 1
    assert planned(None, "next", half.rows_left, RefreshSpeed(rows_per_minute=None, chunk_rows=1000), 0).rows == 360


# ---- the cut --------------------------------------------------------------------------------------------

TYPES = {
    "orders": {"id": "bigint", "customer": "bigint", "country": "int", "total": "int"},
    "items": {"id": "bigint", "country": "int"},
    "countries": {"id": "int", "name": "string", "region": "int"},
}


@pytest.mark.parametrize(
    ("text", "key", "cut"),
    [
        ("SELECT o.customer, sum(k.region) s FROM orders o JOIN countries k ON o.country = k.id GROUP BY o.customer",
         ["customer"], ("customer",)),
        ("SELECT k.id, count(*) n FROM orders o JOIN countries k ON o.country = k.id GROUP BY k.id", ["id"], ("id",)),
        ("SELECT k.id, count(*) n FROM countries k LEFT JOIN orders o ON o.country = k.id GROUP BY k.id", ["id"],
         "dictionaries decide on all columns of its key"),
        ("SELECT DISTINCT o.customer, k.name FROM orders o JOIN countries k ON o.country = k.id",
         ["customer", "name"], ("customer",)),
        ("SELECT k.name, count(*) n FROM orders o JOIN countries k ON o.country = k.id GROUP BY k.name", ["name"],
         "dictionaries decide on all columns of its key"),
        ("SELECT id, country FROM orders UNION SELECT id, country FROM items", ["id", "country"], ("id", "country")),
        ("SELECT id, country FROM orders UNION SELECT id, region FROM countries", ["id", "country"],
         "dictionaries decide on all columns of its key"),
    ],
)  # fmt: skip
def test_a_view_is_cut_by_columns_that_no_dictionary_decides(text: str, key: list[str], cut: object):
    query = parse(text)
    assert isinstance(query, Query)
    assert by_streams(shape(query, TYPES), key, {"countries"}) == cut
