"""How views are filled: what the engine of building asks for, answered with views' own means."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from ebla.build.scanned import Reading, Scan
from ebla.catalog import reads
from ebla.errors import ConflictError, UnknownNameError, UsageError
from ebla.ids import RelationId, TaskId, Version
from ebla.jobs.epochs import Epochs
from ebla.storage.model import Relation
from ebla.tables.context import Context
from ebla.views import backfill, definition, maintain
from ebla.views.backfill import Filling, how_built
from ebla.views.definition import View
from ebla.views.driving import Driving, InOnePiece


class Stopped(Exception):
    """The view was stopped with a message that its position keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFiller:
    context: Context
    epochs: Epochs

    def in_one_piece(self, relation: RelationId) -> bool:
        with self.context.catalog.reading() as connection:
            view, relations = _load(connection, relation)
        return isinstance(how_built(view, relations), InOnePiece)

    def fill_whole(self, relation: RelationId) -> None:
        with self.context.catalog.reading() as connection:
            view, _ = _load(connection, relation)
        name = view.relation.name
        self.context.progress(f"building {name}", None)
        for done in self.epochs.build(name):
            if done.view == name and done.plan == "failed":
                raise Stopped(done.reason)

    @property
    def tablets_max(self) -> int | None:
        return None

    def reading(self, base: Relation, relations: Collection[RelationId]) -> Reading:
        fillings, _ = self._fillings(dict.fromkeys(relations, frozenset()))
        created = [one.view.relation.created_version for one in fillings]
        return backfill.reading(base, fillings, max(created, default=Version(0)))

    def fill(self, scan: Scan, tasks: Mapping[RelationId, frozenset[TaskId]]) -> Mapping[RelationId, Exception]:
        fillings, wrong = self._fillings(tasks)
        errors = backfill.fill(self.context, scan, fillings) if fillings else []
        found = {one.view.relation.id: error for one, error in zip(fillings, errors, strict=True) if error is not None}
        return wrong | found

    def _fillings(
        self, tasks: Mapping[RelationId, frozenset[TaskId]]
    ) -> tuple[list[Filling], dict[RelationId, Exception]]:
        fillings: list[Filling] = []
        wrong: dict[RelationId, Exception] = {}
        with self.context.catalog.reading() as connection:
            for relation, ids in tasks.items():
                try:
                    view, relations = _load(connection, relation)
                except UnknownNameError as error:
                    wrong[relation] = error
                    continue
                how = how_built(view, relations)
                if isinstance(how, Driving):
                    fillings.append(Filling(view=view, driven=how, relations=relations, tasks=ids))
                else:
                    wrong[relation] = ConflictError(
                        f"view {view.relation.name}: expected it built in chunks, found not"
                    )
        return fillings, wrong

    def failed(self, relation: RelationId, error: Exception) -> bool:
        if isinstance(error, Stopped):
            return True
        if not isinstance(error, UsageError) or isinstance(error, UnknownNameError):
            return False  # it may go better another time, or nobody wants it any more
        with self.context.catalog.reading() as connection:
            view, _ = _load(connection, relation)
        maintain.stop(self.context, view, error)
        return True


def _load(connection: Connection, relation: RelationId) -> tuple[View, dict[str, Relation]]:
    found = reads.relation_by_id(connection, relation)
    if found is None:
        raise UnknownNameError(f"view {relation}: expected to be there, found dropped")
    view = definition.of_relation(connection, found)
    return view, {n: reads.relation(connection, n) for n in view.inputs}
