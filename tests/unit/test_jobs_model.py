"""Handlers as values: their JSON, settings, owners, what is wrong with them, and whom a dictionary concerns."""

from __future__ import annotations

from typing import Any

import pytest

from ebla.base.ids import RelationId, Version
from ebla.base.settings import Settings, load
from ebla.errors import UnknownNameError, UsageError
from ebla.model import handlers as m
from ebla.tables.horizon import horizons

V1, V2, V3, T1, T2 = (RelationId(n) for n in range(1, 6))

SHOP = m.Handler(
    name="shop",
    views=(V1, V2),
    inputs=(m.Input(relation=T1, batch=False), m.Input(relation=T2, batch=True, changefeed="feed")),
    consumer="c1",
    settings={"epoch_period_s": 5},
    should_run=False,
)


def test_a_handler_reads_back_as_it_was_written():
    assert m.Handler.parse("shop", SHOP.text(), False) == SHOP
    assert m.Handler.parse("empty", "{}", True) == m.Handler(name="empty")
    assert SHOP.batch == {T2}


def test_dropped_relations_leave_their_handler():
    left = SHOP.without({V1, T2})
    assert left.views == (V2,)
    assert left.inputs == (m.Input(relation=T1, batch=False),)
    assert (left.settings, left.consumer) == (SHOP.settings, SHOP.consumer)


def test_views_that_replace_others_take_their_places_together():
    assert SHOP.with_views({V1: V3, V2: T1}).views == (V3, T1)


# ---- settings -------------------------------------------------------------------------------------------


def test_what_is_not_set_falls_back_to_the_dictionary_job_and_to_the_process():
    settings = load(epoch_period_s=2.0, dictionary_period_s=9.0)
    job = m.Handler(name=m.DICTIONARY, settings={"dictionary_period_s": 3.0, "epoch_period_s": 77.0})
    found = m.tuning(SHOP, settings, job)
    assert (found.epoch_period_s, found.dictionary_period_s) == (5, 3.0)
    own = m.with_settings(SHOP, {"dictionary_period_s": 1, "epoch_period_s": None})
    found = m.tuning(own, settings, job)
    assert (found.epoch_period_s, found.dictionary_period_s) == (2.0, 1)
    assert m.tuning(SHOP, settings).dictionary_period_s == 9.0


def test_every_setting_of_a_handler_is_one_of_the_process():
    assert set(m.SETTINGS) <= set(Settings.model_fields)


def test_should_run_is_set():
    assert m.with_settings(SHOP, {"should_run": True}).should_run
    assert m.with_settings(SHOP, {}).should_run is False


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"should_run": 1}, UsageError, "should_run: expected true or false, found 1"),
        ({"epoch_period": 1}, UnknownNameError, "expected a setting of should_run, epoch_period_s"),
        ({"epoch_period_s": -1}, UsageError, "epoch_period_s: expected a number from 0, found -1"),
        ({"epoch_period_s": True}, UsageError, "found True"),
        ({"epoch_period_s": "soon"}, UsageError, "found 'soon'"),
        ({"batch_rows_max": 1.5}, UsageError, "expected a whole number from 0, found 1.5"),
        ({"dictionary_rows_per_s": 0}, UsageError, "expected a number more than 0, found 0"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, object], kind: type[UsageError], says: str):
    with pytest.raises(kind, match=says.replace("(", r"\(")) as caught:
        m.with_settings(SHOP, given)
    assert caught.type is kind


# ---- owners ---------------------------------------------------------------------------------------------


def test_a_view_that_no_handler_names_is_of_the_default_one():
    found = m.owners([V1, V2, V3], [SHOP])
    assert [found[v].name for v in (V1, V2, V3)] == ["shop", "shop", "default"]
    slow = m.Handler(name="default", settings={"epoch_period_s": 60})
    assert m.owners([V3], [SHOP, slow])[V3] is slow


# ---- dictionaries ---------------------------------------------------------------------------------------


def batch(name: str, read: int | None, gathered: int | None, horizon: int = 0) -> m.BatchInput:
    return m.BatchInput(
        name=name,
        relation=T1,
        read=None if read is None else Version(read),
        gathered=None if gathered is None else Version(gathered),
        horizon=Version(horizon),
    )


def test_an_epoch_reads_dictionaries_where_they_are():
    inputs = [batch("kept", 5, 9), batch("first", None, 9), batch("forgotten", 5, 9, horizon=6)]
    assert m.held(inputs, Version(20)) == {"kept": 5, "first": 20, "forgotten": 20}


def test_a_refresh_brings_dictionaries_to_what_is_gathered():
    inputs = [batch("newer", 5, 9), batch("same", 9, 9), batch("ahead", 10, 9), batch("first", None, 9)]
    assert m.advanced([*inputs, batch("never", 5, None)]) == {"newer": 9}


@pytest.mark.parametrize(
    ("logged", "used", "expected"),
    [
        ([], None, False),
        ([["note"]], None, True),
        ([["note"]], {"name"}, False),
        ([["note"], ["Name"]], {"name"}, True),
        ([["*"]], {"name"}, True),
        ([["*"]], frozenset(), True),  # a view may count rows without using a column
        ([["note"]], frozenset(), False),
    ],
)
def test_a_change_of_unused_columns_concerns_nobody(logged: Any, used: Any, expected: bool):
    assert m.touches(logged, used) is expected


INPUTS = {"a": ["t"], "b": ["a", "t"], "c": ["b"], "d": ["t"]}


def test_views_behind_a_busy_one_wait_with_it():
    assert m.behind_busy(INPUTS, {"a"}) == {"a", "b", "c"}
    assert m.behind_busy(INPUTS, set()) == set()


def test_views_come_with_what_they_read():
    assert m.with_inputs(INPUTS, ["C"]) == {"c", "b", "a"}
    assert m.with_inputs(INPUTS, ["d", "x"]) == {"d"}


def test_vacuum_leaves_a_dictionary_the_version_that_a_view_reads():
    read = {T1: Version(5), T2: None}
    assert horizons([T1, T2, V1], Version(9), read) == {T1: 5, T2: 9, V1: 9}
    assert horizons([T1], Version(3), read) == {T1: 3}
