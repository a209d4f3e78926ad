"""Views come to be: waiting for builds, altering and cancelling them, and how far they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.build import shown
from ebla.build.loop import Loop
from ebla.build.model import Build, held
from ebla.build.stored import NO_RELATION, first_tasks
from ebla.catalog import building, reads
from ebla.catalog import changes as c
from ebla.errors import SqlError, TypeMismatchError, UsageError
from ebla.ids import RelationId, Version
from ebla.jobs.model import with_inputs
from ebla.storage.model import Kind
from ebla.tables.writes import Written
from ebla.views import create, definition, sampled
from ebla.views.backfill import how_built
from ebla.views.definition import View
from ebla.views.driving import Driving
from ebla.views.filler import Stopped, ViewFiller

if TYPE_CHECKING:
    from ebla.database import Database


class Builder:
    """The builds of one open database."""

    def __init__(self, database: Database) -> None:
        self._context = database.context
        self._epochs = database.epochs
        self._wake_runner = database.runner.wake
        self._wake_maintainer = database.maintainer.wake
        fillers = {Kind.VIEW: ViewFiller(context=self._context, epochs=self._epochs)}
        self.loop = Loop(self._context, fillers, self._catch_up, self._check, self._on_built)

    def wake(self) -> None:
        self.loop.wake()

    def adopt(self) -> None:
        """Give views of a catalog from before there were tasks what they lack: a mark that they are built, or tasks."""

        def decide(connection: Connection, at: Version) -> c.Decision | None:
            known = building.builds(connection).keys() | building.built(connection).keys()
            names = reads.relation_names(connection, Kind.VIEW)
            views = [v for v in (definition.load(connection, n) for n in names) if v.relation.id not in known]
            updates = tuple(update for view in views for update in self._lacking(connection, view))
            return (
                c.Decision(reason="views from before there were building tasks", updates=updates) if updates else None
            )

        self._context.catalog.decide(decide, node=self._context.node)

    def _lacking(self, connection: Connection, view: View) -> tuple[c.Update, ...]:
        if view.position is not None and view.position.built:
            return (c.MarkBuilt(view=view.relation.id),)
        how = how_built(view, {n: reads.relation(connection, n) for n in view.inputs})
        base = None if how.base is None else reads.relation(connection, how.base)
        tasks = first_tasks(connection, base, self._context.node, together=not isinstance(how, Driving))
        build = Build(view=view.relation.id, base=NO_RELATION if base is None else base.id)
        return (c.CreateBuild(build=build, tasks=tuple(replace(task, view=view.relation.id) for task in tasks)),)

    def stop(self) -> None:
        self.loop.stop()

    # ---- what the loop asks for -------------------------------------------------------------------------

    def _name(self, view: RelationId) -> str | None:
        with self._context.catalog.reading() as connection:
            found = reads.relation_by_id(connection, view)
        return None if found is None else found.name

    def _catch_up(self, view: RelationId) -> None:
        name = self._name(view)
        if name is not None:
            self._epochs.catch_up(name)

    def _check(self, view: RelationId) -> None:
        name = self._name(view)
        if name is not None:
            sampled.check(self._context, name)

    def _on_built(self, views: Collection[RelationId]) -> None:
        self._wake_runner()
        for view in views:
            name = self._name(view)
            if name is not None:
                self._wake_maintainer(name)  # many small chunks are many runs

    # ---- waiting ----------------------------------------------------------------------------------------

    def wait(self, names: Sequence[str], *, retry: bool = False) -> None:
        """Return when these views, and those that they read, are built or have failed.

        An error that is no fault of the rows is raised. `retry`: those of them that had failed are tried again.
        """
        with self._context.catalog.reading() as connection:
            views = {v.relation.name.lower(): v for v in definition.all_views(connection)}
        chosen = with_inputs({n: v.inputs for n, v in views.items()}, [n.lower() for n in names])
        waiting = [views[n] for n in views if n in chosen and views[n].building]
        if retry:
            for view in waiting:
                self._forgive(view)
        if not waiting:
            return
        errors = self.loop.wait([v.relation.id for v in waiting], lambda: self._are_over(waiting))
        for view in waiting:
            for error in errors.get(view.relation.id, ()):
                if not isinstance(error, Stopped | SqlError | TypeMismatchError):
                    raise error

    def wait_visible(self, written: Written) -> Written:
        """Return when rows that a write has staged are visible, with the version at which all of them are."""
        transaction, base = written.transaction, written.relation.id
        assert transaction is not None, "only a staged write is waited for"

        def visible() -> Version | None:
            with self._context.catalog.reading() as connection:
                return reads.visible_since(connection, base, transaction)

        for error in self.loop.wait([base], lambda: visible() is not None).get(base, ()):
            raise error
        return replace(written, version=visible())

    def _are_over(self, views: Sequence[View]) -> bool:
        """Whether nothing is to be waited for; says how far it is."""
        now = self._context.catalog.clock()
        with self._context.catalog.reading() as connection:
            builds = building.builds(connection)
            left = []
            for one in views:
                relation = reads.relation_by_id(connection, one.relation.id)
                if relation is not None and relation.id in builds:
                    view = definition.of_relation(connection, relation)
                    if view.position is None:
                        left.append(shown.of_view(connection, view, builds, now, self.loop.nodes.alive))
        for first in left[:1]:
            self._context.progress(shown.line(first), first.progress.percent / 100)
        return not left

    def _forgive(self, view: View) -> None:
        """Let a build that failed go on where it was."""
        if view.reached is None or view.reached.status != "failed":
            return
        again = replace(view.reached, status="ready", message=None)
        self._context.catalog.commit(
            c.Decision(
                reason=f"build of {view.relation.name}: try again",
                relation=view.relation.id,
                requires=(c.ProgressIs(name=view.progress_name, value=view.stored),),
                updates=(c.SetProgress(name=view.progress_name, value=again.text()),),
            ),
            node=self._context.node,
        )

    # ---- statements -------------------------------------------------------------------------------------

    def alter(self, name: str, options: Mapping[str, object], *, on_hold: bool | None = None) -> None:
        """Another pace, from the next chunk on; `on_hold`: pause, or go on at the rate that was set before."""
        given = create.pace(options)

        def decide(connection: Connection, at: Version) -> c.Decision:
            build = self._require(connection, name)
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
            return c.Decision(reason=f"build of {name}: {said}", relation=build.view, updates=(update,))

        self._context.catalog.decide(decide, node=self._context.node)
        self.wake()

    def cancel(self, name: str, *, if_exists: bool) -> None:
        with self._context.catalog.reading() as connection:
            if if_exists and reads.find_relation(connection, name) is None:
                return
        create.drop_view(self._context, name, while_building=True)
        self.wake()

    def _require(self, connection: Connection, name: str) -> Build:
        view = definition.load(connection, name)
        build = building.builds(connection).get(view.relation.id)
        if build is None:
            raise UsageError(
                f"view {view.relation.name}: expected a build that goes on, found it built; "
                "how it is kept up to date is its handler's: ALTER HANDLER h SET (…)"
            )
        return build

    def progress(self, name: str) -> shown.Shown:
        with self._context.catalog.reading() as connection:
            view = definition.load(connection, name)
            now = self._context.catalog.clock()
            return shown.of_view(connection, view, building.builds(connection), now, self.loop.nodes.alive)
