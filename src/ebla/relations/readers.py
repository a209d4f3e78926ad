"""Which views read a relation, which inputs they read as dictionaries, and where they stand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.base import lazy
from ebla.base.ids import RelationId, Version
from ebla.catalog import reads
from ebla.catalog import relations as relation_rows
from ebla.model.handlers import Handler, owners
from ebla.model.relation import Relation
from ebla.relations import handlers as stored
from ebla.relations import views as definition
from ebla.relations.views import View

if TYPE_CHECKING:
    from ebla.model import changes as c
else:
    c = lazy.Module("ebla.model.changes")


def readers(connection: Connection) -> list[tuple[View, Handler, dict[str, RelationId]]]:
    """Views that read dictionaries: their handler, and the ids of those inputs by name."""
    views = definition.all_views(connection)
    handler_of = owners([v.relation.id for v in views], stored.handlers(connection))
    return among(connection, [(view, handler_of[view.relation.id]) for view in views])


def among(
    connection: Connection, views: Iterable[tuple[View, Handler]]
) -> list[tuple[View, Handler, dict[str, RelationId]]]:
    """Which of some views read dictionaries."""
    found = []
    for view, handler in views:
        if handler.batch:
            ids = {n: reads.relation(connection, n).id for n in view.inputs}
            mine = {n: i for n, i in ids.items() if i in handler.batch}
            if mine:
                found.append((view, handler, mine))
    return found


def least_read(connection: Connection) -> dict[RelationId, Version | None]:
    """For each dictionary the oldest version at which a view reads it; `None` if no view has read it yet."""
    least: dict[RelationId, Version | None] = {}
    for view, _, inputs in readers(connection):
        for name, relation in inputs.items():
            read = None if view.position is None else view.position.read.get(name)
            before = least.get(relation)
            least[relation] = before if read is None else Version(read if before is None else min(before, read))
    return least | dict.fromkeys(_of_damaged(connection), Version(0))


def _of_damaged(connection: Connection) -> set[RelationId]:
    """Dictionaries that a view may read whose definition cannot be read: how far it is, is not known."""
    damaged = [view.relation.id for view in definition.all_views(connection) if view.damage is not None]
    return {i for handler in owners(damaged, stored.handlers(connection)).values() for i in handler.batch}


def readers_of(connection: Connection, relation: Relation) -> list[View]:
    """The views that read a relation directly."""
    readers = relation_rows.readers(connection, relation.id)
    return [view for view in definition.all_views(connection) if view.relation.id in readers]
