"""What a decision means for the rows of the catalog: whether it still holds, and what it changes.

Nothing here writes but `carry_out`. A requirement or an update is a value of `ebla.model.changes`; each family of them
has a module with its rules, which are functions of a state (`ebla.catalog.rows`).
"""

from __future__ import annotations

from typing import assert_never

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import (
    access,
    building,
    ddl,
    guards,
    handlers,
    indexing,
    layouts,
    memory,
    rows,
    runs,
    sessions,
    topology,
    transitions,
)
from ebla.catalog.rows import Change, State
from ebla.errors import ConflictError, UnknownNameError
from ebla.model import changes as c
from ebla.model.topology_changes import ReportCut, TopologyUpdate, TransitionUpdate


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
        building.require_building(state, requirement)
    elif isinstance(requirement, c.IndexesFollow | c.IndexIs):
        indexing.require_indexes(state, requirement)
    else:
        assert_never(requirement)


def changes(
    state: State, update: c.Update, version: Version, now: int, created: RelationId | None
) -> tuple[Change, ...]:
    """What an update changes at this version. `created` is the relation that this update or one before it creates."""
    if isinstance(update, c.CreateRelation):
        assert created is not None
        return ddl.create(state, update, created, version, now)
    if isinstance(update, c.RelationUpdate):
        return ddl.changes(state, update, version, now)
    if isinstance(update, c.RunUpdate):
        return runs.changes(state, update, version)
    if isinstance(update, c.SessionUpdate):
        return sessions.changes(state, update, version, now)
    if isinstance(update, c.HandlerUpdate):
        return (handlers.change(update),)
    if isinstance(update, c.BuildingUpdate):
        return building.changes(state, update, version, created)
    if isinstance(update, c.CreateIndex):
        return (indexing.create(update, version, created),)
    if isinstance(update, c.SetIndexState):
        step = indexing.advance(state, update, version)
        gone = c.DropRelation(relation=update.index)
        return (*step, *ddl.changes(state, gone, version, now)) if indexing.is_removal(update) else step
    if isinstance(update, c.UserUpdate):
        return access.changes(state, update, now)
    if isinstance(update, ReportCut):
        return layouts.report(state, update)
    if isinstance(update, TransitionUpdate):
        return (*transitions.changes(state, update, version), topology.new_version(version))
    if isinstance(update, TopologyUpdate):
        return topology.changes(state, update, version, now)
    assert_never(update)


def carry_out(state: State, decision: c.Decision, now: int) -> tuple[Version, RelationId | None]:
    """Make a decision true at the next version, or raise; the caller ends the transaction, or undoes it.

    Returns the version, and the relation that the decision creates.
    """
    version = Version(memory.advance(state, "version"))
    _check_all(state, decision, now)
    hit("catalog.commit.checked")
    created = None
    if not all(isinstance(update, c.ROWS_ONLY) for update in decision.updates):
        memory.reshape(state)
    for update in decision.updates:
        if isinstance(update, c.CreateRelation):
            created = update.number or RelationId(memory.advance(state, "relation"))
        for change in changes(state, update, version, now, created):
            if not rows.write(state, change) and isinstance(update, c.EndTransaction):
                require(state, c.TransactionOpen(transaction=update.transaction), now)  # says what it is instead
        hit("catalog.commit.applied")
    if decision.exclusive:
        for change in guards.changes(state, decision, version):
            rows.write(state, change)
        memory.put(state, "exclusive_version", version)
    return version, created


def _check_all(state: State, decision: c.Decision, now: int) -> None:
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
