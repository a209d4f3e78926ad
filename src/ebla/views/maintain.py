"""Views kept exact: rounds of epochs, each view behind those that it reads, all to one base version."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from ebla.catalog import changes as c
from ebla.catalog import reads
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.errors import SqlError, TypeMismatchError, UnknownNameError
from ebla.ids import Version
from ebla.storage.model import FOREVER, Kind, Relation
from ebla.tables.context import Context
from ebla.tables.writes import Work
from ebla.views import definition
from ebla.views.backfill import how_built
from ebla.views.covering import Covering, Standing, standing
from ebla.views.definition import Position, View
from ebla.views.driving import Driving, Growing, InOnePiece
from ebla.views.growing import Growth, OnePiece, Piece, growth, in_one_piece
from ebla.views.inputs import Round
from ebla.views.run import Epoch, Pace, Run, Target, shape_of, used_columns

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Epoch", "Pace", "Target", "apply_epoch", "refresh", "stop"]

# ---- the epoch ------------------------------------------------------------------------------------------


def apply_epoch(
    context: Context,
    name: str,
    target: Target | None = None,
    pace: Pace | None = None,
    round_: Round | None = None,
    *,
    build: Piece | None = None,
    repair: bool = False,
) -> Epoch:
    """Bring a view up to the newest version of its inputs, or to those of the target. `repair`: compute it anew.

    A view that is being built in chunks is brought there as far as it is covered. One that is built in one piece is
    left alone, unless this is the epoch that builds it (`build`). One that grows gets the chunk that `build` says.
    """
    started = time.perf_counter()
    stands: Standing | None = None
    building: OnePiece | Growth | None = None
    with context.catalog.reading() as connection:
        view = definition.load(connection, name)
        target = target or Target(stream=reads.current_version(connection))
        relations = {n: reads.relation(connection, n) for n in view.inputs}
        how = how_built(view, relations) if view.building else None
        nothing = Epoch(view=view.relation.name, applied_version=_applied(view), plan="nothing to do")
        match how:
            case Driving():
                stands = standing(connection, view, relations[how.base], relations, target.stream)
                if not stands.due:
                    return nothing
            case Growing():
                target = Target(stream=target.stream)  # dictionaries get their own versions once it is built
                building = growth(connection, view, how.base)
                if build is None and not (
                    building.begun and _anything_new(connection, view.reached, relations, target)
                ):
                    return nothing
            case InOnePiece():
                if build is None:
                    return nothing
                building = in_one_piece(connection, view)
            case None:
                if not repair and not _anything_new(connection, view.position, relations, target):
                    return nothing
    work = _begun(context, view)
    try:
        with context.kept_alive(work.transaction.id), context.at_work(f"epoch of {view.relation.name}"):
            if stands is not None and isinstance(how, Driving):
                covering = Covering(
                    view, how, relations, stands, target.stream, work, round_ or Round(context), started
                )
                return covering.run()
            if build is not None and isinstance(how, Growing):
                # What is covered comes to the target first, by an epoch of its own; then nothing but rows is added.
                apply_epoch(context, name, target, None, round_)
                with context.catalog.reading() as connection:
                    view = definition.load(connection, name)
                    relations = {n: reads.relation(connection, n) for n in view.inputs}
                    building = growth(connection, view, how.base, build)
            run = Run(view, relations, target, pace, work, round_ or Round(context), started, building)
            return run.anew("repair") if repair else run.run()
    except BaseException:
        work.roll_back()
        raise


def _begun(context: Context, view: View) -> Work:
    transaction = tx.begin(
        context.catalog,
        view.relation,
        node=context.node,
        holder=context.holder,
        reason=f"epoch of {view.relation.name}",
        lease_us=context.lease_us,
    )
    return Work(context, view.relation, transaction)


def _applied(view: View) -> Version:
    return Version(0) if view.position is None else view.position.applied_version


def _anything_new(
    connection: Connection, position: Position | None, relations: Mapping[str, Relation], target: Target
) -> bool:
    """Whether an input has a commit that a view has not read. The history knows, even of runs that are vacuumed."""
    if position is None or position.status != "ready":
        return True
    for name, relation in relations.items():
        seen = position.read.get(name, 0)
        until = target.batch.get(name, target.stream if relation.kind is Kind.TABLE else FOREVER)
        if seen >= until:
            continue
        newest = select(func.max(s.history.c.version)).where(
            s.history.c.relation_id == relation.id, s.history.c.version <= until
        )
        if (connection.execute(newest).scalar() or 0) > seen:
            return True
    return False


def refresh(
    context: Context,
    targets: Mapping[str, Target],
    *,
    retry: Container[str] = (),
    pace: Pace | None = None,
    build: Piece | None = None,
) -> list[Epoch]:
    """One epoch for each of these views (names in lower case), each behind the views that it reads.

    Views that do not read each other share what they read and run side by side. A view that failed waits for somebody
    who mends its rows and asks for it by name (`retry`). `build` says what is built of a view that is not driven.
    """
    with context.catalog.reading() as connection:
        views = [v for v in definition.all_views(connection) if v.relation.name.lower() in targets]
        due = [v for v in views if _is_due(v, retry)]
        relations = {v.relation.id: {n: reads.relation(connection, n) for n in v.inputs} for v in due}
        idle = {
            v.relation.id
            for v in due
            if all(r.kind is Kind.TABLE for r in relations[v.relation.id].values())
            and not _anything_new(connection, v.position, relations[v.relation.id], targets[v.relation.name.lower()])
        }
    done: dict[str, Epoch] = {}
    for level in _levels(due):
        round_ = Round(context)
        busy = [v for v in level if v.relation.id not in idle]
        for view in busy:
            shape, _ = shape_of(view, relations[view.relation.id])
            round_.uses(used_columns(shape, relations[view.relation.id]))
        for view in level:
            if view.relation.id in idle:
                done[view.relation.name] = Epoch(
                    view=view.relation.name, applied_version=_applied(view), plan="nothing to do"
                )
        for epoch in _side_by_side(context, busy, targets, pace, round_, build):
            done[epoch.view] = epoch
    return [done[v.relation.name] for v in due if v.relation.name in done]


def _is_due(view: View, retry: Container[str]) -> bool:
    failed = view.position is not None and view.position.status == "failed"
    return not failed or view.relation.name.lower() in retry


def _levels(views: Sequence[View]) -> list[list[View]]:
    """Views in rounds: none reads another one of its own round."""
    depth: dict[str, int] = {}
    rounds: list[list[View]] = []
    for view in views:  # each behind those that it reads
        level = max((depth[n] + 1 for n in view.inputs if n in depth), default=0)
        depth[view.relation.name.lower()] = level
        if level == len(rounds):
            rounds.append([])
        rounds[level].append(view)
    return rounds


def _side_by_side(
    context: Context,
    views: Sequence[View],
    targets: Mapping[str, Target],
    pace: Pace | None,
    round_: Round,
    build: Piece | None,
) -> list[Epoch]:
    def one(view: View) -> Epoch | None:
        name = view.relation.name.lower()
        try:
            return _apply_or_fail(context, view, targets[name], pace, round_, build=_of(build, name))
        except UnknownNameError:
            with context.catalog.reading() as connection:
                if reads.find_relation(connection, view.relation.name) is not None:
                    raise
            return None  # dropped meanwhile

    if len(views) < 2:
        return [epoch for epoch in map(one, views) if epoch is not None]
    context.spark  # noqa: B018 - started once, before the threads need it
    with ThreadPoolExecutor(max_workers=min(len(views), 2 * (os.cpu_count() or 1)), thread_name_prefix="epoch") as pool:
        return [epoch for epoch in pool.map(one, views) if epoch is not None]


def _of(build: Piece | None, view: str) -> Piece | None:
    return build if build is not None and build.view == view else None


def _apply_or_fail(
    context: Context, view: View, target: Target, pace: Pace | None, round_: Round, *, build: Piece | None
) -> Epoch:
    """An epoch whose expressions fail stops its view and no other; what went wrong is kept with the view."""
    try:
        return apply_epoch(context, view.relation.name, target, pace, round_, build=build)
    except (SqlError, TypeMismatchError) as error:
        if build is not None:
            with context.catalog.reading() as connection:
                view = definition.load(connection, view.relation.name)  # an epoch came before the chunk
        stop(context, view, error)
        return Epoch(view=view.relation.name, applied_version=_applied(view), plan="failed", reason=str(error))


def stop(context: Context, view: View, error: Exception) -> None:
    """Keep with a view what went wrong, and let nobody go on with it until it is asked for by name."""
    position = (view.reached or Position(applied_version=Version(0), read={})).failed(str(error))
    context.catalog.commit(
        c.Decision(
            reason=f"epoch of {view.relation.name} failed",
            relation=view.relation.id,
            requires=(c.ProgressIs(name=view.progress_name, value=view.stored),),
            updates=(c.SetProgress(name=view.progress_name, value=position.text()),),
        ),
        node=context.node,
    )
