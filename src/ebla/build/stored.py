"""The coordinator's state as the catalog keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, select

from ebla.build.state import Span, State
from ebla.catalog import building
from ebla.catalog import changes as c
from ebla.catalog import schema as s
from ebla.ids import NodeId, RelationId, Version
from ebla.storage.model import Kind
from ebla.views.definition import Position, progress_name


def load(connection: Connection, alive: Iterable[NodeId]) -> State:
    """All of it, in one consistent read. Which nodes are alive is not in the catalog."""
    builds = building.builds(connection)
    stored = positions(connection, builds)
    return State.of(
        building.tasks(connection),
        builds=builds,
        spans={v: Span(*span) for v, span in building.spans(connection).items()},
        applied={v: None if p is None else p.applied_version for v, p in stored.items()},
        unmoved={v: c.ProgressIs(name=progress_name(v), value=p.text) for v, p in stored.items() if p is not None},
        processing=building.processing_base(connection),
        alive=alive,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How far epochs have brought a view, and the text that says so."""

    applied_version: Version
    text: str | None


def positions(connection: Connection, views: Iterable[RelationId]) -> dict[RelationId, Reached | None]:
    """Where each of these stands; `None` for an index, which its writers keep."""
    kinds = connection.execute(
        select(s.relations.c.relation_id, s.relations.c.kind).where(s.relations.c.relation_id.in_(list(views)))
    )
    nowhere = Reached(applied_version=Version(0), text=None)
    found = {RelationId(r.relation_id): None if r.kind == Kind.INDEX else nowhere for r in kinds}
    names = {progress_name(view): view for view, reached in found.items() if reached is not None}
    rows = connection.execute(select(s.progress).where(s.progress.c.name.in_(list(names))))
    return found | {
        names[r.name]: Reached(applied_version=Position.parse(r.value).applied_version, text=r.value) for r in rows
    }
