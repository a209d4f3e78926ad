"""Services in the background: one step for many wake-ups, longer waits after failures, and an end.

Most of it without threads: the clock is moved by hand.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator

import pytest

from ebla.base.backoff import Backoff
from ebla.base.services import BACKOFF_S, END_S, GIVE_WAY_S, HEARTS, Rank, Scheduler, gives_way
from ebla.errors import ConflictError, StorageError
from ebla.node.jobs import GATHER_S_MAX, Job, Turns, begins_s

WAIT_S = 50


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Work:
    """A service that counts its steps, and fails as often as it is told to."""

    def __init__(self, *failures: Exception, name: str = "work", every_s: float | None = None) -> None:
        self.name = name
        self.wanted = True
        self.failures = list(failures)
        self.every_s = every_s
        self.count = 0
        self.stopped = 0

    def step(self, now_s: float) -> float | None:
        self.count += 1
        if self.failures:
            raise self.failures.pop(0)
        return None if self.every_s is None else now_s + self.every_s

    def once(self) -> float:
        self.step(0.0)
        return 0.0

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def services(clock: Clock) -> Scheduler:
    return Scheduler(clock, threads=False)


@pytest.fixture
def threads() -> Iterator[Scheduler]:
    found = Scheduler()
    yield found
    found.close(WAIT_S)


# ---- steps ----------------------------------------------------------------------------------------------


def test_many_wake_ups_in_one_pause_are_one_piece_of_work(services: Scheduler, clock: Clock) -> None:
    work, period_s = Work(), [10.0]
    services.add(Job("job", work.once, lambda: period_s[0], clock))
    for _ in range(5):
        services.wake("job")
        services.run_due()
    assert work.count == 0
    assert services.next_s == clock() + 10
    period_s[0] = 0  # a shorter period counts at once
    services.wake("job")
    services.run_due()
    assert work.count == 1
    assert services.next_s == math.inf


@pytest.mark.parametrize(
    ("woken_s", "last", "period_s", "expected"),
    [
        (100.0, None, None, 100.0),  # the first
        (100.0, (90.0, 90.5), None, 100.0),  # idle since
        (100.0, (99.5, 99.9), None, 100.3),  # as long as the last one took
        (100.0, (90.0, 99.9), None, 99.9 + GATHER_S_MAX),  # behind, to a bound
        (100.0, (99.0, 99.9), 5.0, 105.0),  # a period is kept
        (100.0, None, 0.0, 100.0),
    ],
)
def test_work_begins_at_once_when_idle_and_gathers_longer_when_behind(
    woken_s: float, last: tuple[float, float] | None, period_s: float | None, expected: float
) -> None:
    assert begins_s(woken_s, last, period_s) == pytest.approx(expected)


@pytest.mark.parametrize(("took_s", "most"), [(0.1, 51), (0.5, 11), (3.0, 4)])
def test_a_burst_of_writes_is_read_by_few_epochs(services: Scheduler, clock: Clock, took_s: float, most: int) -> None:
    """A hundred writes a second for ten seconds: an epoch begins at once, and then as often as its price allows."""
    begun: list[float] = []

    def epoch() -> float:
        begun.append(clock())
        clock.now_s += took_s
        return 0.0

    services.add(Job("job", epoch, lambda: None, clock))
    first_s = clock()
    while clock() < first_s + 10:
        services.wake("job")
        services.run_due()
        clock.now_s += 0.01
    assert begun[0] == first_s
    assert len(begun) <= most
    gaps = [late - early - took_s for early, late in itertools.pairwise(begun)]
    assert max(gaps) <= min(took_s, GATHER_S_MAX) + 0.02


def test_a_job_that_cannot_work_now_tries_again(services: Scheduler, clock: Clock) -> None:
    answers = [1.0, 0.0]
    services.add(Job("job", lambda: answers.pop(0), lambda: 0.0, clock))
    services.wake("job")
    services.run_due()
    assert services.next_s == clock() + 1
    services.wake("job")
    services.run_due()
    assert len(answers) == 1  # a wake-up does not shorten the wait
    clock.now_s += 1
    services.run_due()
    assert answers == []
    assert services.next_s == math.inf


def test_a_service_is_stepped_when_it_said_so_or_when_it_is_woken(services: Scheduler, clock: Clock) -> None:
    work = Work(every_s=5.0)
    services.add(work)
    assert services.run_due() == 0  # the first step comes with a wake-up
    services.wake("work", "one that is not there")
    assert services.run_due() == 1
    clock.now_s += 4.9
    assert services.run_due() == 0
    services.wake("work")
    assert services.run_due() == 1
    clock.now_s += 5
    assert services.run_due() == 1


def test_one_that_is_not_wanted_is_not_woken(services: Scheduler) -> None:
    work = Work()
    work.wanted = False
    services.add(work)
    services.wake("work")
    assert services.run_due() == 0


def test_groups_are_woken_by_the_beginning_of_their_names(services: Scheduler) -> None:
    works = [Work(name=name) for name in ("handler/a", "handler/b", "runner")]
    for work in works:
        services.add(work, lane=HEARTS)
    services.wake_group("handler/")
    services.run_due()
    assert [work.count for work in works] == [1, 1, 0]


# ---- ranks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank", "at_work", "waited_s", "running", "expected"),
    [
        (Rank.COMPACTION, {Rank.EPOCH, Rank.COMPACTION}, 0.0, set(), True),
        (Rank.VACUUM, {Rank.COMPACTION}, 0.0, set(), True),
        (Rank.COMPACTION, {Rank.EPOCH}, GIVE_WAY_S, set(), False),
        (Rank.COMPACTION, {Rank.EPOCH}, GIVE_WAY_S, {Rank.EPOCH}, True),
        (Rank.COMPACTION, {Rank.EPOCH}, END_S, {Rank.EPOCH}, False),
        (Rank.COMPACTION, {Rank.COMPACTION, Rank.VACUUM, None}, 0.0, set(), False),
        (Rank.EPOCH, {Rank.COMPACTION}, 0.0, set(), False),
        (None, {Rank.EPOCH}, 0.0, {Rank.EPOCH}, False),
    ],
)
def test_work_gives_way_to_ranks_before_its_own(
    rank: Rank | None, at_work: set[Rank | None], waited_s: float, running: set[Rank | None], expected: bool
) -> None:
    assert gives_way(rank, at_work, waited_s, running) is expected


def test_epochs_go_before_compaction_and_compaction_comes_to_its_turn(services: Scheduler, clock: Clock) -> None:
    order: list[str] = []

    class Named(Work):
        def step(self, now_s: float) -> float | None:
            order.append(self.name)
            return super().step(now_s)

    services.add(Named(name="compaction"), rank=Rank.COMPACTION)
    services.add(Named(name="epoch"), rank=Rank.EPOCH)
    services.wake("compaction")
    services.wake("epoch")
    assert services.should_yield(Rank.COMPACTION)
    assert not services.should_yield(Rank.EPOCH)
    clock.now_s += 1
    services.run_due()
    assert order == ["epoch", "compaction"]
    assert not services.should_yield(Rank.COMPACTION)


def test_what_a_user_waits_for_goes_before_steps_of_later_ranks(services: Scheduler, clock: Clock) -> None:
    compaction, epoch = Work(name="compaction"), Work(name="epoch")
    services.add(compaction, rank=Rank.COMPACTION)
    services.add(epoch, rank=Rank.EPOCH)
    with services.requested(Rank.EPOCH):
        services.wake("compaction", "epoch")
        assert services.should_yield(Rank.COMPACTION)
        services.run_due()
        clock.now_s += END_S - 1  # it began before, so its end is waited for
        services.run_due()
        assert (epoch.count, compaction.count) == (1, 0)
    assert not services.should_yield(Rank.COMPACTION)
    services.run_due()
    assert compaction.count == 1


def test_what_a_user_waits_for_is_not_waited_for_for_ever(services: Scheduler, clock: Clock) -> None:
    compaction = Work(name="compaction")
    services.add(compaction, rank=Rank.COMPACTION)
    with services.requested(Rank.EPOCH):
        services.wake("compaction")
        services.run_due()
        clock.now_s += END_S
        services.run_due()
        assert compaction.count == 1


def test_a_step_that_gave_way_begins_when_what_a_user_waited_for_has_ended(clock: Clock) -> None:
    begun, services = threading.Event(), Scheduler(clock)

    class Compaction(Work):
        def step(self, now_s: float) -> float | None:
            begun.set()
            return super().step(now_s)

    services.add(Compaction(name="compaction"), rank=Rank.COMPACTION)
    try:
        with services.requested(Rank.EPOCH):
            services.wake("compaction")
            clock.now_s += GIVE_WAY_S + 1
            services.notify()
        assert begun.wait(WAIT_S)  # by itself it would look again in a minute
    finally:
        services.close()


def test_a_step_begins_when_the_one_that_goes_first_has_ended(threads: Scheduler) -> None:
    entered, go, done = threading.Event(), threading.Event(), threading.Event()

    class Epoch(Work):
        def step(self, now_s: float) -> float | None:
            entered.set()
            go.wait(WAIT_S)
            return super().step(now_s)

    class Compaction(Work):
        def step(self, now_s: float) -> float | None:
            done.set()
            return super().step(now_s)

    epoch, compaction = Epoch(name="epoch"), Compaction(name="compaction")
    threads.add(epoch, rank=Rank.EPOCH)
    threads.add(compaction, rank=Rank.COMPACTION)
    threads.wake("epoch")
    assert entered.wait(WAIT_S)
    assert threads.should_yield(Rank.COMPACTION)
    threads.wake("compaction")
    go.set()
    assert done.wait(WAIT_S)
    assert epoch.count == 1
    assert threads.wait_idle("compaction", WAIT_S)


def test_a_step_waits_for_the_end_of_a_long_one_and_not_for_the_next(services: Scheduler, clock: Clock) -> None:
    """Of an epoch of five seconds, behind which another one is due at once."""
    began: list[tuple[str, float]] = []

    class Epoch(Work):
        def step(self, now_s: float) -> float | None:
            began.append((self.name, now_s))
            services.wake("compaction")
            for _ in range(5):
                clock.now_s += 1
                services.run_due()
            if len(began) < 3:
                services.wake("epoch")
            return super().step(now_s)

    class Compaction(Work):
        def step(self, now_s: float) -> float | None:
            began.append((self.name, now_s))
            return super().step(now_s)

    services.add(Compaction(name="compaction"), rank=Rank.COMPACTION)
    services.add(Epoch(name="epoch"), rank=Rank.EPOCH)
    start_s = clock.now_s
    services.wake("epoch")
    services.run_due()
    assert [(name, at_s - start_s) for name, at_s in began[:2]] == [("epoch", 0.0), ("compaction", 5.0)]


# ---- failures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ConflictError("lost"), StorageError("broken")])
def test_work_that_fails_is_done_again(services: Scheduler, clock: Clock, error: Exception) -> None:
    work = Work(error, error)
    services.add(work, backoff=Backoff(1.0, 30.0))
    services.wake("work")
    services.run_due()
    services.wake("work")
    services.run_due()
    assert work.count == 1  # a wake-up does not shorten the pause
    clock.now_s += 1
    services.run_due()
    assert work.count == 2
    grown_s = 1.0 if isinstance(error, ConflictError) else 2.0
    assert services.next_s == clock() + grown_s
    clock.now_s += grown_s
    services.run_due()
    assert work.count == 3
    assert services.next_s == math.inf


def test_work_that_fails_unexpectedly_is_done_again(threads: Scheduler) -> None:
    work = Work(ValueError("unexpected"), ValueError("unexpected"))
    threads.add(work, backoff=Backoff(0.001, 30.0))
    threads.wake("work")
    assert threads.wait_for(lambda: work.count == 3, WAIT_S)


def test_a_service_that_fails_holds_up_no_other_of_its_lane(services: Scheduler) -> None:
    broken, other = Work(StorageError("broken"), name="broken"), Work(name="other")
    for work in (broken, other):
        services.add(work, lane=HEARTS)
    services.wake("broken", "other")
    services.run_due()
    assert other.count == 1


def test_the_wait_after_failures_grows_up_to_a_bound() -> None:
    waits = [BACKOFF_S.after(n) for n in range(12)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert BACKOFF_S.after(1) == BACKOFF_S.first
    assert BACKOFF_S.after(10_000) == BACKOFF_S.most


# ---- ends -----------------------------------------------------------------------------------------------


def test_a_service_that_waits_stops_at_once(threads: Scheduler) -> None:
    work = Work(every_s=3600.0)
    threads.add(work)
    threads.wake("work")
    assert threads.wait_for(lambda: work.count == 1, WAIT_S)
    assert threads.stop("work")
    threads.wake("work")
    threads.close(WAIT_S)
    assert (work.count, work.stopped) == (1, 1)
    assert not [t for t in threading.enumerate() if t.name == "ebla-work"]


class Slow(Work):
    """A step that runs until it is let go."""

    def __init__(self, name: str = "slow") -> None:
        super().__init__(name=name)
        self.began, self.may_end = threading.Event(), threading.Event()

    def step(self, now_s: float) -> float | None:
        self.began.set()
        assert self.may_end.wait(WAIT_S)
        return super().step(now_s)


def test_a_step_that_runs_is_waited_for_up_to_a_deadline(threads: Scheduler) -> None:
    slow, heart = Slow(), Work(name="heart", every_s=0.001)
    threads.add(heart, lane=HEARTS)
    threads.add(slow)
    threads.wake("slow", "heart")
    assert slow.began.wait(WAIT_S)
    assert not threads.stop("slow", timeout_s=0.01)
    assert slow.stopped == 0
    beats = heart.count
    assert threads.wait_for(lambda: heart.count > beats, WAIT_S)  # hearts beat to the end of the work
    slow.may_end.set()
    threads.close(WAIT_S)
    assert (slow.count, heart.stopped) == (1, 1)


def test_one_in_the_place_of_another_waits_for_its_step(threads: Scheduler) -> None:
    """As a handler that is dropped and created again."""
    before, after = Slow(), Work(name="slow")
    threads.add(before)
    threads.wake("slow")
    assert before.began.wait(WAIT_S)
    threads.drop("slow")
    threads.add(after)
    threads.wake("slow")
    assert after.count == 0
    before.may_end.set()
    assert threads.wait_idle("slow", WAIT_S)
    assert (before.count, after.count) == (1, 1)


def test_a_wake_up_during_a_step_leads_to_another(threads: Scheduler) -> None:
    slow = Slow()
    threads.add(slow)
    threads.wake("slow")
    assert slow.began.wait(WAIT_S)
    assert threads.is_stepping("slow")
    threads.wake("slow")
    slow.may_end.set()
    assert threads.wait_idle("slow", WAIT_S)
    assert slow.count == 2


# ---- turns ----------------------------------------------------------------------------------------------


def test_dictionaries_of_each_handler_have_their_own_turn() -> None:
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


def test_a_handler_that_is_gone_has_no_turn() -> None:
    turns = Turns()
    turns.periods_s = {"gone": 1.0}
    turns.want(0.0)
    turns.periods_s = {}
    assert turns.take(5.0) == set()
    assert not turns.has_more()


def test_a_turn_that_failed_comes_again() -> None:
    turns = Turns()
    turns.periods_s = {"a": 100.0}
    turns.want(0.0)
    taken = turns.take(100.0)
    turns.put_back(taken, 101.0)
    assert turns.has_more()
    assert turns.take(101.0) == {"a"}


def test_nothing_is_added_while_all_is_closed_and_one_that_cannot_stop_does_not_keep_the_others(clock: Clock):
    scheduler = Scheduler(clock, threads=False)
    late, other = Work(name="late"), Work(name="other")

    class Stubborn(Work):
        def stop(self) -> None:
            scheduler.add(late)
            raise OSError("gone")

    scheduler.add(Stubborn(name="stubborn"))
    scheduler.add(other, lane=HEARTS)
    scheduler.close()
    assert other.stopped == 1
    assert "late" not in scheduler


def test_one_that_is_asked_to_step_later_during_its_step_does_so(clock: Clock):
    """What it has read by then may be older than what it is asked for."""
    scheduler = Scheduler(clock, threads=False)

    class Asked(Work):
        def step(self, now_s: float) -> float | None:
            if self.count == 0:
                scheduler.wake_in(self.name, 3.0)
            return super().step(now_s)

    work = Asked()
    scheduler.add(work)
    scheduler.wake("work")
    assert (scheduler.run_due(), scheduler.next_s) == (1, clock.now_s + 3)
    clock.now_s += 3
    assert (scheduler.run_due(), scheduler.next_s) == (1, math.inf)


def test_a_service_may_be_asked_to_step_later_and_no_later_than_it_is_due(clock: Clock):
    scheduler, work = Scheduler(clock, threads=False), Work(every_s=10.0)
    scheduler.add(work)
    scheduler.wake_in("work", 3.0)
    assert scheduler.run_due() == 0
    clock.now_s += 2
    scheduler.wake_in("work", 3.0)  # it is due in one second already
    clock.now_s += 1
    assert scheduler.run_due() == 1
    scheduler.wake_in("work", 30.0)
    assert scheduler.next_s == clock.now_s + 10
    scheduler.wake_in("unknown", 1.0)
