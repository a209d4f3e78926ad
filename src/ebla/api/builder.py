"""Views and indexes come to be: waiting for builds, altering and cancelling them, and how far they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.algebra.driving import Driving
from ebla.base.ids import RelationId, Version
from ebla.build.loop import Loop
from ebla.build.ports import Filler
from ebla.build.stored import positions
from ebla.catalog import building, indexing, reads, troubles
from ebla.catalog.indexing import IndexState
from ebla.catalog.troubles import Activity
from ebla.errors import CorruptRunError, EblaError, SparkJobError, StorageError, UnknownNameError, UsageError
from ebla.indexes import create as index_create
from ebla.indexes import walk
from ebla.indexes.filler import IndexFiller
from ebla.indexes.validate import Validation
from ebla.model import changes as c
from ebla.model.handlers import with_inputs
from ebla.model.index_states import Permission
from ebla.model.relation import Kind, Relation
from ebla.model.tasks import Build, held, pace
from ebla.relations import builds as shown
from ebla.relations import failed_builds as failed
from ebla.relations import indexes as index_definition
from ebla.relations import views as definition
from ebla.relations.indexes import Index
from ebla.relations.shapes import how_built
from ebla.relations.tasks import NO_RELATION, first_tasks
from ebla.relations.views import View
from ebla.tables.writes import Written
from ebla.views import create
from ebla.views import replace as replace_views
from ebla.views.epoch.refresh import alteration, cancellation
from ebla.views.fill import sample as sampled
from ebla.views.fill.filler import Stopped, ViewFiller

if TYPE_CHECKING:
    from ebla.api.database import Database


class Builder:
    """The builds of one open database."""

    def __init__(self, database: Database) -> None:
        self._context = database.context
        self._epochs = database.epochs
        self._wake_runner = database.runner.wake
        self._wake_maintainer = database.maintainer.wake
        self._validation = Validation(self._context)
        fillers: dict[Kind, Filler] = {
            Kind.INDEX: IndexFiller(context=self._context),
            Kind.VIEW: ViewFiller(context=self._context, epochs=self._epochs),
        }
        self.loop = Loop(self._context, fillers, self._catch_up, self._check, self._walk, self._on_built, self._mended)

    def wake(self) -> None:
        self.loop.wake()

    def adopt(self) -> None:
        """Give views of a catalog from before there were tasks what they lack: a mark that they are built, or tasks."""

        def decide(connection: Connection, at: Version) -> c.Decision | None:
            known = building.builds(connection).keys() | building.built(connection).keys()
            views = [v for v in definition.all_views(connection) if v.relation.id not in known and v.damage is None]
            updates = tuple(update for view in views for update in self._lacking(connection, view))
            return (
                c.Decision(reason="views from before there were building tasks", updates=updates) if updates else None
            )

        self._context.catalog.decide(decide, node=self._context.node)
        replace_views.exchange(self._context)

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

    def _relation(self, number: RelationId) -> Relation | None:
        with self._context.catalog.reading() as connection:
            return reads.relation_by_id(connection, number)

    def _catch_up(self, view: RelationId) -> None:
        relation = self._relation(view)
        if relation is not None:
            self._epochs.catch_up(relation.name)

    def _mended(self, number: RelationId) -> None:
        with self._context.catalog.reading() as connection:
            relation = reads.relation_by_id(connection, number)
            view = None if relation is None else definition.of_relation(connection, relation)
        if view is not None:
            self._forgive(view)

    def _check(self, number: RelationId) -> bool:
        relation = self._relation(number)
        if relation is None:
            return True
        with self._context.at_work(f"check of {relation.name}"):
            if relation.kind is Kind.INDEX:
                return self._validation.check(number)
            sampled.check(self._context, relation.name)
        return True

    def _walk(self, requires: Sequence[c.Requirement]) -> walk.Walked:
        return walk.step(self._context, requires)

    def _on_built(self, built: Collection[RelationId]) -> None:
        replace_views.exchange(self._context)
        self._wake_runner()
        for number in built:
            with self._context.catalog.reading() as connection:
                relation = reads.relation_by_id(connection, number)
                stands = indexing.of_index(connection, number)
            if stands is not None:
                walk.readable(self._context, stands.base)
            if relation is not None:
                self._wake_maintainer(relation.name)  # many small chunks are many runs

    # ---- waiting ----------------------------------------------------------------------------------------

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
                self._forgive(view)
        troubles.hurry(self._context.catalog, [v.relation.id for v in waiting], Activity.BUILD)
        if not waiting:
            return
        errors = self.loop.wait([v.relation.id for v in waiting], lambda: self._are_over(waiting))
        with self._context.catalog.reading() as connection:
            reached = positions(connection, [view.relation.id for view in waiting])
        for view in waiting:
            at = reached.get(view.relation.id)
            has_stopped = at is not None and at.failed
            for error in errors.get(view.relation.id, ()):
                if isinstance(error, CorruptRunError):
                    raise error  # another try finds the same damage
                if not isinstance(error, Stopped) and not has_stopped:
                    raise still_trying("view", view.relation.name, error) from error

    def wait_indexes(self, indexes: Sequence[Index]) -> None:
        """Return when these indexes can be read, or are gone because they cannot be built; then raise why."""
        wrong: list[Exception] = []
        left = [index.id for index in indexes]
        troubles.hurry(self._context.catalog, left, Activity.BUILD)
        while errors := self.loop.wait(left, partial(self._are_settled, left)):
            for number, found in errors.items():
                if self._goes(number):
                    wrong += found[:1]
                    self.wait_gone(number)
                else:
                    name = next(index.name for index in indexes if index.id == number)
                    wrong.append(still_trying("index", name, found[-1]))
            left = [number for number in left if number not in errors]
        if wrong:
            raise wrong[0]
        with self._context.catalog.reading() as connection:
            for index in indexes:
                if indexing.of_index(connection, index.id) is None:
                    failure = failed.of_index(connection, index.id)
                    if failure is not None:
                        raise failed.error_of(failure)
                    raise UnknownNameError(f"index {index.name}: expected it built, found it dropped meanwhile")

    def wait_gone(self, index: RelationId) -> None:
        """Return when an index that was asked to go is gone."""
        self.loop.wait([], lambda: self._stands(index) is None, only_walk=True)

    def _stands(self, index: RelationId) -> IndexState | None:
        with self._context.catalog.reading() as connection:
            return indexing.of_index(connection, index)

    def _goes(self, index: RelationId) -> bool:
        stands = self._stands(index)
        return stands is None or stands.state in (Permission.REMOVING_WRITES, Permission.REMOVING_DELETES)

    def _are_settled(self, indexes: Sequence[RelationId]) -> bool:
        """Whether these indexes are readable or gone; says how far the first is that is neither."""
        now = self._context.catalog.clock()
        with self._context.catalog.reading() as connection:
            builds = building.builds(connection)
            for number in indexes:
                relation = reads.relation_by_id(connection, number)
                index = None if relation is None else index_definition.find(connection, relation.name)
                if index is not None and not index.readable:
                    at = shown.of_index(connection, index, builds, now, self.loop.nodes.alive, attended=True)
                    break
            else:
                return True
        self._context.progress(shown.line(at), at.progress.percent / 100)
        return False

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
                        left.append(shown.of_view(connection, view, builds, now, self.loop.nodes.alive, attended=True))
        for first in left[:1]:
            self._context.progress(shown.line(first), first.progress.percent / 100)
        return not left

    def _forgive(self, view: View) -> None:
        """Let a build that failed go on where it was."""
        if view.reached is None or view.reached.status != "failed":
            return
        again = view.reached.forgiven()
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
            return c.Decision(reason=f"build of {name}: {said}", relation=build.view, updates=(update,))

        self._context.catalog.decide(decide, node=self._context.node)
        self.wake()
        self._wake_runner()

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
            self._cancel_index(index)
            return
        if refreshing is not None:
            self._cancel_refresh(name)
            return
        create.drop_view(self._context, name, while_building=True)
        self.wake()

    def _cancel_refresh(self, name: str) -> None:
        def decide(connection: Connection, at: Version) -> c.Decision | None:
            view = self._refreshing(connection, name, Kind.VIEW)
            return None if view is None else cancellation(view)

        self._context.catalog.decide(decide, node=self._context.node)

    def _cancel_index(self, index: Index) -> None:
        if index.state in (Permission.ABSENT, Permission.READ_WRITE_AND_DELETE):
            how = "deferred" if index.state is Permission.ABSENT else "built"
            raise UsageError(
                f"index {index.name}: expected a build that can be cancelled, found it {how}; DROP INDEX removes it"
            )
        removed = index_create.begin_removal(
            self._context, index.id, f"cancel the build of {index.name}", unless_readable=True
        )
        if not removed:
            with self._context.catalog.reading() as connection:
                again = index_definition.find(connection, index.name)
            if again is not None and again.id == index.id and again.readable:
                self._cancel_index(again)  # it was faster
        self.wait_gone(index.id)

    def _require(self, connection: Connection, name: str, kind: Kind) -> Build:
        if kind is Kind.INDEX:
            return self._require_index(connection, name)
        view = definition.load(connection, name)
        build = building.builds(connection).get(view.relation.id)
        if build is None:
            raise UsageError(
                f"view {view.relation.name}: expected a build that goes on, found it built; "
                "how it is kept up to date is its handler's: ALTER HANDLER h SET (…)"
            )
        return build

    def _require_index(self, connection: Connection, name: str) -> Build:
        index = index_definition.load(connection, name)
        build = building.builds(connection).get(index.id)
        if build is None or index.state in (Permission.REMOVING_WRITES, Permission.REMOVING_DELETES):
            how = {Permission.READ_WRITE_AND_DELETE: "built", Permission.ABSENT: "deferred"}.get(index.state, "dropped")
            raise UsageError(f"index {index.name}: expected a build that goes on, found it {how}")
        return build

    def progress(self, name: str) -> shown.Shown:
        with self._context.catalog.reading() as connection:
            found = reads.find_relation(connection, name)
            now, builds, alive = self._context.catalog.clock(), building.builds(connection), self.loop.nodes.alive
            here = self.loop.builds
            failure = failed.of_name(connection, name)
            if failure is not None:
                return shown.of_failure(failure)
            if found is not None and found.kind is Kind.INDEX:
                index = index_definition.load(connection, name)
                return shown.of_index(connection, index, builds, now, alive, attended=here)
            return shown.of_view(connection, definition.load(connection, name), builds, now, alive, attended=here)


def still_trying(kind: str, name: str, error: Exception) -> EblaError:
    """For those who waited: what stands in the way of a build that is tried again, and what they can do."""
    said = str(error) if isinstance(error, EblaError) else f"{kind} {name}: unexpected {type(error).__name__}: {error}"
    said = said.removesuffix("; repeat the statement")
    said += f"; its build is tried again by itself: SHOW PROGRESS {name} tells when, CANCEL BUILD {name} ends it"
    made: EblaError
    if isinstance(error, SparkJobError):
        made = SparkJobError(said, lost=error.lost, code=error.code)
    else:
        made = type(error)(said) if isinstance(error, EblaError) else EblaError(said)
    made.goes_on = True
    return made
