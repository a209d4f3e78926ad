"""Builds of indexes, as statements see them: the one that goes on, and its end before it is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.catalog import build_tasks
from ebla.errors import UsageError
from ebla.indexes import removal
from ebla.model.lifecycle.index import Permission
from ebla.model.tasks import Build
from ebla.relations import indexes as definition
from ebla.relations.indexes import Index

if TYPE_CHECKING:
    from ebla.api.database import Database


def cancel(database: Database, index: Index) -> None:
    if index.state in (Permission.ABSENT, Permission.READ_WRITE_AND_DELETE):
        how = "deferred" if index.state is Permission.ABSENT else "built"
        raise UsageError(
            f"index {index.name}: expected a build that can be cancelled, found it {how}; DROP INDEX removes it"
        )
    removed = removal.begin_removal(
        database.context.catalog,
        database.context.node,
        index.id,
        f"cancel the build of {index.name}",
        unless_readable=True,
    )
    if not removed:
        with database.context.catalog.reading() as connection:
            again = definition.find(connection, index.name)
        if again is not None and again.id == index.id and again.readable:
            cancel(database, again)  # it was faster
    database.waits.indexes.wait_gone(index.id)


def require(connection: Connection, name: str) -> Build:
    """The build of an index that goes on."""
    index = definition.load(connection, name)
    build = build_tasks.builds(connection).get(index.id)
    if build is None or index.state in (Permission.REMOVING_WRITES, Permission.REMOVING_DELETES):
        how = {Permission.READ_WRITE_AND_DELETE: "built", Permission.ABSENT: "deferred"}.get(index.state, "dropped")
        raise UsageError(f"index {index.name}: expected a build that goes on, found it {how}")
    return build
