"""Waiting for builds: of views, of indexes, and of rows that a load has staged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ebla.base.ids import RelationId, Version
from ebla.build.loop import Loop
from ebla.build.stored import positions
from ebla.catalog import building, indexing, reads, troubles
from ebla.catalog.indexing import IndexState
from ebla.catalog.troubles import Activity
from ebla.errors import CorruptRunError, EblaError, SparkJobError, UnknownNameError
from ebla.model import changes as c
from ebla.model.handlers import with_inputs
from ebla.model.lifecycle.index import Permission
from ebla.relations import builds as shown
from ebla.relations import failed_builds as failed
from ebla.relations import indexes as index_definition
from ebla.relations import views as definition
from ebla.relations.indexes import Index
from ebla.relations.views import View
from ebla.tables.context import Context
from ebla.tables.writes import Written
from ebla.views.fill.filler import Stopped


class Waits:
    """Waits for the builds of one open database; the loop of this process works meanwhile."""

    def __init__(self, context: Context, loop: Loop) -> None:
        self._context = context
        self._loop = loop

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
                forgive(self._context, view)
        troubles.hurry(self._context.catalog, [v.relation.id for v in waiting], Activity.BUILD)
        if not waiting:
            return
        errors = self._loop.wait([v.relation.id for v in waiting], lambda: self._are_over(waiting))
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
        while errors := self._loop.wait(left, partial(self._are_settled, left)):
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
        self._loop.wait([], lambda: self._stands(index) is None, only_walk=True)

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
                    at = shown.of_index(connection, index, builds, now, self._loop.nodes.alive, attended=True)
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

        for error in self._loop.wait([base], lambda: visible() is not None).get(base, ()):
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
                        left.append(shown.of_view(connection, view, builds, now, self._loop.nodes.alive, attended=True))
        for first in left[:1]:
            self._context.progress(shown.line(first), first.progress.percent / 100)
        return not left


def forgive(context: Context, view: View) -> None:
    """Let a build that failed go on where it was."""
    if view.reached is None or not view.reached.failed:
        return
    again = view.reached.forgiven()
    context.catalog.commit(
        c.Decision(
            reason=f"build of {view.relation.name}: try again",
            relation=view.relation.id,
            requires=(c.ProgressIs(name=view.progress_name, value=view.stored),),
            updates=definition.moved(view, again),
        ),
        node=context.node,
    )


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
