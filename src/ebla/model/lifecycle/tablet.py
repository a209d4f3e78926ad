"""The life of a tablet's transition: a replica moves to another node, or is made anew from the others.

Theory of operation. A tablet has replicas. A transition replaces one of them, the *leaving* replica, by another, the
*pending* one; a rebuild may have no leaving replica (one more copy), and a reduction no pending one. The old set is the
replicas as the map has them, the new set those after the transition. Its stage says which set is read and which is
written, and no step changes both: so a read and a write that were planned one stage apart still meet in a node.

- `ALLOW_WRITE_BOTH_READ_OLD`: the transition is stored. Writers may write to both sets and need not.
- `WRITE_BOTH_READ_OLD`: writers write to both. A writer that began before may still commit a run that the new set
  lacks.
- `STREAMING`: no such writer is left. Every run of the tablet that the pending replica lacks is copied to it, under the
  session of this stage. A copy that was begun under another session is refused when it ends.
- `WRITE_BOTH_READ_NEW`: the pending replica has every run. Readers read the new set.
- `USE_NEW`: no reader of the old set is left. Writers write to the new set alone.
- `CLEANUP`: no writer of the old set is left. The leaving replica's files are removed; at the end the map has the new
  set.
- `CLEANUP_TARGET`: streaming failed. Readers and writers are back at the old set; what was copied is removed.
- `REVERT_MIGRATION`: nothing is left on the pending replica; the map stays as it was.

Between two stages lies a *barrier*: each live node has seen the stage, and no transaction is open that began before the
one before it (`ebla.topology.barrier`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from ebla.model.lifecycle.steps import Actor, Lifecycle, Step


class Stage(StrEnum):
    ALLOW_WRITE_BOTH_READ_OLD = "allow_write_both_read_old"
    WRITE_BOTH_READ_OLD = "write_both_read_old"
    STREAMING = "streaming"
    WRITE_BOTH_READ_NEW = "write_both_read_new"
    USE_NEW = "use_new"
    CLEANUP = "cleanup"
    CLEANUP_TARGET = "cleanup_target"
    REVERT_MIGRATION = "revert_migration"


class Replicas(StrEnum):
    """Which of a tablet's sets of replicas."""

    OLD = "old"
    NEW = "new"
    BOTH = "both"


class Rights(NamedTuple):
    """Which replicas a request uses in a stage."""

    reads: Replicas
    writes: Replicas
    """Where a writer writes to."""
    requires: Replicas
    """Where enough copies must be before a write commits."""
    has_session: bool
    """Copies are made in this stage, under a session of its own."""


S = Stage
OLD, NEW, BOTH = Replicas

RIGHTS: Mapping[Stage, Rights] = {
    S.ALLOW_WRITE_BOTH_READ_OLD: Rights(reads=OLD, writes=OLD, requires=OLD, has_session=False),
    S.WRITE_BOTH_READ_OLD: Rights(reads=OLD, writes=BOTH, requires=OLD, has_session=False),
    S.STREAMING: Rights(reads=OLD, writes=BOTH, requires=BOTH, has_session=True),
    S.WRITE_BOTH_READ_NEW: Rights(reads=NEW, writes=BOTH, requires=BOTH, has_session=False),
    S.USE_NEW: Rights(reads=NEW, writes=NEW, requires=NEW, has_session=False),
    S.CLEANUP: Rights(reads=NEW, writes=NEW, requires=NEW, has_session=False),
    S.CLEANUP_TARGET: Rights(reads=OLD, writes=OLD, requires=OLD, has_session=False),
    S.REVERT_MIGRATION: Rights(reads=OLD, writes=OLD, requires=OLD, has_session=False),
}

BARRIER = "barrier"

STEPS = (
    Step(None, S.ALLOW_WRITE_BOTH_READ_OLD, Actor.COORDINATOR, "balancer, request or lost replica", "aborts its tasks"),
    Step(S.ALLOW_WRITE_BOTH_READ_OLD, S.WRITE_BOTH_READ_OLD, Actor.COORDINATOR, BARRIER, "writers write to both"),
    Step(S.WRITE_BOTH_READ_OLD, S.STREAMING, Actor.COORDINATOR, BARRIER, "opens a session, starts the copies"),
    Step(S.STREAMING, S.WRITE_BOTH_READ_NEW, Actor.COORDINATOR, "every run is copied", "closes the session"),
    Step(S.WRITE_BOTH_READ_NEW, S.USE_NEW, Actor.COORDINATOR, BARRIER, "writers write to the new set"),
    Step(S.USE_NEW, S.CLEANUP, Actor.COORDINATOR, BARRIER, "removes the leaving replica's copies"),
    Step(S.CLEANUP, None, Actor.COORDINATOR, "they are gone", "stores the new set, creates its tasks anew"),
    Step(S.ALLOW_WRITE_BOTH_READ_OLD, S.CLEANUP_TARGET, Actor.COORDINATOR, "source or target died", "goes back"),
    Step(S.WRITE_BOTH_READ_OLD, S.CLEANUP_TARGET, Actor.COORDINATOR, "source or target died", "goes back"),
    Step(S.STREAMING, S.CLEANUP_TARGET, Actor.COORDINATOR, "copying failed", "closes the session, goes back"),
    Step(S.CLEANUP_TARGET, S.REVERT_MIGRATION, Actor.COORDINATOR, BARRIER, "removes what was copied"),
    Step(S.REVERT_MIGRATION, None, Actor.COORDINATOR, "it is gone", "keeps the old set, creates its tasks anew"),
)

LIFE = Lifecycle("tablet", STEPS)


def reads_from(stage: Stage | None) -> Replicas:
    """The set that readers use; of a tablet without a transition the only one there is."""
    return OLD if stage is None else RIGHTS[stage].reads


def writes_to(stage: Stage | None) -> Replicas:
    return OLD if stage is None else RIGHTS[stage].writes


def requires_of(stage: Stage | None) -> Replicas:
    """The set that needs `min_copies` of a run before the commit that makes the run visible."""
    return OLD if stage is None else RIGHTS[stage].requires


def goes_back(stage: Stage) -> bool:
    return stage in (S.CLEANUP_TARGET, S.REVERT_MIGRATION)
