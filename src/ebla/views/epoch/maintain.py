"""Views kept exact: rounds of epochs, each view behind those that it reads, all to one base version."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from ebla.base.ids import RelationId, Version
from ebla.catalog import reads, troubles
from ebla.catalog.troubles import Activity, Trouble
from ebla.errors import CatalogError, ConflictError, MissingDependencyError
from ebla.model import changes as c
from ebla.model.plans import Plan
from ebla.model.relation import Kind, Relation
from ebla.relations import views as definition
from ebla.relations.shapes import shape_of, used_columns
from ebla.relations.views import Position, View
from ebla.spark.faults import is_final
from ebla.tables import troubles as troubled
from ebla.tables.context import Context
from ebla.views.epoch.apply import ViewInputs, apply_epoch
from ebla.views.epoch.attempt import Epoch, Target
from ebla.views.epoch.due import anything_new, written_since
from ebla.views.epoch.growth import Piece
from ebla.views.epoch.refresh_epoch import RefreshStep
from ebla.views.epoch.round import Round

if TYPE_CHECKING:
    from sqlalchemy import Connection

log = logging.getLogger("ebla.views")


def refresh(
    context: Context,
    targets: Mapping[str, Target],
    *,
    loaded: Sequence[ViewInputs] | None = None,
    retry: Container[str] = (),
    build: Piece | None = None,
    at_once: bool = False,
    chunk: RefreshStep | None = None,
    of_dictionaries: bool = False,
) -> list[Epoch]:
    """One epoch for each of these views (names in lower case), each behind the views that it reads.

    `loaded`: the views with their inputs, if they have been read already, each behind those that it reads.
    Views that do not read each other share what they read and run side by side. What goes wrong with one is its own,
    whatever it is: it is recorded, and the others go on. A view that failed on a row is tried again when an input was
    written to, one with any other trouble when its pause is over; both also when a user asks for them (`retry`,
    `at_once`). `build` says what is built of a view that is not driven, `chunk` how far the refresh of one view goes.
    What goes wrong with builds and with changes of dictionaries (`of_dictionaries`) is raised: they have troubles of
    their own.
    """
    with context.catalog.reading() as connection:
        if loaded is None:
            read = [v for v in definition.all_views(connection) if v.relation.name.lower() in targets]
            loaded = [(v, {n: reads.relation(connection, n) for n in v.inputs}) for v in read]
        agenda = _agenda(connection, loaded, targets, retry, context.catalog.clock(), at_once=at_once, chunk=chunk)
    done: dict[str, Epoch] = {}
    for level in _levels(agenda.due):
        round_ = Round(context)
        busy = [v for v in level if v.relation.id not in agenda.idle]
        for view in busy:
            with contextlib.suppress(Exception):  # its own epoch meets the same, and tells
                shape, _ = shape_of(view, agenda.inputs[view.relation.id])
                round_.uses(used_columns(shape, agenda.inputs[view.relation.id]))
        for view in level:
            if view.relation.id in agenda.idle:
                done[view.relation.name] = Epoch.without_rows(view)
        for epoch in _side_by_side(context, busy, targets, round_, build, chunk, agenda.steady, alone=of_dictionaries):
            done[epoch.view] = epoch
    _forget_troubles(context, agenda, targets, done, chunk)
    conflicts = [one.error for one in done.values() if isinstance(one.error, ConflictError)]
    if conflicts:
        raise conflicts[0]  # another process came first; what the other views did is committed
    return [done[v.relation.name] for v in agenda.due if v.relation.name in done]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agenda:
    """What a round has to do."""

    due: Sequence[View]
    idle: Container[RelationId]
    """Views that are due, and have nothing new to read."""
    steady: Mapping[RelationId, ViewInputs]
    """Views that read tables only and are followed as usual: what was read of them need not be read again."""
    inputs: Mapping[RelationId, Mapping[str, Relation]]
    troubles: Mapping[RelationId, Trouble]


def _agenda(
    connection: Connection,
    loaded: Sequence[ViewInputs],
    targets: Mapping[str, Target],
    retry: Container[str],
    now: int,
    *,
    at_once: bool,
    chunk: RefreshStep | None,
) -> _Agenda:
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
    return _Agenda(due=due, idle=idle, steady=steady, inputs=inputs, troubles=met)


def _forget_troubles(
    context: Context,
    agenda: _Agenda,
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
            troubles.clear(context.catalog, view.relation.id, Activity.EPOCH)
        refreshing = view.position is not None and view.position.refresh is not None
        if refreshing and chunk is None and not targets[view.relation.name.lower()].batch:
            troubles.clear(context.catalog, view.relation.id, Activity.DICTIONARY)


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


def _levels(views: Sequence[View]) -> Iterator[list[View]]:
    """Views in rounds: none reads another one of its own round."""
    named = {view.relation.name.lower(): view for view in views}
    sorter = TopologicalSorter({name: named.keys() & {*view.inputs} for name, view in named.items()})
    sorter.prepare()
    while ready := sorter.get_ready():
        yield [named[name] for name in ready]
        sorter.done(*ready)


def _side_by_side(
    context: Context,
    views: Sequence[View],
    targets: Mapping[str, Target],
    round_: Round,
    build: Piece | None,
    chunk: RefreshStep | None,
    loaded: Mapping[RelationId, ViewInputs],
    *,
    alone: bool,
) -> list[Epoch]:
    def one(view: View) -> Epoch | None:
        name = view.relation.name.lower()
        try:
            of_view = loaded.get(view.relation.id) if _of(build, name) is None else None
            return _apply_or_fail(
                context, view, targets[name], round_, build=_of(build, name), chunk=chunk, loaded=of_view
            )
        except (CatalogError, MissingDependencyError):
            raise  # of this process, not of the view
        except Exception as error:
            with context.catalog.reading() as connection:
                if reads.relation_by_id(connection, view.relation.id) is None:
                    return None  # dropped meanwhile
            if build is not None or alone:
                raise
            if not isinstance(error, ConflictError):
                _note(context, view, error)
            return Epoch.without_rows(view, Plan.WAITING, error)

    if len(views) < 2:
        return [epoch for epoch in map(one, views) if epoch is not None]
    context.spark  # noqa: B018 - started once, before the threads need it
    with ThreadPoolExecutor(max_workers=min(len(views), 2 * (os.cpu_count() or 1)), thread_name_prefix="epoch") as pool:
        return [epoch for epoch in pool.map(context.tags.bound(one), views) if epoch is not None]


def _of(build: Piece | None, view: str) -> Piece | None:
    return build if build is not None and build.view == view else None


def _apply_or_fail(
    context: Context,
    view: View,
    target: Target,
    round_: Round,
    *,
    build: Piece | None,
    chunk: RefreshStep | None,
    loaded: ViewInputs | None,
) -> Epoch:
    """An epoch whose expressions fail stops its view and no other; what went wrong is kept with the view."""
    try:
        return apply_epoch(context, view.relation.name, target, round_, build=build, chunk=chunk, loaded=loaded)
    except Exception as error:
        if isinstance(error, ConflictError | CatalogError) or not is_final(error):
            raise
        if build is not None:
            with context.catalog.reading() as connection:
                view = definition.load(connection, view.relation.name)  # an epoch came before the chunk
        tried = {n: int(target.batch.get(n, target.stream)) for n in view.inputs}
        if chunk is not None and view.position is not None and view.position.refresh is not None:
            tried |= view.position.refresh.to
        stop(context, view, error, tried, Activity.EPOCH if build is None else Activity.BUILD)
        return Epoch.without_rows(view, Plan.FAILED, error)


def _note(context: Context, view: View, error: Exception) -> Trouble:
    found = troubled.note(context, view.relation, Activity.EPOCH, error)
    name = view.relation.name
    log.warning("view=%s epoch failed attempts=%d code=%s reason=%s", name, found.attempts, found.code, found.message)
    log.debug("view=%s", name, exc_info=error)
    return found


def stop(context: Context, view: View, error: Exception, tried: Mapping[str, int], work: Activity) -> None:
    """Keep with a view which row or text is to blame. It is tried again when an input has a version behind these."""
    failure = troubled.failure_of(error, context.catalog.clock())
    position = (view.reached or Position(applied_version=Version(0), read={})).stopped(failure, tried)
    context.catalog.commit(
        c.Decision(
            reason=f"epoch of {view.relation.name} failed",
            relation=view.relation.id,
            requires=(definition.unmoved(view),),
            updates=definition.moved(view, position),
        ),
        node=context.node,
    )
    troubled.note(context, view.relation, work, error)
