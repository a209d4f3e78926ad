"""How views are filled: what the engine of building asks for, answered with views' own means."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from ebla.algebra.build_method import DrivenBuild, GrowingBuild, OnePieceBuild, adding
from ebla.base.ids import RelationId, TaskId, Version
from ebla.catalog import reads
from ebla.catalog.troubles import Activity
from ebla.errors import ConflictError, UnknownNameError
from ebla.model.chunks import CHUNK_ROWS, Stretch
from ebla.model.relation import Relation
from ebla.relations import views as definition
from ebla.relations.shapes import build_method, shape_of
from ebla.relations.views import View
from ebla.spark.faults import is_final
from ebla.tables.chunk_scan import ChunkReading, Scan
from ebla.tables.context import Context
from ebla.views.epoch.failure import stop
from ebla.views.epoch.growth import Piece
from ebla.views.fill import backfill
from ebla.views.fill.chunk_commit import FilledView
from ebla.views.handlers.epochs import Epochs


class ViewStopped(Exception):
    """The view was stopped with a message that its position keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFiller:
    context: Context
    epochs: Epochs

    def in_one_piece(self, relation: RelationId) -> bool:
        with self.context.catalog.reading() as connection:
            view, relations = _load(connection, relation)
        return isinstance(build_method(view, relations), OnePieceBuild)

    def chunk_rows(self, relation: RelationId, rows_covered: int) -> int:
        """A chunk that makes all that is covered be computed again is as large as that: the whole is computed twice."""
        with self.context.catalog.reading() as connection:
            view, relations = _load(connection, relation)
            groups = 0 if view.roles is None else reads.snapshot(connection, view.relation).rows_at_most
        how = build_method(view, relations)
        shape, _ = shape_of(view, relations)
        if not isinstance(how, GrowingBuild) or shape is None:
            return CHUNK_ROWS
        few = groups <= self.context.settings.batch_rows_max  # this many groups are added to on the driver
        if few and adding(shape, how.base, merges=view.roles is not None) is not None:
            return CHUNK_ROWS
        return max(CHUNK_ROWS, rows_covered)

    def fill_whole(self, relation: RelationId) -> None:
        with self.context.catalog.reading() as connection:
            view, _ = _load(connection, relation)
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
        fillings, _, _ = self._fillings(dict.fromkeys(relations, frozenset()))
        created = [one.view.relation.created_version for one in fillings]
        return backfill.reading(base, fillings, max(created, default=Version(0)))

    def fill(self, scan: Scan, tasks: Mapping[RelationId, frozenset[TaskId]]) -> Mapping[RelationId, Exception]:
        fillings, growing, wrong = self._fillings(tasks)
        errors = backfill.fill(self.context, scan, fillings) if fillings else []
        found = {one.view.relation.id: error for one, error in zip(fillings, errors, strict=True) if error is not None}
        return wrong | found | self._grow(growing, scan.stretches)

    def _fillings(
        self, tasks: Mapping[RelationId, frozenset[TaskId]]
    ) -> tuple[list[FilledView], list[tuple[View, frozenset[TaskId]]], dict[RelationId, Exception]]:
        """Views with a part in the scan, views that grow by an epoch of their own, and what is wrong with others."""
        fillings: list[FilledView] = []
        growing: list[tuple[View, frozenset[TaskId]]] = []
        wrong: dict[RelationId, Exception] = {}
        with self.context.catalog.reading() as connection:
            for relation, ids in tasks.items():
                try:
                    view, relations = _load(connection, relation)
                except UnknownNameError as error:
                    wrong[relation] = error
                    continue
                how = build_method(view, relations)
                if isinstance(how, DrivenBuild):
                    fillings.append(FilledView(view=view, driven=how, relations=relations, tasks=ids))
                elif isinstance(how, GrowingBuild):
                    growing.append((view, ids))
                else:
                    wrong[relation] = ConflictError(
                        f"view {view.relation.name}: expected it built in chunks, found not"
                    )
        return fillings, growing, wrong

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
            view, _ = _load(connection, relation)
        stop(self.context, view, error, dict.fromkeys(view.inputs, int(read)), Activity.BUILD)
        return True


def _load(connection: Connection, relation: RelationId) -> tuple[View, dict[str, Relation]]:
    found = reads.relation_by_id(connection, relation)
    if found is None:
        raise UnknownNameError(f"view {relation}: expected to be there, found dropped")
    view = definition.of_relation(connection, found)
    return view, {n: reads.relation(connection, n) for n in view.inputs}
