"""Writers are held back while epochs are too far behind, and never stopped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import ebla
from ebla.base.services import Rank, Scheduler
from ebla.catalog.lag import LOOK_S, Lag, is_too_great, publish, withdraw
from ebla.catalog.store import Catalog
from ebla.node.runner import Runner
from ebla.views.handlers.epochs import Epochs
from support.catalogs import statements
from support.warehouse import eventually

WAIT_S = 150
HELD_S_MAX = 140.0
"""Longer than the product's own: a writer of a test goes on because the epochs have ended, however slow they are."""


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog.open(str(tmp_path / "catalog"))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("lag_s", "max_lag_s", "expected"),
    [(0.0, 60.0, False), (60.0, 60.0, False), (61.0, 60.0, True), (600.0, None, False)],
)
def test_writes_are_held_back_beyond_a_lag(lag_s: float, max_lag_s: float | None, expected: bool) -> None:
    assert is_too_great(lag_s, max_lag_s) is expected


def test_the_lag_is_the_age_of_the_oldest_commit_that_is_not_read(catalog: Catalog) -> None:
    now_s = [100.0]
    lag = Lag(catalog, Scheduler(lambda: now_s[0], threads=False), 60.0)
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


def test_the_period_of_a_handler_is_no_lag(catalog: Catalog) -> None:
    now_s = [100.0]
    lag = Lag(catalog, Scheduler(lambda: now_s[0], threads=False), 60.0)
    lag.committed("handler/daily", 300.0)
    now_s[0] = 390.0
    assert lag.seconds == 0.0
    now_s[0] = 410.0
    assert lag.seconds == 10.0


def test_what_epochs_could_not_read_holds_no_writer_back(catalog: Catalog) -> None:
    """A view that fails is tried again after a pause; writers have no part in it."""
    now_s = [100.0]
    lag = Lag(catalog, Scheduler(lambda: now_s[0], threads=False), 1.0)
    lag.committed("handler/default")
    now_s[0] = 200.0
    with pytest.raises(ValueError, match="row"), lag.reading("handler/default"):
        raise ValueError("row")
    lag.hold()
    assert (lag.seconds, lag.held) == (0.0, 0)


def test_a_write_goes_on_when_the_epoch_has_ended(catalog: Catalog) -> None:
    now_s = [100.0]
    services = Scheduler(lambda: now_s[0], threads=False)
    lag = Lag(catalog, services, 10.0)
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


def test_the_lag_of_others_is_asked_for_once_in_a_while(catalog: Catalog) -> None:
    now_s = [100.0]
    lag = Lag(catalog, Scheduler(lambda: now_s[0], threads=False), 60.0)
    publish(catalog, 70.0)
    with statements(catalog) as sent:
        assert lag.elsewhere_s >= 70.0
        assert lag.elsewhere_s >= 70.0
    assert len(sent) == 1
    withdraw(catalog)
    assert lag.elsewhere_s >= 70.0
    now_s[0] += LOOK_S
    assert lag.elsewhere_s == 0.0
    unlimited = Lag(catalog, Scheduler(lambda: now_s[0], threads=False), None)
    publish(catalog, 70.0)
    unlimited.hold()
    assert unlimited.held == 0


def test_a_writer_waits_for_epochs_of_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two share nothing but the catalog, as processes do."""
    monkeypatch.setattr("ebla.catalog.lag.HOLD_S_MAX", HELD_S_MAX)
    where = str(tmp_path / "warehouse")
    with ebla.connect(where, max_lag_s=5.0) as maintains, ebla.connect(where, max_lag_s=1.0) as writes:
        writes.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
        maintains.context.services.drop(Runner.name)
        runner, lag = Runner(maintains.context, Epochs(maintains.context)), maintains.context.lag
        now_s = maintains.context.services.clock
        lag.committed("handler/default")
        lag._unread["handler/default"] -= 10.0
        runner.step(now_s())
        assert maintains.context.lag.is_too_great
        writer = threading.Thread(target=lambda: writes.table("t").upsert([{"id": 1}]))
        writer.start()
        eventually(lambda: writes.context.lag._asked_s > 0.0)
        with lag.reading("handler/default"):
            pass
        runner.step(now_s())
        writer.join(WAIT_S)
        assert writes.query("t").rows() == [(1,)]
        assert writes.context.lag.held == 1
        assert 0.0 < writes.context.lag.held_s < HELD_S_MAX
        assert writes.context.lag.seconds == 0.0, "its own epochs are not behind"
        writes.table("t").upsert([{"id": 2}])
        assert writes.context.lag.held == 1


def test_the_runner_looks_as_often_as_the_settings_say(tmp_path: Path) -> None:
    with ebla.connect(str(tmp_path / "warehouse"), jobs_period_s=0.2) as db:
        db.context.services.drop(Runner.name)
        runner = Runner(db.context, Epochs(db.context))
        now_s = db.context.services.clock()
        assert now_s < runner.step(now_s) <= db.context.services.clock() + 0.2


def test_compaction_waits_until_the_runner_has_looked(tmp_path: Path) -> None:
    """One commit wakes both. Otherwise a piece of compaction would have the cores when the epoch begins."""
    order: list[str] = []

    class Looking(Runner):
        wanted = True

        def _look(self, now_s: float) -> None:
            order.append(self.name)

    class Compaction:
        name = "compaction"
        wanted = True

        def step(self, now_s: float) -> None:
            order.append(self.name)

        def stop(self) -> None: ...

    with ebla.connect(str(tmp_path / "warehouse"), auto_refresh=False) as db:
        services = Scheduler(lambda: 100.0, threads=False)
        context = replace(db.context, services=services)
        services.add(Compaction(), rank=Rank.COMPACTION)
        Looking(context, Epochs(context))
        services.wake("compaction")
        services.wake("runner")
        services.run_due()
    assert order == ["runner", "compaction"]
