"""How views are filled: what the engine of building asks for, answered with views' own means."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ebla.base.ids import RelationId, TaskId, Version
from ebla.catalog.troubles import Activity
from ebla.model.chunks import Stretch
from ebla.model.relation import Relation
from ebla.relations.views import View
from ebla.spark.faults import is_final
from ebla.tables.chunk_scan import ChunkReading, Scan
from ebla.tables.write_access import WriteAccess
from ebla.views.epoch.failure import stop
from ebla.views.epoch.growth import Piece
from ebla.views.fill import backfill
from ebla.views.fill.filled_views import chunk_rows, filled_views, is_in_one_piece, load
from ebla.views.handlers.epochs import Epochs


class ViewStopped(Exception):
    """The view was stopped with a message that its position keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFiller:
    context: WriteAccess
    epochs: Epochs

    def in_one_piece(self, relation: RelationId) -> bool:
        with self.context.catalog.reading() as connection:
            view, relations = load(connection, relation)
        return is_in_one_piece(view, relations)

    def chunk_rows(self, relation: RelationId, rows_covered: int) -> int:
        with self.context.catalog.reading() as connection:
            most = self.context.settings.batch_rows_max
            return chunk_rows(connection, relation, rows_covered, groups_max=most)

    def fill_whole(self, relation: RelationId) -> None:
        with self.context.catalog.reading() as connection:
            view, _ = load(connection, relation)
        self.context.progress(f"building {view.relation.name}", None)
        self._build(view, Piece(view=view.relation.name.lower()))

    def _build(self, view: View, piece: Piece) -> None:
        for done in self.epochs.build(piece):
            if done.view == view.relation.name and done.stopped:
                raise ViewStopped(done.reason) from done.error

    @property
    def tablets_max(self) -> int | None:
        return None

    def reading(self, base: Relation, relations: Collection[RelationId]) -> ChunkReading:
        with self.context.catalog.reading() as connection:
            fillings, _, _ = filled_views(connection, dict.fromkeys(relations, frozenset()))
        created = [one.view.relation.created_version for one in fillings]
        return backfill.reading(base, fillings, max(created, default=Version(0)))

    def fill(self, scan: Scan, tasks: Mapping[RelationId, frozenset[TaskId]]) -> Mapping[RelationId, Exception]:
        with self.context.catalog.reading() as connection:
            fillings, growing, wrong = filled_views(connection, tasks)
        errors = backfill.fill(self.context, scan, fillings) if fillings else []
        found = {one.view.relation.id: error for one, error in zip(fillings, errors, strict=True) if error is not None}
        return wrong | found | self._grow(growing, scan.stretches)

    def _grow(
        self, views: Sequence[tuple[View, frozenset[TaskId]]], stretches: Sequence[Stretch]
    ) -> dict[RelationId, Exception]:
        """A chunk for each view that grows, by an epoch of its own; what kept one from it does not stop the others."""
        wrong: dict[RelationId, Exception] = {}
        for view, tasks in views:
            try:
                self._build(view, Piece(view=view.relation.name.lower(), stretches=tuple(stretches), tasks=tasks))
            except Exception as error:
                wrong[view.relation.id] = error
        return wrong

    def failed(self, relation: RelationId, error: Exception, read: Version) -> bool:
        if isinstance(error, ViewStopped):
            return True
        if not is_final(error):
            return False  # it may go better another time, or the view is gone
        with self.context.catalog.reading() as connection:
            view, _ = load(connection, relation)
        stop(self.context, view, error, dict.fromkeys(view.inputs, int(read)), Activity.BUILD)
        return True
