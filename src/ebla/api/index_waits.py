"""Waiting for indexes: until they can be read, or are gone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ebla.base.activities import Progress
from ebla.base.ids import RelationId
from ebla.build.builder import Builder
from ebla.build.retries import still_trying
from ebla.catalog import build_tasks, index_states, reads, troubles
from ebla.catalog.index_states import IndexState
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Activity
from ebla.errors import UnknownNameError
from ebla.model.lifecycle.index import Permission
from ebla.relations import builds as build_progress
from ebla.relations import failed_builds as failed
from ebla.relations import indexes as index_definition
from ebla.relations.indexes import Index


class IndexWaits:
    """Waits for the indexes of one open database; the loop of this process works meanwhile."""

    def __init__(self, catalog: Catalog, builder: Builder, tell: Progress) -> None:
        self._catalog = catalog
        self._tell = tell
        self._builder = builder

    def wait(self, indexes: Sequence[Index]) -> None:
        """Return when these indexes can be read, or are gone because they cannot be built; then raise why."""
        wrong: list[Exception] = []
        left = [index.id for index in indexes]
        troubles.hurry(self._catalog, left, Activity.BUILD)
        while errors := self._builder.until(partial(self._are_settled, left), left):
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
        with self._catalog.reading() as connection:
            for index in indexes:
                if index_states.of_index(connection, index.id) is None:
                    failure = failed.of_index(connection, index.id)
                    if failure is not None:
                        raise failed.error_of(failure)
                    raise UnknownNameError(f"index {index.name}: expected it built, found it dropped meanwhile")

    def wait_gone(self, index: RelationId) -> None:
        """Return when an index that was asked to go is gone."""
        self._builder.until(lambda: self._stands(index) is None, only_walk=True)

    def _stands(self, index: RelationId) -> IndexState | None:
        with self._catalog.reading() as connection:
            return index_states.of_index(connection, index)

    def _goes(self, index: RelationId) -> bool:
        stands = self._stands(index)
        return stands is None or stands.state in (Permission.REMOVING_WRITES, Permission.REMOVING_DELETES)

    def _are_settled(self, indexes: Sequence[RelationId]) -> bool:
        """Whether these indexes are readable or gone; says how far the first is that is neither."""
        now = self._catalog.clock()
        with self._catalog.reading() as connection:
            builds = build_tasks.builds(connection)
            for number in indexes:
                relation = reads.relation_by_id(connection, number)
                index = None if relation is None else index_definition.find(connection, relation.name)
                if index is not None and not index.readable:
                    at = build_progress.of_index(
                        connection, index, builds, now, self._builder.nodes.alive, attended=True
                    )
                    break
            else:
                return True
        self._tell(build_progress.line(at), at.progress.percent / 100)
        return False
