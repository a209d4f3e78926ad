"""What goes with a relation that is dropped or emptied: its indexes, its runs, its tasks and its transitions."""

from __future__ import annotations

from ebla.base.ids import RelationId, Version
from ebla.catalog import build_tasks, index_states, resizes, rows, runs, transitions
from ebla.catalog import schema as s
from ebla.catalog.rows import Change, State


def truncate(state: State, relation: RelationId, version: Version) -> tuple[Change, ...]:
    indexes, moved = index_states.truncate(state, relation, version)
    return (
        runs.end_all(relation, version),
        rows.insert(s.truncations, [{"relation_id": relation, "version": version}]),
        *moved,
        *(change for index in indexes for change in truncate(state, index, version)),
    )


def drop(state: State, relation: RelationId, version: Version) -> tuple[Change, ...]:
    """A relation goes with its indexes. Nothing of it is tried again; why it could not be built stays known."""
    indexes = (one.index for one in index_states.of_base(state, relation))
    return (
        *(change for index in indexes for change in drop(state, index, version)),
        *index_states.forget(relation),
        rows.update(s.relations, {"dropped_version": version, "horizon": version}, relation_id=relation),
        rows.delete(s.dependencies, relation_id=relation),
        runs.end_all(relation, version),
        *build_tasks.forget(relation),
        *resizes.forget(relation),
        *transitions.forget(state, relation, version),
        rows.delete(s.troubles, relation_id=relation, retry_at=rows.Not(None)),
    )
