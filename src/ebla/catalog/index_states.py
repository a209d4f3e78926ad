"""The states of indexes: the rules of their requirements and updates, and their reads.

Which step comes next is decided elsewhere; `ebla.model.lifecycle.index` says which steps there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from ebla.base import lazy
from ebla.base.ids import RelationId, Version
from ebla.catalog import memory, rows, runs
from ebla.catalog import schema as s
from ebla.catalog.rows import Change, State
from ebla.errors import ConflictError
from ebla.model.lifecycle.index import LIFE, Permission, begins_empty

if TYPE_CHECKING:
    from ebla.model import changes as c
else:
    c = lazy.Module("ebla.model.changes")

_states = s.index_states


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    index: RelationId
    base: RelationId
    state: Permission
    """`absent`: it waits for a statement that builds it, and no writer maintains it."""
    since: Version
    """The commit that began the state."""
    read_version: Version | None
    """The version of the base that it is filled from."""
    message: str | None


# ---- requirements ---------------------------------------------------------------------------------------


def require_indexes(state: State, requirement: c.IndexesFollow | c.IndexIs) -> None:
    match requirement:
        case c.IndexesFollow(base=base, planned=planned):
            found = {one.index: one.state for one in of_base(state, base)}
            for index in {*planned, *found}:
                before = planned.get(index, Permission.ABSENT)
                now = found.get(index, Permission.ABSENT)
                if before is not now and (now is Permission.ABSENT or not LIFE.allows(before, now)):
                    raise ConflictError(
                        f"index {index}: expected {before} or the step behind it, found {now}; "
                        "the write was planned too long ago: retry it"
                    )
        case c.IndexIs(index=index, state=expected, since=since, read_version=read):
            one = of_index(state, index)
            if one is None or (one.state, one.since, one.read_version) != (expected, since, read):
                now_is = "it gone" if one is None else f"{one.state} since {one.since}, read at {one.read_version}"
                raise ConflictError(f"index {index}: expected {expected} since {since}, read at {read}, found {now_is}")
        case _:
            assert_never(requirement)


# ---- updates --------------------------------------------------------------------------------------------


def create(new: c.CreateIndex, version: Version, created: RelationId | None) -> Change:
    if created is None:
        raise ValueError("expected a relation that this commit has created, found none")
    row = {
        "index_id": created,
        "base_id": new.base,
        "state": (Permission.ABSENT if new.deferred else Permission.DELETE_ONLY).value,
        "since_version": version,
    }
    return rows.insert(_states, [row])


def advance(state: State, step: c.SetIndexState, version: Version) -> tuple[Change, ...]:
    one = of_index(state, step.index)
    LIFE.step(None if one is None else one.state, step.state, step.index)
    if step.state is Permission.ABSENT:
        return (rows.delete(_states, index_id=step.index),)
    values: dict[str, object] = {"state": step.state.value, "since_version": version, "message": step.message}
    if not begins_empty(step.state):
        return (rows.update(_states, values, index_id=step.index),)
    return (
        runs.end_all(step.index, version),
        rows.update(_states, {**values, "read_version": version}, index_id=step.index),
    )


def is_removal(update: c.SetIndexState) -> bool:
    """Whether the index is gone with this step."""
    return update.state is Permission.ABSENT


def truncate(state: State, base: RelationId, version: Version) -> tuple[list[RelationId], list[Change]]:
    """The indexes of a base that is emptied. One that is being filled is filled from what comes after."""
    found = of_base(state, base)
    moved = [one.index for one in found if begins_empty(one.state)]
    return [one.index for one in found], [rows.update(_states, {"read_version": version}, index_id=i) for i in moved]


def forget(relation: RelationId) -> tuple[Change, ...]:
    """A relation is dropped, be it an index or a base."""
    return rows.delete(_states, index_id=relation), rows.delete(_states, base_id=relation)


# ---- reads ----------------------------------------------------------------------------------------------


def of_index(state: State, index: RelationId) -> IndexState | None:
    return next((one for one in all_states(state) if one.index == index), None)


def of_base(state: State, base: RelationId) -> list[IndexState]:
    return [one for one in all_states(state) if one.base == base]


def all_states(state: State) -> list[IndexState]:
    read = lambda: [_state(row) for row in rows.find(state, _states, "index_id")]  # noqa: E731
    return list(memory.remembered(state, "indexes", read))


def _state(row: Any) -> IndexState:
    return IndexState(
        index=RelationId(row.index_id),
        base=RelationId(row.base_id),
        state=Permission(row.state),
        since=Version(row.since_version),
        read_version=None if row.read_version is None else Version(row.read_version),
        message=row.message,
    )
