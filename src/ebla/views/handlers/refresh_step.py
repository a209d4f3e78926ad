"""One step of a refresh after a change of dictionaries: its beginning, a chunk, or all of it at once."""

from __future__ import annotations

from dataclasses import replace

from ebla.base.failpoint import hit
from ebla.catalog import reads
from ebla.model import changes as c
from ebla.model.refresh import Refresh, ahead
from ebla.relations.views import View, moved, unmoved
from ebla.tables.context import Context
from ebla.views.epoch import maintain
from ebla.views.epoch.attempt import Epoch, Target
from ebla.views.epoch.ranges import Ranges
from ebla.views.epoch.refresh_epoch import RefreshStep
from ebla.views.epoch.round import Round
from ebla.views.handlers import dictionary_views
from ebla.views.handlers.dictionary_views import DueRefresh
from ebla.views.handlers.next_refresh import NextRefresh
from ebla.views.handlers.refresh_speed import RefreshSpeed


def act(shared: Context, one: NextRefresh, *, rows_max: int) -> list[Epoch]:
    """Do the next step of a refresh. `rows_max`: of the chunk that was waited for."""
    context = shared.tuned(batch_rows_max=one.tuned.batch_rows_max)
    if one.going is not None:
        if one.going.mended is not None:
            return _epoch(context, one.view, one.going.mended)
        refresh = one.going.refresh
        chunk = RefreshStep(up_to=refresh.up_to, to=refresh.to, rows_max=rows_max)
        return _epoch(context, one.view, one.going.target, chunk)
    assert one.due is not None
    if one.fan_out is None:
        dictionary_views.move_on(context.catalog, context.node, one.due)
        return []
    if isinstance(one.fan_out.by, str):
        return _whole(context, one.due)
    if one.pace.rows_per_minute is None and one.fan_out.view_rows <= one.pace.chunk_rows:
        return _whole(context, one.due)
    return _begin(context, one.due, one.fan_out.by, one.pace)


def _begin(context: Context, due: DueRefresh, by: tuple[str, ...], pace: RefreshSpeed) -> list[Epoch]:
    """Count what the change touches, and begin with nothing of it done. If it is little, do it at once."""
    view, position = due.view, due.view.position
    assert position is not None
    with context.catalog.reading() as connection:
        relations = {n: reads.relation(connection, n) for n in view.inputs}
        target = due.standing.versions(relations, reads.current_version(connection))
    refresh = Refresh(to={n: int(v) for n, v in due.moved.items()}, by=by, started_us=context.catalog.clock())
    expected = Ranges(view, relations, by, Round(context)).count(ahead(position.read, refresh, target))
    if expected == 0 or (pace.rows_per_minute is None and expected <= pace.chunk_rows):
        return _whole(context, due)
    begun = replace(position, refresh=replace(refresh, expected=expected))
    context.catalog.commit(
        c.Decision(
            reason=f"refresh of {view.relation.name}: begin, {expected} values of ({', '.join(by)}) to come",
            requires=(unmoved(view),),
            updates=moved(view, begun),
        ),
        node=context.node,
    )
    hit("refresh.begun")
    return []


def _whole(context: Context, due: DueRefresh) -> list[Epoch]:
    """All of a change in one epoch; where no commit is behind it, the position alone moves."""
    done = _epoch(context, due.view, Target(stream=due.stream, batch=due.versions))
    if done and all(epoch.idle for epoch in done):
        dictionary_views.move_on(context.catalog, context.node, due)
    return done


def _epoch(context: Context, view: View, target: Target, chunk: RefreshStep | None = None) -> list[Epoch]:
    name = view.relation.name.lower()
    return maintain.refresh(context, {name: target}, chunk=chunk, retry={name}, at_once=True, of_dictionaries=True)
