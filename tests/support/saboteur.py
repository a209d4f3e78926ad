"""Takes jobs, stages and Python workers away from a test's own Spark while it is at work.

An executor cannot be lost in local mode: the driver is the only one. To lose a stage is the same to those who wait.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark import StatusTracker
from pyspark.sql import SparkSession

from support.warehouse import eventually

FAULTS = ("job", "stage", "worker")
POLL_S = 0.002


class Saboteur:
    """While it is entered, something of Spark's is lost whenever there is something, or with a chance at each look."""

    def __init__(
        self,
        spark: SparkSession,
        faults: Collection[str] = ("job",),
        *,
        seed: int | None = None,
        chance: float = 1.0,
        hold: bool = False,
    ) -> None:
        """`hold`: Spark has no free core meanwhile, so that no job can end before it is lost."""
        self._spark = spark
        self._hold = Hold(spark) if hold else None
        self._faults = list(faults)
        self._chance = chance
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="saboteur", daemon=True)
        self.lost: Counter[str] = Counter()

    def __enter__(self) -> Self:
        if self._hold is not None:
            self._hold.begin()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        if self._hold is not None:
            self._hold.end()

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
                with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(pid, signal.SIGKILL)
            return bool(found) and bool(tracker.getActiveJobsIds())
        jobs, stages = (set(), set()) if self._hold is None else self._hold.own()
        if fault == "stage":
            lost = [stage for stage in tracker.getActiveStageIds() if stage not in stages]
            for stage in lost:
                context._jsc.sc().cancelStage(stage)
            return bool(lost)
        lost = [job for job in tracker.getActiveJobsIds() if job not in jobs]
        if lost and self._hold is None:
            context.cancelAllJobs()
        elif lost:
            for job in lost:
                context._jsc.sc().cancelJob(job)
        return bool(lost)


class Hold:
    """A job that keeps every core of a Spark until it is ended. Other jobs are begun and wait."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._group = f"hold-{uuid.uuid4()}"
        self._thread = threading.Thread(target=self._run, name="hold", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        tracker = self._spark.sparkContext.statusTracker()
        cores = self._spark.sparkContext.defaultParallelism
        eventually(lambda: sum(_active(tracker, stage) for stage in self.own()[1]) == cores)

    def end(self) -> None:
        self._spark.sparkContext.cancelJobGroup(self._group)
        self._thread.join()

    def own(self) -> tuple[set[int], set[int]]:
        """Its jobs and stages."""
        tracker = self._spark.sparkContext.statusTracker()
        jobs = set(tracker.getJobIdsForGroup(self._group))
        return jobs, {stage for job in jobs if (info := tracker.getJobInfo(job)) for stage in info.stageIds}

    def _run(self) -> None:
        context = self._spark.sparkContext
        context.setJobGroup(self._group, "keeps every core", interruptOnCancel=True)
        tasks = self._spark.range(0, context.defaultParallelism, 1, context.defaultParallelism)
        with contextlib.suppress(Exception):  # it is cancelled
            tasks.selectExpr("java_method('java.lang.Thread', 'sleep', 600000L)").collect()


def _active(tracker: StatusTracker, stage: int) -> int:
    info = tracker.getStageInfo(stage)
    return 0 if info is None else int(info.numActiveTasks)


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
