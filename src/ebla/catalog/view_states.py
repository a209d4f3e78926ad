"""The states of views: the rules of their updates, and their reads.

Which step comes next is decided elsewhere; `ebla.model.lifecycle.view` says which steps there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebla.base.ids import RelationId, Version
from ebla.catalog import memory, rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Change, State
from ebla.errors import Culprit
from ebla.model.failure import Failure
from ebla.model.lifecycle.view import LIFE, ViewState

if TYPE_CHECKING:
    from ebla.model import changes as c

_states = s.view_states


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    state: ViewState
    since: Version
    """The commit that began the state, or stored its newest failure."""
    failure: Failure | None


def create(view: RelationId, version: Version) -> Change:
    LIFE.step(None, ViewState.BUILDING, view)
    return rows.insert(_states, [{"view_id": view, "state": ViewState.BUILDING.value, "since_version": version}])


def advance(state: State, step: c.SetViewState, version: Version) -> Change:
    return _advance(state, step.view, step.state, step.failure, version)


def ready(state: State, relation: RelationId, version: Version) -> tuple[Change, ...]:
    """A view is built. Of an index, nothing is kept here."""
    if relation not in all_states(state):
        return ()
    return (_advance(state, relation, ViewState.READY, None, version),)


def _advance(state: State, view: RelationId, to: ViewState, failure: Failure | None, version: Version) -> Change:
    found = all_states(state).get(view)
    LIFE.step(None if found is None else found.state, to, view)
    culprit = None if failure is None else failure.culprit
    values = {
        "state": to.value,
        "since_version": version,
        "code": None if failure is None else failure.code,
        "message": None if failure is None else failure.message,
        "culprit_relation": None if culprit is None else culprit.relation,
        "culprit_key": None if culprit is None else culprit.key,
        "failed_at": None if failure is None else failure.at,
    }
    return rows.update(_states, values, view_id=view)


def forget(relation: RelationId) -> Change:
    """A relation is dropped, be it a view or not."""
    return rows.delete(_states, view_id=relation)


def all_states(state: State) -> dict[RelationId, StoredState]:
    read = lambda: {RelationId(row.view_id): _stored(row) for row in rows.find(state, _states)}  # noqa: E731
    return dict(memory.remembered(state, "views", read))


def _stored(row: Any) -> StoredState:
    culprit = None if row.culprit_key is None else Culprit(row.culprit_relation, row.culprit_key)
    failure = None
    if row.code is not None:
        failure = Failure(code=row.code, message=row.message, culprit=culprit, at=row.failed_at)
    return StoredState(state=ViewState(row.state), since=Version(row.since_version), failure=failure)
