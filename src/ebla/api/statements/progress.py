"""`SHOW PROGRESS`: how far builds and refreshes are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebla.catalog import build_tasks, reads
from ebla.model.relation import Kind
from ebla.relations import build_measure
from ebla.relations import builds as build_progress
from ebla.relations import failed_builds as failed
from ebla.relations import indexes as index_definition
from ebla.relations import views as definition
from ebla.spark.result import Result
from ebla.values import types
from ebla.views import replace

if TYPE_CHECKING:
    from ebla.api.database import Database


class Progress:
    """The progress of the builds of one open database."""

    def __init__(self, database: Database) -> None:
        self._context = database.context
        self._builder = database.builder

    def show(self, name: str | None) -> Result:
        if name is not None:
            one = self.of(replace.name_of_build(self._context.catalog, name))
            found = types.table_of(build_progress.COLUMNS, [one.row()])
        else:
            with self._context.catalog.reading() as connection:
                found = build_progress.table(connection, self._context.catalog.clock())
        return Result(table=found, spark=lambda: self._context.spark)

    def of(self, name: str) -> build_measure.BuildProgress:
        with self._context.catalog.reading() as connection:
            found = reads.find_relation(connection, name)
            now, builds, alive = (
                self._context.catalog.clock(),
                build_tasks.builds(connection),
                self._builder.nodes.alive,
            )
            here = self._builder.loop.builds
            failure = failed.of_name(connection, name)
            if failure is not None:
                return build_progress.of_failure(failure)
            if found is not None and found.kind is Kind.INDEX:
                index = index_definition.load(connection, name)
                return build_progress.of_index(connection, index, builds, now, alive, attended=here)
            return build_progress.of_view(
                connection, definition.load(connection, name), builds, now, alive, attended=here
            )
