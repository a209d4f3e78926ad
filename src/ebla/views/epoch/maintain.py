"""Views kept exact: rounds of epochs, each view behind those that it reads, all to one base version."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from graphlib import TopologicalSorter

from ebla.base.ids import RelationId
from ebla.catalog import reads
from ebla.catalog.troubles import Activity
from ebla.errors import CatalogError, ConflictError, MissingDependencyError
from ebla.model.plans import Plan
from ebla.relations import views as definition
from ebla.relations.views import View
from ebla.tables.write_access import WriteAccess
from ebla.views.epoch.agenda import agenda_of, forget_troubles
from ebla.views.epoch.apply import apply_epoch
from ebla.views.epoch.attempt import Epoch, Target, ViewInputs
from ebla.views.epoch.failure import is_of_view, note, stop
from ebla.views.epoch.growth import Piece
from ebla.views.epoch.refresh_epoch import RefreshStep
from ebla.views.epoch.round import Round


def refresh(
    context: WriteAccess,
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
        agenda = agenda_of(connection, loaded, targets, retry, context.catalog.clock(), at_once=at_once, chunk=chunk)
    done: dict[str, Epoch] = {}
    for level in _levels(agenda.due):
        round_ = Round(context)
        busy = [v for v in level if v.relation.id not in agenda.idle]
        for view in busy:
            with contextlib.suppress(Exception):  # its own epoch meets the same, and tells
                round_.uses(agenda.used(view))
        for view in level:
            if view.relation.id in agenda.idle:
                done[view.relation.name] = Epoch.without_rows(view)
        for epoch in _side_by_side(context, busy, targets, round_, build, chunk, agenda.steady, alone=of_dictionaries):
            done[epoch.view] = epoch
    forget_troubles(context.catalog, agenda, targets, done, chunk)
    conflicts = [one.error for one in done.values() if isinstance(one.error, ConflictError)]
    if conflicts:
        raise conflicts[0]  # another process came first; what the other views did is committed
    return [done[v.relation.name] for v in agenda.due if v.relation.name in done]


def _levels(views: Sequence[View]) -> Iterator[list[View]]:
    """Views in rounds: none reads another one of its own round."""
    named = {view.relation.name.lower(): view for view in views}
    sorter = TopologicalSorter({name: named.keys() & {*view.inputs} for name, view in named.items()})
    sorter.prepare()
    while ready := sorter.get_ready():
        yield [named[name] for name in ready]
        sorter.done(*ready)


def _side_by_side(
    context: WriteAccess,
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
                note(context.catalog, context.holder, view, error)
            return Epoch.without_rows(view, Plan.WAITING, error)

    if len(views) < 2:
        return [epoch for epoch in map(one, views) if epoch is not None]
    context.spark  # noqa: B018 - started once, before the threads need it
    with ThreadPoolExecutor(max_workers=min(len(views), 2 * (os.cpu_count() or 1)), thread_name_prefix="epoch") as pool:
        return [epoch for epoch in pool.map(context.sessions.tags.bound(one), views) if epoch is not None]


def _of(build: Piece | None, view: str) -> Piece | None:
    return build if build is not None and build.view == view else None


def _apply_or_fail(
    context: WriteAccess,
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
        if not is_of_view(error):
            raise
        if build is not None:
            with context.catalog.reading() as connection:
                view = definition.load(connection, view.relation.name)  # an epoch came before the chunk
        tried = {n: int(target.batch.get(n, target.stream)) for n in view.inputs}
        if chunk is not None and view.position is not None and view.position.refresh is not None:
            tried |= view.position.refresh.to
        stop(context, view, error, tried, Activity.EPOCH if build is None else Activity.BUILD)
        return Epoch.without_rows(view, Plan.FAILED, error)
