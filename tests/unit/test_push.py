"""Wake-ups of other nodes behind commits, with a clock moved by hand and without threads."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ebla.base.precedence import PRECEDENCE
from ebla.base.services import Scheduler
from ebla.cluster.peer import Peer
from ebla.cluster.peers import GAP_S, Push
from ebla.errors import CatalogUnavailableError

PEERS = (Peer("http://one"), Peer("http://two"))


class Cluster:
    """Commits of this process, and what the others are sent."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.version = 0
        self.sent: list[tuple[str, int]] = []
        self.behind: list[bool] = []
        self.failures: list[Exception] = []
        self.meanwhile = 0
        """Commits that come while the step looks."""
        self.services = Scheduler(lambda: self.now_s, threads=False)
        self.push = Push(self.services, self.look, lambda peer, version: self.sent.append((peer.address, version)))
        self.services.add(self.push)

    def look(self) -> tuple[int, Iterable[Peer]]:
        self.behind.append(PRECEDENCE.is_behind)
        if self.failures:
            raise self.failures.pop()
        version = self.version
        while self.meanwhile:
            self.meanwhile -= 1
            self.commit()
        return version, PEERS

    def commit(self) -> None:
        self.version += 1
        self.push.ask()

    def run(self, after_s: float = 0.0) -> list[tuple[str, int]]:
        """What is sent at a moment from now."""
        self.now_s += after_s
        self.sent.clear()
        self.services.run_due()
        return self.sent.copy()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def both(version: int) -> list[tuple[str, int]]:
    return [(peer.address, version) for peer in PEERS]


def test_nothing_is_sent_before_a_commit(cluster: Cluster):
    assert cluster.run(3600.0) == []


def test_the_others_are_woken_at_once(cluster: Cluster):
    for version in (1, 2):
        cluster.commit()
        assert cluster.services.next_s == cluster.now_s
        assert cluster.run() == both(version)
        assert cluster.run(3600.0) == []


def test_commits_of_the_gap_share_a_message(cluster: Cluster):
    cluster.commit()
    assert cluster.run() == both(1)
    for _ in range(10):
        cluster.commit()
        assert cluster.run(GAP_S / 20) == []
    assert cluster.run(GAP_S) == both(11)
    assert cluster.run(3600.0) == []


def test_a_commit_during_a_step_is_behind_the_gap(cluster: Cluster):
    cluster.meanwhile = 3
    cluster.commit()
    assert cluster.run() == both(1)
    assert cluster.services.next_s == pytest.approx(cluster.now_s + GAP_S)
    assert cluster.run(GAP_S) == both(4)


def test_a_silent_catalog_delays_no_later_wake_up(cluster: Cluster):
    """The others look by themselves; this process does not pause as other services do."""
    for _ in range(10):
        cluster.failures.append(CatalogUnavailableError("silent"))
        cluster.commit()
        assert cluster.run(GAP_S) == []
    cluster.commit()
    assert cluster.run(GAP_S) == both(11)


def test_it_pauses_for_no_query(cluster: Cluster):
    cluster.commit()
    cluster.run()
    assert cluster.behind == [False]
