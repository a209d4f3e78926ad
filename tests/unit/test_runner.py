"""Jobs in the background: they do their work once for many wake-ups, wait longer after failures, and stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ebla.base.backoff import Backoff
from ebla.errors import ConflictError, StorageError
from ebla.node import runner
from ebla.node.runner import BACKOFF_S, Job, Turns

WAIT_S = 30


class Work:
    """Counts, and fails as often as it is told to."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.count = 0
        self._changed = threading.Condition()

    def __call__(self) -> bool:
        with self._changed:
            self.count += 1
            self._changed.notify_all()
        if self.failures:
            raise self.failures.pop(0)
        return False

    def done(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, WAIT_S)


Start = Callable[[Work, Callable[[float], float]], Job]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Job] = []

    def make(work: Work, pause_s: Callable[[float], float]) -> Job:
        job = Job("test", work, pause_s)
        started.append(job)
        job.start()
        return job

    yield make
    for job in started:
        job.stop()
        job.join()


def test_many_wake_ups_in_one_pause_are_one_piece_of_work(start: Start):
    work, over = Work(), [WAIT_S]
    job = start(work, lambda woken_at: float(over[0]))
    for _ in range(5):
        job.wake()
    assert work.count == 0
    over[0] = 0  # a shorter period counts at once
    job.wake()
    assert work.done(1)
    job.stop()
    job.join()
    assert work.count == 1


@pytest.mark.parametrize("error", [ConflictError("lost"), StorageError("broken"), ValueError("unexpected")])
def test_work_that_fails_is_done_again(start: Start, error: Exception, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "BACKOFF_S", Backoff(0.001, 30.0))
    work = Work(error, error)
    start(work, lambda woken_at: 0.0).wake()
    assert work.done(3)


def test_a_job_that_waits_stops_at_once(start: Start):
    work = Work()
    job = start(work, lambda woken_at: 3600.0)
    job.wake()
    job.stop()
    job.join()
    assert work.count == 0


def test_the_wait_after_failures_grows_up_to_a_bound():
    waits = [BACKOFF_S.after(n) for n in range(12)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert BACKOFF_S.after(1) == BACKOFF_S.first
    assert BACKOFF_S.after(10_000) == BACKOFF_S.most


def test_dictionaries_of_each_handler_have_their_own_turn():
    turns = Turns()
    turns.periods_s = {"often": 1.0, "rarely": 10.0}
    turns.want(100.0)
    assert turns.pause_s(100.0) == 1.0
    assert turns.take(100.5) == set()
    assert turns.take(101.0) == {"often"}
    assert turns.has_more()
    assert turns.pause_s(101.0) == 9.0
    turns.want(102.0)
    assert turns.take(110.0) == {"often", "rarely"}
    assert not turns.has_more()
    assert turns.pause_s(110.0) == 0.0


def test_a_handler_that_is_gone_has_no_turn():
    turns = Turns()
    turns.periods_s = {"gone": 1.0}
    turns.want(0.0)
    turns.periods_s = {}
    assert turns.take(5.0) == set()
    assert not turns.has_more()


def test_a_turn_that_failed_comes_again():
    turns = Turns()
    turns.periods_s = {"a": 100.0}
    turns.want(0.0)
    taken = turns.take(100.0)
    turns.put_back(taken)
    assert turns.has_more()
    assert turns.take(time.monotonic()) == {"a"}
