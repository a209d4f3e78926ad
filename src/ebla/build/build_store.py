"""The coordinator's state as the catalog keeps it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from ebla.base.ids import NodeId, RelationId, Version
from ebla.build.state import Span, State
from ebla.catalog import build_tasks, reads, troubles, view_states
from ebla.catalog import relations as relation_rows
from ebla.catalog.reads import called
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Activity
from ebla.errors import ConflictError, UnknownNameError
from ebla.model import changes as c
from ebla.model.index_steps import not_yet
from ebla.model.lifecycle.view import RIGHTS
from ebla.model.relation import Kind
from ebla.relations.tasks import standings
from ebla.relations.views import Position, progress_name

log = logging.getLogger("ebla.build")


class BuildStore:
    """The catalog, as the loop of one process uses it."""

    def __init__(
        self,
        catalog: Catalog,
        node: NodeId,
        alive: Callable[[], frozenset[NodeId]],
        checked: Collection[RelationId],
        forgive: Callable[[RelationId], None],
    ) -> None:
        self._catalog = catalog
        self._node = node
        self._alive = alive
        self._checked = checked
        self._forgive = forgive

    def load(self) -> State:
        with self._catalog.reading() as connection:
            unchecked = [view for view in build_tasks.builds(connection) if view not in self._checked]
            return load(connection, self._alive(), unchecked)

    def commit(self, decision: c.Decision) -> None:
        self._catalog.commit(decision, node=self._node)

    def forgive(self, state: State) -> bool:
        """Builds that failed on a row go on where they were as soon as an input was written to."""
        if not state.held:
            return False
        with self._catalog.reading() as connection:
            found = mended(connection, [view for view in state.builds if view in state.held])
        for view in found:
            log.info("relation=%d build goes on: an input was written to", view)
            with contextlib.suppress(ConflictError, UnknownNameError):
                self._forgive(view)
        return bool(found)


def load(connection: Connection, alive: Iterable[NodeId], unchecked: Iterable[RelationId] = ()) -> State:
    """All of it, in one consistent read. Which nodes are alive, and what is checked already, is not in the catalog."""
    builds = build_tasks.builds(connection)
    tasks = build_tasks.tasks(connection)
    spans = {v: Span(*span) for v, span in build_tasks.spans(connection).items()}
    processing = build_tasks.processing_base(connection)
    stored = positions(connection, builds)
    standing = standings(connection)
    unmoved: dict[RelationId, c.Requirement] = {one.index: one.unmoved for one in standing}
    for view, reached in stored.items():
        if reached is not None:
            unmoved[view] = c.ProgressIs(name=progress_name(view), value=reached.text)
    unread = {view: build.base for view, build in builds.items() if view not in spans and build.base != processing}
    concerned = {*builds, *(build.base for build in builds.values()), *(task.base for task in tasks)}
    open_of = {task.view for task in tasks if task.view is not None}
    return State.of(
        tasks,
        builds=builds,
        spans=spans,
        applied={v: None if p is None else p.applied_version for v, p in stored.items()},
        unmoved=unmoved,
        processing=processing,
        alive=alive,
        held=held(connection, stored) | not_yet(standing, unread, open_of),
        walking=[one.index for one in standing],
        unchecked=unchecked,
        retry_us={
            t.relation: t.retry_at
            for t in troubles.everything(connection)
            if t.work is Activity.BUILD and t.retry_at is not None
        },
        names={relation: called(connection, relation) for relation in concerned},
    )


def held(connection: Connection, views: Mapping[RelationId, ReachedPosition | None]) -> set[RelationId]:
    """Views that wait: for an input that is an unbuilt view, or for a write that corrects the row they failed on."""
    waiting = {view for view, reached in views.items() if reached is not None and reached.failed}
    read = relation_rows.inputs(connection, views.keys())
    return waiting | {view for view, inputs in read.items() if any(one in views for one in inputs)}


def mended(connection: Connection, builds: Iterable[RelationId]) -> list[RelationId]:
    """Views whose build failed on a row, and one of whose inputs was written to since."""
    found = []
    for view, reached in positions(connection, builds).items():
        if reached is None or not reached.failed or reached.tried is None:
            continue
        inputs = relation_rows.inputs(connection, [view]).get(view, [])
        if any(reads.first_write_after(connection, number, reached.tried) is not None for number in inputs):
            found.append(view)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedPosition:
    """How far epochs have brought a view, and the text that says so."""

    applied_version: Version
    text: str | None
    failed: bool = False
    tried: int | None = None
    """Up to which version of its inputs a failed view was computed."""


def positions(connection: Connection, views: Iterable[RelationId]) -> dict[RelationId, ReachedPosition | None]:
    """Where each of these stands; `None` for an index, which its writers keep."""
    kinds = relation_rows.kinds(connection, views)
    nowhere = ReachedPosition(applied_version=Version(0), text=None)
    found = {number: None if kind is Kind.INDEX else nowhere for number, kind in kinds.items()}
    names = {progress_name(view): view for view, reached in found.items() if reached is not None}
    states = view_states.all_states(connection)
    for name, text in reads.progress_of(connection, names).items():
        view = names[name]
        try:
            position = Position.parse(text)
        except (ValueError, KeyError, TypeError):  # damaged: this build waits, and no other
            found[view] = ReachedPosition(applied_version=Version(0), text=text, failed=True)
            continue
        stands = states.get(view)  # a view that is dropped meanwhile has none
        found[view] = ReachedPosition(
            applied_version=position.applied_version,
            text=text,
            failed=stands is not None and not RIGHTS[stands.state].tasks_run,
            tried=min(position.tried.values(), default=None),
        )
    return found
