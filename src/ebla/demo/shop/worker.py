"""A process that builds a view, and will not live to finish it.

`python -m ebla.demo.shop.worker WAREHOUSE` starts Spark, reads statements from standard input to its end, and runs
them. The process that started it kills it in the middle of a build.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ebla.api.connect import connect

LEASE_S = 2.0
"""How long it takes until others see that the worker is dead."""


@dataclass(slots=True)
class Worker:
    """The process, as its parent sees it."""

    process: subprocess.Popen[str]
    log: IO[str]

    def give(self, statement: str) -> None:
        """What to run, once its Spark has started."""
        assert self.process.stdin is not None
        self.process.stdin.write(statement)
        self.process.stdin.close()

    def raise_failure(self) -> None:
        """Raise if it has ended by itself."""
        if self.process.poll() is not None:
            self.log.seek(0)
            raise RuntimeError(
                f"worker: expected it to build until it is killed, found it ended with {self.process.returncode}: "
                f"{self.log.read()[-2000:]}"
            )

    def kill(self) -> int:
        """End it as a power cut would, its Java with it; how it ended: minus the signal's number."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()


@contextlib.contextmanager
def started(warehouse: Path) -> Iterator[Worker]:
    """A worker in a session of its own, so that Ctrl-C is for its parent alone. It is gone after the block."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(warehouse)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        worker = Worker(process, log)
        try:
            yield worker
        finally:
            worker.kill()
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()


def work(warehouse: str) -> None:
    with connect(
        warehouse,
        create=False,
        auto_refresh=False,
        auto_compact=False,
        leader_lease_s=LEASE_S,
        transaction_lease_s=2 * LEASE_S,
        spark_memory="1g",
    ) as db:
        _ = db.spark
        statements = sys.stdin.read()
        if statements:
            db.sql(statements)


if __name__ == "__main__":
    work(sys.argv[1])
