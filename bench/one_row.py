"""One row: the time of one upsert and of the epoch that follows it, beside those of another release.

`EBLA_BENCH_BEFORE` names the `src` folder of the other release. Each side is a process of its own with default
settings, but that epochs run only when `FLUSH` asks for one, so that it is timed whole; the two take turns.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import ROOT, Result, seconds

if TYPE_CHECKING:
    import ebla

UPSERTS = 200
EPOCHS = 20
WARM = 5
ROWS = 10_000
TURNS = 2
RATIO_MAX = 1.1
BEFORE = "EBLA_BENCH_BEFORE"


def run(scale: float = 1.0) -> list[Result]:
    """The same at every scale. Without another release there is nothing to compare with, and no result."""
    other = os.environ.get(BEFORE)
    if other is None:
        print(f"one_row: set {BEFORE} to the src folder of another release to compare with it")
        return []
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    for turn in range(TURNS):
        sides = [(ours, str(ROOT.parent / "src")), (theirs, other)]
        for found, source in sides if turn % 2 else reversed(sides):
            for work, figures in _of_release(source).items():
                found.setdefault(work, []).extend(figures)
    return [_result(work, ours[work], theirs[work]) for work in ours]


def _result(work: str, ours: list[float], theirs: list[float]) -> Result:
    after, before = statistics.median(ours), statistics.median(theirs)
    detail = f"{after * 1e3:.1f} ms, before {before * 1e3:.1f} ms; medians of {len(ours)}"
    return Result(work=work, figure=after / before, bar=RATIO_MAX, unit="of before", detail=detail)


def _of_release(source: str) -> dict[str, list[float]]:
    path = os.pathsep.join([source, str(ROOT.parent), str(ROOT.parent / "tests")])
    done = subprocess.run(
        [sys.executable, "-m", "bench.one_row"],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def _catalogs(folder: str) -> Iterator[dict[str, str]]:
    from support.postgres import PostgresServer, find_binaries

    with contextlib.ExitStack() as stack:
        found = {"SQLite": f"{folder}/warehouse"}
        if (binaries := find_binaries()) is not None:
            server = stack.enter_context(PostgresServer(binaries, durable=True))
            found["PostgreSQL"] = stack.enter_context(server.database())
        yield found


def _measure() -> dict[str, list[float]]:
    """What this process's release takes: seconds, by work."""
    import ebla

    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="ebla-bench-") as folder, _catalogs(folder) as catalogs:
        for kind, url in catalogs.items():
            with ebla.connect(url, storage_root=str(Path(folder) / kind), auto_refresh=False) as db:
                upserts, epochs = _of_one(db)
            found[f"upsert of one row, {kind}"] = upserts
            found[f"epoch of one row, {kind}"] = epochs
    return found


def _of_one(db: ebla.Database) -> tuple[list[float], list[float]]:
    db.sql("CREATE TABLE t (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id))")
    table = db.table("t")
    table.upsert([{"id": n, "customer": n % 100, "total": n} for n in range(ROWS)])
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT customer, sum(total) AS total FROM t GROUP BY customer")
    numbers = itertools.count()

    def upsert() -> None:
        n = next(numbers)
        table.upsert([{"id": n % ROWS, "customer": n % 100, "total": n}])

    def epoch() -> float:
        upsert()
        return seconds(lambda: db.sql("FLUSH v"))

    upserts = [seconds(upsert) for _ in range(WARM + UPSERTS)]
    epochs = [epoch() for _ in range(WARM + EPOCHS)]
    return upserts[WARM:], epochs[WARM:]


if __name__ == "__main__":
    print(json.dumps(_measure()))
