"""What a decision changes: each update becomes changes of rows by the rules of its family."""

from __future__ import annotations

from typing import assert_never

from ebla.base.ids import RelationId, Version
from ebla.catalog import (
    access,
    build_tasks,
    ddl,
    handlers,
    index_states,
    layouts,
    runs,
    sessions,
    topology,
    transitions,
)
from ebla.catalog.rows import Change, State
from ebla.model import changes as c
from ebla.model.topology_changes import ReportCut, TopologyUpdate, TransitionUpdate


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
        return build_tasks.changes(state, update, version, created)
    if isinstance(update, c.CreateIndex):
        return (index_states.create(update, version, created),)
    if isinstance(update, c.SetIndexState):
        step = index_states.advance(state, update, version)
        gone = c.DropRelation(relation=update.index)
        return (*step, *ddl.changes(state, gone, version, now)) if index_states.is_removal(update) else step
    if isinstance(update, c.UserUpdate):
        return access.changes(state, update, now)
    if isinstance(update, ReportCut):
        return layouts.report(state, update)
    if isinstance(update, TransitionUpdate):
        return (*transitions.changes(state, update, version), topology.new_version(version))
    if isinstance(update, TopologyUpdate):
        return topology.changes(state, update, version, now)
    assert_never(update)
