"""Guards of exclusive decisions: the rules by which they are checked, and what a commit moves.

The table `guards` has the version of the last exclusive commit in each scope; the counter `exclusive_version` that of
the last one in any. Where they differ, a process of an older release has committed, which moves no scope: then
everything counts as moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ebla.base.ids import Version
from ebla.catalog import memory, rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Change, State
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.scopes import (
    ACCESS,
    EVERYTHING,
    HANDLERS,
    SCHEMA,
    TOPOLOGY,
    Scope,
    around,
    is_of_tablet,
    of_relation,
    of_tablet,
    of_tablets,
)
from ebla.model.topology_changes import (
    AdvanceTransition,
    BeginTransition,
    EndTransition,
    FailTransition,
    SetReplication,
    TopologyUpdate,
    TransitionUpdate,
)


def require_version(state: State, requirement: c.ExclusiveVersionIs) -> None:
    newest = memory.counters(state)["exclusive_version"]
    if newest <= requirement.version:
        return
    scopes = requirement.scopes or frozenset({EVERYTHING})
    moved = {row.scope: row.version for row in rows.find(state, s.guards)}
    for scope in sorted(scopes):
        is_followed = newest == max(moved.values(), default=0)
        found = max(moved.get(one, 0) for one in _in_the_way(scope, moved)) if is_followed else newest
        if found > requirement.version:
            what = "schema and topology" if scope == EVERYTHING else scope
            raise ConflictError(f"{what}: expected version {requirement.version}, found {found}; reload and retry")


def _in_the_way(scope: Scope, moved: Iterable[Scope]) -> frozenset[Scope]:
    """The scopes that have moved a scope when they have moved. Of everything: all but single tablets."""
    if scope != EVERYTHING:
        return around(scope)
    return frozenset((EVERYTHING, *(one for one in moved if not is_of_tablet(one))))


def changes(state: State, decision: c.Decision, version: Version) -> list[Change]:
    """What an exclusive commit moves: the scopes of its updates, or everything where they have none.

    What a process of an older release has moved is written down first: behind this commit it could not be seen. The
    end of a transition moves all tablets of its relation, so what its own tablet has moved need not be kept.
    """
    scopes = {scope for update in decision.updates for scope in _moved(update)} | decision.moves
    moved = dict.fromkeys(scopes or {EVERYTHING}, version)
    before = Version(memory.counters(state)["exclusive_version"])
    if before > (rows.greatest(state, s.guards.c.version) or 0):
        moved.setdefault(EVERYTHING, before)
    ended = frozenset(of_tablet(*one.tablet) for one in decision.updates if isinstance(one, EndTransition))
    return [
        *((rows.delete(s.guards, scope=ended),) if ended else ()),
        *(rows.put(s.guards, scope=scope, version=at) for scope, at in sorted(moved.items())),
    ]


def _moved(update: c.Update) -> Iterator[Scope]:
    match update:
        case c.CreateRelation(reads=inputs):
            yield SCHEMA
            yield from map(of_relation, inputs)
        case c.DropRelation(relation=relation):
            yield from (SCHEMA, of_relation(relation), of_tablets(relation))
        case c.RenameRelation(relation=relation):
            yield from (SCHEMA, of_relation(relation))
        case c.SetPlacement(relation=relation) | c.SetTabletMap(relation=relation):
            yield from (of_relation(relation), of_tablets(relation))
        case c.CreateIndex(base=base):
            yield of_relation(base)
        case c.SetIndexState(index=index):
            yield of_relation(index)
        case c.PutHandler() | c.RemoveHandler():
            yield HANDLERS
        case _ if isinstance(update, c.UserUpdate):
            yield ACCESS
        case _ if isinstance(update, TransitionUpdate | TopologyUpdate):
            yield from _moved_by_topology(update)
        case _ if isinstance(update, c.RelationUpdate):
            yield of_relation(update.relation)
        case c.AlterBuild(view=view) | c.MarkBuilt(view=view) | c.SetViewState(view=view):
            yield of_relation(view)
        case c.CreateBuild(build=build, of_created=False):
            yield of_relation(build.view)
        case _:
            pass


def _moved_by_topology(update: TransitionUpdate | TopologyUpdate) -> Iterator[Scope]:
    match update:
        case SetReplication(relation=relation) | BeginTransition(tablet=(relation, _)):
            yield from (TOPOLOGY, of_relation(relation), of_tablets(relation))
        case EndTransition(tablet=(relation, _)):
            yield from (of_relation(relation), of_tablets(relation))
        case AdvanceTransition(tablet=(relation, tablet)) | FailTransition(tablet=(relation, tablet)):
            yield of_tablet(relation, tablet)
        case _:
            yield TOPOLOGY
