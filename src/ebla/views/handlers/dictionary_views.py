"""Views whose dictionaries have changed: those with a refresh before them, and those in the middle of one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from ebla.algebra.nodes import NotUnderstood
from ebla.algebra.shape import understood
from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.model.handlers import BatchInput, Handler, advanced, held, touches
from ebla.model.refresh import Refresh
from ebla.model.relation import Kind
from ebla.relations.readers import readers
from ebla.relations.views import Position, View, moved, unmoved
from ebla.views.epoch.attempt import Target
from ebla.views.handlers.dictionary import GatheredPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRefresh:
    """A view whose dictionaries have gathered changes. If they do not concern it, only its position moves."""

    view: View
    handler: Handler
    versions: Mapping[str, Version]
    """All of its dictionaries, at the versions to read them at."""
    stream: Version
    concerned: bool
    moved: Mapping[str, Version]
    """The dictionaries that have gathered changes, and up to which version."""
    batch: frozenset[str]
    """The names of all dictionaries of the view."""
    standing: Target
    """Where the view stands."""


def batch_inputs(
    connection: Connection, view: View, inputs: Mapping[str, RelationId], gathered: GatheredPosition
) -> list[BatchInput]:
    found = []
    for name, number in inputs.items():
        read = None if view.position is None else view.position.read.get(name)
        entry = gathered.inputs.get(number)
        found.append(
            BatchInput(
                name=name,
                relation=number,
                read=None if read is None else Version(read),
                gathered=None if entry is None else entry.until,
                horizon=reads.relation(connection, name).horizon,
            )
        )
    return found


def due(connection: Connection, handlers: Iterable[str] | None = None) -> list[DueRefresh]:
    """Views of these handlers, or of all that should run, whose dictionaries have gathered changes."""
    gathered = GatheredPosition.load(connection)
    newest = reads.current_version(connection)
    wanted = None if handlers is None else set(handlers)
    found = []
    for view, handler, numbers in readers(connection):
        if view.position is None or not view.position.built:
            continue
        if view.position.refresh is not None:
            continue  # one after the other
        if not handler.should_run if wanted is None else handler.name not in wanted:
            continue
        inputs = batch_inputs(connection, view, numbers, gathered)
        moved = advanced(inputs)
        if moved and _may_go(view.position, moved):
            found.append(
                DueRefresh(
                    view=view,
                    handler=handler,
                    versions={**held(inputs, newest), **moved},
                    stream=_stream(connection, view, numbers, newest),
                    concerned=_concerned(connection, view, [i for i in inputs if i.name in moved], gathered),
                    moved=moved,
                    batch=frozenset(numbers),
                    standing=_standing(connection, view, numbers, newest),
                )
            )
    return found


def _may_go(position: Position, gathered: Mapping[str, Version]) -> bool:
    """What failed on a row fails again, until a dictionary has changed once more."""
    return not position.failed or any(v > position.tried.get(n, 0) for n, v in gathered.items())


def _stream(connection: Connection, view: View, batch: Mapping[str, RelationId], newest: Version) -> Version:
    """Streams stay where the view has read them, unless that version is vacuumed."""
    assert view.position is not None
    streams = [reads.relation(connection, n) for n in view.inputs if n not in batch]
    applied = view.position.applied_version
    return applied if all(r.horizon <= applied for r in streams if r.kind is Kind.TABLE) else newest


def _concerned(connection: Connection, view: View, inputs: Sequence[BatchInput], gathered: GatheredPosition) -> bool:
    used: Mapping[str, frozenset[str]] | None = None
    try:
        relations = {n: reads.relation(connection, n) for n in view.inputs}
        used = understood(view.query, relations, view.settings).used
    except NotUnderstood:
        pass  # then every column counts
    for one in inputs:
        log = gathered.inputs[one.relation]
        assert one.read is not None
        if one.read < log.since or one.read < one.horizon:
            return True  # the log begins later than the view stands
        changes = reads.dictionary_changes(connection, one.relation, one.read, log.until)
        if touches(changes, None if used is None else used.get(one.name, frozenset())):
            return True
    return False


def move_on(catalog: Catalog, node: NodeId, due: DueRefresh) -> None:
    """Move the position of a view that does not use what changed."""
    view = due.view
    assert view.position is not None
    position = replace(view.position, read={**view.position.read, **{n: int(v) for n, v in due.moved.items()}})
    catalog.commit(
        # Not a commit of the view: nothing that reads it has anything to do.
        c.Decision(
            reason=f"dictionaries of {view.relation.name} changed in columns that it does not use",
            requires=(unmoved(view),),
            updates=moved(view, position),
        ),
        node=node,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRefresh:
    """A view in the middle of a refresh."""

    view: View
    handler: Handler
    target: Target
    """Where the view stands."""
    again: bool
    """Whether one of its dictionaries has changed since the refresh began."""
    mended: Target | None = None
    """Of a refresh that failed on a row: the versions with what has changed since, to which it goes in one epoch."""

    @property
    def refresh(self) -> Refresh:
        assert self.view.position is not None
        assert self.view.position.refresh is not None
        return self.view.position.refresh


def running(connection: Connection, handlers: Collection[str]) -> list[RunningRefresh]:
    """Views of these handlers with a refresh that has begun."""
    found = []
    gathered = GatheredPosition.load(connection)
    newest = reads.current_version(connection)
    for view, handler, numbers in readers(connection):
        position = view.position
        if position is None or position.refresh is None or handler.name not in handlers:
            continue
        to = {n: Version(position.refresh.to.get(n, position.read[n])) for n in numbers}
        gathered_to = {n: max(to[n], gathered.inputs[i].until) for n, i in numbers.items() if i in gathered.inputs}
        failed = position.failed_in_refresh  # what fails on a stream's row keeps no chunk from going on
        if failed and not _may_go(position, gathered_to):
            continue
        target = _standing(connection, view, numbers, newest)
        mended = None
        if failed:
            mended = replace(target, batch={**target.batch, **to, **gathered_to})
        again = any(until > to[n] for n, until in gathered_to.items())
        found.append(RunningRefresh(view=view, handler=handler, target=target, again=again, mended=mended))
    return found


def _standing(connection: Connection, view: View, batch: Mapping[str, RelationId], newest: Version) -> Target:
    """The versions that a view names; the newest of streams, if one of those cannot be read any more."""
    assert view.position is not None
    read = {n: Version(v) for n, v in view.position.read.items()}
    if all(reads.relation(connection, n).horizon <= read[n] for n in view.inputs if n not in batch):
        return Target(stream=view.position.applied_version, batch=read)
    return Target(stream=newest, batch={n: read[n] for n in batch})
