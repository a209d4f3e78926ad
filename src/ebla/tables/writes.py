"""Writes to a table: one attempt after the other until one commits, or nothing is left.

One write's way. Begin a transaction, a catalog row with a lease (`ebla.tables.transaction`) → make the batch from the
relation as it is now → put its rows into files under every replica's root (`ebla.tables.sink`) → commit, which makes
all of it visible at one version (`ebla.tables.commit`), or stages files that were loaded (`ebla.tables.staging`). A
write that read what it wrote over compares its keys with those committed since its snapshot and, if one is shared,
starts over on the new snapshot.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ebla.base.backoff import Backoff
from ebla.base.failpoint import hit
from ebla.base.ids import TransactionId, Version
from ebla.base.pace import PACE
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.relation import Relation, RunState
from ebla.relations.guard import require_table
from ebla.relations.tasks import staging_tasks
from ebla.tables import batch as b
from ebla.tables.commit import Commit
from ebla.tables.sink import Sink
from ebla.tables.transaction import OpenTransaction, begin
from ebla.tables.write_access import WriteAccess

BACKOFF_S = Backoff(0.02, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What a write did. `version` is `None` when there was nothing to write."""

    version: Version | None
    rows: int
    relation: Relation = field(repr=False)
    level0_runs: int = 0
    staged: int = 0
    """How many of the rows were staged: they are visible when a task has processed them."""
    transaction: TransactionId | None = field(default=None, repr=False)


Done = TypeVar("Done")
Make = Callable[[OpenTransaction], b.ArrowBatch | b.FrameBatch]


def write(context: WriteAccess, name: str, make: Make, *, reason: str, reads_target: bool) -> WriteResult:
    """Run a write until it commits. A lost race is run again by itself, with growing pauses.

    Before it begins, it is held back for a while where epochs are too far behind.
    """
    context.lag.hold()
    with PACE.first():
        return until_committed(context, lambda: _attempt(context, name, make, reason=reason, reads_target=reads_target))


def until_committed(context: WriteAccess, attempt_once: Callable[[], Done]) -> Done:
    """Try until no race is lost, with growing pauses. An attempt that the catalog left in the lurch is made again."""
    attempts = context.settings.write_attempts
    for attempt in range(1, attempts + 1):
        try:
            return context.catalog.patience.insist(attempt_once)
        except ConflictError as conflict:
            if not conflict.retryable or attempt == attempts:
                raise
            time.sleep(BACKOFF_S.after(attempt) * random.random())
    raise AssertionError("unreachable: the last attempt returns or raises")


def _attempt(context: WriteAccess, name: str, make: Make, *, reason: str, reads_target: bool) -> WriteResult:
    transaction = begin(context, name, reason=reason)
    hit("write.begun")
    try:
        require_table(transaction.relation)
        with context.kept_alive(transaction.id):
            sink = Sink(transaction)
            sink.put(make(transaction))
            hit("write.files_written")
            return commit(sink, reason, reads_target=reads_target)
    except BaseException as error:
        transaction.give_up(error)
        raise


def commit(sink: Sink, reason: str, *, reads_target: bool) -> WriteResult:
    """Commit the rows of a write with the entries of the relation's indexes, or as staged."""
    if not sink.runs:
        sink.transaction.roll_back()
        return WriteResult(version=None, rows=0, relation=sink.relation)
    built = Commit(sink)
    if sink.staging:
        return _stage(built, reason)
    built.follow()
    version = built.commit(reason, reads_target=reads_target)
    return WriteResult(version=version, rows=sink.rows, relation=sink.relation, level0_runs=len(sink.runs))


def _stage(built: Commit, reason: str) -> WriteResult:
    """Commit the runs as staged, with a task for each of their tablets. Entries of indexes come with the task."""
    sink = built.sink
    with sink.context.catalog.reading() as connection:
        tasks = staging_tasks(connection, sink.relation, {run.tablet for run in sink.runs})
    staged = tuple(replace(run, state=RunState.STAGING) for run in sink.runs)
    decision = built.decision(reason, rows=(c.AddRuns(runs=staged), c.CreateTasks(tasks=tasks)))
    version = sink.transaction.commit(decision)
    hit("staging.staged")
    return WriteResult(
        version=version, rows=sink.rows, relation=sink.relation, staged=sink.rows, transaction=sink.transaction.id
    )
