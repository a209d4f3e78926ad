"""Work that moves files leaves its process to writers and queries, and goes on all the same."""

from __future__ import annotations

import threading

import pytest

from ebla.base import pace
from ebla.base.pace import Pace
from ebla.base.precedence import Precedence
from ebla.storage import runs as rf


class Clock:
    """Time that passes where something sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turns(clock: Clock) -> Pace:
    return Pace(clock, clock.sleep)


def piece(turns: Pace, clock: Clock, takes_s: float = 0.1) -> None:
    with turns.turn():
        clock.now_s += takes_s


def test_beside_writers_it_has_its_share_of_the_time(turns: Pace, clock: Clock):
    with turns.first(), turns.paced(0.25):
        for _ in range(10):
            piece(turns, clock)
    assert clock.now_s == pytest.approx(100 + 10 * 0.1 / 0.25)
    assert turns.paused_s == pytest.approx(3.0)


def test_it_does_not_pause_where_neither_writers_nor_queries_are_at_work(turns: Pace, clock: Clock):
    with turns.paced(0.25):
        piece(turns, clock)
    with turns.first():
        pass
    clock.now_s += pace.QUIET_S
    with turns.paced(0.25):
        piece(turns, clock)
    assert not clock.slept


def test_writers_that_follow_each_other_count_as_at_work(turns: Pace, clock: Clock):
    with turns.first():
        pass
    with turns.paced(0.5):
        piece(turns, clock, pace.QUIET_S / 4)
    assert sum(clock.slept) == pytest.approx(pace.QUIET_S / 4)


def test_a_pause_ends_when_the_process_is_left_alone(turns: Pace, clock: Clock):
    begun = turns.first()
    begun.__enter__()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if len(clock.slept) == 2:
            begun.__exit__(None, None, None)

    turns._sleep = sleep
    with turns.paced(0.01):
        piece(turns, clock)
    assert sum(clock.slept) <= 3 * pace.QUIET_S


def test_a_slow_piece_is_followed_by_no_endless_pause(turns: Pace, clock: Clock):
    with turns.first(), turns.paced(0.001):
        piece(turns, clock, takes_s=60)
    assert sum(clock.slept) == pytest.approx(pace.PAUSE_S_MAX)


def test_a_share_of_one_and_work_of_users_never_pause(turns: Pace, clock: Clock):
    with turns.first():
        piece(turns, clock)
        with turns.paced(1):
            piece(turns, clock)
        with turns.paced(0.25):
            pass
        piece(turns, clock)
    assert not clock.slept


def test_a_piece_that_fails_gives_its_turn_back(turns: Pace, clock: Clock):
    with turns.first(), turns.paced(0.25):
        with pytest.raises(OSError, match="gone"), turns.turn():
            raise OSError("gone")
        piece(turns, clock)
    assert turns.paused_s == pytest.approx(0.3)


@pytest.mark.parametrize("busy", [True, False])
def test_pieces_go_one_at_a_time_beside_writers_and_side_by_side_without(busy: bool):
    turns = Pace()
    both = threading.Barrier(2)
    met: list[bool] = []

    def work() -> None:
        with turns.paced(0.5), turns.turn():
            try:
                both.wait(0.3 if busy else 60)
            except threading.BrokenBarrierError:
                met.append(False)
            else:
                met.append(True)

    threads = [threading.Thread(target=work) for _ in range(2)]
    if busy:
        with turns.first():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    else:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert met == [not busy] * 2


def test_small_pieces_together_are_one(turns: Pace, clock: Clock):
    with turns.first(), turns.paced(0.25):
        with turns.turn() as alone:
            for _ in range(10):
                with turns.turn() as inner:
                    assert (alone, inner) == (True, False)
                    clock.now_s += 0.01
        assert turns.paused_s == pytest.approx(0.3)
        piece(turns, clock)
    assert turns.paused_s == pytest.approx(0.6)


def test_threads_that_work_within_a_turn_have_it_already():
    with pace.PACE.first(), pace.PACE.paced(0.9), pace.PACE.turn():
        met = threading.Barrier(4)

        def work(_: int) -> bool:
            with pace.PACE.turn() as alone:
                met.wait(60)
                return alone

        assert rf.in_threads(work, range(4)) == [False] * 4
    with pace.PACE.first(), pace.PACE.paced(0.9), pace.PACE.turn() as alone:
        assert alone, "the turn behind it is another one"


def test_a_query_goes_first():
    turns = Pace()
    precedence = Precedence(pace=turns)
    assert not turns.is_busy
    with precedence.query():
        assert turns.is_busy


def test_threads_that_work_for_it_have_its_share():
    with pace.PACE.paced(0.25):
        assert set(rf.in_threads(lambda _: pace.PACE.share, range(4))) == {0.25}
    assert set(rf.in_threads(lambda _: pace.PACE.share, range(4))) == {1.0}
