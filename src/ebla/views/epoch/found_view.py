"""A view as an epoch finds it in the catalog: its inputs, how far it is built, and whether there is anything to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ebla.algebra.build_method import DrivenBuild, GrowingBuild, OnePieceBuild
from ebla.catalog import reads
from ebla.model.relation import Relation
from ebla.relations import views as definition
from ebla.relations.shapes import build_method
from ebla.relations.views import View
from ebla.views.epoch.attempt import Target
from ebla.views.epoch.due import anything_new, refuse_behind
from ebla.views.epoch.growth import Growth, OnePiece, Piece, growth, in_one_piece
from ebla.views.epoch.refresh_epoch import RefreshStep
from ebla.views.epoch.standing import ViewStanding, standing

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundView:
    """A view as an epoch finds it, and whether there is something to do."""

    view: View
    relations: Mapping[str, Relation]
    target: Target
    due: bool
    how: DrivenBuild | GrowingBuild | OnePieceBuild | None = None
    stands: ViewStanding | None = None
    building: OnePiece | Growth | None = None


def find_view(
    connection: Connection,
    name: str,
    target: Target | None,
    *,
    build: Piece | None,
    chunk: RefreshStep | None,
    repair: bool,
) -> FoundView:
    view = definition.load(connection, name)
    target = target or Target(stream=reads.current_version(connection))
    relations = inputs_of(connection, view)
    found = FoundView(view=view, relations=relations, target=target, due=True)
    match build_method(view, relations) if view.building else None:
        case DrivenBuild() as how:
            stands = standing(connection, view, relations[how.base], relations, target.stream)
            return replace(found, how=how, stands=stands, due=stands.due)
        case GrowingBuild() as how:
            target = Target(stream=target.stream)  # dictionaries get their own versions once it is built
            building = growth(connection, view, how.base)
            due = build is not None or (building.begun and anything_new(connection, view.reached, relations, target))
            return replace(found, how=how, target=target, building=building, due=due)
        case OnePieceBuild() as how:
            if build is None:
                return replace(found, how=how, due=False)
            return replace(found, how=how, building=in_one_piece(connection, view))
        case None:
            if not repair and chunk is None and not anything_new(connection, view.position, relations, target):
                return replace(found, due=False)
            if chunk is not None and (view.position is None or view.position.refresh is None):
                return replace(found, due=False)  # another process has ended it
            refuse_behind(view, relations, target)
            return found


def inputs_of(connection: Connection, view: View) -> dict[str, Relation]:
    return {n: reads.relation(connection, n) for n in view.inputs}
