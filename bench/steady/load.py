"""The process under load: `python -m bench.steady.load FOLDER …` writes one JSON line of figures for every second."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ebla
from bench.data import tpch
from bench.steady.second import Second
from bench.views import CARD, KEYS, REVENUE

LOOK_S = 0.05
"""How often it is asked which version the views show."""
READ_S = 0.1
"""The pause of the reader between two queries."""
WRITERS = 2


class Steady:
    def __init__(self, db: ebla.Database, folder: Path, lineitem: pa.Table, rate: int, commit_rows: int) -> None:
        self._db = db
        self._folder = folder
        self._rows = lineitem
        self._rate = rate
        self._commit_rows = commit_rows
        self._lock = threading.Lock()
        self._second = Second(at=0.0)
        self._unseen: deque[tuple[int, float]] = deque()
        self._stop = threading.Event()
        self._errors: list[Exception] = []
        self._next = 0

    def run(self, seconds: float, report: Callable[[Second], None]) -> None:
        self._jvm = _jvm()
        self._began = time.monotonic()
        parts = [*(self._write,) * WRITERS, self._read, self._look]
        threads = [threading.Thread(target=self._guarded, args=(part,), daemon=True) for part in parts]
        for thread in threads:
            thread.start()
        while (elapsed := time.monotonic() - self._began) < seconds and not self._errors:
            self._stop.wait(1 - elapsed % 1)
            report(self._taken())
        self._stop.set()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _guarded(self, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:
            self._errors.append(error)
            self._stop.set()

    # ---- the load ---------------------------------------------------------------------------------------

    def _write(self) -> None:
        chance = random.Random(threading.get_ident())
        table = self._db.table("lineitem")
        while not self._stop.is_set():
            with self._lock:
                due = self._began + self._next * self._commit_rows / self._rate
                self._next += 1
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            rows = self._changed(chance)
            written = table.upsert(rows)
            done = time.monotonic()
            with self._lock:
                self._second.rows += rows.num_rows
                self._second.commits += 1
                self._second.late_s = max(self._second.late_s, done - due)
                self._unseen.append((int(written.version or 0), done))

    def _changed(self, chance: random.Random) -> pa.Table:
        chosen = self._rows.take(pa.array(chance.sample(range(self._rows.num_rows), self._commit_rows)))
        quantity = [Decimal(chance.randrange(1, 51)) for _ in range(self._commit_rows)]
        place = chosen.schema.get_field_index("l_quantity")
        return chosen.set_column(place, "l_quantity", pa.array(quantity, chosen.schema.field("l_quantity").type))

    def _read(self) -> None:
        chance = random.Random(7)
        while not self._stop.is_set():
            low = Decimal(chance.randrange(1_000, 90_000))
            began = time.monotonic()
            self._db.query("card", where={"l_extendedprice": ebla.between(low, None)}, order_by="l_extendedprice")
            with self._lock:
                self._second.query_s.append(time.monotonic() - began)
            self._stop.wait(READ_S)

    def _look(self) -> None:
        while not self._stop.is_set():
            views = self._db.sql("SHOW VIEWS").to_arrow().to_pylist()
            applied = min(int(view["applied_version"] or 0) for view in views)
            now = time.monotonic()
            with self._lock:
                while self._unseen and self._unseen[0][0] <= applied:
                    self._second.visible_s.append(now - self._unseen.popleft()[1])
                self._second.lag_s = now - self._unseen[0][1] if self._unseen else 0.0
            self._stop.wait(LOOK_S)

    # ---- how things stand -------------------------------------------------------------------------------

    def _taken(self) -> Second:
        with self._lock:
            taken, self._second = self._second, Second(at=0.0)
        taken.at = time.monotonic() - self._began
        taken.python_mib, taken.jvm_mib = _resident_mib(self._jvm)
        # Folders that Spark writes into go away meanwhile: `os.walk` leaves those out.
        taken.files = sum(name.endswith(".parquet") for _, _, names in os.walk(self._folder) for name in names)
        taken.catalog_mib = sum(p.stat().st_size for p in self._folder.glob("catalog.db*")) / 2**20
        return taken


def _resident_mib(jvm: Sequence[str]) -> tuple[float, float]:
    """Of this process, and of the JVM that it started."""

    def of(process: str) -> float:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0

    return of("self"), sum(of(process) for process in jvm)


def _jvm() -> list[str]:
    """The processes of the JVM that this one has started. Threads may end while they are asked for theirs."""
    children: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            children += (task / "children").read_text().split()
    return [child for child in children if "java" in Path(f"/proc/{child}/cmdline").read_text()]


def prepare(db: ebla.Database, scale: float) -> pa.Table:
    """Load the tables, create the views and the index; the rows of lineitem."""
    for table, key in KEYS.items():
        file = tpch(table, scale)
        columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in db.spark.read.parquet(str(file)).schema)
        db.sql(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({', '.join(key)}))")
        db.sql(f"LOAD INTO {table} FROM '{file}'")
    db.sql(f"CREATE MATERIALIZED VIEW card AS {CARD}")
    db.sql(f"CREATE MATERIALIZED VIEW revenue AS {REVENUE}")
    db.sql("CREATE INDEX by_price ON card (l_extendedprice)")
    rows = pq.read_table(tpch("lineitem", scale))
    kinds = [pa.string() if pa.types.is_string_view(f.type) else f.type for f in rows.schema]
    # In one chunk: otherwise each choice of rows would copy whole columns of texts.
    return rows.cast(pa.schema(list(zip(rows.schema.names, kinds, strict=True)))).combine_chunks()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rate", type=int, default=1000, help="changed rows per second")
    parser.add_argument("--commit-rows", type=int, default=50)
    parser.add_argument("--scale", type=float, default=0.1)
    given = parser.parse_args()
    folder = Path(given.folder)
    with ebla.connect(str(folder)) as db:
        rows = prepare(db, given.scale)
        load = Steady(db, folder, rows, given.rate, given.commit_rows)
        load.run(given.seconds, lambda second: print(json.dumps(asdict(second)), flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
