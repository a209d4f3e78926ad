"""Whether an epoch has something to read, and whether its target lies behind what the view has read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ebla.catalog import history
from ebla.errors import ConflictError
from ebla.model.relation import FOREVER, Kind, Relation
from ebla.relations.views import Position, View
from ebla.views.epoch.attempt import Target

if TYPE_CHECKING:
    from sqlalchemy import Connection


def refuse_behind(view: View, relations: Mapping[str, Relation], target: Target) -> None:
    """Refuse a target that was chosen before another process brought the view further.

    The view's rows hold what it has read: with a position behind them the next epoch would apply changes twice.
    """
    for name, relation in relations.items():
        seen = 0 if view.position is None else view.position.read.get(name, 0)
        until = target.batch.get(name, target.stream if relation.kind is Kind.TABLE else FOREVER)
        if until < seen:
            raise ConflictError(
                f"epoch of {view.relation.name}: expected {relation.name} at version {seen} or newer, found {until}; "
                "another process came first: read again"
            )


def anything_new(
    connection: Connection, position: Position | None, relations: Mapping[str, Relation], target: Target
) -> bool:
    """Whether an input has a commit that a view has not read. The history knows, even of runs that are vacuumed."""
    if position is None or position.failed:
        return True
    return written_since(connection, position.read, relations, target)


def written_since(
    connection: Connection, read: Mapping[str, int], relations: Mapping[str, Relation], target: Target
) -> bool:
    """Whether an input has a commit behind these versions, up to the target."""
    for name, relation in relations.items():
        seen = read.get(name, 0)
        until = target.batch.get(name, target.stream if relation.kind is Kind.TABLE else FOREVER)
        if seen >= until:
            continue
        if history.newest_of(connection, relation.id, until) > seen:
            return True
    return False
