"""Views as a build finds them, and how each of them is filled."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from ebla.algebra.build_method import DrivenBuild, GrowingBuild, OnePieceBuild, adding
from ebla.base.ids import RelationId, TaskId
from ebla.catalog import reads
from ebla.errors import ConflictError, UnknownNameError
from ebla.model.chunks import CHUNK_ROWS
from ebla.model.relation import Relation
from ebla.relations import views as definition
from ebla.relations.shapes import build_method, shape_of
from ebla.relations.views import View
from ebla.views.fill.chunk_commit import FilledView


def load(connection: Connection, relation: RelationId) -> tuple[View, dict[str, Relation]]:
    found = reads.relation_by_id(connection, relation)
    if found is None:
        raise UnknownNameError(f"view {relation}: expected to be there, found dropped")
    view = definition.of_relation(connection, found)
    return view, {n: reads.relation(connection, n) for n in view.inputs}


def is_in_one_piece(view: View, relations: Mapping[str, Relation]) -> bool:
    return isinstance(build_method(view, relations), OnePieceBuild)


def chunk_rows(connection: Connection, relation: RelationId, rows_covered: int, *, groups_max: int) -> int:
    """How many rows of its base the next chunk of a view has.

    A chunk that makes all that is covered be computed again is as large as that: the whole is computed twice. At most
    `groups_max` groups are added to on the driver.
    """
    view, relations = load(connection, relation)
    groups = 0 if view.roles is None else reads.snapshot(connection, view.relation).rows_at_most
    how = build_method(view, relations)
    shape, _ = shape_of(view, relations)
    if not isinstance(how, GrowingBuild) or shape is None:
        return CHUNK_ROWS
    if groups <= groups_max and adding(shape, how.base, merges=view.roles is not None) is not None:
        return CHUNK_ROWS
    return max(CHUNK_ROWS, rows_covered)


def filled_views(
    connection: Connection, tasks: Mapping[RelationId, frozenset[TaskId]]
) -> tuple[list[FilledView], list[tuple[View, frozenset[TaskId]]], dict[RelationId, Exception]]:
    """Views with a part in the scan, views that grow by an epoch of their own, and what is wrong with others."""
    fillings: list[FilledView] = []
    growing: list[tuple[View, frozenset[TaskId]]] = []
    wrong: dict[RelationId, Exception] = {}
    for relation, ids in tasks.items():
        try:
            view, relations = load(connection, relation)
        except UnknownNameError as error:
            wrong[relation] = error
            continue
        how = build_method(view, relations)
        if isinstance(how, DrivenBuild):
            fillings.append(FilledView(view=view, driven=how, relations=relations, tasks=ids))
        elif isinstance(how, GrowingBuild):
            growing.append((view, ids))
        else:
            wrong[relation] = ConflictError(f"view {view.relation.name}: expected it built in chunks, found not")
    return fillings, growing, wrong
