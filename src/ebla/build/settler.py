"""What is done with views and indexes whose tasks are done: they are caught up, verified, and taken into use.

Theory of operation. When and how often is decided elsewhere (`ebla.build.settlement`, `ebla.build.coordinator`). Here
a relation is looked up by its id, which may be gone meanwhile, and the work is given to the epochs of views, to the
sample that a view is compared by, or to the validation of an index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ebla.base.ids import RelationId
from ebla.build.retries import forgive
from ebla.catalog import index_states, reads
from ebla.indexes import walk
from ebla.indexes.validate import Validation
from ebla.model.relation import Kind, Relation
from ebla.relations import views as definition
from ebla.tables.write_access import WriteAccess
from ebla.views import replace as replace_views
from ebla.views.fill import sample
from ebla.views.handlers.epochs import Epochs


class Settler:
    """Settles the relations of one open database."""

    def __init__(self, context: WriteAccess, epochs: Epochs, written: Callable[[str], None]) -> None:
        self._context = context
        self._epochs = epochs
        self._written = written
        self._validation = Validation(context)

    def _relation(self, number: RelationId) -> Relation | None:
        with self._context.catalog.reading() as connection:
            return reads.relation_by_id(connection, number)

    def catch_up(self, relation: RelationId) -> None:
        found = self._relation(relation)
        if found is not None:
            self._epochs.catch_up(found.name)

    def verify(self, relation: RelationId) -> bool:
        found = self._relation(relation)
        if found is None:
            return True
        with self._context.at_work(f"check of {found.name}"):
            if found.kind is Kind.INDEX:
                return self._validation.verify(relation)
            sample.compare_sample(self._context, found.name)
        return True

    def forgive(self, relation: RelationId) -> None:
        """Let a build go on that failed."""
        with self._context.catalog.reading() as connection:
            found = reads.relation_by_id(connection, relation)
            view = None if found is None else definition.of_relation(connection, found)
        if view is not None:
            forgive(self._context.catalog, self._context.node, view)

    def built(self, relations: Collection[RelationId]) -> None:
        """Take relations into use that were marked built: views replace older ones, indexes can be read."""
        replace_views.exchange(self._context.catalog, self._context.node)
        for number in relations:
            with self._context.catalog.reading() as connection:
                relation = reads.relation_by_id(connection, number)
                stands = index_states.of_index(connection, number)
            if stands is not None:
                walk.readable(self._context.catalog, stands.base)
            if relation is not None:
                self._written(relation.name)
