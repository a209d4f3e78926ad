"""Work in the background lets queries go first, and comes to its turn all the same."""

from __future__ import annotations

import threading

import pytest

from ebla.base import precedence
from ebla.base.precedence import Precedence


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_work_behind_queries_goes_on_when_the_last_one_has_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(precedence, "PAUSE_S_MAX", 60.0)
    turns, order = Precedence(), list[str]()
    asks = threading.Event()

    def work() -> None:
        with turns.behind():
            asks.set()
            turns.give_way()
            order.append("work")

    thread = threading.Thread(target=work)
    with turns.query():
        with turns.query():
            thread.start()
            asks.wait()
        order.append("query")
    thread.join()
    assert order == ["query", "work"]


def test_other_work_waits_for_no_query():
    turns = Precedence()
    with turns.query():
        turns.give_way()
    with turns.behind():
        turns.give_way()
    assert turns.paused == 0


def test_a_query_does_not_wait_for_itself():
    turns = Precedence()
    with turns.behind(), turns.query():
        turns.give_way()
    assert turns.paused == 0


def test_work_that_has_paused_works_for_as_long_whatever_runs(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    turns = Precedence(clock)

    def pause(took_s: float) -> None:
        monkeypatch.setattr(turns._ended, "wait_for", lambda *_: setattr(clock, "now_s", clock.now_s + took_s))
        turns.give_way()

    def work() -> None:
        with turns.behind():
            pause(0.05)
            clock.now_s += 0.04
            pause(0.02)  # too early
            clock.now_s += 0.02
            pause(0.02)

    with turns.query():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert turns.paused == 2
    assert turns.paused_s == pytest.approx(0.07)


def test_threads_that_work_for_a_thread_behind_queries_are_behind_them():
    turns = Precedence()
    seen: list[bool] = []

    def one() -> None:
        seen.append(turns.is_behind)

    functions = [turns.bound(one)]
    with turns.behind():
        functions.append(turns.bound(one))
    for function in functions:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()
    assert seen == [False, True]
    assert not turns.is_behind
