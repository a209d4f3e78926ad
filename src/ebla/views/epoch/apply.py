"""One epoch of one view: what there is to do, and which kind of epoch does it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

from ebla.algebra.build_method import DrivenBuild, GrowingBuild
from ebla.errors import ConflictError
from ebla.model.work import WorkKind
from ebla.relations import views as definition
from ebla.relations.views import View
from ebla.tables.sink import Sink
from ebla.tables.transaction import OpenTransaction, begin
from ebla.tables.write_access import WriteAccess
from ebla.views.epoch.attempt import Attempt, Epoch, Target, ViewInputs
from ebla.views.epoch.coverage import CoverageEpoch
from ebla.views.epoch.due import refuse_behind
from ebla.views.epoch.found_view import FoundView, find_view, inputs_of
from ebla.views.epoch.growth import Piece, growth
from ebla.views.epoch.refresh_epoch import RefreshEpoch, RefreshStep
from ebla.views.epoch.round import Round
from ebla.views.epoch.whole_epoch import WholeEpoch


def apply_epoch(
    context: WriteAccess,
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
        found = FoundView(view=loaded[0], relations=loaded[1], target=target, due=True)
    else:
        with context.catalog.reading() as connection:
            found = find_view(connection, name, target, build=build, chunk=chunk, repair=repair)
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
                attempt = replace(attempt, view=view, relations=inputs_of(connection, view))
                building = growth(connection, view, found.how.base, build)
        run = WholeEpoch(attempt, building)
        return run.anew("repair") if repair else run.run()


@contextlib.contextmanager
def _at_work(context: WriteAccess, found: FoundView, round_: Round, started: float) -> Iterator[Attempt]:
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


def _begun(context: WriteAccess, view: View) -> OpenTransaction:
    transaction = begin(context, view.relation.name, reason=f"epoch of {view.relation.name}", work=WorkKind.EPOCH)
    relation = transaction.relation
    if (relation.id, relation.schema_version) != (view.relation.id, view.relation.schema_version):
        transaction.roll_back()
        raise ConflictError(f"{relation.name}: expected the view that the epoch began with, found another; retry")
    return transaction
