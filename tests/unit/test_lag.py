"""Writers are held back while epochs are too far behind, and never stopped."""

from __future__ import annotations

import threading

import pytest

from ebla.base.lag import Lag, is_too_great
from ebla.base.services import Scheduler

WAIT_S = 30


@pytest.mark.parametrize(
    ("lag_s", "max_lag_s", "expected"),
    [(0.0, 60.0, False), (60.0, 60.0, False), (61.0, 60.0, True), (600.0, None, False)],
)
def test_writes_are_held_back_beyond_a_lag(lag_s: float, max_lag_s: float | None, expected: bool) -> None:
    assert is_too_great(lag_s, max_lag_s) is expected


def test_the_lag_is_the_age_of_the_oldest_commit_that_is_not_read() -> None:
    now_s = [100.0]
    lag = Lag(Scheduler(lambda: now_s[0], threads=False), 60.0)
    assert lag.seconds == 0.0
    lag.committed("handler/default")
    now_s[0] = 103.0
    lag.committed("handler/default")
    assert lag.seconds == 3.0
    with lag.reading("handler/default"):
        now_s[0] = 105.0
        lag.committed("handler/default")
        now_s[0] = 106.0
        assert lag.seconds == 6.0
    assert lag.seconds == 1.0
    lag.committed("handler/shop")
    lag.forget("handler/default")
    assert lag.seconds == 0.0


def test_the_period_of_a_handler_is_no_lag() -> None:
    now_s = [100.0]
    lag = Lag(Scheduler(lambda: now_s[0], threads=False), 60.0)
    lag.committed("handler/daily", 300.0)
    now_s[0] = 390.0
    assert lag.seconds == 0.0
    now_s[0] = 410.0
    assert lag.seconds == 10.0


def test_what_epochs_could_not_read_holds_no_writer_back() -> None:
    """A view that fails is tried again after a pause; writers have no part in it."""
    now_s = [100.0]
    lag = Lag(Scheduler(lambda: now_s[0], threads=False), 1.0)
    lag.committed("handler/default")
    now_s[0] = 200.0
    with pytest.raises(ValueError, match="row"), lag.reading("handler/default"):
        raise ValueError("row")
    lag.hold()
    assert (lag.seconds, lag.held) == (0.0, 0)


def test_a_write_goes_on_when_the_epoch_has_ended() -> None:
    now_s = [100.0]
    services = Scheduler(lambda: now_s[0], threads=False)
    lag = Lag(services, 10.0)
    lag.committed("handler/default")
    now_s[0] = 150.0
    written = threading.Event()

    def write() -> None:
        lag.hold()
        written.set()

    with lag.reading("handler/default"):
        writer = threading.Thread(target=write)
        writer.start()
        assert not written.is_set()
    services.notify()
    assert written.wait(WAIT_S)
    writer.join(WAIT_S)
