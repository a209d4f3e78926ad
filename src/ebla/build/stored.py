"""The coordinator's state as the catalog keeps it."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select

from ebla.build.state import Span, State
from ebla.catalog import building
from ebla.catalog import schema as s
from ebla.ids import NodeId, RelationId, Version
from ebla.storage.model import Kind
from ebla.views.definition import Position, progress_name


def load(connection: Connection, alive: Iterable[NodeId]) -> State:
    """All of it, in one consistent read. Which nodes are alive is not in the catalog."""
    builds = building.builds(connection)
    return State.of(
        building.tasks(connection),
        builds=builds,
        spans={v: Span(*span) for v, span in building.spans(connection).items()},
        applied=applied(connection, builds),
        processing=building.processing_base(connection),
        alive=alive,
    )


def applied(connection: Connection, views: Iterable[RelationId]) -> dict[RelationId, Version | None]:
    """Up to where epochs have brought each of these; `None` for an index."""
    wanted = list(views)
    kinds = connection.execute(
        select(s.relations.c.relation_id, s.relations.c.kind).where(s.relations.c.relation_id.in_(wanted))
    )
    found = {RelationId(r.relation_id): None if r.kind == Kind.INDEX else Version(0) for r in kinds}
    names = {progress_name(view): view for view, version in found.items() if version is not None}
    stored = connection.execute(select(s.progress).where(s.progress.c.name.in_(list(names))))
    return found | {names[r.name]: Position.parse(r.value).applied_version for r in stored}
