"""The two walks of docs/internals/architecture.md, taken: a row from upsert to a page, a task from CREATE INDEX on.

What is called on the way is recorded in all threads. The page names no module that is not called, and between two
packages there is at most one place at which the lower one calls back into the upper one: a reader who follows the calls
goes down, and back up once.
"""

from __future__ import annotations

import re
import sys
import threading
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from pyspark.sql import SparkSession

import ebla

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "architecture.md"
CALL_WHAT_THEY_GET = {"base/services.py", "base/caches.py", "base/closing.py", "catalog/patience.py"}
"""They run services, repeat what a database interrupted, compute what is kept: a reader follows what they are given."""
BESIDE = {"node", "topology"}
"""What they do beside a walk, in the background, is recorded as well."""
WAIT_S = 150


def ranks() -> dict[str, int]:
    """From the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [whole] = [contract for contract in contracts if contract.get("containers") == ["ebla"]]
    return {package: number for number, line in enumerate(whole["layers"]) for package in re.split(r"\s*[|:]\s*", line)}


def module_of(frame: FrameType | None) -> str | None:
    """`api/table.py` of a frame in it, also where a dataclass has written the code."""
    name = frame.f_globals.get("__name__", "") if frame is not None else ""
    return f"{name[5:].replace('.', '/')}.py" if isinstance(name, str) and name.startswith("ebla.") else None


class Walk:
    def __init__(self) -> None:
        self.called: set[str] = set()
        self.back: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """Calls from a package to one above it, by the two."""
        self._ranks = ranks()

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or (callee := module_of(frame)) is None:
            return
        self.called.add(callee)
        name = frame.f_code.co_name
        caller = frame.f_back
        while caller is not None and (at := module_of(caller)) is None:
            caller = caller.f_back
        if caller is None or at is None or name in ("<genexpr>", "<listcomp>", "<module>") or at in CALL_WHAT_THEY_GET:
            return
        lower, upper = at.partition("/")[0], callee.partition("/")[0]
        if self._ranks.get(upper, 99) < self._ranks.get(lower, 99):
            self.back[lower, upper].add(f"{at}: {caller.f_code.co_name} calls {callee}: {frame.f_code.co_qualname}")

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Also of threads that begin meanwhile, and go on behind it."""
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)


def named(heading: str) -> set[str]:
    """The modules that a walk of the page names."""
    walk = PAGE.read_text(encoding="utf-8").partition(f"## {heading}")[2].partition("\n## ")[0]
    return set(re.findall(r"`(\w+(?:/\w+)*\.py)`", walk))


@pytest.fixture
def walk() -> Iterator[Walk]:
    found = Walk()
    threading.setprofile(found.note)
    try:
        yield found
    finally:
        threading.setprofile(None)


def refuse_detours(walk: Walk) -> None:
    assert walk.back
    wrong = {pair: sorted(places) for pair, places in walk.back.items() if len(places) > 1 and not BESIDE & set(pair)}
    assert not wrong, "\n".join(f"{pair}: {place}" for pair, places in wrong.items() for place in places)


@pytest.mark.spark
def test_a_row_from_upsert_to_a_page(walk: Walk, spark: SparkSession, tmp_path: Path) -> None:
    with ebla.connect(str(tmp_path), spark, batch_rows_max=20) as db:
        db.sql("CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id))")
        orders = db.table("orders")
        orders.upsert([{"id": 1, "customer": 1, "total": 1}])
        db.sql("CREATE MATERIALIZED VIEW sums AS SELECT customer, sum(total) AS s FROM orders GROUP BY customer")
        walk.called.clear()
        walk.back.clear()
        with walk.recorded():
            written = orders.upsert([{"id": 2, "customer": 1, "total": 3}])
            db.query("sums", order_by="s", at_least=written.version, wait_s=WAIT_S).rows()
            frame = spark.range(3, 200).selectExpr("id", "id % 50 AS customer", "id AS total")
            written = orders.upsert(frame)
            found = db.query("sums", order_by="s", at_least=written.version, wait_s=WAIT_S).rows()
        assert len(found) == 50
    refuse_detours(walk)
    assert named("A row, from") <= walk.called


@pytest.mark.spark
def test_a_task_from_create_index_to_readable(walk: Walk, spark: SparkSession, tmp_path: Path) -> None:
    with ebla.connect(str(tmp_path), spark) as db:
        db.sql("CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id))")
        db.table("orders").upsert([{"id": id, "customer": 1, "total": id} for id in range(10)])
        walk.called.clear()
        walk.back.clear()
        with walk.recorded():
            db.sql("CREATE INDEX by_total ON orders (total)")
        assert db.query("orders", order_by="total").rows()
    refuse_detours(walk)
    assert named("A task, from") <= walk.called
