"""Pieces of a compaction: which are abandoned, and how much is done in vain at most."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ebla.errors import SparkJobError
from ebla.spark.pieces import CREDIT_S, EARLY, AbandonedError, Pieces
from ebla.spark.tags import Tags


class Jobs(Tags):
    """Spark's jobs: one that is cancelled fails."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.tags: list[str] = []
        self.cancelled: list[str] = []

    @contextlib.contextmanager
    def statement(self, *, with_jobs: bool = False, tag: str | None = None) -> Iterator[None]:
        assert with_jobs
        assert tag is not None
        self.tags.append(tag)
        yield

    def cancel(self, tag: str) -> None:
        self.cancelled.append(tag)

    def job(self) -> None:
        if self.tags[-1] in self.cancelled:
            raise SparkJobError("t: Spark lost a job: it was cancelled", lost=True)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Compaction:
    """Pieces one after the other, on a clock that is moved by hand."""

    def __init__(self) -> None:
        self.jobs, self.clock = Jobs(), Clock()
        self.pieces = Pieces(self.jobs, self.clock)
        self.ended_s: list[float] = []
        """How long each piece was at work that went on to its end, and each that was abandoned."""
        self.abandoned_s: list[float] = []

    def piece(self, rows: int, takes_s: float, epoch_after_s: float | None = None) -> bool:
        """One piece, with a large epoch that begins a while after it; whether it ended."""
        began_s, after_s = self.clock.now_s, takes_s if epoch_after_s is None else min(takes_s, epoch_after_s)
        try:
            with self.pieces.at_work(rows):
                self.clock.now_s += after_s
                if after_s < takes_s:
                    self.pieces.abandon()
                self.jobs.job()
                self.clock.now_s += takes_s - after_s
        except AbandonedError:
            self.abandoned_s.append(self.clock.now_s - began_s)
            return False
        self.ended_s.append(takes_s)
        return True


def test_pieces_that_ended_earn_what_others_may_lose() -> None:
    work = Compaction()
    assert work.piece(100, 10.0, epoch_after_s=1.0)  # nothing is earned
    assert [work.piece(100, 10.0, epoch_after_s=4.0) for _ in range(7)] == [
        False,
        False,
        True,
        False,
        False,
        False,
        True,
    ]
    assert work.jobs.cancelled == [work.jobs.tags[number] for number in (1, 2, 4, 5, 6)]
    assert len(set(work.jobs.tags)) == 8


def test_a_piece_of_which_most_is_done_goes_on() -> None:
    work = Compaction()
    assert work.piece(100, 10.0)
    assert work.piece(100, 10.0, epoch_after_s=10.0 * EARLY + 0.1)
    assert work.piece(200, 20.0, epoch_after_s=20.0 * EARLY + 0.1)
    assert not work.piece(200, 20.0, epoch_after_s=20.0 * EARLY - 0.1)


def test_what_may_be_lost_in_a_row_is_bounded() -> None:
    work = Compaction()
    for _ in range(100):
        assert work.piece(100, 10.0)
    lost = 0
    while not work.piece(100, 10.0, epoch_after_s=5.0):
        lost += 1
    assert lost == CREDIT_S / 5.0


@pytest.mark.parametrize("varies", [1.0, 3.0])
@pytest.mark.parametrize("soon", [0.1, 1.0])
def test_less_time_is_lost_than_is_spent_on_pieces_that_end(varies: float, soon: float) -> None:
    """Large epochs come in nearly every piece, and pieces end all the same.

    `varies`: how many times longer one piece takes for its rows than another. `soon`: in which part of it they come.
    """
    chance = random.Random(f"{varies} {soon}")
    work = Compaction()
    for _ in range(3_000):
        rows = chance.randint(5, 10)
        takes_s = rows * chance.uniform(1.0, varies)
        work.piece(rows, takes_s, chance.choice([None, *[chance.uniform(0.0, takes_s * soon)] * 9]))
        assert sum(work.abandoned_s) <= sum(work.ended_s)
    assert len(work.abandoned_s) > 300
    assert len(work.ended_s) > 100


def test_nothing_is_cancelled_where_no_piece_is_at_work() -> None:
    work = Compaction()
    assert not work.pieces.abandon()
    assert work.piece(100, 10.0)
    assert not work.pieces.abandon()
    assert work.jobs.cancelled == []


def test_what_fails_by_itself_is_no_abandoned_piece() -> None:
    work = Compaction()
    assert work.piece(100, 10.0)
    with pytest.raises(ValueError, match="wrong"), work.pieces.at_work(100):
        raise ValueError("wrong")
    assert not work.piece(100, 10.0, epoch_after_s=1.0)


def test_a_piece_whose_jobs_were_over_has_ended() -> None:
    work = Compaction()
    with work.pieces.at_work(100):
        assert work.pieces.abandon()
        assert not work.pieces.abandon()
        work.clock.now_s += 10.0
    assert not work.piece(100, 10.0, epoch_after_s=5.0)


def test_a_job_that_has_not_begun_is_not_begun() -> None:
    pieces = Pieces(Tags(lambda: None), Clock())

    def piece() -> None:
        pieces.check()
        assert pieces.abandon()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(pieces.check).result()  # a statement's job, in another thread
        pieces.check()

    with pytest.raises(AbandonedError), pieces.at_work(100):
        piece()
    pieces.check()
