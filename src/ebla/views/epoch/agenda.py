"""What a round of epochs has to do: the views that are due, those with nothing new to read, and their troubles."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebla.base.ids import RelationId
from ebla.catalog import troubles
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Activity, Trouble
from ebla.model.relation import Kind, Relation
from ebla.relations.shapes import shape_of, used_columns
from ebla.relations.views import Position, View
from ebla.views.epoch.attempt import Epoch, Target, ViewInputs
from ebla.views.epoch.due import anything_new, written_since
from ebla.views.epoch.refresh_epoch import RefreshStep

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """What a round has to do."""

    due: Sequence[View]
    idle: Container[RelationId]
    """Views that are due, and have nothing new to read."""
    steady: Mapping[RelationId, ViewInputs]
    """Views that read tables only and are followed as usual: what was read of them need not be read again."""
    inputs: Mapping[RelationId, Mapping[str, Relation]]
    troubles: Mapping[RelationId, Trouble]

    def used(self, view: View) -> Mapping[str, frozenset[str]]:
        """The columns of its inputs that a view uses."""
        relations = self.inputs[view.relation.id]
        shape, _ = shape_of(view, relations)
        return used_columns(shape, relations)


def agenda_of(
    connection: Connection,
    loaded: Sequence[ViewInputs],
    targets: Mapping[str, Target],
    retry: Container[str],
    now: int,
    *,
    at_once: bool,
    chunk: RefreshStep | None,
) -> Agenda:
    inputs = {v.relation.id: relations for v, relations in loaded}
    met = {t.relation: t for t in troubles.everything(connection, list(inputs)) if t.work is Activity.EPOCH}
    due, idle, steady = list[View](), set[RelationId](), dict[RelationId, ViewInputs]()
    for view, relations in loaded:
        number, name = view.relation.id, view.relation.name.lower()
        if name not in targets:
            continue
        if not at_once and _is_waiting(met.get(number), now) and name not in retry:
            continue
        if not _is_due(connection, view, relations, targets[name], retry):
            continue
        due.append(view)
        if chunk is None and all(relation.kind is Kind.TABLE for relation in relations.values()):
            if not anything_new(connection, view.position, relations, targets[name]):
                idle.add(number)
            refreshing = view.position is not None and view.position.refresh is not None
            if not view.building and view.damage is None and not refreshing:
                steady[number] = view, relations
    return Agenda(due=due, idle=idle, steady=steady, inputs=inputs, troubles=met)


def forget_troubles(
    catalog: Catalog,
    agenda: Agenda,
    targets: Mapping[str, Target],
    done: Mapping[str, Epoch],
    chunk: RefreshStep | None,
) -> None:
    """What went well this time is no trouble any more."""
    for view in agenda.due:
        epoch = done.get(view.relation.name)
        if epoch is None or epoch.error is not None:
            continue
        if view.relation.id in agenda.troubles and not (chunk is not None and _is_failed_epoch(view.position)):
            troubles.clear(catalog, view.relation.id, Activity.EPOCH)
        refreshing = view.position is not None and view.position.refresh is not None
        if refreshing and chunk is None and not targets[view.relation.name.lower()].batch:
            troubles.clear(catalog, view.relation.id, Activity.DICTIONARY)


def _is_failed_epoch(position: Position | None) -> bool:
    """Whether an epoch failed on a row, and no chunk: a chunk that goes well changes nothing about it."""
    return position is not None and position.failed and not position.failed_in_refresh


def _is_waiting(trouble: Trouble | None, now: int) -> bool:
    return trouble is not None and trouble.retry_at is not None and trouble.retry_at > now


def _is_due(
    connection: Connection, view: View, relations: Mapping[str, Relation], target: Target, retry: Container[str]
) -> bool:
    """What failed on a row fails again until an input is written to, or a user knows better and asks for it."""
    if view.position is None or not view.position.failed or view.relation.name.lower() in retry:
        return True
    return written_since(connection, view.position.tried, relations, target)
