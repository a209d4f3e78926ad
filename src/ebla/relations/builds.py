"""How far builds are, from catalog rows alone: `SHOW PROGRESS`, `system.build_progress`, `db.progress`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.base.ids import NodeId, RelationId
from ebla.catalog import build_tasks, loads, troubles
from ebla.catalog.troubles import Activity, Trouble
from ebla.model.lifecycle.index import Permission
from ebla.model.progress import UNATTENDED, BuildFigures, Phase, Progress, progress, refreshed
from ebla.model.refresh import Refresh
from ebla.model.tasks import Build
from ebla.relations import build_obstacles as obstacles
from ebla.relations import failed_builds as failed
from ebla.relations import indexes as index_definition
from ebla.relations import views as definition
from ebla.relations.build_measure import BuildProgress, measured
from ebla.relations.indexes import Index
from ebla.relations.views import View

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {
    "name": "string",
    "base": "string",
    "phase": "string",
    "percent": "double",
    "rows": "bigint",
    "rows_expected": "bigint",
    "tablets": "string",
    "rows_per_s": "double",
    "eta_s": "double",
    "rows_per_minute": "bigint",
    "chunk_rows": "bigint",
    "concurrency": "bigint",
    "detail": "string",
    "culprit": "string",
    "failed_at": "timestamp",
}


def all_builds(connection: Connection, now: int) -> list[BuildProgress]:
    """Every view, then every index, by name, then builds that failed and left nothing.

    `now` is in microseconds, as the catalog's clock.
    """
    builds = build_tasks.builds(connection)
    found = sorted(definition.all_views(connection), key=lambda view: view.relation.name)
    views = [of_view(connection, view, builds, now) for view in found]
    indexes = [of_index(connection, index, builds, now) for index in index_definition.all_indexes(connection)]
    return [*views, *indexes, *map(of_failure, failed.gone(connection))]


def of_failure(failure: Trouble) -> BuildProgress:
    """An index that could not be built and is gone, or goes."""
    nothing = BuildFigures(now_us=failure.last_at, failed=failure.message)
    return BuildProgress(
        name=failure.name, base=None, progress=replace(progress(nothing), percent=0.0), failure=failure
    )


def of_view(
    connection: Connection,
    view: View,
    builds: Mapping[RelationId, Build],
    now: int,
    alive: Collection[NodeId] | None = None,
    *,
    attended: bool = False,
) -> BuildProgress:
    """One view. The catalog does not know which nodes' roots can be reached (`alive`); without that, all.

    `attended`: this process builds now, whatever the catalog knows of it.
    """
    build = builds.get(view.relation.id)
    if build is None and view.position is not None and view.position.refresh is not None:
        return _refreshed(connection, view, view.position.refresh, now, attended=attended)
    if build is None:
        return BuildProgress(name=view.relation.name, base=None, progress=progress(_done(now)))
    covered = build_tasks.segments(connection, view.relation.id)
    applied = None if view.reached is None else view.reached.applied_version
    level = all(s.since == applied for segments in covered.values() for s in segments)
    if view.reached is not None and view.reached.failed:
        why = f"{view.reached.message}; a write that mends the row lets it go on"
        found = measured(connection, view.relation, build, covered, now, level, None, failed=why)
        return replace(found, failure=troubles.find(connection, view.relation.id, Activity.BUILD))
    wrong = obstacles.trouble(connection, view.relation.id, now)
    attended = attended or obstacles.is_attended(connection, now)
    waiting = wrong or obstacles.of_view(connection, view, build, builds, alive, attended=attended)
    found = measured(connection, view.relation, build, covered, now, level, waiting)
    return replace(found, troubled=wrong is not None)


def _refreshed(connection: Connection, view: View, refresh: Refresh, now: int, *, attended: bool) -> BuildProgress:
    """A view in the middle of a refresh. `base` names the dictionaries."""
    wrong = waiting = obstacles.trouble(connection, view.relation.id, now, Activity.DICTIONARY)
    if refresh.on_hold or refresh.rows_per_minute == 0:
        waiting = "RESUME: it is paused"
    elif refresh.cancelled:
        waiting = "RESUME, FLUSH or the next change of a dictionary: it was cancelled"
    elif view.position is not None and view.position.failed:
        waiting = f"rows to be mended: {view.position.message}"
    elif not attended and not obstacles.is_attended(connection, now):
        waiting = waiting or UNATTENDED
    at = refreshed(
        rows=refresh.rows,
        rows_expected=refresh.rows_expected,
        tablets=view.relation.tablets,
        share=refresh.share,
        elapsed_s=(now - refresh.started_us) / 1e6,
        waiting_for=waiting,
        detail=", ".join(f"{name} to version {version}" for name, version in sorted(refresh.to.items())),
    )
    return BuildProgress(
        name=view.relation.name,
        base=", ".join(sorted(refresh.to)),
        progress=at,
        troubled=wrong is not None,
        rows_expected=refresh.rows_expected,
        build=Build(
            view=view.relation.id,
            base=view.relation.id,
            rows_per_minute=refresh.rows_per_minute,
            chunk_rows=refresh.chunk_rows,
            on_hold=refresh.on_hold,
        ),
    )


def of_index(
    connection: Connection,
    index: Index,
    builds: Mapping[RelationId, Build],
    now: int,
    alive: Collection[NodeId] | None = None,
    *,
    attended: bool = False,
) -> BuildProgress:
    """One index. It is never behind: what is scanned is validated, and then readable."""
    build = builds.get(index.id)
    covered = build_tasks.segments(connection, index.id)
    if index.readable:
        return BuildProgress(name=index.name, base=None, progress=progress(_done(now)))
    failure = failed.of_index(connection, index.id)
    if failure is not None:
        return of_failure(failure)
    if build is None:
        build = Build(view=index.id, base=index.base.id, created=index.stands.since)
    wrong = obstacles.trouble(connection, index.id, now)
    attended = attended or obstacles.is_attended(connection, now)
    waiting = wrong or obstacles.of_index(connection, index, build, alive, attended=attended)
    found = measured(connection, index.relation, build, covered, now, True, waiting)
    return replace(found, deferred=index.state is Permission.ABSENT, troubled=wrong is not None)


def _done(now: int) -> BuildFigures:
    return BuildFigures(applied=True, built=True, now_us=now)


def table(connection: Connection, now: int) -> pa.Table:
    from ebla.values.types import table_of

    return table_of(COLUMNS, [*(one.row() for one in all_builds(connection, now)), *loads.rows(connection)])


def words(at: Progress) -> str:
    """How far a build is, in a few words."""
    said = f"{at.phase.value}, {at.percent:.0f} %"
    return said if at.detail is None else f"{said} ({at.detail})"


def line(one: BuildProgress) -> str:
    """The same, with all numbers: for a person who waits."""
    at = one.progress
    said = [
        f"building {one.name}: {at.phase.value}",
        f"{at.percent:.0f} %",
        f"{at.rows:,} rows",
        f"tablets {at.tablets}",
    ]
    if at.rows_per_s is not None:
        said.append(f"{at.rows_per_s:,.0f} rows/s")
    if at.eta_s:
        said.append(f"{at.eta_s:,.0f} s left")
    if at.phase is Phase.WAITING and at.detail is not None:
        said.append(at.detail if one.troubled else f"for {at.detail}")
    return ", ".join(said)
