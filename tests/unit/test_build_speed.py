"""A decision with 100,000 open tasks takes at most 50 ms. The figure itself is in `python -m bench building`."""

from __future__ import annotations

import time

from support.build_load import Load


def test_a_decision_with_100_000_open_tasks():
    load = Load(tasks=100_000)
    assert len(load.state.tasks) == 100_000
    assert min(load.decide_s(time.thread_time) for _ in range(10)) <= 0.050  # of a processor, which others may want too
