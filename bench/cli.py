"""The command line: how long short commands take, from the start of their process to its end.

Each is a process of its own on a warehouse with a table, a view and an index. None of them starts Spark, so nearly all
of the time is the interpreter's and that of imports.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import ebla
from bench.measure import Result, seconds

TIMES = 7
HELP_S_MAX = 0.3
COMMAND_S_MAX = 0.7
ROWS = 1_000


def run(scale: float = 1.0) -> list[Result]:
    """The same at every scale: the rows are few in any case."""
    with tempfile.TemporaryDirectory(prefix="ebla-bench-") as folder:
        place = f"{folder}/warehouse"
        _make(place)
        return [
            _measured("`ebla --help`", ["--help"], HELP_S_MAX),
            _measured("`ebla status`", ["-w", place, "status"], COMMAND_S_MAX),
            _measured("`ebla query`: a row by its key", _query(place, "orders", "id=7"), COMMAND_S_MAX),
            _measured("`ebla query`: rows through an index", _query(place, "orders", "total>=990"), COMMAND_S_MAX),
            _measured("`ebla query`: rows of a view", _query(place, "sales"), COMMAND_S_MAX),
        ]


def _make(place: str) -> None:
    with ebla.connect(place, tablets=4) as db:
        db.sql("CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id))")
        db.table("orders").upsert([{"id": n, "customer": n % 20, "total": n} for n in range(ROWS)])
        db.sql("CREATE INDEX by_total ON orders (total)")
        db.sql("CREATE MATERIALIZED VIEW sales AS SELECT customer, sum(total) AS total FROM orders GROUP BY customer")


def _query(place: str, relation: str, *where: str) -> list[str]:
    return ["-w", place, "query", relation, *(word for one in where for word in ("--where", one))]


def _measured(work: str, arguments: Sequence[str], bar_s: float) -> Result:
    """Run once so that the machine has read the files, then timed."""
    command = [sys.executable, "-m", "ebla", *arguments]

    def once() -> None:
        subprocess.run(command, check=True, capture_output=True)

    once()
    spent = sorted(seconds(once) for _ in range(TIMES))
    detail = f"median of {TIMES}; the best {spent[0]:.2f} s"
    return Result(work=work, figure=statistics.median(spent), bar=bar_s, unit="s", detail=detail)
