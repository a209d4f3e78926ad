"""What child processes do to a cluster that changes its shape; see `support.processes`. None of it needs Spark.

What matters is printed at once, each line by one system call: a process that is killed has printed whole lines.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

import ebla
from ebla.catalog import processes, topology
from ebla.errors import ConflictError, NodeConflictError, StorageFullError, UsageError
from ebla.model.lifecycle.tablet import Stage, goes_back
from ebla.model.topology import LEASE
from ebla.storage import copies
from ebla.storage.files import Root
from ebla.tables.tiers import merge
from ebla.topology import service

KEYS = 60
"""How many rows a table has before anything changes: their ids are the numbers from 0."""
FULL = "expected room for the write, found the disk full"
OWN = 1000
"""What the ids of rows begin with that writers add."""


def say(*words: object) -> None:
    os.write(sys.stdout.fileno(), (" ".join(map(str, words)) + "\n").encode())


def ask(where: str, nodes: dict[str, str], statement: str, settings: dict[str, Any]) -> None:
    """Ask something of the cluster, lead, and wait for the answer."""
    with ebla.connect(where, nodes=nodes, **settings) as db:
        [(request,)] = db.sql(f"ALTER CLUSTER {statement}").rows()
        say(request)
        say(db.sql(f"WAIT FOR REQUEST {request}").one()[1])


# ---- writes that are acknowledged -----------------------------------------------------------------------


def changes(number: int) -> dict[int, int | None]:
    """What the write of a number makes of rows: id to the new value, or to nothing where it is deleted."""
    if number % 4 == 3:
        return {OWN + number - 1: None}
    return {OWN + number: number, number % KEYS: OWN + number}


class Writer:
    """Writes one number after another while the topology changes, one for each look at it, and says which are in."""

    def __init__(self, db: ebla.Database, first: int, *, merges: bool = False) -> None:
        """`merges`: runs of level 0 are merged behind each write."""
        self._db = db
        self._first = first
        self._merges = merges
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        coordination, table, number = self._db.background.membership.coordination, self._db.table("t"), self._first
        while not self._over.is_set():
            rounds = coordination.rounds
            say("try", number)
            new = changes(number)
            rows = [{"id": row, "n": value} for row, value in new.items() if value is not None]
            table.upsert(rows) if rows else table.delete([{"id": row} for row in new])
            say("ack", number)
            if self._merges:
                with contextlib.suppress(ConflictError):  # something else was at work on the same runs
                    merge(self._db.context, "t")
            number += 1
            coordination.wait_round(rounds)


# ---- procedures -----------------------------------------------------------------------------------------


def carry_out(
    where: str, settings: dict[str, Any], kind: str, statement: str, first: int, merges: bool = False
) -> None:
    """Carry out a request of the topology beside a writer: the one that an earlier process has asked for, or a new one.

    Without a statement, nodes of this process ask when it opens. `merges`: the writer merges runs, too.
    """
    try:
        db = ebla.connect(where, **settings)
    except (NodeConflictError, UsageError) as error:  # a join that did not end, or ended badly
        say("refused", error)
        return
    with db, Writer(db, first, merges=merges):
        asked = [row[0] for row in db.sql(f"SELECT id FROM system.topology_requests WHERE kind = '{kind}'").rows()]
        request = db.sql(statement).one()[0] if statement and not asked else max(asked, default=None)
        say("result", "nothing was asked for" if request is None else answer(db, request))


def answer(db: ebla.Database, request: int) -> str:
    try:
        return str(db.sql(f"WAIT FOR REQUEST {request}").one()[1])
    except UsageError as error:
        return f"failed: {error}"


def lead(where: str, settings: dict[str, Any], first: int) -> None:
    """Lead, whatever others ask for, until a failpoint ends it."""
    with ebla.connect(where, **settings) as db, Writer(db, first):
        leadership, coordination = db.context.leadership, db.background.membership.coordination
        assert leadership.take(LEASE, from_the_gone=True) is not None
        with leadership.working(LEASE):
            say("leads")
            while True:
                coordination.wait_round(coordination.rounds)
                coordination.ask()


def serve(where: str, settings: dict[str, Any]) -> None:
    """Let nodes live and follow, but not lead, until the process is killed."""
    service.LOOK_S = 0.05
    with ebla.connect(where, **settings) as db:
        take = db.context.leadership.take
        db.context.leadership.take = (  # type: ignore[method-assign]
            lambda name, **given: None if name == LEASE else take(name, **given)
        )
        db.background.membership.presence.appear()
        say("serves")
        threading.Event().wait()


def refuse(read: Root, written: Root, path: str, size: int, beside: str) -> None:
    """A copy that cannot be made."""
    raise StorageFullError(FULL)


def move_beside_the_dead(
    where: str, settings: dict[str, Any], statement: str, stage: str, victim: Mapping[str, Any], first: int
) -> None:
    """Move a tablet; when it comes to a stage, kill the process of a node and take its disk away.

    The row of the dead process goes at once, so that nothing has to wait until it runs out. A stage of the way back is
    reached because no copy can be made.
    """
    with ebla.connect(where, **settings) as db:
        catalog = db.context.catalog
        living = catalog.read(lambda connection: processes.alive(connection, catalog.clock()))
        [holder] = [one.holder for one in living if one.pid == victim["pid"]]

        def at_stage(connection: Connection) -> bool:
            return any(one.stage is Stage(stage) for one in topology.transitions(connection).values())

        def die(name: str) -> None:
            if name == "topology.committed" and os.path.exists(victim["root"]) and catalog.read(at_stage):
                os.kill(victim["pid"], signal.SIGKILL)
                os.rename(victim["root"], victim["away"])
                processes.leave(catalog, holder)
                say("killed", stage)

        vars(service)["hit"] = die
        if goes_back(Stage(stage)):
            vars(copies)["begin_copy"] = refuse
        with Writer(db, first):
            say("result", answer(db, db.sql(statement).one()[0]))
