"""The figures of a steady load, from made-up seconds."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

from bench.steady.figures import LARGE, SMALL, quantile, results
from bench.steady.plot import STRIPS, svg
from bench.steady.second import Second


def second(at: int) -> Second:
    return Second(at=float(at), rows=1000, commits=20, visible_s=[0.5], query_s=[0.01], python_mib=100, jvm_mib=200)


def test_a_quantile_is_one_of_the_values():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert quantile([], 0.5) == math.inf


def test_a_load_that_is_held_meets_its_bars():
    found = {one.work.removeprefix("steady load: "): one for one in results([second(n) for n in range(60)], SMALL)}
    assert all(one.met for one in found.values())
    assert found["rows per second"].figure == 1000
    assert found["commit to visible, p99"].figure == 0.5
    assert found["first-100 query, p50"].figure == 10


def test_a_load_that_nothing_of_becomes_visible_misses_them():
    seconds = [Second(at=float(n), rows=500, commits=10) for n in range(60)]
    assert not any(one.met for one in results(seconds, SMALL))
    assert not any(one.met for one in results(seconds, LARGE))


def test_memory_is_judged_after_ten_minutes():
    seconds = [second(n) for n in range(1200)]
    for one in seconds:
        one.python_mib += max(0.0, one.at - 600) / 10
    grown = {one.work: one for one in results(seconds, SMALL) if "memory" in one.work}
    assert [one.met for one in grown.values()] == [False, True]


def test_the_picture_has_a_strip_for_every_figure():
    root = ET.fromstring(svg([second(n) for n in range(2000)], "1,000 rows/s & <more>"))
    lines = [node for node in root if node.tag.endswith("polyline")]
    assert len(lines) == len(STRIPS)
    assert all(len((line.get("points") or "").split()) <= 1000 for line in lines)
