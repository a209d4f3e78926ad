"""How fresh each view is, from one statement to the catalog: `SHOW VIEWS`, `system.views`, the metrics, and waits.

A view's age is the age of the oldest write to one of its inputs that it has not read. It is 0 when there is none,
however much was written elsewhere. A view is not fresher than the views that it reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.base.ids import Version
from ebla.catalog import troubles, unread_writes
from ebla.catalog.unread_writes import Look, UnreadWrites
from ebla.model.failure import Failure
from ebla.model.handlers import owners
from ebla.model.lifecycle.view import RIGHTS, Status
from ebla.model.plans import Plan
from ebla.relations import handlers as stored
from ebla.relations import views as definition
from ebla.relations.views import Position, View

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {
    "name": "string",
    "handler": "string",
    "status": "string",
    "applied_version": "bigint",
    "behind": "bigint",
    "age_s": "double",
    "gained": "bigint",
    "lost": "bigint",
    "rows_changed": "bigint",
    "epochs": "bigint",
    "full_refreshes": "bigint",
    "last_plan": "string",
    "last_reason": "string",
    "last_epoch_s": "double",
    "message": "string",
    "read_versions": "string",
    "definition": "string",
    "refresh": "string",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """`behind` and `age_s` are None for a view that has no rows yet."""

    name: str
    handler: str
    status: Status
    behind: int | None
    age_s: float | None
    position: Position
    definition: str
    """The view's query as it was written."""
    waiting: str | None = None
    """What an epoch or a build that will be tried again waits for."""

    def row(self) -> dict[str, object]:
        at, epoch = self.position, self.position.epoch
        return {
            "name": self.name,
            "handler": self.handler,
            "status": self.status,
            "applied_version": int(at.applied_version) if at.built else None,
            "behind": self.behind,
            "age_s": self.age_s,
            "gained": epoch.get("gained"),
            "lost": epoch.get("lost"),
            "rows_changed": at.rows_changed,
            "epochs": sum(at.epochs.values()),
            "full_refreshes": at.epochs.get(Plan.FULL_REFRESH, 0),
            "last_plan": epoch.get("plan"),
            "last_reason": epoch.get("reason"),
            "last_epoch_s": epoch.get("seconds"),
            "message": at.message if self.waiting is None else self.waiting,
            "read_versions": json.dumps(dict(at.read), sort_keys=True),
            "definition": self.definition,
            "refresh": None if at.refresh is None else json.dumps(at.refresh.value(), sort_keys=True),
        }


def freshness(connection: Connection, now: int) -> list[Freshness]:
    """Every view, each behind the views that it reads. `now` is in microseconds, as the catalog's clock."""
    look = look_at_views(connection)
    views = definition.all_views(connection, look.positions)
    handler_of = owners([v.relation.id for v in views], stored.handlers(connection))
    waiting = {one.relation: troubles.waiting(one, now) for one in look.obstacles}
    found: dict[str, Freshness] = {}
    for view in views:
        position = view.position or Position(applied_version=Version(0), read={})
        if view.damage is not None:
            position = position.stopped(Failure(code=type(view.damage).__name__, message=str(view.damage), at=now), {})
        behind, age_s = _behind(connection, view, look, now) if position.built else (None, None)
        if age_s is not None:
            older = [found[n].age_s or 0.0 for n in view.inputs if n in found]
            age_s = max([age_s, *older])
        found[view.relation.name.lower()] = Freshness(
            name=view.relation.name,
            handler=handler_of[view.relation.id].name,
            status=RIGHTS[view.state].status if view.damage is None else Status.FAILED,
            behind=behind,
            age_s=age_s,
            position=position,
            waiting=waiting.get(view.relation.id),
            definition=view.query.text,
        )
    return sorted(found.values(), key=lambda f: f.name)


def look_at_views(connection: Connection) -> Look:
    """Where all views stand, in one statement."""
    return unread_writes.look(connection, definition.POSITIONS)


def unread_of(connection: Connection, view: View, look: Look) -> dict[str, UnreadWrites]:
    """What a view has not read, by input."""
    found: dict[str, UnreadWrites] = {}
    for name in view.inputs:
        one = look.unread.get((view.progress_name, name))
        if one is None and (view.position is None or name not in view.position.read):
            one = unread_writes.of_relation(connection, name)
        if one is not None:
            found[name] = one
    return found


def _behind(connection: Connection, view: View, look: Look, now: int) -> tuple[int, float]:
    """By how many versions, and for how many seconds, an input is ahead of what the view has read."""
    assert view.position is not None
    found = unread_of(connection, view, look)
    behind = max((one.newest - view.position.read.get(name, 0) for name, one in found.items()), default=0)
    age_us = max((now - one.since_us for one in found.values()), default=0)
    return behind, max(0, age_us) / 1e6


def table(connection: Connection, now: int) -> pa.Table:
    from ebla.values.types import table_of

    return table_of(COLUMNS, [f.row() for f in freshness(connection, now)])
