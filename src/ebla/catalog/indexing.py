"""The states of indexes, as the catalog keeps them: checked, written and read inside one transaction.

Nothing here decides which step comes next; `ebla.model.lifecycle.index` says which steps there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from sqlalchemy import Connection, Row, and_, delete, insert, select, update

from ebla.base import lazy
from ebla.base.ids import RelationId, Version
from ebla.catalog import memory
from ebla.catalog import schema as s
from ebla.errors import ConflictError
from ebla.model.lifecycle.index import LIFE, Permission, begins_empty
from ebla.model.relation import FOREVER

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
    """`absent`: it waits for somebody to have it built, and nobody maintains it."""
    since: Version
    """The commit that began the state."""
    read_version: Version | None
    """The version of the base that it is filled from."""
    message: str | None


# ---- requirements ---------------------------------------------------------------------------------------


def check(connection: Connection, requirement: c.IndexesFollow | c.IndexIs) -> None:
    match requirement:
        case c.IndexesFollow(base=base, planned=planned):
            found = {one.index: one.state for one in of_base(connection, base)}
            for index in {*planned, *found}:
                before = planned.get(index, Permission.ABSENT)
                now = found.get(index, Permission.ABSENT)
                if before is not now and (now is Permission.ABSENT or not LIFE.allows(before, now)):
                    raise ConflictError(
                        f"index {index}: expected {before} or the step behind it, found {now}; "
                        "the write was planned too long ago: retry it"
                    )
        case c.IndexIs(index=index, state=state, since=since, read_version=read):
            one = of_index(connection, index)
            if one is None or (one.state, one.since, one.read_version) != (state, since, read):
                now_is = "it gone" if one is None else f"{one.state} since {one.since}, read at {one.read_version}"
                raise ConflictError(f"index {index}: expected {state} since {since}, read at {read}, found {now_is}")
        case _:
            assert_never(requirement)


# ---- updates --------------------------------------------------------------------------------------------


def create(connection: Connection, new: c.CreateIndex, version: Version, created: RelationId | None) -> None:
    if created is None:
        raise ValueError("expected a relation that this commit has created, found none")
    row = {
        "index_id": created,
        "base_id": new.base,
        "state": (Permission.ABSENT if new.deferred else Permission.DELETE_ONLY).value,
        "since_version": version,
    }
    connection.execute(insert(_states), row)


def advance(connection: Connection, change: c.SetIndexState, version: Version) -> None:
    one = of_index(connection, change.index)
    LIFE.step(None if one is None else one.state, change.state, change.index)
    if change.state is Permission.ABSENT:
        connection.execute(delete(_states).where(_states.c.index_id == change.index))
        return
    values: dict[str, Any] = {"state": change.state.value, "since_version": version, "message": change.message}
    if begins_empty(change.state):
        values["read_version"] = version
        live = and_(s.runs.c.relation_id == change.index, s.runs.c.end_version == FOREVER)
        connection.execute(update(s.runs).where(live).values(end_version=version))
    connection.execute(update(_states).where(_states.c.index_id == change.index).values(**values))


def truncate(connection: Connection, base: RelationId, version: Version) -> list[RelationId]:
    """The indexes of a base that is emptied. One that is being filled is filled from what comes after."""
    found = of_base(connection, base)
    for one in found:
        if begins_empty(one.state):
            moved = update(_states).where(_states.c.index_id == one.index)
            connection.execute(moved.values(read_version=version))
    return [one.index for one in found]


def forget(connection: Connection, relation: RelationId) -> list[RelationId]:
    """A relation is dropped, be it an index or a base: its indexes, which go with it."""
    connection.execute(delete(_states).where(_states.c.index_id == relation))
    indexes = [one.index for one in of_base(connection, relation)]
    connection.execute(delete(_states).where(_states.c.base_id == relation))
    return indexes


# ---- reads ----------------------------------------------------------------------------------------------


def of_index(connection: Connection, index: RelationId) -> IndexState | None:
    return next((one for one in all_states(connection) if one.index == index), None)


def of_base(connection: Connection, base: RelationId) -> list[IndexState]:
    return [one for one in all_states(connection) if one.base == base]


def all_states(connection: Connection) -> list[IndexState]:
    query = select(_states).order_by(_states.c.index_id)
    return list(memory.remembered(connection, "indexes", lambda: [_state(row) for row in connection.execute(query)]))


def _state(row: Row[Any]) -> IndexState:
    return IndexState(
        index=RelationId(row.index_id),
        base=RelationId(row.base_id),
        state=Permission(row.state),
        since=Version(row.since_version),
        read_version=None if row.read_version is None else Version(row.read_version),
        message=row.message,
    )
