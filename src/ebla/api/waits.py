"""Waiting for builds: of views, and of rows that a load has staged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ebla.api.index_waits import IndexWaits
from ebla.base.ids import Version
from ebla.build.build_store import positions
from ebla.build.builder import Builder
from ebla.build.retries import forgive, still_trying
from ebla.catalog import build_tasks, reads, troubles
from ebla.catalog.troubles import Activity
from ebla.errors import CorruptRunError
from ebla.model.handlers import with_inputs
from ebla.relations import builds as build_progress
from ebla.relations import views as definition
from ebla.relations.views import View
from ebla.tables.write_access import WriteAccess
from ebla.tables.writes import WriteResult
from ebla.views.fill.filler import ViewStopped


class Waits:
    """Waits for the builds of one open database; the loop of this process works meanwhile."""

    def __init__(self, context: WriteAccess, builder: Builder) -> None:
        self._context = context
        self._builder = builder
        self.indexes = IndexWaits(context.catalog, builder, self._tell)

    def _tell(self, what: str, part: float | None) -> None:
        """Say it to the receiver of this moment."""
        self._context.progress(what, part)

    def wait(self, names: Sequence[str] | None, *, retry: bool = False) -> None:
        """Return when these views (`None`: all), and those that they read, are built or have failed.

        An error that is no fault of the rows is raised. `retry`: those of them that had failed are tried again.
        """
        with self._context.catalog.reading() as connection:
            if not reads.built_online(connection):
                return
            views = {v.relation.name.lower(): v for v in definition.all_views(connection)}
        chosen = with_inputs(
            {n: v.inputs for n, v in views.items()}, views if names is None else [n.lower() for n in names]
        )
        waiting = [views[n] for n in views if n in chosen and views[n].building]
        if retry:
            for view in waiting:
                forgive(self._context.catalog, self._context.node, view)
        troubles.hurry(self._context.catalog, [v.relation.id for v in waiting], Activity.BUILD)
        if not waiting:
            return
        errors = self._builder.until(lambda: self._are_over(waiting), [v.relation.id for v in waiting])
        with self._context.catalog.reading() as connection:
            reached = positions(connection, [view.relation.id for view in waiting])
        for view in waiting:
            at = reached.get(view.relation.id)
            has_stopped = at is not None and at.failed
            for error in errors.get(view.relation.id, ()):
                if isinstance(error, CorruptRunError):
                    raise error  # another try finds the same damage
                if not isinstance(error, ViewStopped) and not has_stopped:
                    raise still_trying("view", view.relation.name, error) from error

    def wait_visible(self, written: WriteResult) -> WriteResult:
        """Return when rows that a write has staged are visible, with the version at which all of them are."""
        transaction, base = written.transaction, written.relation.id
        assert transaction is not None, "only a staged write is waited for"

        def visible() -> Version | None:
            with self._context.catalog.reading() as connection:
                return reads.visible_since(connection, base, transaction)

        for error in self._builder.until(lambda: visible() is not None, [base]).get(base, ()):
            raise error
        return replace(written, version=visible())

    def _are_over(self, views: Sequence[View]) -> bool:
        """Whether nothing is to be waited for; says how far it is."""
        now, alive = self._context.catalog.clock(), self._builder.nodes.alive
        with self._context.catalog.reading() as connection:
            builds = build_tasks.builds(connection)
            left = []
            for one in views:
                relation = reads.relation_by_id(connection, one.relation.id)
                if relation is not None and relation.id in builds:
                    view = definition.of_relation(connection, relation)
                    if view.position is None:
                        left.append(build_progress.of_view(connection, view, builds, now, alive, attended=True))
        for first in left[:1]:
            self._tell(build_progress.line(first), first.progress.percent / 100)
        return not left
