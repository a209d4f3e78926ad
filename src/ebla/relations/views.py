"""A view's definition and how far it has come, as the catalog keeps them.

The definition lies in the relation's options; the position in the `progress` table, so that rows and position move in
one commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from ebla.base import lazy
from ebla.base.ids import RelationId, Version
from ebla.catalog import reads, view_states
from ebla.errors import CatalogError, EblaError, StorageError, UnknownNameError
from ebla.model.failure import Failure
from ebla.model.lifecycle.view import ViewState, behind, is_building
from ebla.model.plans import Plan
from ebla.model.refresh import Refresh
from ebla.model.relation import HIDDEN_KEY, Column, Kind, Relation
from ebla.relations.stored_values import read_text

if TYPE_CHECKING:
    from ebla.algebra.merge import Role
    from ebla.model import changes as c
    from ebla.sql.query import Query
else:
    c = lazy.Module("ebla.model.changes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a view stands. `read` is the version at which each input was last read."""

    applied_version: Version
    read: Mapping[str, int]
    epoch: Mapping[str, Any] = field(default_factory=dict)
    """What the last epoch did: plan, rows, seconds."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """How many epochs there were, by plan."""
    rows_changed: int = 0
    """Rows gained and lost in all epochs."""
    failures: int = 0
    tried: Mapping[str, int] = field(default_factory=dict)
    """The version of each input at which the view failed. A later version makes it due again."""
    refresh: Refresh | None = None
    """A change of dictionaries that the view has taken in up to a position."""
    failure: Failure | None = None
    """What stopped the view, until an epoch succeeds. Stored with its state (`system.view_states`)."""

    @property
    def failed(self) -> bool:
        return self.failure is not None

    @property
    def message(self) -> str | None:
        return None if self.failure is None else self.failure.message

    @property
    def built(self) -> bool:
        """Whether there ever were rows; a first build that failed leaves a position without them."""
        return self.applied_version > 0

    def text(self) -> str:
        kept = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("refresh", "failure")}
        if self.refresh is not None:
            kept["refresh"] = self.refresh.value()
        return json.dumps(kept, sort_keys=True, default=dict)

    @classmethod
    def parse(cls, text: str, failure: Failure | None = None) -> Position:
        return replace(read_text(cls, text), failure=failure)

    def stopped(self, failure: Failure, tried: Mapping[str, int]) -> Position:
        """The versions that were tried before stay tried: an epoch and a chunk that both fail do not take turns."""
        before = self.tried if self.failed else {}
        both = {name: max(tried.get(name, 0), before.get(name, 0)) for name in {**before, **tried}}
        return replace(self, failure=failure, failures=self.failures + 1, tried=both)

    @property
    def failed_in_refresh(self) -> bool:
        """Whether the refresh is what failed: then `tried` has the versions to which it goes.

        An epoch that failed on a row of a stream has tried dictionaries at the versions that the view has read.
        """
        if not self.failed or self.refresh is None:
            return False
        return all(self.tried.get(name, 0) >= version for name, version in self.refresh.to.items())

    def still_failed(self, before: Position) -> Position:
        """Behind a chunk: an epoch that failed on a row of a stream would fail again, and its view says so."""
        if not before.failed or before.failed_in_refresh:
            return self
        return replace(self, failure=before.failure, tried=before.tried)

    def forgiven(self) -> Position:
        """The position before the failure: the view is tried again."""
        return replace(self, failure=None, tried={})


def advanced(
    position: Position | None,
    *,
    applied_version: Version,
    read: Mapping[str, int],
    plan: Plan,
    reason: str | None,
    gained: int,
    lost: int,
    seconds: float,
    refresh: Refresh | None = None,
) -> Position:
    """The position behind an epoch. The counters go on from the last one, so they move with the rows."""
    before = position or Position(applied_version=Version(0), read={})
    return Position(
        applied_version=applied_version,
        read=read,
        epoch={"plan": plan, "reason": reason, "gained": gained, "lost": lost, "seconds": seconds},
        epochs={**before.epochs, plan: before.epochs.get(plan, 0) + 1},
        rows_changed=before.rows_changed + gained + lost,
        failures=before.failures,
        refresh=refresh,
    )


@dataclass(frozen=True, kw_only=True)
class View:
    relation: Relation
    query: Query
    inputs: tuple[str, ...]
    """Names of the relations that the query reads, in lower case."""
    position: Position | None
    """Where the view stands; `None` while it is being built. A build that failed has a position without rows."""
    stored: str | None
    """The position's text as it is in the catalog: the guard of the next commit."""
    kept: Query
    """The query that computes the stored rows: the user's, with hidden columns behind where groups are merged."""
    roles: tuple[Role, ...] | None = None
    """What each column of `kept` is, if groups are merged."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The session's settings under which the view was created, and hence is computed for ever."""
    state: ViewState = ViewState.READY
    reached: Position | None = None
    """How far epochs have brought it, be it built or not."""
    damage: StorageError | None = None
    """Why its stored definition or position cannot be read. Nothing but the relation is known of such a view."""

    @property
    def building(self) -> bool:
        """Whether it is still being built."""
        return is_building(self.state)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that the query computes, hidden ones too; not the row id of a view without a key."""
        return tuple(col for col in self.relation.columns if col.name not in HIDDEN_KEY)

    @property
    def progress_name(self) -> str:
        return progress_name(self.relation.id)


def unmoved(view: View) -> c.Requirement:
    """What the commit of a newer position requires: that the view still stands where it was found."""
    return c.ProgressIs(name=view.progress_name, value=view.stored)


def moved(view: View, position: Position) -> tuple[c.Update, ...]:
    """The updates that bring a view to a position, and to the state behind it."""
    to = behind(view.state, failed=position.failed)
    failure = None if view.reached is None else view.reached.failure
    step = c.SetViewState(view=view.relation.id, state=to, failure=position.failure)
    return (
        c.SetProgress(name=view.progress_name, value=position.text()),
        *((step,) if to is not view.state or position.failure != failure else ()),
    )


POSITIONS = "view/"
"""How the names of positions begin."""


def progress_name(relation: RelationId) -> str:
    return f"{POSITIONS}{relation}"


def options(
    query: str,
    extra: Mapping[str, object],
    *,
    settings: Mapping[str, str],
    kept: Query | None = None,
    roles: Sequence[Role] | None = None,
) -> dict[str, object]:
    made: dict[str, object] = {"query": query, "settings": dict(settings), **extra}
    if kept is not None and roles is not None:
        made |= {"kept": kept.text, "roles": [asdict(role) for role in roles]}
    return made


def inputs_of(query: Query) -> tuple[str, ...]:
    """Names of the relations that a query reads, in lower case, in the order of the text."""
    return tuple(dict.fromkeys(ref.name.lower() for ref in query.refs))


def inputs_of_relation(relation: Relation) -> tuple[str, ...]:
    """What a view reads, by its relation alone; nothing where its text is damaged."""
    text = relation.options.get("query")
    try:
        return inputs_of(_parsed(str(text))) if text is not None else ()
    except EblaError:
        return ()


def load(connection: Connection, name: str) -> View:
    relation = reads.find_relation(connection, name)
    if relation is None or relation.kind is not Kind.VIEW:
        names = reads.relation_names(connection, Kind.VIEW)
        have = f"views are {', '.join(names)}" if names else "there are no views yet"
        found = "none" if relation is None else relation.kind.named
        raise UnknownNameError(f"view {name}: expected a view of this name, found {found}; {have}")
    return of_relation(connection, relation)


REPLACEMENT = "sys$replacement$"
"""How the name of a view begins that is being built to take another's place (`ebla.views.replace`)."""


