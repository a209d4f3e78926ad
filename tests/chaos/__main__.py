"""`python -m chaos kills`: kill leaders and nodes in real processes, and see that nothing acknowledged is lost.

python -m chaos kills                                   everything, on SQLite and PostgreSQL
python -m chaos kills --procedure split --database sqlite
python -m chaos kills --procedure "split of folded runs"
python -m chaos cluster --minutes 30 --seed 7           node processes and PostgreSQL, by chance, under load
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from chaos import storm
from chaos.clusters import Images
from chaos.deaths import STAGES, VICTIMS, Death, spread
from chaos.kills import Chain
from chaos.procedures import NAMED, OF_FILES, Procedure
from support.postgres import PostgresServer
from support.processes import Processes, Sharing

DATABASES = ("sqlite", "postgres")
OWN = ("topology.before_commit", "topology.committed", "copy.files_written")
"""The failpoints of a leader of the topology: each process of a chain dies there, and one process at each time."""
SHARED = (
    "write.files_written",
    *(f"catalog.commit.{place}" for place in ("begun", "applied", "before_commit", "done")),
)
"""Those that writers pass, too: one process dies there, at some of the times."""
EVERY = range(1, 100)
TIMES = {**dict.fromkeys(OWN, EVERY), **dict.fromkeys(SHARED, (1, 2, 3, 5, 8, 13, 21, 34, 55))}

ALL = {**NAMED, **{one.name: one for one in OF_FILES}}

SPARK = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

Cell = tuple[str, Callable[[], int]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kills = commands.add_parser("kills", help="leaders at every failpoint, nodes at every stage")
    kills.add_argument("--procedure", choices=sorted(ALL), action="append", help="only these")
    kills.add_argument("--database", choices=DATABASES, action="append", help="only these")
    cluster = commands.add_parser("cluster", help="node processes and PostgreSQL, by chance, under load")
    cluster.add_argument("--minutes", type=float, default=2.0)
    cluster.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.command == "cluster":
        return _storm(arguments.minutes, arguments.seed)
    begun, killed, failed = time.perf_counter(), 0, list[str]()
    for name, cell in _kills(arguments.procedure or sorted(ALL), arguments.database or DATABASES):
        try:
            count = cell()
        except AssertionError as error:
            failed.append(name)
            print(f"{name}: FAILED: {error}", flush=True)
        else:
            killed += count
            print(f"{name}: {count} killed", flush=True)
    print(f"{killed} processes killed in {time.perf_counter() - begun:.0f} s; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _storm(minutes: float, seed: int) -> int:
    print(f"a storm of {minutes:g} minutes, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ebla-chaos-", ignore_cleanup_errors=True) as folder:
        try:
            found = storm.run(Path(folder), seconds=60 * minutes, seed=seed, say=partial(print, flush=True))
        except AssertionError as error:
            print(f"FAILED with seed {seed}: {error}")
            return 1
    print(f"nothing was lost, and view and index are exact, behind: {dict(found.happened)}")
    return 0


def _kills(procedures: Sequence[str], databases: Sequence[str]) -> Iterator[Cell]:
    for database in databases:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ebla-chaos-"))
            server = stack.enter_context(PostgresServer()) if database == "postgres" else None
            images = stack.enter_context(Images(Path(folder), server))
            processes = stack.enter_context(Processes())
            found = [ALL[name] for name in procedures]
            shared = processes.sharing(stack.enter_context(_spark())) if any(one.uses_spark for one in found) else None
            for one in found:
                places = (shared or processes) if one.uses_spark else processes
                for failpoint in [one.dies_at] if one.dies_at else TIMES:
                    for cell, run in _cells(images, places, one, failpoint):
                        yield f"{database}: {cell}", run
            for stage in STAGES:
                for victim in VICTIMS:
                    yield f"{database}: {victim} dies at {stage}", partial(_death, images, processes, stage, victim)


@contextlib.contextmanager
def _spark() -> Iterator[SparkSession]:
    """The one Spark of all processes that fold."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("ebla-chaos")
    for name, value in SPARK.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _cells(images: Images, processes: Processes | Sharing, procedure: Procedure, failpoint: str) -> Iterator[Cell]:
    """Once in a chain, then once for each time that the failpoint is reached, until a process reaches it no more."""
    killed: list[int] = []

    def run(once: int | None) -> int:
        with images.copy(procedure.make) as cluster:
            chain = Chain(cluster=cluster, procedure=procedure, processes=processes)
            killed.append(0)
            chain.run(failpoint, once=once)
            killed[-1] = chain.kills
            return chain.kills

    if failpoint in (*OWN, procedure.dies_at):
        yield f"{procedure.name}, {failpoint}, each process", partial(run, None)
    for nth in TIMES.get(failpoint, EVERY):
        yield f"{procedure.name}, {failpoint}, time {nth}", partial(run, nth)
        if not killed[-1]:
            return


def _death(images: Images, processes: Processes, stage: str, victim: str) -> int:
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(images.copy(spread))
        stack.enter_context(Death(cluster=cluster, processes=processes, stage=stage, victim=victim)).check()
    return 1


if __name__ == "__main__":
    sys.exit(main())
