"""A view's query as a tree of values, and what follows from it: the columns that it reads, how the view is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from ebla.algebra.build_method import BuildMethod, driving
from ebla.algebra.nodes import NotUnderstood, Shape
from ebla.algebra.shape import understood
from ebla.model.relation import Relation
from ebla.relations.views import View


def shape_of(view: View, relations: Mapping[str, Relation]) -> tuple[Shape | None, str | None]:
    """The tree of a view's query, its outputs under the view's own names; or why there is none."""
    try:
        found = understood(view.kept, relations, view.settings)
    except NotUnderstood as reason:
        return None, str(reason)
    names = tuple(col.name for col in view.columns)
    if len(names) != len(found.outputs):
        return None, "the query's columns"
    return _under_names(found, names), None


@lru_cache(maxsize=512)
def _under_names(found: Shape, names: tuple[str, ...]) -> Shape:
    """One and the same for every epoch: plans are kept by the shape that they are made for."""
    return replace(found, outputs=tuple((n, v) for n, (_, v) in zip(names, found.outputs, strict=True)))


def used_columns(shape: Shape | None, relations: Mapping[str, Relation]) -> Mapping[str, frozenset[str]]:
    """The columns of each input that a view reads; all of them where it is not understood."""
    if shape is not None:
        return shape.used
    return {n: frozenset(col.name for col in r.columns) for n, r in relations.items()}


def build_method(view: View, relations: Mapping[str, Relation]) -> BuildMethod:
    """Whether a view is built in chunks, and of which kind."""
    shape, _ = shape_of(view, relations)
    return driving(shape, view.inputs, relations, view.relation.columns, merges=view.roles is not None)
