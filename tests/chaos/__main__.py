"""`python -m chaos kills`: kill leaders and nodes in real processes, and see that nothing acknowledged is lost.

python -m chaos kills                                   everything, on SQLite and PostgreSQL
python -m chaos kills --procedure split --database sqlite
python -m chaos cluster --minutes 30 --seed 7           node processes and PostgreSQL, by chance, under load
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from chaos import storm
from chaos.clusters import Images
from chaos.deaths import STAGES, VICTIMS, Death, spread
from chaos.kills import Chain
from chaos.procedures import NAMED, Procedure
from support.postgres import PostgresServer
from support.processes import Processes

DATABASES = ("sqlite", "postgres")
OWN = ("topology.before_commit", "topology.committed", "copy.files_written")
"""The failpoints of a leader of the topology: each process of a chain dies there, and one process at each time."""
SHARED = (
    "write.files_written",
    *(f"catalog.commit.{place}" for place in ("begun", "applied", "before_commit", "done")),
)
"""Those that writers pass, too: one process dies there, at some of the times."""
TIMES = {**dict.fromkeys(OWN, range(1, 100)), **dict.fromkeys(SHARED, (1, 2, 3, 5, 8, 13, 21, 34, 55))}

Cell = tuple[str, Callable[[], int]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kills = commands.add_parser("kills", help="leaders at every failpoint, nodes at every stage")
    kills.add_argument("--procedure", choices=sorted(NAMED), action="append", help="only these")
    kills.add_argument("--database", choices=DATABASES, action="append", help="only these")
    cluster = commands.add_parser("cluster", help="node processes and PostgreSQL, by chance, under load")
    cluster.add_argument("--minutes", type=float, default=2.0)
    cluster.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.command == "cluster":
        return _storm(arguments.minutes, arguments.seed)
    begun, killed, failed = time.perf_counter(), 0, list[str]()
    for name, cell in _kills(arguments.procedure or sorted(NAMED), arguments.database or DATABASES):
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
            for name in procedures:
                for failpoint in TIMES:
                    for cell, run in _cells(images, processes, NAMED[name], failpoint):
                        yield f"{database}: {cell}", run
            for stage in STAGES:
                for victim in VICTIMS:
                    yield f"{database}: {victim} dies at {stage}", partial(_death, images, processes, stage, victim)


def _cells(images: Images, processes: Processes, procedure: Procedure, failpoint: str) -> Iterator[Cell]:
    """Once in a chain, then once for each time that the failpoint is reached, until a process reaches it no more."""
    killed: list[int] = []

    def run(once: int | None) -> int:
        with images.copy(procedure.make) as cluster:
            chain = Chain(cluster=cluster, procedure=procedure, processes=processes)
            killed.append(0)
            chain.run(failpoint, once=once)
            killed[-1] = chain.kills
            return chain.kills

    if failpoint in OWN:
        yield f"{procedure.name}, {failpoint}, each process", partial(run, None)
    for nth in TIMES[failpoint]:
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
