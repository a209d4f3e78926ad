"""Statements about builds and refreshes, carried out: another pace, pauses, the end of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.api.statements import index_builds
from ebla.base.ids import Version
from ebla.catalog import build_tasks, reads
from ebla.errors import StorageError, UsageError
from ebla.model import changes as c
from ebla.model.relation import Kind
from ebla.model.scopes import of_relation
from ebla.model.tasks import Build, held, pace
from ebla.relations import failed_builds as failed
from ebla.relations import indexes as index_definition
from ebla.relations import views as definition
from ebla.relations.views import View
from ebla.views.drop import drop_view
from ebla.views.epoch.refresh_epoch import alteration, cancellation

if TYPE_CHECKING:
    from ebla.api.database import Database


class Builds:
    """The builds of one open database, as statements see them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._context = database.context

    def alter(
        self, name: str, options: Mapping[str, object], kind: Kind = Kind.VIEW, *, on_hold: bool | None = None
    ) -> None:
        """Another pace, from the next chunk on; `on_hold`: pause, or go on at the rate that was set before.

        Of a build, or of a refresh after a change of dictionaries.
        """
        given = pace(options)

        def decide(connection: Connection, at: Version) -> c.Decision:
            view = self._refreshing(connection, name, kind)
            if view is not None:
                return alteration(view, given, on_hold)
            build = self._require(connection, name, kind)
            said = ", ".join(f"{k} = {'NULL' if v is None else v}" for k, v in given.items())
            said = said or ("pause" if on_hold else "resume")
            if on_hold is not None:
                build = held(build, on_hold)
            update = c.AlterBuild(
                view=build.view,
                rows_per_minute=given.get("rows_per_minute", build.rows_per_minute),
                chunk_rows=given.get("chunk_rows", build.chunk_rows),
                concurrency=given.get("concurrency", build.concurrency),
                on_hold=build.on_hold,
            )
            guards = frozenset({of_relation(build.view), of_relation(build.base)})  # an index goes with its base
            return c.Decision(
                reason=f"build of {name}: {said}",
                relation=build.view,
                updates=(update,),
                guards=guards,
                work=c.WorkKind.BUILD,
            )

        self._context.catalog.decide(decide, node=self._context.node)
        self._database.wake()

    def _refreshing(self, connection: Connection, name: str, kind: Kind) -> View | None:
        """The view, if it is in the middle of a refresh."""
        found = reads.find_relation(connection, name)
        if kind is not Kind.VIEW or found is None or found.kind is not Kind.VIEW:
            return None
        try:
            view = definition.of_relation(connection, found)
        except StorageError:
            return None  # of a view that cannot be read nothing goes on
        return view if view.position is not None and view.position.refresh is not None else None

    def cancel(self, name: str, *, if_exists: bool) -> None:
        with self._context.catalog.reading() as connection:
            found = reads.find_relation(connection, name)
            if found is None and (failed.dismiss(self._context.catalog, name) or if_exists):
                return
            index = index_definition.load(connection, name) if found is not None and found.kind is Kind.INDEX else None
            refreshing = self._refreshing(connection, name, Kind.VIEW)
        if index is not None:
            index_builds.cancel(self._database, index)
            return
        if refreshing is not None:
            self._cancel_refresh(name)
            return
        drop_view(self._context.catalog, self._context.node, name, while_building=True)
        self._database.wake()

    def _cancel_refresh(self, name: str) -> None:
        def decide(connection: Connection, at: Version) -> c.Decision | None:
            view = self._refreshing(connection, name, Kind.VIEW)
            return None if view is None else cancellation(view)

        self._context.catalog.decide(decide, node=self._context.node)

    def _require(self, connection: Connection, name: str, kind: Kind) -> Build:
        if kind is Kind.INDEX:
            return index_builds.require(connection, name)
        view = definition.load(connection, name)
        build = build_tasks.builds(connection).get(view.relation.id)
        if build is None:
            raise UsageError(
                f"view {view.relation.name}: expected a build that goes on, found it built; "
                "how it is kept up to date is its handler's: ALTER HANDLER h SET (…)"
            )
        return build
