"""One epoch of one view: what there is to do, and which kind of epoch does it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ebla.algebra.build_method import DrivenBuild, GrowingBuild, OnePieceBuild
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.errors import ConflictError
from ebla.model.relation import Relation
from ebla.relations import views as definition
from ebla.relations.shapes import build_method
from ebla.relations.views import View
from ebla.tables.context import Context
from ebla.tables.sink import Sink
from ebla.tables.transaction import OpenTransaction, begin
from ebla.views.epoch.attempt import Attempt, Epoch, Target
from ebla.views.epoch.coverage import CoverageEpoch
from ebla.views.epoch.due import anything_new, refuse_behind
from ebla.views.epoch.growth import Growth, OnePiece, Piece, growth, in_one_piece
from ebla.views.epoch.refresh_epoch import RefreshEpoch, RefreshStep
from ebla.views.epoch.round import Round
from ebla.views.epoch.standing import ViewStanding, standing
from ebla.views.epoch.whole_epoch import WholeEpoch

if TYPE_CHECKING:
    from sqlalchemy import Connection

ViewInputs = tuple[View, Mapping[str, Relation]]
"""A view and its inputs, as the round read them."""


def apply_epoch(
    context: Context,
    name: str,
    target: Target | None = None,
    round_: Round | None = None,
    *,
    build: Piece | None = None,
    chunk: RefreshStep | None = None,
    repair: bool = False,
    loaded: ViewInputs | None = None,
) -> Epoch:
    """Bring a view up to the newest version of its inputs, or to those of the target. `repair`: compute it anew.

    `chunk`: go on with the view's refresh. `loaded`: what the round has read of the view, and that it is behind.

    A view that is being built in chunks is brought there as far as it is covered. One that is built in one piece is
    left alone, unless this is the epoch that builds it (`build`). One that grows gets the chunk that `build` says.
    """
    started = time.perf_counter()
    if loaded is not None and target is not None:
        refuse_behind(*loaded, target)
        found = _Look(view=loaded[0], relations=loaded[1], target=target, due=True)
    else:
        with context.catalog.reading() as connection:
            found = _look(connection, name, target, build=build, chunk=chunk, repair=repair)
    view = found.view
    if not found.due:
        return Epoch.without_rows(view)
    with _at_work(context, found, round_ or Round(context), started) as attempt:
        if found.stands is not None and isinstance(found.how, DrivenBuild):
            return CoverageEpoch(attempt, found.how, found.stands).run()
        if view.position is not None and view.position.refresh is not None and not repair:
            return RefreshEpoch(attempt, chunk).run()
        building = found.building
        if build is not None and isinstance(found.how, GrowingBuild):
            # What is covered comes to the target first, by an epoch of its own; then nothing but rows is added.
            apply_epoch(context, name, attempt.target, attempt.round)
            with context.catalog.reading() as connection:
                view = definition.load(connection, name)
                attempt = replace(attempt, view=view, relations=_inputs_of(connection, view))
                building = growth(connection, view, found.how.base, build)
        run = WholeEpoch(attempt, building)
        return run.anew("repair") if repair else run.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A view as an epoch finds it, and whether there is something to do."""

    view: View
    relations: Mapping[str, Relation]
    target: Target
    due: bool
    how: DrivenBuild | GrowingBuild | OnePieceBuild | None = None
    stands: ViewStanding | None = None
    building: OnePiece | Growth | None = None


def _look(
    connection: Connection,
    name: str,
    target: Target | None,
    *,
    build: Piece | None,
    chunk: RefreshStep | None,
    repair: bool,
) -> _Look:
    view = definition.load(connection, name)
    target = target or Target(stream=reads.current_version(connection))
    relations = _inputs_of(connection, view)
    found = _Look(view=view, relations=relations, target=target, due=True)
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


def _inputs_of(connection: Connection, view: View) -> dict[str, Relation]:
    return {n: reads.relation(connection, n) for n in view.inputs}


@contextlib.contextmanager
def _at_work(context: Context, found: _Look, round_: Round, started: float) -> Iterator[Attempt]:
    """An attempt, which leaves nothing if it fails."""
    view, relations, target = found.view, found.relations, found.target
    transaction = _begun(context, view)
    try:
        with context.kept_alive(transaction.id), context.at_work(f"epoch of {view.relation.name}"):
            sink = Sink(transaction)
            yield Attempt(view=view, relations=relations, target=target, sink=sink, round=round_, started=started)
    except BaseException as error:
        transaction.give_up(error)
        raise


def _begun(context: Context, view: View) -> OpenTransaction:
    transaction = begin(context, view.relation.name, reason=f"{tx.EPOCH}{view.relation.name}")
    relation = transaction.relation
    if (relation.id, relation.schema_version) != (view.relation.id, view.relation.schema_version):
        transaction.roll_back()
        raise ConflictError(f"{relation.name}: expected the view that the epoch began with, found another; retry")
    return transaction
