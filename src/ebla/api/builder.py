"""Views and indexes come to be: the loop that builds, and what it asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.algebra.driving import Driving
from ebla.api.waits import forgive
from ebla.base.ids import RelationId, Version
from ebla.build.loop import Loop
from ebla.build.ports import Filler
from ebla.catalog import building, indexing, reads
from ebla.indexes import walk
from ebla.indexes.filler import IndexFiller
from ebla.indexes.validate import Validation
from ebla.model import changes as c
from ebla.model.relation import Kind, Relation
from ebla.model.tasks import Build
from ebla.relations import views as definition
from ebla.relations.shapes import how_built
from ebla.relations.tasks import NO_RELATION, first_tasks
from ebla.relations.views import View
from ebla.views import replace as replace_views
from ebla.views.fill import sample as sampled
from ebla.views.fill.filler import ViewFiller

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
        """Give views of a catalog from before there were tasks the tasks that they lack."""

        def decide(connection: Connection, at: Version) -> c.Decision | None:
            builds = building.builds(connection)
            views = [v for v in definition.all_views(connection) if v.building and v.relation.id not in builds]
            updates = tuple(self._tasks_of(connection, view) for view in views)
            return (
                c.Decision(reason="views from before there were building tasks", updates=updates) if updates else None
            )

        self._context.catalog.decide(decide, node=self._context.node)
        replace_views.exchange(self._context)

    def _tasks_of(self, connection: Connection, view: View) -> c.CreateBuild:
        how = how_built(view, {n: reads.relation(connection, n) for n in view.inputs})
        base = None if how.base is None else reads.relation(connection, how.base)
        tasks = first_tasks(connection, base, self._context.node, together=not isinstance(how, Driving))
        build = Build(view=view.relation.id, base=NO_RELATION if base is None else base.id)
        return c.CreateBuild(build=build, tasks=tuple(replace(task, view=view.relation.id) for task in tasks))

    def stop(self) -> None:
        self.loop.stop()

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
            forgive(self._context, view)

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
