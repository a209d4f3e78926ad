"""How fresh a view's rows are, from the catalog: the version it has applied, and whether it shows another one."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.catalog.unread_writes import Look, UnreadWrites
from ebla.model.handlers import DICTIONARY, by_name, owners
from ebla.model.relation import Kind, Relation
from ebla.relations import handlers as stored
from ebla.relations import views as definition
from ebla.relations.freshness import look_at_views, unread_of
from ebla.relations.views import View


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFreshness:
    applied_version: Version
    unread_since: int | None
    """When the oldest write was committed that the view, or one it reads, has not read; in microseconds."""

    def now(self, clock: int) -> tuple[Version, float]:
        age_us = 0 if self.unread_since is None else clock - self.unread_since
        return self.applied_version, max(0, age_us) / 1e6


def fresh(connection: Connection, relation: Relation) -> ViewFreshness | None:
    """The freshness of a view that is built; `None` for a table."""
    if relation.kind is not Kind.VIEW:
        return None
    look = look_at_views(connection)
    view = definition.of_relation(connection, relation, look.positions)
    assert view.position is not None, "a view that is not built is refused before"
    since = [one.since_us for one in _unread(connection, view, look)]
    return ViewFreshness(applied_version=view.position.applied_version, unread_since=min(since, default=None))


def reached(connection: Connection, relation: Relation, look: Look, version: int) -> str | None:
    """`None` if the relation shows everything up to a version; otherwise how far it is."""
    if relation.kind is not Kind.VIEW:
        return None
    view = definition.of_relation(connection, relation, look.positions)
    if view.position is None:
        return "it building"
    if not view.position.built:
        return f"that its build failed: {view.position.message}"
    if view.position.applied_version >= version:
        return None
    # A view that has read every write up to the version shows it, though no epoch has applied it.
    if all(one.first > version for one in _unread(connection, view, look)):
        return None
    stopped = f", stopped: {view.position.message}" if view.position.failed else ""
    return f"version {view.position.applied_version}{stopped}{_switched_off(connection, view, look)}"


def _switched_off(connection: Connection, view: View, look: Look) -> str:
    """Which handlers, of this view and of those that it reads, do nothing by themselves."""
    handlers = stored.handlers(connection)
    chain = _chain(connection, view, look)
    of = owners([one.relation.id for one in chain], handlers)
    off = sorted({of[one.relation.id].name for one in chain if not of[one.relation.id].should_run})
    job = by_name(handlers, DICTIONARY)
    if job is not None and not job.should_run and any(of[one.relation.id].batch for one in chain):
        off.append(DICTIONARY)
    if not off:
        return ""
    which = f"its handler {off[0]} is" if len(off) == 1 else f"its handlers {', '.join(off)} are"
    return f", for {which} switched off (ALTER HANDLER {off[0]} SET (should_run = true))"


def _chain(connection: Connection, view: View, look: Look) -> list[View]:
    """A view, and those that it reads."""
    found = [view]
    for name in view.inputs:
        relation = reads.find_relation(connection, name)
        if relation is not None and relation.kind is Kind.VIEW:
            found += _chain(connection, definition.of_relation(connection, relation, look.positions), look)
    return found


def _unread(connection: Connection, view: View, look: Look) -> list[UnreadWrites]:
    """What of each input, and of what those views read, is not read yet."""
    return [one for each in _chain(connection, view, look) for one in unread_of(connection, each, look).values()]
