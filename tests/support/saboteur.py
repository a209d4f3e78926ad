"""Takes jobs, stages and Python workers away from a test's own Spark while it is at work.

An executor cannot be lost in local mode: the driver is the only one. To lose a stage is the same to those who wait.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

FAULTS = ("job", "stage", "worker")
POLL_S = 0.002


class Saboteur:
    """While it is entered, something of Spark's is lost whenever there is something, or with a chance at each look."""

    def __init__(
        self, spark: SparkSession, faults: Collection[str] = ("job",), *, seed: int | None = None, chance: float = 1.0
    ) -> None:
        self._spark = spark
        self._faults = list(faults)
        self._chance = chance
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="saboteur", daemon=True)
        self.lost: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(POLL_S):
            if self._random.random() < self._chance:
                fault = self._random.choice(self._faults)
                self.lost[fault] += self._lose(fault)

    def _lose(self, fault: str) -> bool:
        context = self._spark.sparkContext
        tracker = context.statusTracker()
        if fault == "worker":
            found = workers(self._spark)
            for pid in found:
                os.kill(pid, signal.SIGKILL)
            return bool(found) and bool(tracker.getActiveJobsIds())
        if fault == "stage":
            stages = tracker.getActiveStageIds()
            for stage in stages:
                context._jsc.sc().cancelStage(stage)
            return bool(stages)
        jobs = tracker.getActiveJobsIds()
        if jobs:
            context.cancelAllJobs()
        return bool(jobs)


def workers(spark: SparkSession) -> list[int]:
    """The Python workers of this Spark: what its Python daemon forked."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return [worker for daemon in _children(gateway.proc.pid) for worker in _children(daemon)]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue  # the thread has ended
    return found
