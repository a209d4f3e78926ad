"""Views, indexes and handlers at one moment, for the status of a warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.catalog.manifest import Size
from ebla.catalog.processes import Process
from ebla.catalog.troubles import Trouble
from ebla.model.lifecycle import view as lifecycle
from ebla.model.relation import Kind
from ebla.relations import attention as at

if TYPE_CHECKING:
    from sqlalchemy import Row

    from ebla.relations.build_measure import BuildProgress


LEASE_OF_HANDLER = "handler/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewStatus:
    name: str
    handler: str
    status: lifecycle.Status
    applied_version: int | None
    behind: int | None
    age_s: float | None
    waits_for: str | None
    error: str | None
    last_plan: str | None
    last_epoch_s: float | None
    size: Size
    horizon: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    name: str
    relation: str
    state: str
    percent: float
    unique: bool
    waits_for: str | None
    error: str | None
    size: Size


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerStatus:
    name: str
    should_run: bool
    views: tuple[str, ...]
    age_s: float
    """The age of its oldest view."""
    runs_in: str | None
    """The process that runs its epochs, if one does at this moment."""


class DerivedRelations:
    """What is derived from tables. The modules that know it are imported only if there are such relations."""

    def __init__(
        self,
        connection: Connection,
        relations: Sequence[Row[Any]],
        sizes: Mapping[int, Size],
        alive: Sequence[Process],
        found: Sequence[Trouble],
        now: int,
    ) -> None:
        self._connection = connection
        self._ids = {r.name: r.relation_id for r in relations}
        self._horizons = {r.name: r.horizon for r in relations}
        self._kinds = {Kind(r.kind) for r in relations}
        self._sizes = sizes
        self._alive = alive
        self._maintained = any(process.maintains for process in alive)
        self._now = now
        self._troubles: dict[int, Trouble] = {}
        for one in reversed(found):  # the newest wins
            self._troubles[one.relation] = one
        self._builds = self._read_builds()
        self.builds = [one for one in self._builds.values() if one.progress.percent < 100]
        self.views = self._read_views() if Kind.VIEW in self._kinds else []

    def _read_builds(self) -> dict[str, BuildProgress]:
        if not self._kinds & {Kind.VIEW, Kind.INDEX}:
            return {}
        from ebla.relations import builds as build_progress

        return {one.name: one for one in build_progress.all_builds(self._connection, self._now)}

    def _trouble(self, name: str) -> Trouble | None:
        return self._troubles.get(self._ids.get(name, -1))

    def _size(self, name: str) -> Size:
        return self._sizes.get(self._ids.get(name, -1), Size())

    def _read_views(self) -> list[ViewStatus]:
        from ebla.model.handlers import by_name
        from ebla.relations import handlers as stored
        from ebla.relations.freshness import freshness

        stored_handlers = stored.handlers(self._connection)
        found = []
        for one in freshness(self._connection, self._now):
            handler = by_name(stored_handlers, one.handler)
            trouble = self._trouble(one.name)
            build = self._builds.get(one.name)
            waits_for = at.waits_for(
                status=one.status,
                age_s=one.age_s,
                should_run=handler is None or handler.should_run,
                handler=one.handler,
                trouble=trouble,
                build=None if build is None or one.status is not lifecycle.Status.BUILDING else build.progress.detail,
                maintained=self._maintained,
                now=self._now,
            )
            found.append(
                ViewStatus(
                    name=one.name,
                    handler=one.handler,
                    status=one.status,
                    applied_version=int(one.position.applied_version) if one.position.built else None,
                    behind=one.behind,
                    age_s=one.age_s,
                    waits_for=waits_for,
                    error=at.error_of(trouble) or one.position.message,
                    last_plan=one.position.epoch.get("plan"),
                    last_epoch_s=one.position.epoch.get("seconds"),
                    size=self._size(one.name),
                    horizon=self._horizons.get(one.name, 0),
                )
            )
        return found

    def indexes(self) -> list[IndexStatus]:
        if Kind.INDEX not in self._kinds:
            return []
        from ebla.relations import indexes as definition

        found = []
        for index in definition.all_indexes(self._connection):
            trouble = self._trouble(index.name)
            progress = self._builds[index.name].progress
            waits_for = at.index_waits_for(
                state=index.state,
                trouble=trouble,
                detail=progress.detail,
                maintained=self._maintained,
                now=self._now,
            )
            found.append(
                IndexStatus(
                    name=index.name,
                    relation=index.base.name,
                    state=index.state.value,
                    percent=progress.percent,
                    unique=index.unique,
                    waits_for=waits_for,
                    error=at.error_of(trouble) or index.stands.message,
                    size=self._size(index.name),
                )
            )
        return found

    def handlers(self) -> list[HandlerStatus]:
        """The handlers that keep views, and those that users created."""
        from ebla.model.handlers import Handler, is_reserved

        running = tx.leaders(self._connection, LEASE_OF_HANDLER, self._now)
        made = [Handler.parse(*row) for row in reads.handler_rows(self._connection)]
        wanted = {h.name: h.should_run for h in made if not is_reserved(h.name)}
        for view in self.views:
            wanted.setdefault(view.handler, True)
        return [
            HandlerStatus(
                name=name,
                should_run=should_run,
                views=tuple(v.name for v in self.views if v.handler == name),
                age_s=max((v.age_s or 0.0 for v in self.views if v.handler == name), default=0.0),
                runs_in=running.get(name),
            )
            for name, should_run in sorted(wanted.items())
        ]
