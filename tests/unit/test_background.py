"""Queries beside work in the background: how long a thread computes before another one comes to its turn."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ebla
from ebla.node.background import let_threads_in, shorten_collections


@pytest.fixture(autouse=True)
def python_switches() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.parametrize(("after_s", "expected"), [(0.001, 0.001), (0.02, 0.005), (None, 0.005)])
def test_threads_wait_less_and_never_longer(after_s: float | None, expected: float) -> None:
    let_threads_in(after_s)
    assert sys.getswitchinterval() == pytest.approx(expected)


@pytest.mark.parametrize(("after_s", "expected"), [(0.002, 0.002), (None, 0.005)])
def test_a_database_that_is_opened_lets_readers_in(tmp_path: Path, after_s: float | None, expected: float) -> None:
    with ebla.connect(str(tmp_path / "warehouse"), thread_switch_s=after_s):
        assert sys.getswitchinterval() == pytest.approx(expected)


def test_services_can_be_looked_at(tmp_path: Path) -> None:
    with ebla.connect(str(tmp_path / "warehouse")) as db:
        query = "SELECT name, stepping, failures, gave_way_s >= 0 FROM system.services WHERE name = 'compaction'"
        assert db.sql(query).rows() == [("compaction", False, 0, True)]
        text = db.metrics()
    for name in ("ebla_service_steps_total", "ebla_process_lag_seconds", "ebla_catalog_transactions_total"):
        assert f"\n{name}" in text


def test_what_is_in_memory_when_spark_starts_is_left_out_of_collections_once(monkeypatch: pytest.MonkeyPatch):
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    shorten_collections.cache_clear()
    shorten_collections()
    shorten_collections()
    assert frozen == [1]
