"""The console: how soon a page can be used, how long 10,000 tablets take, and what an open page costs its node."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.measure import ROOT, Result

TABLETS = (4096, 4096, 2048)
TIMES = 7
IDLE_S = 20.0

FIRST = """() => {
    window.shown = new Promise((shown) => {
        const look = () => {
            if (document.querySelectorAll('.grid tbody tr').length < 100) requestAnimationFrame(look);
            else requestAnimationFrame(() => setTimeout(() => shown(performance.now())));
        };
        look();
    });
}"""
"""Runs in a new document: from the begin of its request until the frame after the one with the first 100 rows."""

PICTURE = """cells => {
    let clicked = 0;
    addEventListener('click', (event) => (clicked = event.timeStamp), { capture: true, once: true });
    window.shown = new Promise((shown) => {
        const look = () => {
            if (document.querySelector(`canvas[data-drawn='${cells}']`) === null) requestAnimationFrame(look);
            else requestAnimationFrame(() => setTimeout(() => shown(performance.now() - clicked)));
        };
        look();
    });
}"""
"""From a click until the frame after the one with the picture."""

# The page takes the times: a wait of the browser's driver looks twice a second once a quarter of one has passed.


def run(scale: float = 1.0) -> list[Result]:
    """The same at every scale: a node with 10,240 tablets, without Spark."""
    sys.path.insert(0, str(ROOT.parent / "tests"))
    from ebla.cluster import local_cluster
    from support import console

    directory = Path(tempfile.mkdtemp(prefix="ebla-bench-console-")) / "c"
    cluster = local_cluster.up(directory, nodes=1, spark="none")
    try:
        shop = console.Shop(cluster, tokens={"admin": str(cluster.token)})
        for number, tablets in enumerate(TABLETS):
            shop.sql(f"CREATE TABLE t{number} (id BIGINT PRIMARY KEY, word STRING) WITH (tablets = {tablets})")
        shop.sql("CREATE TABLE a (id BIGINT PRIMARY KEY, word STRING) WITH (tablets = 2)")
        rows = ", ".join(f"({number}, 'word')" for number in range(500))
        shop.sql(f"INSERT INTO a VALUES {rows}")
        with console.chromium() as browser:
            place = cluster.place("n1")
            assert place is not None
            before = _cores(place.pid)
            return [*_pages(console, browser, shop), _idle(console, browser, shop, place.pid, before)]
    finally:
        local_cluster.down(directory, remove=True)


def _pages(console: Any, browser: Any, shop: Any) -> list[Result]:
    firsts: list[float] = []
    tablets: list[float] = []
    for _ in range(TIMES):
        with console.visit(browser, shop.url) as visit:
            visit.page.add_init_script(f"sessionStorage.setItem('ebla-token', '{shop.tokens['admin']}'); ({FIRST})()")
            visit.open("explore/a")
            firsts.append(visit.page.evaluate("() => window.shown") / 1000)
            visit.page.evaluate(PICTURE, sum(TABLETS) + 2)
            visit.page.get_by_role("link", name="Cluster").click()
            tablets.append(visit.page.evaluate("() => window.shown"))
    return [
        Result(
            work="console: from an empty browser to the first 100 rows", figure=statistics.median(firsts), bar=1.0,
            unit="s", detail=f"median of {TIMES}; the longest {max(firsts):.2f} s",
        ),
        Result(
            work="console: 10,242 tablets, from the click to the picture", figure=statistics.median(tablets),
            bar=500.0, unit="ms", detail=f"median of {TIMES}; the longest {max(tablets):.0f} ms",
        ),
    ]  # fmt: skip


def _idle(console: Any, browser: Any, shop: Any, pid: int, before: float) -> Result:
    with console.visit(browser, shop.url) as visit:
        visit.sign_in(shop.tokens["admin"])
        visit.open("cluster")  # the page that asks most
        visit.page.locator(f"canvas[data-drawn='{sum(TABLETS) + 2}']").wait_for()
        visit.page.wait_for_timeout(3000)
        cores = _cores(pid)
    return Result(
        work="console: a node while a page is open and nothing happens", figure=max(0.0, cores - before) * 100, bar=2.0,
        unit="% of a core", detail=f"more than the {before:.1%} without; both over {IDLE_S:.0f} s",
    )  # fmt: skip


def _cores(pid: int) -> float:
    """How many cores a process uses."""
    process = psutil.Process(pid)
    begun, at = sum(process.cpu_times()[:2]), time.perf_counter()
    time.sleep(IDLE_S)
    return float(sum(process.cpu_times()[:2]) - begun) / (time.perf_counter() - at)
