"""`CREATE OR REPLACE MATERIALIZED VIEW`: the new view is built beside the old one and takes its place in one commit.

Theory of operation. The *replacement* is a view like any other, under a name of the system's own. It is built by
the process that builds views, through crashes too, while readers read the old view. Once it is built, one exclusive
commit drops the old view, gives its name and its place in a handler to the replacement, and ends the matter. Any
process may make that commit: the one that waits, the one that has built, or the next that opens the warehouse. Until
then nothing may come to depend on the old view, and dropping it drops the replacement, too. A build that fails, or is
cancelled, leaves the old view as it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.errors import UsageError
from ebla.model import changes as c
from ebla.model.relation import Relation
from ebla.relations import handlers as stored
from ebla.relations import indexes as index_definition
from ebla.relations import views as definition
from ebla.relations.guard import refuse_if_read
from ebla.relations.views import REPLACEMENT, find_replacement


def name_of_build(catalog: Catalog, name: str) -> str:
    """The name under which something is being built: that of a view's replacement, if it has one."""
    with catalog.reading() as connection:
        found = find_replacement(connection, name)
    return name if found is None else found.name


def begun(connection: Connection, old: Relation) -> tuple[c.Update, ...]:
    """What a new replacement does to what is there: an older one goes. Refused where views or indexes need the view."""
    refuse_if_read(connection, old, "replace it")
    indexes = index_definition.of_base(connection, old)
    if indexes:
        names = ", ".join(index.name for index in indexes)
        raise UsageError(
            f"{old.name}: expected that no index is on it, found {names}; drop them first, then replace it"
        )
    older = find_replacement(connection, old.name)
    return () if older is None else (c.DropRelation(relation=older.id),)


def exchange(catalog: Catalog, node: NodeId) -> None:
    """Give every replacement that is built the name of the view that it replaces. Changes nothing where none is."""
    with catalog.reading() as connection:
        if not _built(connection):
            return

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        ready = _built(connection)
        if not ready:
            return None
        updates: list[c.Update] = []
        places: dict[RelationId, RelationId] = {}
        for new in ready:
            name = new.name.removeprefix(REPLACEMENT)
            old = reads.find_relation(connection, name)
            if old is not None:
                places[old.id] = new.id
                updates.append(c.DropRelation(relation=old.id))
            updates.append(c.RenameRelation(relation=new.id, name=name))
        updates = [*_in_handlers(connection, places), *updates]
        names = ", ".join(new.name.removeprefix(REPLACEMENT) for new in ready)
        return c.Decision(
            reason=f"replace materialized view {names}",
            relation=ready[0].id,
            updates=tuple(updates),
            work=c.WorkKind.BUILD,
        )

    hit("view.before_exchange")
    catalog.decide(decide, node=node)


def _built(connection: Connection) -> list[Relation]:
    views = [v for v in definition.all_views(connection) if v.relation.name.startswith(REPLACEMENT)]
    return [v.relation for v in views if not v.building and v.position is not None and v.position.built]


def _in_handlers(connection: Connection, places: Mapping[RelationId, RelationId]) -> list[c.Update]:
    """New views take the places of old ones among the views of handlers: one update for each handler."""
    return [
        stored.put(handler.with_views(places))
        for handler in stored.handlers(connection)
        if places.keys() & set(handler.views)
    ]
