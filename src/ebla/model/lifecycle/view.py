"""The life of a view: whether queries may read it, who brings it on, and what stops it.

Theory of operation. A view is built by tasks, chunk by chunk, and kept by epochs. Epochs run from the beginning: while
it is built they bring what is covered to the newest version, so that nothing is left to do when the last chunk comes.
The commit that says so is the coordinator's, and from then on queries read the view.

A row on which the query fails, or a query that no longer fits its inputs, stops the view and no other. The failure is
stored with the state: its code, what was said, which row is to blame, and when. A view that was built keeps the rows of
its last epoch, and queries read them; one that is being built cannot be read, and its tasks are held. Either goes on
when an input is written to, or when a user asks (`FLUSH`, `WAIT FOR`). Anything else that goes wrong (a job that Spark
lost, a full disk) is no step here: the work is tried again after a pause, and the state stays (`system.troubles`).

The state is written in the commit that moves the view's position, which requires the position that was read. So of two
epochs that overlap one takes its step. A change of dictionaries that is taken in chunk by chunk is no state: it is a
part of the position, the view is read and kept as ever, and it may fail meanwhile.

`CREATE OR REPLACE` builds a second view beside the first. Both have lives of their own; the second takes the name of
the first when it is `READY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from ebla.model.lifecycle.steps import Actor, Lifecycle, Step


class ViewState(StrEnum):
    BUILDING = "building"
    BUILD_FAILED = "build_failed"
    READY = "ready"
    FAILED = "failed"


class Status(StrEnum):
    """What users see of a view's state."""

    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


class Rights(NamedTuple):
    """What is permitted in a state, and who brings the view on."""

    queries_read: bool
    tasks_run: bool
    """Whether chunks are read for it."""
    epochs: str
    """What epochs do."""
    status: Status


V = ViewState

RIGHTS: Mapping[ViewState, Rights] = {
    V.BUILDING: Rights(False, True, "follow writes to what is covered", Status.BUILDING),
    V.BUILD_FAILED: Rights(False, False, "wait for a write to an input, or a user", Status.FAILED),
    V.READY: Rights(True, False, "follow every write", Status.READY),
    V.FAILED: Rights(True, False, "wait for a write to an input, or a user", Status.FAILED),
}

STEPS = (
    Step(None, V.BUILDING, Actor.STATEMENT, "CREATE MATERIALIZED VIEW", "stores the relation, the build and its tasks"),
    Step(V.BUILDING, V.READY, Actor.COORDINATOR, "all is read, at one version, and checked", "ends the build"),
    Step(V.BUILDING, V.BUILD_FAILED, Actor.PROCESS, "a row or the query fails", "stores the failure, holds the tasks"),
    Step(V.BUILD_FAILED, V.BUILD_FAILED, Actor.PROCESS, "it fails again", "stores the newer failure"),
    Step(V.BUILD_FAILED, V.BUILDING, Actor.PROCESS, "an input is written to, or a user asks", "forgets the failure"),
    Step(V.READY, V.FAILED, Actor.EPOCH, "a row or the query fails", "stores the failure, leaves the rows"),
    Step(V.FAILED, V.FAILED, Actor.EPOCH, "it fails again", "stores the newer failure"),
    Step(V.FAILED, V.READY, Actor.EPOCH, "an epoch succeeds", "forgets the failure"),
    Step(V.BUILDING, None, Actor.STATEMENT, "CANCEL BUILD or DROP", "drops the relation with its rows and tasks"),
    Step(V.BUILD_FAILED, None, Actor.STATEMENT, "CANCEL BUILD or DROP", "drops the relation with its rows and tasks"),
    Step(V.READY, None, Actor.STATEMENT, "DROP or a replacement that is ready", "drops the relation with its rows"),
    Step(V.FAILED, None, Actor.STATEMENT, "DROP or a replacement that is ready", "drops the relation with its rows"),
)

LIFE = Lifecycle("view", STEPS)


def may_read(state: ViewState) -> bool:
    return RIGHTS[state].queries_read


def is_building(state: ViewState) -> bool:
    """Whether the build has not ended."""
    return not may_read(state)


def behind(state: ViewState, *, failed: bool) -> ViewState:
    """The state behind an epoch or a chunk."""
    if is_building(state):
        return ViewState.BUILD_FAILED if failed else ViewState.BUILDING
    return ViewState.FAILED if failed else ViewState.READY