def replacement_name(view: str) -> str:
    return f"{REPLACEMENT}{view}"


def find_replacement(connection: Connection, view: str) -> Relation | None:
    """What is being built to take a view's place."""
    return reads.find_relation(connection, replacement_name(view))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Query:
    """Views are read again and again, and their texts never change."""
    from ebla.sql.refs import find

    return find(text)


def of_relation(connection: Connection, relation: Relation, positions: Mapping[str, str] | None = None) -> View:
    """The view that a relation is. What is wrong with its stored texts is an error of this view alone.

    `positions` are those of all views, where they were read already.
    """
    name = progress_name(relation.id)
    return _sound(connection, relation, reads.progress(connection, name) if positions is None else positions.get(name))


def _sound(connection: Connection, relation: Relation, stored: str | None) -> View:
    try:
        return _view(connection, relation, stored)
    except (CatalogError, SQLAlchemyError):
        raise  # of the catalog, not of the view
    except Exception as error:
        raise StorageError(
            f"view {relation.name}: expected a stored definition that this release can read, found "
            f"{type(error).__name__}: {error}; open it with the release that made it, or drop it and create it again"
        ) from error


def _view(connection: Connection, relation: Relation, stored: str | None) -> View:
    query = _parsed(str(relation.options["query"]))
    roles = relation.options.get("roles")
    settings = relation.options.get("settings")
    stands = view_states.all_states(connection)[relation.id]
    reached = None if stored is None else Position.parse(stored, stands.failure)
    return View(
        relation=relation,
        query=query,
        inputs=inputs_of(query),
        position=_while_building(reached) if is_building(stands.state) else reached,
        stored=stored,
        kept=_parsed(str(relation.options["kept"])) if "kept" in relation.options else query,
        roles=_roles(roles) if isinstance(roles, list) else None,
        settings={str(k): str(v) for k, v in settings.items()} if isinstance(settings, dict) else {},
        state=stands.state,
        reached=reached,
    )


def _roles(stored: Sequence[Mapping[str, Any]]) -> tuple[Role, ...]:
    from ebla.algebra.merge import Role

    return tuple(Role.parse(role) for role in stored)


def _while_building(reached: Position | None) -> Position | None:
    """What others see of a view whose rows are not complete: nothing, or that its build failed."""
    if reached is None or not reached.failed:
        return None
    return replace(reached, applied_version=Version(0), read={})


def _or_damaged(connection: Connection, relation: Relation, stored: str | None) -> View:
    from ebla.sql.query import Query

    try:
        return _sound(connection, relation, stored)
    except StorageError as damage:
        nothing = Query(text="")
        return View(
            relation=relation, query=nothing, inputs=(), position=None, stored=None, kept=nothing, damage=damage
        )


def all_views(connection: Connection, positions: Mapping[str, str] | None = None) -> list[View]:
    """Every view, each behind the views that it reads. One that cannot be read is there with its `damage`.

    `positions` are those of all views, where they were read already.
    """
    relations = [reads.relation(connection, name) for name in reads.relation_names(connection, Kind.VIEW)]
    names = [progress_name(relation.id) for relation in relations]
    stored = reads.progress_of(connection, names) if positions is None else positions
    found = {r.name.lower(): _or_damaged(connection, r, stored.get(progress_name(r.id))) for r in relations}
    order = TopologicalSorter({name: [n for n in view.inputs if n in found] for name, view in found.items()})
    return [found[name] for name in order.static_order()]
