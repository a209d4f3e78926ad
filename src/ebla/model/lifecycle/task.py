"""The life of a building task.

Theory of operation. Building a view or an index is cut into tasks, one for each tablet of its base
(`ebla.model.tasks`). The catalog keeps a task only while it is unfinished, and of its state only whether it is
*aborted*, because its tablet is moving: no step leads back from there, and the work goes on in a new task with a new
id. Being worked on and being finished are known to the coordinator and the worker alone, and may be forgotten: a task
that is done again finds its position at the end, so doing it twice has no second effect.

A chunk may be committed for a task that is `created`, `working` or `finished`. So what a worker does for a task that
the coordinator has forgotten about still counts, and what it does for one that is aborted or gone does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from ebla.model.lifecycle.steps import Actor, Lifecycle, Step


class TaskState(StrEnum):
    CREATED = "created"
    WORKING = "working"
    FINISHED = "finished"
    ABORTED = "aborted"
    GONE = "gone"


class Rights(NamedTuple):
    """What is permitted in a state, and who keeps it."""

    open: bool
    """A chunk of the task may be committed."""
    stored: bool
    """The catalog has a row of the task."""


T = TaskState

RIGHTS: Mapping[TaskState, Rights] = {
    T.CREATED: Rights(open=True, stored=True),
    T.WORKING: Rights(open=True, stored=True),
    T.FINISHED: Rights(open=True, stored=True),
    T.ABORTED: Rights(open=False, stored=True),
    T.GONE: Rights(open=False, stored=False),
}

STEPS = (
    Step(None, T.CREATED, Actor.STATEMENT, "CREATE, BUILD INDEXES or LOAD", "stores the task with what it builds"),
    Step(T.CREATED, T.WORKING, Actor.COORDINATOR, "its base has the turn", "calls the worker of its replica"),
    Step(T.WORKING, T.FINISHED, Actor.WORKER, "its tablet is covered", "answers with its id"),
    Step(T.CREATED, T.FINISHED, Actor.WORKER, "an answer comes late", "answers with its id"),
    Step(T.FINISHED, T.GONE, Actor.COORDINATOR, "200 ms have passed", "removes it together with others"),
    Step(T.WORKING, T.CREATED, Actor.COORDINATOR, "the worker failed, gave way or restarted", "calls again"),
    Step(T.FINISHED, T.CREATED, Actor.COORDINATOR, "leader and worker both restarted", "calls again"),
    Step(T.CREATED, T.ABORTED, Actor.OPERATION, "its tablet moves", "refuses its commits from now on"),
    Step(T.WORKING, T.ABORTED, Actor.OPERATION, "its tablet moves", "refuses its commits from now on"),
    Step(T.FINISHED, T.ABORTED, Actor.OPERATION, "its tablet moves", "refuses its commits from now on"),
    Step(T.CREATED, T.GONE, Actor.STATEMENT, "view or base dropped", "removes it"),
    Step(T.WORKING, T.GONE, Actor.STATEMENT, "view or base dropped", "removes it and lets the worker stop"),
    Step(T.ABORTED, T.GONE, Actor.OPERATION, "the move has ended", "stores a task with a new id in its place"),
)

LIFE = Lifecycle("task", STEPS, nothing=T.GONE)


def is_open(state: TaskState) -> bool:
    return RIGHTS[state].open
