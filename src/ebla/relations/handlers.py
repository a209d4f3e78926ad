"""Handlers as the catalog keeps them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.base import lazy
from ebla.base.ids import RelationId
from ebla.catalog import reads
from ebla.model.handlers import DEFAULT, Handler, Input, by_name, is_reserved, owners
from ebla.model.relation import Kind, Relation

if TYPE_CHECKING:
    import pyarrow as pa

    from ebla.model import changes as c
else:
    c = lazy.Module("ebla.model.changes")


def handlers(connection: Connection) -> list[Handler]:
    return [Handler.parse(*row) for row in reads.handler_rows(connection)]


def owned(connection: Connection) -> list[tuple[Relation, Handler]]:
    """Every view with its handler."""
    views = [reads.relation(connection, name) for name in reads.relation_names(connection, Kind.VIEW)]
    handler_of = owners([view.id for view in views], handlers(connection))
    return [(view, handler_of[view.id]) for view in views]


def by_names(connection: Connection) -> dict[str, tuple[list[str], list[str]]]:
    """Handlers that were created, in lower case, with the names of their views and inputs: what checks compare with."""

    def names(ids: Iterable[RelationId]) -> list[str]:
        found = (reads.relation_by_id(connection, one) for one in ids)
        return [relation.name for relation in found if relation is not None]

    return {
        h.name.lower(): (names(h.views), names(i.relation for i in h.inputs))
        for h in handlers(connection)
        if not is_reserved(h.name)
    }


def put(handler: Handler) -> c.PutHandler:
    return c.PutHandler(name=handler.name, settings=handler.text(), should_run=handler.should_run)


def removal(connection: Connection, gone: Collection[RelationId]) -> tuple[c.Update, ...]:
    """What a drop of relations changes in the handlers that name them."""
    found = []
    for handler in handlers(connection):
        left = handler.without(gone)
        if left != handler:
            found.append(put(left))
    return tuple(found)


COLUMNS = {
    "name": "string",
    "views": "string",
    "inputs": "string",
    "consumer": "string",
    "should_run": "boolean",
    "settings": "string",
}


def table(connection: Connection) -> pa.Table:
    """Handlers in words, the default one among them."""
    from ebla.values.types import table_of

    views = {reads.relation(connection, n).id: n for n in reads.relation_names(connection, Kind.VIEW)}
    stored = handlers(connection)
    if by_name(stored, DEFAULT) is None:
        stored.append(Handler(name=DEFAULT))
    of_view = owners(views, stored)
    rows = [
        {
            "name": handler.name,
            "views": ", ".join(sorted(name for view, name in views.items() if of_view[view].name == handler.name)),
            "inputs": ", ".join(_input_text(connection, i) for i in handler.inputs),
            "consumer": handler.consumer,
            "should_run": handler.should_run,
            "settings": json.dumps(dict(handler.settings), sort_keys=True),
        }
        for handler in sorted(stored, key=lambda h: h.name)
    ]
    return table_of(COLUMNS, rows)


def _input_text(connection: Connection, one: Input) -> str:
    relation = reads.relation_by_id(connection, one.relation)
    name = f"relation {one.relation}" if relation is None else relation.name
    feed = "" if one.changefeed is None else f" CHANGEFEED {one.changefeed}"
    return f"{name}{feed} AS {'BATCH' if one.batch else 'STREAM'}"
