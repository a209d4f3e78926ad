"""What a decision requires: each requirement is checked by the rules of its family."""

from __future__ import annotations

from typing import assert_never

from ebla.catalog import build_tasks, ddl, guards, index_states, runs, sessions
from ebla.catalog.rows import State
from ebla.errors import ConflictError, UnknownNameError
from ebla.model import changes as c


def require(state: State, requirement: c.Requirement, now: int) -> None:
    """Raise unless the requirement holds."""
    if isinstance(requirement, c.ExclusiveVersionIs):
        guards.require_version(state, requirement)
    elif isinstance(requirement, c.SchemaWithinOne):
        ddl.require_schema(state, requirement)
    elif isinstance(requirement, c.RunRequirement):
        runs.require_runs(state, requirement)
    elif isinstance(requirement, c.SessionRequirement):
        sessions.require_session(state, requirement, now)
    elif isinstance(requirement, c.TasksOpen | c.SegmentsBegin | c.NothingLeftToBuild):
        build_tasks.require_building(state, requirement)
    elif isinstance(requirement, c.IndexesFollow | c.IndexIs):
        index_states.require_indexes(state, requirement)
    else:
        assert_never(requirement)


def require_all(state: State, decision: c.Decision, now: int) -> None:
    """Raise unless all that a decision requires holds."""
    ended = {update.transaction for update in decision.updates if isinstance(update, c.EndTransaction)}
    # Ending a transaction finds out by itself whether it is open.
    left = [r for r in decision.requires if isinstance(r, c.TransactionOpen) and r.transaction in ended]
    try:
        for requirement in decision.requires:
            if requirement not in left:
                require(state, requirement, now)
    except (ConflictError, UnknownNameError):
        for requirement in left:  # a transaction that was aborted explains the rest
            require(state, requirement, now)
        raise
